//! Transports: how bytes and file descriptors get from one process to another.
//!
//! A [`Link`] is one connected pair of ends that never blocks. [`shm`] links are Unix sockets, which also
//! carry descriptors of shared memory; [`tcp`] links reach other hosts; [`inprocess`] ones serve tests.
//! Two drivers stand on top: [`blocking`] for clients, which start no thread, and [`asynchronous`] for
//! servers. Both speak the frames of `forebay-wire`. Every link passes one suite
//! (`testing`, with that feature), and every transport another one through both drivers (`tests/`).

pub mod address;
#[cfg(feature = "asynchronous")]
pub mod asynchronous;
pub mod blocking;
pub mod connection_file;
pub mod fork;
pub mod host;
pub mod inprocess;
pub mod link;
pub mod listener;
#[cfg(feature = "asynchronous")]
pub mod readiness;
pub mod shm;
pub mod tcp;
#[cfg(feature = "testing")]
pub mod testing;
pub mod witness;
mod written;

pub use address::Address;
pub use connection_file::ConnectionFile;
pub use link::{Kind, Link};
pub use listener::Listener;
