//! For tests of what implements this crate's traits: [`link`] is the suite that every [`crate::Link`] passes.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::missing_panics_doc,
    reason = "a suite is called by tests, which fail by panicking"
)]

pub mod link;
