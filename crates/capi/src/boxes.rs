//! Blocks, fields and selections: from C's description to ours, and numbers of dimensions back.
#![allow(unsafe_code, reason = "descriptions are full of C's pointers")]

use crate::abi::{FB_MEMORY_HOST, fb_block, fb_field, fb_selection};
use crate::{arguments, options};
use forebay_client::core::block::Extent;
use forebay_client::core::contract::Field;
use forebay_client::core::dtype::Dtype;
use forebay_client::core::region::{Dims, MAX_NDIM};
use forebay_client::store::strided::{Source, Target};
use forebay_client::{Error, ErrorKind, Result, Selection};

/// A block as a caller describes it, checked as far as that goes without its field.
pub(crate) struct BlockArguments<'a> {
    pub(crate) field: &'a str,
    pub(crate) dtype: Dtype,
    pub(crate) number: u64,
    pub(crate) level: u32,
    pub(crate) extent: Extent,
    strides: Option<[i64; MAX_NDIM]>,
    data: *const u8,
}

impl<'a> BlockArguments<'a> {
    /// Reads a description.
    ///
    /// # Safety
    /// Its pointers are NULL or point at what the header says, for `'a`.
    pub(crate) unsafe fn read(block: &fb_block) -> Result<BlockArguments<'a>> {
        if block.memory != FB_MEMORY_HOST {
            return Err(Error::unsupported(format!(
                "block->memory is {}: only FB_MEMORY_HOST (0) is built; copy the array to the host first",
                block.memory
            )));
        }
        let ndim = arguments::dimensions(block.ndim, "block->ndim")?;
        // SAFETY: the caller vouches for all of it.
        unsafe {
            let field = arguments::text(block.field, "block->field")?;
            let dtype = Dtype::from_code(block.dtype).map_err(|error| error.during("block->dtype"))?;
            let shape: Dims = arguments::numbers(block.shape, ndim, "block->shape")?.collect();
            let offset: Dims = arguments::optional_numbers(block.offset, ndim).collect();
            let low: Dims = arguments::optional_numbers(block.ghost_low, ndim).collect();
            let high: Dims = arguments::optional_numbers(block.ghost_high, ndim).collect();
            // A scalar has its place.
            let placed = ndim == 0 || !block.offset.is_null();
            let extent = Extent::new(placed.then_some(&offset[..]), &shape, &low, &high)?;
            let strides = read_strides(block.strides, ndim);
            Ok(BlockArguments {
                field,
                dtype,
                number: block.number,
                level: block.level,
                extent,
                strides,
                data: block.data.cast(),
            })
        }
    }

    /// Checks its dtype against its field's.
    pub(crate) fn check_dtype(&self, dtype: Dtype) -> Result<()> {
        same_dtype(self.field, dtype, self.dtype, "block->dtype")
    }

    /// The array that it describes.
    ///
    /// # Safety
    /// The array is as described, and stays as it is for `'a`.
    pub(crate) unsafe fn source(&self) -> Result<Source<'a>> {
        let shape = self.extent.stored_shape();
        let strides = self.strides.as_ref().map(|strides| &strides[..shape.len()]);
        check_reach(&shape, strides, self.dtype, self.data.is_null(), "block->data")?;
        // SAFETY: the caller vouches for it.
        unsafe { Source::new(self.data, &shape, strides, self.dtype.size()) }?.typed(self.dtype)
    }
}

/// Reads a field's description.
///
/// # Safety
/// Its pointers are NULL or point at what the header says.
pub(crate) unsafe fn field(given: &fb_field) -> Result<Field> {
    let ndim = arguments::dimensions(given.ndim, "field->ndim")?;
    // SAFETY: the caller vouches for all of it.
    unsafe {
        let name = arguments::text(given.name, "field->name")?;
        let dtype = Dtype::from_code(given.dtype).map_err(|error| error.during("field->dtype"))?;
        let shape: Dims = arguments::optional_numbers(given.shape, ndim).collect();
        let placed = ndim == 0 || !given.shape.is_null();
        let mut field = Field::new(name, dtype, placed.then_some(&shape[..]), ndim);
        options::field_options(given, ndim, &mut field)?;
        Ok(field)
    }
}

/// Reads what part of a field is selected.
///
/// # Safety
/// Its pointers are NULL or point at what the header says.
pub(crate) unsafe fn selection(given: &fb_selection) -> Result<Selection> {
    let ndim = arguments::dimensions(given.ndim, "selection->ndim")?;
    // SAFETY: the caller vouches for all of it.
    unsafe {
        let offset: Dims = arguments::numbers(given.offset, ndim, "selection->offset")?.collect();
        let shape: Dims = arguments::numbers(given.shape, ndim, "selection->shape")?.collect();
        let step: Dims = match given.every.is_null() {
            true => shape.iter().map(|_| 1).collect(),
            false => arguments::optional_numbers(given.every, ndim).collect(),
        };
        Ok(Selection { offset, shape, step })
    }
}

/// Where what is selected of a field of this name and dtype goes.
///
/// # Safety
/// As for [`selection`], and for `'a` the target may be written and is used by nobody else.
pub(crate) unsafe fn target<'a>(
    given: &fb_selection,
    shape: &[u64],
    name: &str,
    dtype: Dtype,
) -> Result<Target<'a>> {
    let said = Dtype::from_code(given.dtype).map_err(|error| error.during("selection->dtype"))?;
    same_dtype(name, dtype, said, "selection->dtype")?;
    // SAFETY: the caller vouches for it.
    let strides = unsafe { read_strides(given.strides, shape.len()) };
    let strides = strides.as_ref().map(|strides| &strides[..shape.len()]);
    check_reach(shape, strides, dtype, given.data.is_null(), "selection->data")?;
    // SAFETY: as above.
    unsafe { Target::new(given.data.cast(), shape, strides, dtype.size()) }?.typed(dtype)
}

/// Checks that a caller's dtype is the field's.
fn same_dtype(field: &str, dtype: Dtype, said: Dtype, what: &str) -> Result<()> {
    if dtype == said {
        return Ok(());
    }
    Err(Error::new(ErrorKind::TypeMismatch, format!("field '{field}' is {dtype}, and {what} says {said}")))
}

unsafe fn read_strides(given: *const i64, ndim: usize) -> Option<[i64; MAX_NDIM]> {
    if given.is_null() {
        return None;
    }
    let mut strides = [0; MAX_NDIM];
    // SAFETY: the caller vouches for it.
    unsafe { arguments::optional_numbers(given, ndim) }
        .zip(&mut strides)
        .for_each(|(given, stride)| *stride = given);
    Some(strides)
}

/// Checks that an array is there, and that its elements can be addressed at all.
fn check_reach(shape: &[u64], strides: Option<&[i64]>, dtype: Dtype, null: bool, what: &str) -> Result<()> {
    if shape.contains(&0) {
        return Ok(());
    }
    if null {
        return Err(Error::invalid(format!("{what} is NULL, and its shape {shape:?} is not empty")));
    }
    let reach = match strides {
        None => {
            shape.iter().try_fold(dtype.size() as i64, |bytes, n| bytes.checked_mul(i64::try_from(*n).ok()?))
        }
        Some(strides) => shape.iter().zip(strides).try_fold(dtype.size() as i64, |bytes, (n, stride)| {
            let far = i64::try_from(n - 1).ok()?.checked_mul(*stride)?;
            bytes.checked_add(far.checked_abs()?)
        }),
    };
    match reach {
        Some(_) => Ok(()),
        None => Err(Error::out_of_bounds(match strides {
            None => format!("{what}: shape {shape:?} of {dtype} reaches further than memory does"),
            Some(strides) => {
                format!("{what}: shape {shape:?} with strides {strides:?} reaches further than memory does")
            }
        })),
    }
}

/// As many numbers as there can be dimensions; those that are not given are zero.
pub(crate) fn eight<T: Copy + Default>(numbers: &[T]) -> [T; MAX_NDIM] {
    let mut all = [T::default(); MAX_NDIM];
    all.iter_mut().zip(numbers).for_each(|(place, number)| *place = *number);
    all
}
