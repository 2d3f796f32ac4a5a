//! Arrays that NumPy described: address, shape, strides.
#![allow(unsafe_code)]

use forebay_client::Result;
use forebay_client::core::dtype::Dtype;
use forebay_client::store::strided::{Source, Target};

/// An array of the caller's. The package keeps it alive and unchanged for the time of the call.
#[derive(Debug, Clone)]
pub(crate) struct Array {
    pub(crate) address: usize,
    pub(crate) shape: Vec<u64>,
    pub(crate) strides: Vec<i64>,
    pub(crate) dtype: Dtype,
}

impl Array {
    /// To be read.
    pub(crate) fn source(&self) -> Result<Source<'_>> {
        // SAFETY: the package passes what NumPy says of an array that it holds during the call.
        let source = unsafe {
            Source::new(self.address as *const u8, &self.shape, Some(&self.strides), self.dtype.size())
        };
        source?.typed(self.dtype)
    }

    /// To be written.
    pub(crate) fn target(&mut self) -> Result<Target<'_>> {
        // SAFETY: as above, of an array that the package made or found writable, without inner overlap.
        let target = unsafe {
            Target::new(self.address as *mut u8, &self.shape, Some(&self.strides), self.dtype.size())
        };
        target?.typed(self.dtype)
    }
}
