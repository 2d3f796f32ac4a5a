//! What a consumer needs, and whether it is offered.

use super::{FIELDS_MAX, Field, Terms};
use crate::dtype::Dtype;
use crate::ids::{StepNumber, check_name};
use crate::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// One field that a consumer needs, or all fields of a particle species.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// The field's name, or the species'.
    pub field: String,
    /// At which steps, and which part.
    pub terms: Terms,
    /// The dtype it must have, if that matters.
    pub dtype: Option<Dtype>,
    /// Whether it may be missing: it is declared later, or never.
    pub optional: bool,
}

impl Need {
    /// All of a field, each time.
    pub fn new(field: &str) -> Need {
        Need { field: field.to_owned(), terms: Terms::ALL, dtype: None, optional: false }
    }

    /// Whether this field is meant: itself, or as one of its species.
    pub fn names(&self, field: &str) -> bool {
        field.strip_prefix(&self.field[..]).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// What a consumer needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Needs {
    /// Every field there is, in the same way.
    All(Terms),
    /// These.
    Fields(Vec<Need>),
}

impl Needs {
    /// All fields, every so many of the offered steps.
    pub fn all(every: u32) -> Needs {
        Needs::All(Terms::every(every))
    }

    /// Checks everything that can be wrong with needs in themselves.
    pub fn check(&self) -> Result<()> {
        let needs: Vec<(&str, &Terms)> = match self {
            Needs::All(terms) => vec![("*", terms)],
            Needs::Fields(needs) => needs.iter().map(|need| (&need.field[..], &need.terms)).collect(),
        };
        if needs.is_empty() {
            return Err(Error::invalid(
                "a contract needs at least one field; leave the fields out to need all",
            ));
        }
        if needs.len() > FIELDS_MAX {
            return Err(Error::invalid(format!(
                "a contract of {} fields; at most {FIELDS_MAX} are allowed: leave the fields out to need all",
                needs.len()
            )));
        }
        let mut seen = HashSet::new();
        for (field, terms) in &needs {
            check_name("field", field)?;
            terms.check().map_err(|error| error.during(format!("field '{field}'")))?;
            if !seen.insert(*field) {
                return Err(Error::invalid(format!("field '{field}' is named twice in one contract")));
            }
        }
        Ok(())
    }

    /// What is needed of this field, if it is: by its own name before that of its species.
    pub fn of(&self, field: &str) -> Option<&Terms> {
        match self {
            Needs::All(terms) => Some(terms),
            Needs::Fields(needs) => {
                let own = needs.iter().find(|need| need.field == field);
                own.or_else(|| needs.iter().find(|need| need.names(field))).map(|need| &need.terms)
            }
        }
    }

    /// The names of those that are needed, and none of which is among these.
    pub fn missing_from<'a>(&self, offers: impl Iterator<Item = &'a Field> + Clone) -> Vec<String> {
        let Needs::Fields(needs) = self else { return Vec::new() };
        let missing = needs.iter().filter(|need| !offers.clone().any(|offer| need.names(&offer.name)));
        missing.map(|need| need.field.clone()).collect()
    }

    /// Whether this field, or a part of it, is needed at this step. One that is static belongs to no step.
    pub fn wants(&self, field: &Field, step: StepNumber) -> bool {
        !field.is_static && self.of(&field.name).is_some_and(|terms| terms.period.includes(field, step))
    }

    /// Checks the needs against a complete offer: every field must be there with what is needed of it, unless it is optional.
    pub fn check_against<'a>(
        &self,
        stream: &str,
        offers: impl Iterator<Item = &'a Field> + Clone,
    ) -> Result<()> {
        let Needs::Fields(needs) = self else {
            return offers.clone().try_for_each(|offer| self.check_offer(stream, offer));
        };
        for need in needs.iter().filter(|need| !need.optional) {
            if !offers.clone().any(|offer| need.names(&offer.name)) {
                return Err(Error::not_found(format!(
                    "stream '{stream}' has no field '{}'; it offers {}",
                    need.field,
                    shown(offers)
                )));
            }
        }
        offers.clone().try_for_each(|offer| self.check_offer(stream, offer))
    }

    /// Checks a field that is offered against what is needed of it.
    pub fn check_offer(&self, stream: &str, offer: &Field) -> Result<()> {
        let about = |error: Error| error.during(format!("field '{}' of stream '{stream}'", offer.name));
        match self {
            // A part of each field: those that have no such part are not needed.
            Needs::All(_) => Ok(()),
            Needs::Fields(needs) => {
                for need in needs.iter().filter(|need| need.names(&offer.name)) {
                    if let Some(dtype) = need.dtype.filter(|dtype| *dtype != offer.dtype) {
                        let text = format!("it is {}, the contract needs {}", offer.dtype, dtype.name());
                        return Err(about(Error::new(ErrorKind::TypeMismatch, text)));
                    }
                    need.terms.check_against(offer).map_err(about)?;
                }
                Ok(())
            }
        }
    }
}

/// How many fields are named with their types.
const SHOWN_MAX: usize = 8;

/// What is offered, for people.
fn shown<'a>(offers: impl Iterator<Item = &'a Field> + Clone) -> String {
    let one = |offer: &Field| format!("{} ({})", offer.name, offer.kind_and_shape());
    let mut known: Vec<String> = offers.clone().take(SHOWN_MAX).map(one).collect();
    let more = offers.count().saturating_sub(SHOWN_MAX);
    if more > 0 {
        known.push(format!("{more} more"));
    }
    if known.is_empty() { "none".to_owned() } else { known.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Index, Period, Slice, Slices};

    #[test]
    fn mismatches_are_named() {
        let field = Field::new("U", Dtype::F64, Some(&[4]), 1);
        let particles = Field::new("ions/x", Dtype::F64, None, 2);
        let check =
            |need: Need| Needs::Fields(vec![need]).check_against("s", [&field, &particles].into_iter());
        let kind = |need: Need| check(need).map_err(|error| error.kind);
        assert_eq!(kind(Need { dtype: Some(Dtype::F64), ..Need::new("U") }), Ok(()));
        assert_eq!(kind(Need::new("W")), Err(ErrorKind::NotFound));
        assert_eq!(kind(Need { optional: true, ..Need::new("W") }), Ok(()));
        assert_eq!(kind(Need { dtype: Some(Dtype::F32), ..Need::new("U") }), Err(ErrorKind::TypeMismatch));
        let far = Slice { start: Some(Index::FromStart(9)), ..Slice::ALL };
        let terms = Terms { part: Some(Slices::new(vec![far], vec![]).unwrap()), ..Terms::ALL };
        let text = check(Need { terms: terms.clone(), ..Need::new("U") }).unwrap_err().text;
        assert!(text.contains("field 'U' of stream 's'") && text.contains("[9:]"), "{text}");
        assert_eq!(kind(Need { terms, ..Need::new("ions") }), Err(ErrorKind::Invalid), "without a shape");
    }

    #[test]
    fn a_species_is_named_for_all_its_fields() {
        let often = Terms::every(1);
        let needs = Needs::Fields(vec![
            Need { terms: Terms::every(5), ..Need::new("ions") },
            Need { terms: often.clone(), ..Need::new("ions/x") },
        ]);
        assert_eq!(needs.of("ions/x"), Some(&often));
        assert_eq!(needs.of("ions/v"), Some(&Terms::every(5)));
        assert_eq!(needs.of("ions2/v"), None);
        let offered = [Field::new("ions/x", Dtype::F64, None, 1)];
        assert!(needs.check_against("s", offered.iter()).is_ok());
    }

    #[test]
    fn absurd_needs_are_refused_at_once() {
        let check = |needs: Vec<Need>| Needs::Fields(needs).check();
        assert!(check((0..=FIELDS_MAX).map(|i| Need::new(&i.to_string())).collect()).is_err());
        assert!(check((0..FIELDS_MAX).map(|i| Need::new(&i.to_string())).collect()).is_ok());
        assert!(check(vec![]).is_err());
        assert!(check(vec![Need::new(&"x".repeat(1000))]).is_err());
        assert!(check(vec![Need::new("x"), Need::new("y"), Need::new("x")]).is_err());
        let none = Terms { period: Period::every(0), ..Terms::ALL };
        assert!(check(vec![Need { terms: none.clone(), ..Need::new("x") }]).is_err());
        assert!(Needs::All(none).check().is_err());
    }
}
