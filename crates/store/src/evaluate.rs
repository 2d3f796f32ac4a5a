//! Computing with the elements of blocks: a program of a plan runs over them in chunks that fit the nearest caches, and what it gives
//! is gathered.
//!
//! Registers of a chunk each, as in P. Boncz, M. Zukowski and N. Nes, "MonetDB/X100: Hyper-pipelining query execution" (CIDR 2005).
//!
//! - [`window`]: which elements, and where their bytes lie;
//! - [`runs`]: these elements as runs that lie side by side, and runs as chunks;
//! - [`load`]: from bytes to registers;
//! - [`kernels`]: one instruction on a chunk;
//! - [`fused`]: instructions that are done together;
//! - [`machine`]: all instructions on a chunk;
//! - [`value`]: what is in registers;
//! - [`chunk_sum`]: the exact sum of a chunk;
//! - [`keys`]: numbers by their keys;
//! - [`slices`]: the sums of slices of numbers;
//! - [`units`]: elements in boxes, alike whoever computes with them;
//! - [`reducer`]: what is gathered of chunks;
//! - [`gather`]: the answer to a question, of a window;
//! - [`dense`]: elements that lie in short runs, side by side;
//! - [`arrays`]: the same of a piece, whose bytes are shown.

mod arrays;
mod chunk_sum;
#[cfg(test)]
mod decide_tests;
mod dense;
mod fused;
mod gather;
mod kernels;
mod keys;
mod load;
mod machine;
mod reducer;
mod runs;
mod slices;
#[cfg(test)]
mod tests;
mod units;
mod value;
mod window;

pub use arrays::{Shown, gather_piece};
pub use gather::{gather, nothing};
pub use units::{CACHED, COPIED, JOB, boxes_of};
pub use window::{FieldArray, Window};

/// How many elements are computed with at a time.
const CHUNK: usize = 1024;
