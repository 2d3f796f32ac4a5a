//! Where an element lies that is the same as a value.

use crate::extremes::Float;
use forebay_core::dtype::Dtype;
use forebay_core::stats::Value;

/// Where the first element lies that is the same as a value.
pub(super) fn position(dtype: Dtype, bytes: &[u8], value: Value) -> Option<usize> {
    fn of<T: Float>(bytes: &[u8], value: T, read: impl Fn([u8; 8]) -> T) -> Option<usize> {
        let mut padded = [0; 8];
        let size = size_of::<T>();
        bytes.chunks_exact(size).position(|element| {
            padded[..size].copy_from_slice(element);
            read(padded) == value
        })
    }
    match (dtype, value) {
        (Dtype::F64, Value::Float(value)) => of(bytes, value, f64::from_le_bytes),
        (Dtype::F32, Value::Float(value)) => {
            of(bytes, value as f32, |[a, b, c, d, ..]| f32::from_le_bytes([a, b, c, d]))
        }
        (dtype, value) => {
            bytes.chunks_exact(dtype.size()).position(|element| Value::read(dtype, element) == value)
        }
    }
}
