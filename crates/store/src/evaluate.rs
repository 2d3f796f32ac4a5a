//! Computing with the elements of blocks: a program of a plan runs over them in chunks that fit the nearest caches, and what it gives
//! is gathered.
//!
//! Registers of a chunk each, as in P. Boncz, M. Zukowski and N. Nes, "MonetDB/X100: Hyper-pipelining query execution" (CIDR 2005).
//!
//! - [`window`]: which elements, and where their bytes lie;
//! - [`runs`]: these elements as runs that lie side by side, and runs as chunks;
//! - [`load`]: from bytes to registers;
//! - [`kernels`]: one instruction on a chunk;
//! - [`machine`]: all instructions on a chunk;
//! - [`value`]: what is in registers;
//! - [`chunk_sum`]: the exact sum of a chunk;
//! - [`reducer`]: what is gathered of chunks;
//! - [`gather`]: the answer to a question, of a window;
//! - [`arrays`]: the same of a piece, whose bytes are shown.

mod arrays;
mod chunk_sum;
#[cfg(test)]
mod decide_tests;
mod gather;
mod kernels;
mod load;
mod machine;
mod reducer;
mod runs;
#[cfg(test)]
mod tests;
mod value;
mod window;

pub use arrays::{Shown, gather_piece};
pub use gather::{gather, nothing};
pub use window::{FieldArray, Window};

/// How many elements are computed with at a time.
const CHUNK: usize = 1024;
