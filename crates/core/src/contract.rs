//! Contracts: what a producer offers, what a consumer needs, and how they match.
//!
//! The matching list is Algorithm 1 of Mommessin et al., "Automatic data filtering for in situ
//! workflows" (CLUSTER 2017): a consumer's period counts the producer's outputs, so that the absolute
//! period is the product of both.

use crate::dtype::Dtype;
use crate::ids::{StepNumber, check_name};
use crate::region::{Dims, MAX_NDIM, Region};
use crate::{Error, ErrorKind, Result};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashSet;

/// What the values of a field belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Association {
    Cell,
    Vertex,
}

/// The most fields that a stream may offer, and a contract may name.
pub const FIELDS_MAX: usize = 4096;

/// A field as its producer offers it. What is decoded was checked: see [`Field::check`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self")]
pub struct Field {
    /// Its name within the stream.
    pub name: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// The number of its dimensions.
    pub ndim: u8,
    /// The global shape; `None` for a field whose blocks have no place in one.
    pub shape: Option<Dims>,
    /// It is offered at steps that are multiples of this.
    pub every: u32,
    /// Whether values belong to cells or vertices.
    pub association: Association,
    /// Names of the dimensions, slowest first; empty or one for each.
    pub dims: Vec<String>,
    /// The distance between neighbours in each dimension; empty or one for each.
    pub spacing: Vec<f64>,
    /// Where index zero lies; empty or one for each dimension.
    pub origin: Vec<f64>,
    /// Physical units, as the user writes them.
    pub units: String,
    /// Whether blocks are to carry statistics.
    pub stats: bool,
    /// Of the space: whether each put is the whole array, and takes the place of the one before. One server answers for it.
    pub whole: bool,
}

impl Serialize for Field {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        Field::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Field, D::Error> {
        let field = Field::deserialize(deserializer)?;
        field.check().map_err(D::Error::custom)?;
        Ok(field)
    }
}

impl Field {
    /// A field with a name, dtype and global shape, and defaults for the rest.
    pub fn new(name: &str, dtype: Dtype, shape: Option<&[u64]>, ndim: usize) -> Field {
        Field {
            name: name.to_owned(),
            dtype,
            ndim: ndim.min(MAX_NDIM + 1) as u8,
            shape: shape.map(Dims::from),
            every: 1,
            association: Association::Cell,
            dims: Vec::new(),
            spacing: Vec::new(),
            origin: Vec::new(),
            units: String::new(),
            stats: false,
            whole: false,
        }
    }

    /// The shape of which several servers may own tiles.
    pub fn tiled_shape(&self) -> Option<&[u64]> {
        self.shape.as_deref().filter(|_| !self.whole)
    }

    /// Its dtype and global shape, as messages say them.
    pub fn kind_and_shape(&self) -> String {
        match &self.shape {
            Some(shape) => format!("{} of shape {:?}", self.dtype, &shape[..]),
            None => format!("{} of {} dimensions without a global shape", self.dtype, self.ndim),
        }
    }

    /// Checks everything that can be wrong with a field in itself.
    pub fn check(&self) -> Result<()> {
        check_name("field", &self.name)?;
        let n = self.ndim as usize;
        let fail = |text: String| Err(Error::invalid(format!("field '{}': {text}", self.name)));
        if n > MAX_NDIM {
            return fail(format!("{n} dimensions; at most {MAX_NDIM} are allowed"));
        }
        if let Some(shape) = &self.shape {
            if shape.len() != n {
                return fail(format!("shape {:?} does not have {n} numbers", &shape[..]));
            }
            Region::whole(shape).map_err(|error| error.during(format!("field '{}'", self.name)))?;
        }
        if self.every == 0 {
            return fail("its period is 0; use 1 for every step".into());
        }
        for (what, given) in
            [("dims", self.dims.len()), ("spacing", self.spacing.len()), ("origin", self.origin.len())]
        {
            if given != 0 && given != n {
                return fail(format!("{what} has {given} entries for {n} dimensions"));
            }
        }
        for dim in &self.dims {
            check_name(&format!("a dimension of field '{}'", self.name), dim)?;
        }
        if self.units.len() > 4096 {
            return fail(format!("units of {} bytes; at most 4096 are allowed", self.units.len()));
        }
        Ok(())
    }

    /// Bytes of all its elements at a step; `None` if it has no global shape, or they cannot be counted.
    pub fn bytes(&self) -> Option<u64> {
        let size = self.dtype.size() as u64;
        self.shape.as_ref()?.iter().try_fold(size, |bytes, extent| bytes.checked_mul(*extent))
    }

    /// What differs in `other`, given by another rank, which cannot change in a run: both values of each.
    pub fn differences(&self, other: &Field) -> Vec<String> {
        let numbers = |values: &[f64]| format!("{values:?}");
        let association = |field: &Field| format!("{:?}", field.association).to_lowercase();
        let has_shape = |field: &Field| field.shape.is_some().to_string();
        let pairs = [
            ("dtype", self.dtype.to_string(), other.dtype.to_string()),
            ("ndim", self.ndim.to_string(), other.ndim.to_string()),
            ("whether it has a global shape", has_shape(self), has_shape(other)),
            ("every", self.every.to_string(), other.every.to_string()),
            ("association", association(self), association(other)),
            ("dims", format!("{:?}", self.dims), format!("{:?}", other.dims)),
            ("spacing", numbers(&self.spacing), numbers(&other.spacing)),
            ("origin", numbers(&self.origin), numbers(&other.origin)),
            ("units", format!("'{}'", self.units), format!("'{}'", other.units)),
            ("stats", self.stats.to_string(), other.stats.to_string()),
        ];
        let differ = pairs.into_iter().filter(|(_, mine, theirs)| mine != theirs);
        differ.map(|(what, mine, theirs)| format!("{what} {theirs}, not {mine}")).collect()
    }

    /// Whether `other`, given by another rank, is the same offer (the shape may change from step to step).
    pub fn agrees_with(&self, other: &Field) -> bool {
        Field { shape: None, ..self.clone() } == Field { shape: None, ..other.clone() }
            && self.shape.is_some() == other.shape.is_some()
    }
}

/// One field that a consumer needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// The field's name.
    pub field: String,
    /// The dtype it must have, if that matters.
    pub dtype: Option<Dtype>,
    /// Every so many of the steps that the producer offers.
    pub every: u32,
}

/// What a consumer needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Needs {
    /// Every field there is, every so many of the offered steps.
    All {
        /// The period.
        every: u32,
    },
    /// These.
    Fields(Vec<Need>),
}

impl Needs {
    /// Checks everything that can be wrong with needs in themselves.
    pub fn check(&self) -> Result<()> {
        let periods: Vec<(&str, u32)> = match self {
            Needs::All { every } => vec![("*", *every)],
            Needs::Fields(needs) => needs.iter().map(|need| (&need.field[..], need.every)).collect(),
        };
        if periods.is_empty() {
            return Err(Error::invalid(
                "a contract needs at least one field; leave the fields out to need all",
            ));
        }
        if periods.len() > FIELDS_MAX {
            return Err(Error::invalid(format!(
                "a contract of {} fields; at most {FIELDS_MAX} are allowed: leave the fields out to need all",
                periods.len()
            )));
        }
        let mut seen = HashSet::new();
        for (field, every) in &periods {
            check_name("field", field)?;
            if *every == 0 {
                return Err(Error::invalid(format!(
                    "field '{field}': its period is 0; use 1 for every step"
                )));
            }
            if !seen.insert(*field) {
                return Err(Error::invalid(format!("field '{field}' is named twice in one contract")));
            }
        }
        Ok(())
    }

    /// The period at which this field is needed, counted in the producer's outputs.
    pub fn period_of(&self, field: &str) -> Option<u32> {
        match self {
            Needs::All { every } => Some(*every),
            Needs::Fields(needs) => needs.iter().find(|need| need.field == field).map(|need| need.every),
        }
    }

    /// Whether this field is needed at this step.
    pub fn wants(&self, field: &Field, step: StepNumber) -> bool {
        self.period_of(&field.name)
            .is_some_and(|period| step.is_multiple_of(absolute_period(field.every, period)))
    }

    /// Checks the needs against a complete offer: every field must be there with the right dtype.
    pub fn check_against<'a>(
        &self,
        stream: &str,
        offers: impl Iterator<Item = &'a Field> + Clone,
    ) -> Result<()> {
        let Needs::Fields(needs) = self else { return Ok(()) };
        for need in needs {
            let Some(offer) = offers.clone().find(|offer| offer.name == need.field) else {
                let known: Vec<_> = offers.map(|offer| &offer.name[..]).collect();
                return Err(Error::not_found(format!(
                    "stream '{stream}' has no field '{}'; it offers {}",
                    need.field,
                    if known.is_empty() { "none".into() } else { known.join(", ") }
                )));
            };
            if need.dtype.is_some_and(|dtype| dtype != offer.dtype) {
                return Err(Error::new(
                    ErrorKind::TypeMismatch,
                    format!(
                        "field '{}' of stream '{stream}' is {}, the contract needs {}",
                        need.field,
                        offer.dtype,
                        need.dtype.map_or("any", Dtype::name)
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// The period, in steps, of a field offered and needed with these periods.
pub fn absolute_period(offered: u32, needed: u32) -> u64 {
    u64::from(offered.max(1)) * u64::from(needed.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_multiply() {
        let mut field = Field::new("U", Dtype::F64, Some(&[4, 5]), 2);
        field.every = 3;
        let needs = Needs::Fields(vec![Need { field: "U".into(), dtype: None, every: 2 }]);
        let wanted: Vec<u64> = (0..20).filter(|step| needs.wants(&field, *step)).collect();
        assert_eq!(wanted, [0, 6, 12, 18]);
    }

    #[test]
    fn mismatches_are_named() {
        let field = Field::new("U", Dtype::F64, None, 1);
        let needs = |name: &str, dtype| Needs::Fields(vec![Need { field: name.into(), dtype, every: 1 }]);
        let check = |needs: Needs| needs.check_against("s", [&field].into_iter());
        assert!(check(needs("U", Some(Dtype::F64))).is_ok());
        assert_eq!(check(needs("W", None)).unwrap_err().kind, ErrorKind::NotFound);
        assert_eq!(check(needs("U", Some(Dtype::F32))).unwrap_err().kind, ErrorKind::TypeMismatch);
    }

    #[test]
    fn absurd_needs_are_refused_at_once() {
        let need = |name: String| Need { field: name, dtype: None, every: 1 };
        assert!(Needs::Fields((0..=FIELDS_MAX).map(|i| need(i.to_string())).collect()).check().is_err());
        assert!(Needs::Fields((0..FIELDS_MAX).map(|i| need(i.to_string())).collect()).check().is_ok());
        assert!(Needs::Fields(vec![need("x".repeat(1000))]).check().is_err());
        assert!(Needs::Fields(vec![need("x".into()), need("y".into()), need("x".into())]).check().is_err());
    }

    #[test]
    fn fields_are_checked() {
        assert!(Field::new("U", Dtype::F64, Some(&[4, 5]), 3).check().is_err());
        assert!(Field::new("U", Dtype::F64, None, 9).check().is_err());
        let mut field = Field::new("U", Dtype::F64, Some(&[4, 5]), 2);
        field.dims = vec!["x".into()];
        assert!(field.check().is_err());
        field.dims.push("y".into());
        assert!(field.check().is_ok());
    }
}
