//! Values of any type that can be decoded, made at random: a deserializer that invents what it is asked for.
//!
//! Messages that are added later are made too, without a word here. Numbers are mostly small, sometimes at the
//! edges where sums overflow; lists mostly agree in length, as the dimensions of one array do.

use serde::de::{self, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use std::fmt;

/// Names that a message may hold. None of them is a program or a directory.
const NAMES: [&str; 6] = ["s", "U", "no-such-name", "", "new\nline", "a name with spaces and π"];

/// A source of values; the same seed gives the same ones.
#[derive(Debug)]
pub struct Inventor {
    state: u64,
    /// How long lists mostly are.
    ndim: u64,
    /// How deep in lists it is: trees of them must end.
    depth: u32,
}

/// What cannot be made: a type refused the value that was invented for it.
#[derive(Debug)]
pub struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(text: T) -> Refused {
        Refused(text.to_string())
    }
}

impl Inventor {
    /// The same values for the same seed.
    pub fn new(seed: u64) -> Inventor {
        Inventor { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, ndim: 1, depth: 0 }
    }

    /// The next random number (xorshift*).
    pub fn draw(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 1
    }

    /// A number below this bound.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }

    /// A value, after as many attempts as it takes: most invariants are met by chance soon.
    pub fn value<T: de::DeserializeOwned>(&mut self) -> T {
        for _ in 0..100_000 {
            (self.ndim, self.depth) = (self.below(4), 0);
            if let Ok(value) = T::deserialize(&mut *self) {
                return value;
            }
        }
        unreachable!("no value of {} is ever valid", std::any::type_name::<T>());
    }

    fn number(&mut self) -> u64 {
        match self.below(16) {
            0..8 => self.below(5),
            8..11 => self.ndim,
            11 => self.below(100_000),
            12 => 1 << self.below(64),
            13 => u64::MAX - self.below(3),
            14 => (1 << 32) - self.below(3),
            _ => self.draw(),
        }
    }

    fn length(&mut self) -> u64 {
        if self.depth > 6 {
            return 0;
        }
        match self.below(8) {
            0..5 => self.ndim,
            5 => 0,
            _ => self.below(6),
        }
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty),*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
            visitor.$visit(self.number() as $type)
        })*
    };
}

impl<'de> Deserializer<'de> for &mut Inventor {
    type Error = Refused;

    numbers! {
        deserialize_i8 visit_i8 i8, deserialize_i16 visit_i16 i16, deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64, deserialize_u8 visit_u8 u8, deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32, deserialize_u64 visit_u64 u64
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Refused> {
        Err(de::Error::custom("a type that does not say what it is"))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_bool(self.below(2) == 1)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_f32(f32::from_bits(self.draw() as u32))
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let value = match self.below(4) {
            0 => f64::from_bits(self.draw()),
            1 => f64::NAN,
            _ => self.number() as f64,
        };
        visitor.visit_f64(value)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_char('x')
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let name = match self.below(8) {
            0..4 => NAMES[self.below(2) as usize].to_owned(),
            7 => "x".repeat(self.below(2000) as usize),
            _ => NAMES[self.below(NAMES.len() as u64) as usize].to_owned(),
        };
        visitor.visit_string(name)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let length = self.below(40) as usize;
        visitor.visit_byte_buf((0..length).map(|_| self.draw() as u8).collect())
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        if self.below(2) == 0 { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let left = self.length();
        self.depth += 1;
        let value = visitor.visit_seq(Items { inventor: self, left });
        self.depth -= 1;
        value
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_seq(Items { inventor: self, left: length as u64 })
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        length: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.deserialize_tuple(length, visitor)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        let variant = self.below(variants.len() as u64) as u32;
        visitor.visit_enum(Variant { inventor: self, variant })
    }

    forward_to_deserialize_any! { i128 u128 map identifier ignored_any }
}

struct Items<'a> {
    inventor: &'a mut Inventor,
    left: u64,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Refused> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(&mut *self.inventor).map(Some)
    }
}

struct Variant<'a> {
    inventor: &'a mut Inventor,
    variant: u32,
}

impl<'de> de::EnumAccess<'de> for Variant<'_> {
    type Error = Refused;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Refused> {
        let index: de::value::U32Deserializer<Refused> = self.variant.into_deserializer();
        Ok((seed.deserialize(index)?, self))
    }
}

impl<'de> de::VariantAccess<'de> for Variant<'_> {
    type Error = Refused;

    fn unit_variant(self) -> Result<(), Refused> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Refused> {
        seed.deserialize(self.inventor)
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Refused> {
        self.inventor.deserialize_tuple(length, visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.inventor.deserialize_tuple(fields.len(), visitor)
    }
}
