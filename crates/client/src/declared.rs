//! What `interface/forebay.toml` declares, as the client has it: how handles are opened, and choices by number and name.

mod choices;
mod options;

use forebay_core::{Error, Result};
pub use options::{ConsumerOptions, ProducerOptions, SpaceOptions};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OnLoss, TransportChoice};
    use forebay_core::ErrorKind;
    use forebay_core::contract::Association;
    use forebay_core::steps::{Durability, Policy};

    fn round_trip<T: Choice + std::fmt::Debug>(values: &[T]) {
        for value in values {
            let named = value.named();
            assert_eq!(named.value, Some(*value));
            assert_eq!(T::of_name(named.name).unwrap(), *value);
            assert_eq!(T::of_number(named.number, "it").unwrap(), *value);
        }
    }

    #[test]
    fn every_value_has_a_number_and_a_name() {
        round_trip(&[Policy::DropOldest, Policy::Block, Policy::Latest]);
        round_trip(&[OnLoss::Skip, OnLoss::Fail]);
        round_trip(&[Durability::Local, Durability::Replicated]);
        round_trip(&[Association::Cell, Association::Vertex]);
        round_trip(&[TransportChoice::Auto, TransportChoice::Shm, TransportChoice::Tcp]);
    }

    #[test]
    fn an_unknown_value_is_told_what_there_is() {
        let error = Policy::of_name("fastest").unwrap_err();
        assert_eq!(error.text, "policy 'fastest' is not known: use drop-oldest, block or latest");
        let error = OnLoss::of_number(7, "options->on_loss").unwrap_err();
        assert_eq!(error.text, "options->on_loss is 7: use FB_ON_LOSS_SKIP (0) or FB_ON_LOSS_FAIL (1)");
        assert_eq!(Policy::of_name("spill").unwrap_err().kind, ErrorKind::Unsupported);
        assert_eq!(Policy::of_number(3, "options->policy").unwrap_err().kind, ErrorKind::Unsupported);
    }
}
