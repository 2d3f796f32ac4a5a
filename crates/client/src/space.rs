//! The space: arrays put and got by name, step and region, whoever put them.
//!
//! From the bottom up: [`options`], [`handle`], [`found`], [`put`], [`find`], [`remove`].

mod find;
mod found;
mod handle;
mod options;
mod put;
mod remove;

pub use handle::Space;
pub use options::SpaceOptions;
pub use put::SpacePut;
