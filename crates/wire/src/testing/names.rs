//! The names of a type's variants.

use serde::de::{self, DeserializeOwned, Deserializer, Visitor};
use serde::forward_to_deserialize_any;
use std::fmt;

/// The names of an enumeration's variants, in order; of a structure, its own.
pub fn names_of<T: DeserializeOwned>() -> Vec<&'static str> {
    let mut names = Names::default();
    assert!(T::deserialize(&mut names).is_err());
    assert!(!names.0.is_empty(), "{} has no names", std::any::type_name::<T>());
    names.0
}

/// Notes the names of a type's variants; of a structure, its own.
#[derive(Default)]
struct Names(Vec<&'static str>);

/// All is known that was asked for: nothing is decoded.
#[derive(Debug)]
struct Noted;

impl fmt::Display for Noted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("nothing is decoded")
    }
}

impl std::error::Error for Noted {}

impl de::Error for Noted {
    fn custom<T: fmt::Display>(_: T) -> Noted {
        Noted
    }
}

impl<'de> Deserializer<'de> for &mut Names {
    type Error = Noted;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Noted> {
        Err(Noted)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Noted> {
        self.0 = variants.to_vec();
        Err(Noted)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Noted> {
        self.0 = vec![name];
        Err(Noted)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: V,
    ) -> Result<V::Value, Noted> {
        self.0 = vec![name];
        Err(Noted)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq
        tuple tuple_struct map identifier ignored_any
    }
}
