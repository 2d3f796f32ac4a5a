//! Forebay's C library. What it offers stands in `include/forebay.h`, which is written by hand; a test
//! compares the two.
//!
//! - `abi`: the structs of the header, and its numbers;
//! - `boundary`: what every call does on its way in and out: handles, errors, panics;
//! - `arguments`: reading what a caller passes, suspiciously;
//! - `boxes`: blocks and selections: from C's description to ours;
//! - `producer`, `attributes`, `pipeline`, `consumer`, `space`, `general`: the functions.

mod abi;
mod arguments;
mod attributes;
mod boundary;
mod boxes;
mod consumer;
mod general;
#[cfg(test)]
mod header_test;
mod pipeline;
mod placement;
mod producer;
mod space;
