//! Forebay's expressions: what a scientist watches for, or asks once.
//!
//! Pure functions and state machines: no input, no output, no clocks. A text becomes a tree ([`syntax`]); where the fields are known
//! that it names ([`schema`]), the tree becomes a plan ([`mod@check`], [`plan`]) of [`value`]s.

pub mod check;
pub mod plan;
pub mod schema;
pub mod syntax;
pub mod value;

pub use check::{Purpose, check};
pub use plan::Plan;
pub use schema::Schema;
pub use syntax::Syntax;
