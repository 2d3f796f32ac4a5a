//! Where blocks live: arenas of shared memory, handed out in ranges by the server alone.
//!
//! - [`mapping`] maps an arena into a process (unsafe code stands there, in [`strided`], [`extremes`] and [`element`] only);
//! - [`allocator`] and [`ranges`] are the arithmetic of ranges;
//! - [`arena`] is one memory file with its ranges' life: reserved, committed, retired, free;
//! - [`begin_word`] is how a rank and its home agree on a step's beginning without a message;
//! - [`store`] is all arenas of a server under one byte [`budget`];
//! - [`element`] says which Rust types are elements of arrays;
//! - [`strided`] copies between any layouts, [`stats`] computes block statistics in the same pass;
//! - [`extremes`] finds the smallest and the largest of floats, while they are copied too;
//! - [`evaluate`] runs the programs of expressions over blocks.

pub mod allocator;
pub mod arena;
pub mod begin_word;
pub mod budget;
pub mod element;
pub mod evaluate;
mod extremes;
pub mod mapping;
pub mod ranges;
pub mod stats;
pub mod store;
mod streaming;
pub mod strided;

pub use arena::{Arena, Range, lead, range_of};
pub use begin_word::{BeginWord, PutWord, TakenWord};
pub use element::Element;
pub use mapping::{Access, Mapping};
pub use store::{PrefaultRange, Store, Usage};

/// Bytes of a page; arenas count in these.
pub const PAGE: u64 = 4096;

/// Rounds up to whole pages.
pub fn pages(bytes: u64) -> u64 {
    bytes.div_ceil(PAGE).saturating_mul(PAGE)
}
