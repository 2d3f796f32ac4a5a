//! Element types.

use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The type of a field's elements. All are little-endian in memory; numbers are part of the C ABI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
#[allow(missing_docs)] // the names say it
pub enum Dtype {
    Bool = 1,
    I8 = 2,
    U8 = 3,
    I16 = 4,
    U16 = 5,
    I32 = 6,
    U32 = 7,
    I64 = 8,
    U64 = 9,
    F16 = 10,
    Bf16 = 11,
    F32 = 12,
    F64 = 13,
    C64 = 14,
    C128 = 15,
}

impl Dtype {
    /// Every dtype, in the order of its number.
    pub const ALL: [Dtype; 15] = [
        Dtype::Bool,
        Dtype::I8,
        Dtype::U8,
        Dtype::I16,
        Dtype::U16,
        Dtype::I32,
        Dtype::U32,
        Dtype::I64,
        Dtype::U64,
        Dtype::F16,
        Dtype::Bf16,
        Dtype::F32,
        Dtype::F64,
        Dtype::C64,
        Dtype::C128,
    ];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Dtype::Bool | Dtype::I8 | Dtype::U8 => 1,
            Dtype::I16 | Dtype::U16 | Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::I32 | Dtype::U32 | Dtype::F32 => 4,
            Dtype::I64 | Dtype::U64 | Dtype::F64 | Dtype::C64 => 8,
            Dtype::C128 => 16,
        }
    }

    /// Whether its values have an order: complex numbers have none.
    pub const fn is_ordered(self) -> bool {
        !matches!(self, Dtype::C64 | Dtype::C128)
    }

    /// The name, as users write it: `f8`-style names of NumPy are accepted by [`Dtype::parse`] too.
    pub const fn name(self) -> &'static str {
        match self {
            Dtype::Bool => "bool",
            Dtype::I8 => "int8",
            Dtype::U8 => "uint8",
            Dtype::I16 => "int16",
            Dtype::U16 => "uint16",
            Dtype::I32 => "int32",
            Dtype::U32 => "uint32",
            Dtype::I64 => "int64",
            Dtype::U64 => "uint64",
            Dtype::F16 => "float16",
            Dtype::Bf16 => "bfloat16",
            Dtype::F32 => "float32",
            Dtype::F64 => "float64",
            Dtype::C64 => "complex64",
            Dtype::C128 => "complex128",
        }
    }

    /// The dtype of this C ABI number.
    pub fn from_code(code: i32) -> Result<Dtype> {
        usize::try_from(code).ok().and_then(|code| Dtype::ALL.get(code.wrapping_sub(1))).copied().ok_or_else(
            || Error::invalid(format!("{code} is no dtype: use one of FB_BOOL ... FB_C128 (1 to 15)")),
        )
    }

    /// The dtype of this name.
    pub fn parse(name: &str) -> Result<Dtype> {
        Dtype::ALL.into_iter().find(|dtype| dtype.name() == name).ok_or_else(|| {
            let known: Vec<_> = Dtype::ALL.iter().map(|dtype| dtype.name()).collect();
            Error::invalid(format!("dtype '{name}' is not known; known are {}", known.join(", ")))
        })
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_round_trip() {
        for dtype in Dtype::ALL {
            assert_eq!(Dtype::from_code(dtype as i32).unwrap(), dtype);
            assert_eq!(Dtype::parse(dtype.name()).unwrap(), dtype);
        }
        assert!(Dtype::from_code(0).is_err());
        assert!(Dtype::from_code(16).is_err());
        assert!(Dtype::from_code(-1).is_err());
    }
}
