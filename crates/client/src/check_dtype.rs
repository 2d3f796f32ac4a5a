//! Whether an array is of its field's dtype.

use forebay_core::contract::Field;
use forebay_core::dtype::Dtype;
use forebay_core::{Error, ErrorKind, Result};

/// Checks that an array is of its field's dtype. One that does not say what it holds is refused: bytes alone
/// could be anything.
pub(crate) fn check_dtype(field: &Field, given: Option<Dtype>) -> Result<()> {
    match given {
        Some(dtype) if dtype == field.dtype => Ok(()),
        Some(dtype) => Err(Error::new(
            ErrorKind::TypeMismatch,
            format!("field '{}' is {}, the array is {dtype}", field.name, field.dtype),
        )),
        None => Err(Error::invalid(format!(
            "field '{}' is {}, and the array does not say what it holds: make it with `of`, or add `typed`",
            field.name, field.dtype
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dtype_must_be_said_and_be_the_fields() {
        let field = Field::new("U", Dtype::F64, None, 1);
        assert!(check_dtype(&field, Some(Dtype::F64)).is_ok());
        assert_eq!(check_dtype(&field, Some(Dtype::I64)).unwrap_err().kind, ErrorKind::TypeMismatch);
        assert_eq!(check_dtype(&field, None).unwrap_err().kind, ErrorKind::Invalid);
    }
}
