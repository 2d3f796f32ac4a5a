//! Shared memory of two processes of one host: what goes from one to the other without the kernel.
//!
//! Lowest first: `atomic` is the numbers that both change, `ring` carries bytes, `loan` is the word of a message that is read where it
//! lies, `bell` wakes who sleeps. `file` and `segment` are the memory in which all of that stands; `foreign` reads what another
//! process lends; `record` is what stands in a ring.

mod atomic;
mod bell;
mod file;
mod foreign;
mod loan;
mod record;
mod ring;
mod segment;
#[cfg(test)]
mod tests;

pub(crate) use bell::{Bell, NAP};
pub(crate) use foreign::{Foreign, Probe};
pub(crate) use loan::LOANS;
pub(crate) use record::{HEAD, Head, Kind, PIECE};
pub(crate) use ring::{LINE, Reader, Writer};
pub(crate) use segment::{Direction, Segment};
