//! What is gathered of the elements of a domain: in rounds of questions, whose answers are merged whatever their order.
//!
//! - [`question`]: what is asked in a round;
//! - [`keys`]: numbers in their order as integers;
//! - [`buckets`]: into which bucket a number is counted;
//! - [`total`]: a sum;
//! - [`moments`]: how numbers spread;
//! - [`partial`]: an answer, of some of the elements;
//! - [`ranks`]: which two numbers a percentile lies between;
//! - [`gathering`]: from the first question to the last.

mod buckets;
mod gathering;
mod keys;
mod moments;
mod partial;
mod question;
mod ranks;
mod total;

pub use buckets::{BUCKETS, SKETCH_SHIFT, VALUES_MAX, bin_of, sketch_bucket, sketch_buckets, sketch_value};
pub use gathering::{Found, Gathering};
pub use keys::{key_of, number_of};
pub use moments::Moments;
pub use partial::{Extreme, Gathered, Partial};
pub use question::{Question, Stage};
pub use total::Total;
