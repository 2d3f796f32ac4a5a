//! Choices among a few values, by number and by name. Which values each has stands in [`crate::declared`].

use forebay_core::{Error, Result};

/// A choice among a few values, which C gives by number and Python by name.
pub trait Choice: Copy + PartialEq + 'static {
    /// What is chosen: `policy`.
    const WHAT: &str;
    /// What there is to choose from.
    const VALUES: &[Named<Self>];

    /// The value of this number, given as `what`.
    fn of_number(number: i32, what: &str) -> Result<Self> {
        let found = Self::VALUES.iter().find(|named| named.number == number);
        found.and_then(|named| named.value).ok_or_else(|| {
            let shown = |named: &Named<Self>| format!("{} ({})", named.c_name, named.number);
            match found {
                Some(named) => unbuilt::<Self>(&format!("{what} is {}", named.c_name), shown),
                None => Error::invalid(format!("{what} is {number}: use {}", listed::<Self>(shown))),
            }
        })
    }

    /// The value of this name.
    fn of_name(name: &str) -> Result<Self> {
        let found = Self::VALUES.iter().find(|named| named.name == name);
        found.and_then(|named| named.value).ok_or_else(|| {
            let shown = |named: &Named<Self>| named.name.to_owned();
            match found {
                Some(_) => unbuilt::<Self>(&format!("{} '{name}'", Self::WHAT), shown),
                None => Error::invalid(format!(
                    "{} '{name}' is not known: use {}",
                    Self::WHAT,
                    listed::<Self>(shown)
                )),
            }
        })
    }

    /// How this value is called.
    fn named(self) -> &'static Named<Self> {
        // Each has its entry: what is made of the declaration names all variants, and a test looks for them.
        Self::VALUES.iter().find(|named| named.value == Some(self)).unwrap_or(&Self::VALUES[0])
    }
}

/// A value of a choice; none if it is not built yet.
#[derive(Debug)]
pub struct Named<T: 'static> {
    /// The value.
    pub value: Option<T>,
    /// Its number in C.
    pub number: i32,
    /// Its name.
    pub name: &'static str,
    /// Its name in C.
    pub c_name: &'static str,
}

fn listed<T: Choice>(shown: impl Fn(&Named<T>) -> String) -> String {
    let mut names: Vec<String> = T::VALUES.iter().filter(|named| named.value.is_some()).map(shown).collect();
    let last = names.pop().unwrap_or_default();
    if names.is_empty() { last } else { format!("{} or {last}", names.join(", ")) }
}

fn unbuilt<T: Choice>(what: &str, shown: impl Fn(&Named<T>) -> String) -> Error {
    Error::unsupported(format!("{what} is not built yet: use {}", listed::<T>(shown)))
}
