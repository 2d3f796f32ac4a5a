//! Rust types that are elements of an array: what is put or read as values has their dtype.
#![allow(unsafe_code, reason = "values are looked at as bytes here, for types of which that is true")]

use forebay_core::dtype::Dtype;

/// A type whose values lie in memory as elements of a dtype do. Complex numbers are pairs of their parts.
///
/// `bool` is none, since not every byte is one: its arrays are read as bytes, with a target of
/// [`Dtype::Bool`]. `float16` and `bfloat16` have no type of Rust's.
///
/// # Safety
/// The type has the dtype's size, no padding, and any bytes make a value of it.
pub unsafe trait Element: Copy + Default + 'static {
    /// The dtype.
    const DTYPE: Dtype;
}

macro_rules! elements {
    ($($kind:ty = $dtype:ident,)*) => { $(
        // SAFETY: numbers of that size, and pairs of them.
        unsafe impl Element for $kind {
            const DTYPE: Dtype = Dtype::$dtype;
        }
    )* };
}

elements! {
    i8 = I8, u8 = U8, i16 = I16, u16 = U16, i32 = I32, u32 = U32, i64 = I64, u64 = U64,
    f32 = F32, f64 = F64, [f32; 2] = C64, [f64; 2] = C128,
}

/// Values as the bytes that they are.
pub fn bytes_of<T: Element>(values: &[T]) -> &[u8] {
    // SAFETY: there is no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The same, to be written: any bytes make values.
pub fn bytes_of_mut<T: Element>(values: &mut [T]) -> &mut [u8] {
    let bytes = size_of_val(values);
    // SAFETY: as above, and whatever is written is a value.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), bytes) }
}

/// Bytes as the values that they are; `None` if they do not lie where such values do.
pub(crate) fn values_of<T: Element>(bytes: &[u8]) -> Option<&[T]> {
    let is_aligned = bytes.as_ptr().cast::<T>().is_aligned() && bytes.len().is_multiple_of(size_of::<T>());
    // SAFETY: any bytes make values, and these are aligned as values are and end with one.
    is_aligned
        .then(|| unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len() / size_of::<T>()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has_its_size<T: Element>() {
        assert_eq!(size_of::<T>(), T::DTYPE.size());
    }

    #[test]
    fn elements_have_the_size_of_their_dtype() {
        has_its_size::<i8>();
        has_its_size::<u16>();
        has_its_size::<f32>();
        has_its_size::<i64>();
        has_its_size::<[f32; 2]>();
        has_its_size::<[f64; 2]>();
        let mut values = [1u16, 0x0203];
        assert_eq!(bytes_of(&values), [1, 0, 3, 2]);
        assert_eq!(values_of::<u16>(bytes_of(&values)), Some(&values[..]));
        assert_eq!(values_of::<u16>(&bytes_of(&values)[..3]), None, "half a value");
        assert_eq!(values_of::<u16>(&bytes_of(&values)[1..3]), None, "between values");
        bytes_of_mut(&mut values)[3] = 0xff;
        assert_eq!(values[1], 0xff03);
    }
}
