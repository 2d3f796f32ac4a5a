//! What expressions give, as JSON and for people.

use forebay_client::query::value::{Number, Place, Scalar};
use serde_json::{Value, json};

/// A number as JSON: what that has no numbers for is text.
pub(crate) fn json_of(scalar: &Scalar) -> Value {
    match scalar {
        Scalar::Number(Number::Integer(number)) => match i64::try_from(*number) {
            Ok(number) => json!(number),
            Err(_) => {
                u64::try_from(*number).map_or_else(|_| json!(number.to_string()), |number| json!(number))
            }
        },
        Scalar::Number(number) => match number.to_f64() {
            finite if finite.is_finite() => json!(finite),
            other => json!(float_text(other)),
        },
        Scalar::Condition(condition) => json!(condition),
        Scalar::Place(place) => place.as_ref().map_or(Value::Null, place_json),
        Scalar::Unknown(why) => json!({ "unknown": why.text }),
    }
}

fn place_json(place: &Place) -> Value {
    let block = place.block.as_ref();
    json!({
        "index": place.index.to_vec(), "level": place.level, "rank": block.map(|block| block.rank),
        "block": block.map(|block| block.number),
    })
}

pub(crate) fn text_of(scalar: &Scalar) -> String {
    match scalar {
        Scalar::Number(Number::Integer(number)) => number.to_string(),
        Scalar::Number(Number::F32(number)) => {
            if number.is_finite() {
                format!("{number:?}")
            } else {
                float_text((*number).into())
            }
        }
        Scalar::Number(number) => {
            let number = number.to_f64();
            if number.is_finite() { format!("{number:?}") } else { float_text(number) }
        }
        Scalar::Condition(condition) => condition.to_string(),
        Scalar::Place(Some(place)) => place.to_string(),
        Scalar::Place(None) => "none".to_owned(),
        Scalar::Unknown(why) => format!("unknown: {}", why.text),
    }
}

fn float_text(number: f64) -> String {
    match number {
        f64::INFINITY => "inf".to_owned(),
        f64::NEG_INFINITY => "-inf".to_owned(),
        _ => "nan".to_owned(),
    }
}
