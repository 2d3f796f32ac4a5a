//! Attributes: what a producer says of its stream, or of one of its fields, beside the data.
//!
//! They are constants of a run, or belong to one step. One rank that sets them is enough; where several do, they must say the same.

use crate::ids::check_name;
use crate::{Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What all attributes of a stream and its fields may take, names included, and what those of one step may.
pub const ATTRS_BYTES_MAX: usize = 64 << 10;

/// What an attribute counts besides its key and its values, so that many empty ones are bounded too.
const OVERHEAD: usize = 16;

/// The values of an attribute, all of one type.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum AttrValues {
    /// Yes or no.
    Bool(Vec<bool>),
    /// Whole numbers.
    Int(Vec<i64>),
    /// Any numbers.
    Float(Vec<f64>),
    /// Text.
    Text(Vec<String>),
    /// Whole numbers of which at least one is above all of `Int`: see [`AttrValues::unsigned`].
    Unsigned(Vec<u64>),
    /// Complex numbers: real and imaginary part of each.
    Complex(Vec<[f64; 2]>),
}

/// An attribute: one value, or a list of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Attr {
    /// Whether it is a list, which may have any length. Otherwise there is one value.
    pub list: bool,
    /// The values.
    pub values: AttrValues,
}

/// The attributes of a stream and its fields.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Attrs {
    /// By field, which is empty for the stream's own, and key.
    of: BTreeMap<String, BTreeMap<String, Attr>>,
}

impl PartialEq for AttrValues {
    /// Floats are compared by their bits: what is not a number is what was said.
    fn eq(&self, other: &AttrValues) -> bool {
        match (self, other) {
            (AttrValues::Bool(a), AttrValues::Bool(b)) => a == b,
            (AttrValues::Int(a), AttrValues::Int(b)) => a == b,
            (AttrValues::Unsigned(a), AttrValues::Unsigned(b)) => a == b,
            (AttrValues::Complex(a), AttrValues::Complex(b)) => {
                a.as_flattened().iter().map(|x| x.to_bits()).eq(b.as_flattened().iter().map(|x| x.to_bits()))
            }
            (AttrValues::Float(a), AttrValues::Float(b)) => {
                a.iter().map(|x| x.to_bits()).eq(b.iter().map(|x| x.to_bits()))
            }
            (AttrValues::Text(a), AttrValues::Text(b)) => a == b,
            _ => false,
        }
    }
}

impl AttrValues {
    /// Whole numbers without a sign. Those that `Int` holds are the same ones, whoever gave them.
    pub fn unsigned(values: Vec<u64>) -> AttrValues {
        let signed: Option<Vec<i64>> = values.iter().map(|value| i64::try_from(*value).ok()).collect();
        signed.map_or(AttrValues::Unsigned(values), AttrValues::Int)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            AttrValues::Bool(values) => values.len(),
            AttrValues::Int(values) => values.len(),
            AttrValues::Float(values) => values.len(),
            AttrValues::Text(values) => values.len(),
            AttrValues::Unsigned(values) => values.len(),
            AttrValues::Complex(values) => values.len(),
        }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn bytes(&self) -> usize {
        match self {
            AttrValues::Bool(values) => values.len(),
            AttrValues::Int(values) => 8 * values.len(),
            AttrValues::Float(values) => 8 * values.len(),
            AttrValues::Text(values) => values.iter().map(|text| text.len() + 8).sum(),
            AttrValues::Unsigned(values) => 8 * values.len(),
            AttrValues::Complex(values) => 16 * values.len(),
        }
    }
}

impl Attr {
    /// Checks all that can be wrong with an attribute in itself.
    pub fn check(&self, key: &str) -> Result<()> {
        check_name("attribute", key)?;
        if !self.list && self.values.len() != 1 {
            return Err(Error::invalid(format!(
                "attribute '{key}' is no list and has {} values, not one",
                self.values.len()
            )));
        }
        if let AttrValues::Text(texts) = &self.values
            && texts.iter().any(|text| text.contains('\0'))
        {
            return Err(Error::invalid(format!("attribute '{key}': text holds no NUL")));
        }
        check_bytes(self.bytes(key), key)
    }

    fn bytes(&self, key: &str) -> usize {
        OVERHEAD + key.len() + self.values.bytes()
    }
}

impl fmt::Display for Attr {
    /// As people write it, and no longer than fits into a message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        let shown = |text: String| match text.char_indices().nth(60) {
            Some((at, _)) => format!("{}...", &text[..at]),
            None => text,
        };
        let mut texts: Vec<String> = match &self.values {
            AttrValues::Bool(values) => values.iter().take(SHOWN).map(bool::to_string).collect(),
            AttrValues::Int(values) => values.iter().take(SHOWN).map(i64::to_string).collect(),
            AttrValues::Float(values) => values.iter().take(SHOWN).map(|v| format!("{v:?}")).collect(),
            AttrValues::Text(values) => values.iter().take(SHOWN).map(|v| shown(format!("{v:?}"))).collect(),
            AttrValues::Unsigned(values) => values.iter().take(SHOWN).map(u64::to_string).collect(),
            AttrValues::Complex(values) => {
                values.iter().take(SHOWN).map(|[re, im]| format!("{re:?}{im:+?}j")).collect()
            }
        };
        if self.values.len() > SHOWN {
            texts.push("...".into());
        }
        let joined = texts.join(", ");
        if self.list { write!(f, "[{joined}]") } else { f.write_str(&joined) }
    }
}

fn check_bytes(bytes: usize, key: &str) -> Result<()> {
    if bytes <= ATTRS_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::OverBudget,
        format!(
            "attribute '{key}' would make the stream's attributes {bytes} bytes; they may take {ATTRS_BYTES_MAX}: put \
             what is larger as a field"
        ),
    ))
}

impl Attrs {
    /// The attributes of a field, or of the stream itself, by key.
    pub fn of(&self, field: Option<&str>) -> impl Iterator<Item = (&str, &Attr)> {
        self.of.get(field.unwrap_or("")).into_iter().flatten().map(|(key, attr)| (&key[..], attr))
    }

    /// One attribute.
    pub fn get(&self, field: Option<&str>, key: &str) -> Option<&Attr> {
        self.of.get(field.unwrap_or(""))?.get(key)
    }

    /// The fields that have some.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.of.keys().map(String::as_str).filter(|field| !field.is_empty())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Sets an attribute for the rest of a run; false if it is set already, and the same. To change one is a conflict.
    pub fn set(&mut self, field: Option<&str>, key: &str, attr: Attr) -> Result<bool> {
        let whose = field.map_or("the stream".to_owned(), |field| format!("field '{field}'"));
        self.insert(field, key, attr, |known, attr| {
            format!(
                "attribute '{key}' of {whose} is {known} in this run, and cannot become {attr}: all ranks that set it must \
                 agree; what changes with the step is an attribute of the step, or a field"
            )
        })
    }

    /// Sets an attribute of one step; false if it is set already, and the same. Two values are a conflict.
    pub fn set_at_step(&mut self, key: &str, attr: Attr) -> Result<bool> {
        self.insert(None, key, attr, |known, attr| {
            format!("attribute '{key}' of a step is {known}, and cannot become {attr}: all ranks that set it must agree")
        })
    }

    /// Checks what another process has told of one step.
    pub fn check_of_step(&self) -> Result<()> {
        if self.fields().next().is_some() {
            return Err(Error::protocol("attributes of fields among those of a step"));
        }
        let mut again = Attrs::default();
        self.of(None).try_for_each(|(key, attr)| again.set_at_step(key, attr.clone()).map(drop))
    }

    /// These, with those of a step, which go before the stream's own.
    #[must_use]
    pub fn with_those_of_step(&self, step: &Attrs) -> Attrs {
        let mut both = self.clone();
        let own = step.of(None).map(|(key, attr)| (key.to_owned(), attr.clone()));
        both.of.entry(String::new()).or_default().extend(own);
        both
    }

    fn insert(
        &mut self,
        field: Option<&str>,
        key: &str,
        attr: Attr,
        conflict: impl FnOnce(&Attr, &Attr) -> String,
    ) -> Result<bool> {
        attr.check(key)?;
        if let Some(known) = self.get(field, key) {
            if *known == attr {
                return Ok(false);
            }
            return Err(Error::conflict(conflict(known, &attr)));
        }
        let names = |field: &String| if field.is_empty() { 0 } else { OVERHEAD + field.len() };
        let held = self.of.iter().map(|(field, attrs)| {
            names(field) + attrs.iter().map(|(key, attr)| attr.bytes(key)).sum::<usize>()
        });
        let name = field.unwrap_or("").to_owned();
        let added = if self.of.contains_key(&name) { 0 } else { names(&name) };
        check_bytes(held.sum::<usize>() + added + attr.bytes(key), key)?;
        self.of.entry(name).or_default().insert(key.to_owned(), attr);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(value: f64) -> Attr {
        Attr { list: false, values: AttrValues::Float(vec![value]) }
    }

    #[test]
    fn an_attribute_is_set_once() {
        let mut attrs = Attrs::default();
        assert!(attrs.set(None, "dt", one(0.5)).unwrap());
        assert!(!attrs.set(None, "dt", one(0.5)).unwrap());
        assert!(attrs.set(Some("U"), "dt", one(f64::NAN)).unwrap());
        assert!(!attrs.set(Some("U"), "dt", one(f64::NAN)).unwrap());
        let error = attrs.set(Some("U"), "dt", one(0.25)).unwrap_err();
        assert!(error.kind == ErrorKind::Conflict && error.text.contains("field 'U'"), "{error}");
        assert!(attrs.set(None, "dt", Attr { list: true, ..one(0.5) }).is_err(), "a list is another thing");
        assert_eq!(attrs.of(None).count(), 1);
        assert!(attrs.get(Some("V"), "dt").is_none());
    }

    #[test]
    fn attributes_are_shown_as_people_write_them() {
        let shown = |list, values| Attr { list, values }.to_string();
        assert_eq!(shown(false, AttrValues::Float(vec![1.0])), "1.0");
        assert_eq!(shown(true, AttrValues::Int((0..9).collect())), "[0, 1, 2, 3, 4, 5, 6, 7, ...]");
        assert_eq!(shown(false, AttrValues::unsigned(vec![u64::MAX])), "18446744073709551615");
        assert_eq!(shown(false, AttrValues::Complex(vec![[1.0, -0.5]])), "1.0-0.5j");
        assert_eq!(AttrValues::unsigned(vec![3]), AttrValues::Int(vec![3]));
        assert!(shown(false, AttrValues::Text(vec!["π".repeat(500)])).len() < 200);
    }

    #[test]
    fn bad_attributes_are_refused() {
        let text = |text: &str| Attr { list: false, values: AttrValues::Text(vec![text.into()]) };
        assert!(text("π").check("unit name").is_ok());
        assert!(text("a\0b").check("k").is_err());
        assert!(text("a").check("").is_err());
        assert!(text("a").check("a\nb").is_err());
        assert!(Attr { list: false, values: AttrValues::Int(vec![1, 2]) }.check("k").is_err());
        assert!(Attr { list: false, values: AttrValues::Bool(vec![]) }.check("k").is_err());
        assert!(Attr { list: true, values: AttrValues::Bool(vec![]) }.check("k").is_ok());
    }

    #[test]
    fn all_of_them_are_bounded() {
        let mut attrs = Attrs::default();
        let large = Attr { list: true, values: AttrValues::Int(vec![7; 1000]) };
        for index in 0..8 {
            attrs.set(Some(&format!("field {index}")), "k", large.clone()).unwrap();
        }
        assert_eq!(attrs.set(None, "k", large).unwrap_err().kind, ErrorKind::OverBudget);
        let empty = Attr { list: true, values: AttrValues::Text(vec![]) };
        let mut attrs = Attrs::default();
        let fitted =
            (0..10_000).take_while(|n| attrs.set(None, &n.to_string(), empty.clone()).is_ok()).count();
        assert!(fitted < ATTRS_BYTES_MAX / OVERHEAD);
    }
}
