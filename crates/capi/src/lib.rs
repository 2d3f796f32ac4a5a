//! Forebay's C library. What it offers stands in `include/forebay.h`: its functions are written by hand there, structs and
//! numbers come from `interface/forebay.toml`, as here; a test compares the two.
//!
//! - `abi`: the structs of the header, and its numbers;
//! - `boundary`: what every call does on its way in and out: handles, errors, panics;
//! - `arguments`: reading what a caller passes, suspiciously;
//! - `options`, `compound`: how handles are opened;
//! - `boxes`: blocks and selections: from C's description to ours;
//! - `producer`, `attributes`, `pipeline`, `consumer`, `step`, `value`, `fields`, `rows`, `stream`, `subscription`, `space`, `admin`,
//!   `general`: the functions;
//! - `elements`, `comm`, `collectives`: what `include/forebay_comm.h` offers;
//! - `attr_table`, `field_texts`: what a step tells, as C has text;
//! - `subscribers`: what this process makes subscriptions with;
//! - `command`: running the command `forebay`, for what only that can do.

mod abi;
mod admin;
mod arguments;
mod attr_table;
mod attributes;
mod boundary;
mod boxes;
mod collectives;
mod comm;
mod command;
mod compositing;
mod compound;
mod consumer;
mod elements;
mod field_texts;
mod fields;
mod general;
#[cfg(test)]
mod header_test;
mod options;
mod pipeline;
mod placement;
mod producer;
mod rows;
mod space;
mod step;
mod stream;
mod subscribers;
mod subscription;
mod value;
