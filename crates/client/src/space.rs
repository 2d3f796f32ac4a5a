//! The space: arrays put and got by name, step and region, whoever put them.
//!
//! From the bottom up: [`handle`], [`found`], [`put`], [`find`], [`evaluate`], [`remove`], [`list`].

mod evaluate;
mod find;
mod found;
mod handle;
mod list;
mod put;
mod remove;

pub use handle::Space;
pub use list::SpaceArray;
pub use put::SpacePut;
