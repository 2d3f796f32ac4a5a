//! Statistics of blocks, in the pass that copies them.
//!
//! - [`accumulator`]: elements come run by run, and become the statistics of a block;
//! - [`compared`]: the smallest and the largest of elements;
//! - [`moments`]: what is added up of elements;
//! - [`position`]: where an element lies that is the same as a value.

mod accumulator;
mod compared;
mod moments;
mod position;
#[cfg(test)]
mod tests;

pub use accumulator::Accumulator;
