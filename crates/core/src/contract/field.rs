//! A field as its producer offers it.

use super::Sequence;
use crate::dtype::Dtype;
use crate::ids::{StepNumber, check_name};
use crate::region::{Dims, MAX_NDIM, Region};
use crate::selection::Selection;
use crate::{Error, Result};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

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
    /// The numbers of its producer's steps.
    pub sequence: Sequence,
    /// It is offered at every so many of these.
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
    /// Whether the domain goes on with its first elements behind its last ones; empty or one for each dimension.
    pub periodic: Vec<bool>,
    /// How many elements of a level lie where one of the level below does; empty or one for each dimension.
    pub refinement: Vec<u32>,
    /// Whether it belongs to the run: put once, with a rank's first step, and given to every reader whatever that needs.
    pub is_static: bool,
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
            sequence: Sequence::default(),
            every: 1,
            association: Association::Cell,
            dims: Vec::new(),
            spacing: Vec::new(),
            origin: Vec::new(),
            units: String::new(),
            periodic: Vec::new(),
            refinement: Vec::new(),
            is_static: false,
            whole: false,
        }
    }

    /// The shape of which several servers may own tiles.
    pub fn tiled_shape(&self) -> Option<&[u64]> {
        self.shape.as_deref().filter(|_| !self.whole)
    }

    /// The box that a selection of its global shape spans, or what is wrong with it.
    pub fn span_of(&self, selection: &Selection) -> Result<Region> {
        let fail = |text: String| Err(Error::out_of_bounds(format!("field '{}': {text}", self.name)));
        let Some(global) = &self.shape else {
            return fail(
                "its blocks have no place in a global array; read them one by one with blocks()".into(),
            );
        };
        let (n, Selection { offset, shape, step }) = (global.len(), selection);
        if offset.len() != n || shape.len() != n || step.len() != n {
            return fail(format!("a selection of {} dimensions from a field of {n}", shape.len()));
        }
        if step.contains(&0) {
            return fail("a selection of every 0 elements; use 1 for all".into());
        }
        if let Some(span) = selection.span_in(global) {
            return Ok(span);
        }
        let end = |d: usize| selection.extent(d).and_then(|extent| offset[d].checked_add(extent));
        let outside = (0..n).find(|d| end(*d).is_none_or(|end| end > global[*d])).unwrap_or(0);
        fail(format!(
            "a selection from {} of {} elements every {} reaches outside the shape {:?} in dimension {outside}",
            offset[outside],
            shape[outside],
            step[outside],
            &global[..]
        ))
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
        if self.is_static && self.every != 1 {
            return fail(format!("it is static, so that it is put once, and has a period of {}", self.every));
        }
        self.sequence.check().map_err(|error| error.during(format!("field '{}'", self.name)))?;
        for (what, given) in [
            ("dims", self.dims.len()),
            ("spacing", self.spacing.len()),
            ("origin", self.origin.len()),
            ("periodic", self.periodic.len()),
            ("refinement", self.refinement.len()),
        ] {
            if given != 0 && given != n {
                return fail(format!("{what} has {given} entries for {n} dimensions"));
            }
        }
        if self.refinement.contains(&0) {
            return fail("a refinement of 0: levels grow finer by 1 or more".into());
        }
        for dim in &self.dims {
            check_name(&format!("a dimension of field '{}'", self.name), dim)?;
        }
        if self.units.len() > 4096 {
            return fail(format!("units of {} bytes; at most 4096 are allowed", self.units.len()));
        }
        Ok(())
    }

    /// The steps at which it is offered.
    pub fn outputs(&self) -> Sequence {
        let stride = self.sequence.stride.saturating_mul(u64::from(self.every.max(1)));
        Sequence { first: self.sequence.first, stride }
    }

    /// Which of the steps at which it is offered this is, counted from 0; `None` if it is none.
    pub fn output_at(&self, step: StepNumber) -> Option<u64> {
        let index = self.sequence.index_of(step)?;
        let every = u64::from(self.every.max(1));
        index.is_multiple_of(every).then(|| index / every)
    }

    /// How many of the steps at which it is offered have lower numbers.
    pub fn outputs_before(&self, step: StepNumber) -> u64 {
        self.sequence.steps_before(step).div_ceil(u64::from(self.every.max(1)))
    }

    /// Bytes of all its elements at a step; `None` if it has no global shape, or they cannot be counted.
    pub fn bytes(&self) -> Option<u64> {
        let size = self.dtype.size() as u64;
        self.shape.as_ref()?.iter().try_fold(size, |bytes, extent| bytes.checked_mul(*extent))
    }

    /// What differs in `other`, given by another rank, which cannot change in a run: both values of each.
    pub fn differences(&self, other: &Field) -> Vec<String> {
        let association = |field: &Field| format!("{:?}", field.association).to_lowercase();
        let has_shape = |field: &Field| field.shape.is_some().to_string();
        let pairs = [
            ("dtype", self.dtype.to_string(), other.dtype.to_string()),
            ("ndim", self.ndim.to_string(), other.ndim.to_string()),
            ("whether it has a global shape", has_shape(self), has_shape(other)),
            ("first", self.sequence.first.to_string(), other.sequence.first.to_string()),
            ("stride", self.sequence.stride.to_string(), other.sequence.stride.to_string()),
            ("every", self.every.to_string(), other.every.to_string()),
            ("static", self.is_static.to_string(), other.is_static.to_string()),
            ("association", association(self), association(other)),
            ("dims", format!("{:?}", self.dims), format!("{:?}", other.dims)),
            ("periodic", format!("{:?}", self.periodic), format!("{:?}", other.periodic)),
            ("refinement", format!("{:?}", self.refinement), format!("{:?}", other.refinement)),
        ];
        differing(pairs)
    }

    /// What differs in `other`, given by another rank of the same step: both values of each.
    pub fn differences_at_step(&self, other: &Field) -> Vec<String> {
        let numbers = |values: &[f64]| format!("{values:?}");
        let pairs = [
            ("shape", self.kind_and_shape(), other.kind_and_shape()),
            ("spacing", numbers(&self.spacing), numbers(&other.spacing)),
            ("origin", numbers(&self.origin), numbers(&other.origin)),
            ("units", format!("'{}'", self.units), format!("'{}'", other.units)),
        ];
        differing(pairs)
    }

    /// Whether `other`, given by another rank, is the same offer: shape, spacing, origin and units may change from step to step.
    pub fn agrees_with(&self, other: &Field) -> bool {
        let fixed = |field: &Field| Field {
            shape: None,
            spacing: Vec::new(),
            origin: Vec::new(),
            units: String::new(),
            ..field.clone()
        };
        fixed(self) == fixed(other) && self.shape.is_some() == other.shape.is_some()
    }
}

/// Those of these that differ: what, both values.
fn differing<const N: usize>(pairs: [(&str, String, String); N]) -> Vec<String> {
    let differ = pairs.into_iter().filter(|(_, mine, theirs)| mine != theirs);
    differ.map(|(what, mine, theirs)| format!("{what} {theirs}, not {mine}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_checked() {
        assert!(Field::new("U", Dtype::F64, Some(&[4, 5]), 3).check().is_err());
        assert!(Field::new("U", Dtype::F64, None, 9).check().is_err());
        let mut field = Field::new("U", Dtype::F64, Some(&[4, 5]), 2);
        field.dims = vec!["x".into()];
        assert!(field.check().is_err());
        field.dims.push("y".into());
        assert!(field.check().is_ok());
        field.sequence.stride = 0;
        assert!(field.check().is_err());
    }

    #[test]
    fn outputs_are_counted_in_the_sequence_of_the_producer() {
        let mut field = Field::new("U", Dtype::F64, None, 1);
        (field.sequence, field.every) = (Sequence { first: 1, stride: 10 }, 2);
        let at: Vec<_> = (0..70).filter_map(|step| Some((step, field.output_at(step)?))).collect();
        assert_eq!(at, [(1, 0), (21, 1), (41, 2), (61, 3)]);
        for step in 0..100 {
            let before = (0..step).filter(|step| field.output_at(*step).is_some()).count() as u64;
            assert_eq!(field.outputs_before(step), before, "{step}");
        }
    }
}
