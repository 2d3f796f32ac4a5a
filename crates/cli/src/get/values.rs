//! Elements of fields, as JSON and as people read them.

use forebay_client::core::dtype::Dtype;
use serde_json::{Value, json};

/// One element as JSON: exactly, or with as many digits as tell it from its neighbours. Complex numbers are
/// pairs; what is no number in JSON is text.
pub(super) fn number(dtype: Dtype, bytes: &[u8]) -> Value {
    /// The bytes of an element of a plain type.
    fn of<const N: usize>(bytes: &[u8]) -> [u8; N] {
        bytes.first_chunk().copied().unwrap_or([0; N])
    }
    match dtype {
        Dtype::Bool => json!(bytes[0] != 0),
        Dtype::I8 => json!(i8::from_le_bytes(of(bytes))),
        Dtype::U8 => json!(bytes[0]),
        Dtype::I16 => json!(i16::from_le_bytes(of(bytes))),
        Dtype::U16 => json!(u16::from_le_bytes(of(bytes))),
        Dtype::I32 => json!(i32::from_le_bytes(of(bytes))),
        Dtype::U32 => json!(u32::from_le_bytes(of(bytes))),
        Dtype::I64 => json!(i64::from_le_bytes(of(bytes))),
        Dtype::U64 => json!(u64::from_le_bytes(of(bytes))),
        Dtype::F16 => single(f32::from(half::f16::from_le_bytes(of(bytes)))),
        Dtype::Bf16 => single(f32::from(half::bf16::from_le_bytes(of(bytes)))),
        Dtype::F32 => single(f32::from_le_bytes(of(bytes))),
        Dtype::F64 => double(f64::from_le_bytes(of(bytes))),
        Dtype::C64 => json!([number(Dtype::F32, &bytes[..4]), number(Dtype::F32, &bytes[4..])]),
        Dtype::C128 => json!([number(Dtype::F64, &bytes[..8]), number(Dtype::F64, &bytes[8..])]),
    }
}

/// One element as text that NumPy reads.
pub(super) fn csv(dtype: Dtype, bytes: &[u8]) -> String {
    match dtype {
        Dtype::Bool => u8::from(bytes[0] != 0).to_string(),
        _ => crate::output::text(&number(dtype, bytes)),
    }
}

/// With the digits of a single, not those of the double that is as large.
fn single(value: f32) -> Value {
    double(value.to_string().parse().unwrap_or(f64::from(value)))
}

fn double(value: f64) -> Value {
    if value.is_nan() {
        return json!("nan");
    }
    // JSON has no infinity.
    serde_json::Number::from_f64(value).map_or_else(|| json!(value.to_string()), Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::text;

    #[test]
    fn numbers_are_exact() {
        let shown = |dtype, bytes: &[u8]| text(&number(dtype, bytes));
        assert_eq!(shown(Dtype::I64, &((1i64 << 53) + 1).to_le_bytes()), "9007199254740993");
        assert_eq!(shown(Dtype::U64, &u64::MAX.to_le_bytes()), "18446744073709551615");
        assert_eq!(shown(Dtype::I8, &[0x80]), "-128");
        assert_eq!(shown(Dtype::F32, &0.1f32.to_le_bytes()), "0.1");
        assert_eq!(shown(Dtype::F16, &[0, 0xfc]), "-inf");
        assert_eq!(shown(Dtype::Bf16, &[0xc0, 0x3f]), "1.5");
        assert_eq!(shown(Dtype::F64, &(-0.0f64).to_le_bytes()), "-0.0");
        assert_eq!(shown(Dtype::F64, &f64::NAN.to_le_bytes()), "nan");
        assert_eq!(shown(Dtype::F64, &f64::NEG_INFINITY.to_le_bytes()), "-inf");
        let complex = [3f32.to_le_bytes(), (-4f32).to_le_bytes()].concat();
        assert_eq!(number(Dtype::C64, &complex), json!([3.0, -4.0]));
        assert_eq!(shown(Dtype::C64, &complex), "3.0-4.0j");
        assert_eq!(shown(Dtype::Bool, &[1]), "true");
    }
}
