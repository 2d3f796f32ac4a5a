//! Values with their dtype: what is put or read as another one is an error of kind.

use crate::assemble::Selection;
use crate::producer::{Block, Outcome, Producer};
use crate::step::Step;
use forebay_core::contract::Field;
use forebay_core::dtype::Dtype;
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::Element;
use forebay_store::strided::{Source, Target};

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

impl Producer {
    /// As [`Producer::put`], of dense values in row-major order, ghosts included.
    pub fn put_values<T: Element>(&self, block: &Block<'_>, values: &[T]) -> Result<Outcome> {
        self.put(block, &Source::of(values, &block.extent.stored_shape())?)
    }
}

impl Step {
    /// As [`Step::read`], into new memory: dense, row-major.
    pub fn read_values<T: Element>(&self, name: &str, selection: &Selection) -> Result<Vec<T>> {
        // Before memory is made for it, the selection is known to lie in the field.
        let field = self.field(name)?;
        check_dtype(field, Some(T::DTYPE))?;
        selection.span(field)?;
        let mut values = vec![T::default(); selection.shape.iter().product::<u64>() as usize];
        self.read(name, selection, &mut Target::of(&mut values, &selection.shape)?)?;
        Ok(values)
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
