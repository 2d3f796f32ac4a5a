//! Numbers and conditions, as expressions have them.
//!
//! - [`arithmetic`]: what operators and functions do with doubles, floats and integers;
//! - [`number`]: a number of a kind;
//! - [`scalar`]: a number, a condition, or why there is none.

pub mod arithmetic;
mod number;
mod scalar;

pub use number::{Kind, Number};
pub use scalar::{Place, Scalar, Unknown, UnknownKind};
