//! What expressions give: `fb_step_evaluate`, and values as C has them.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay.h")]

use crate::abi::{FB_VALUE_CONDITION, FB_VALUE_NUMBER, FB_VALUE_PLACE, FB_VALUE_UNKNOWN, Sized64, fb_value};
use crate::arguments;
use crate::boundary::{Handle, call};
use crate::boxes::eight;
use crate::step::fb_step;
use forebay_client::query::value::{Number, Place, Scalar};
use std::ffi::{c_char, c_int};

/// Tells what an expression gives at a step.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_step_evaluate(
    step: *const fb_step,
    text: *const c_char,
    value: *mut fb_value,
) -> c_int {
    call("fb_step_evaluate", || {
        // SAFETY: the header's terms.
        unsafe {
            let step = &Handle::get(step, "step")?.step;
            let found = step.evaluate(arguments::text(text, "text")?)?;
            arguments::write(&told(&found), value, "value")
        }
    })
}

/// A value without a label, a count or a place beside it.
pub(crate) fn told(found: &Scalar) -> fb_value {
    let value = fb_value::DEFAULT;
    match found {
        Scalar::Number(number @ Number::Integer(integer)) => fb_value {
            kind: FB_VALUE_NUMBER,
            is_integer: 1,
            number: number.to_f64(),
            integer: (*integer).clamp(i64::MIN.into(), i64::MAX.into()) as i64,
            ..value
        },
        // A cast takes the nearest integer that there is, and 0 for what is no number.
        Scalar::Number(number) => fb_value {
            kind: FB_VALUE_NUMBER,
            number: number.to_f64(),
            integer: number.to_f64().round() as i64,
            ..value
        },
        Scalar::Condition(condition) => fb_value {
            kind: FB_VALUE_CONDITION,
            number: f64::from(u8::from(*condition)),
            integer: i64::from(*condition),
            ..value
        },
        Scalar::Place(place) => {
            let value = fb_value { kind: FB_VALUE_PLACE, ..value };
            place.as_ref().map_or(value, |place| at(place, value))
        }
        Scalar::Unknown(_) => fb_value { kind: FB_VALUE_UNKNOWN, ..value },
    }
}

/// The same value with this place.
pub(crate) fn at(place: &Place, value: fb_value) -> fb_value {
    let (rank, block) = place.block.map_or((0, 0), |block| (block.rank, block.number));
    fb_value {
        has_place: 1,
        ndim: place.index.len() as u32,
        level: place.level,
        in_block: i32::from(place.block.is_some()),
        rank,
        block,
        index: eight(&place.index),
        ..value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_client::core::ids::BlockKey;

    #[test]
    fn numbers_keep_what_they_can() {
        let large = told(&Scalar::Number(Number::Integer(i128::from(i64::MAX) + 5)));
        assert_eq!((large.is_integer, large.integer, large.number), (1, i64::MAX, 2f64.powi(63)));
        let half = told(&Scalar::Number(Number::F64(-2.75)));
        assert_eq!((half.kind, half.is_integer, half.integer, half.number), (FB_VALUE_NUMBER, 0, -3, -2.75));
        let nothing = told(&Scalar::Number(Number::F64(f64::NAN)));
        assert!(nothing.number.is_nan() && nothing.integer == 0);
        let holds = told(&Scalar::Condition(true));
        assert_eq!((holds.kind, holds.number, holds.integer), (FB_VALUE_CONDITION, 1.0, 1));
    }

    #[test]
    fn places_have_their_block_where_that_has_none() {
        let place = Place { level: 1, block: Some(BlockKey::whole(3, 4)), index: [5, 6][..].into() };
        let value = told(&Scalar::Place(Some(place)));
        assert_eq!((value.kind, value.has_place, value.ndim, value.level), (FB_VALUE_PLACE, 1, 2, 1));
        assert_eq!((value.in_block, value.rank, value.block, &value.index[..3]), (1, 3, 4, &[5, 6, 0][..]));
        assert_eq!(told(&Scalar::Place(None)).has_place, 0, "nothing but what is no number");
    }
}
