//! Where an element lies that is the same as a value.

use forebay_core::dtype::Dtype;
use forebay_core::stats::Value;

/// Where the first element lies that is the same as a value.
pub(super) fn position(dtype: Dtype, bytes: &[u8], value: Value) -> Option<usize> {
    match (dtype, value) {
        (Dtype::F64, Value::Float(value)) => {
            bytes.as_chunks().0.iter().position(|element| f64::from_le_bytes(*element) == value)
        }
        (Dtype::F32, Value::Float(value)) => {
            let value = value as f32;
            bytes.as_chunks().0.iter().position(|element| f32::from_le_bytes(*element) == value)
        }
        (dtype, value) => {
            bytes.chunks_exact(dtype.size()).position(|element| Value::read(dtype, element) == value)
        }
    }
}
