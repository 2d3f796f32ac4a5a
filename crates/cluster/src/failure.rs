//! Members that fail: noticed, suspected, and lost. What one server notices is a suspicion; who goes, the members agree on.
//!
//! - [`swim`]: members that fall silent, as SWIM finds them;
//! - [`ping`]: whether a member answers this server;
//! - [`loss`]: members whose connection or process has ended;
//! - [`process`]: processes of this host, watched;
//! - [`stall_guard`]: this server itself has stood still.

mod loss;
pub(crate) mod ping;
pub mod process;
pub(crate) mod stall_guard;
pub(crate) mod swim;

pub(crate) use swim::SILENCE;
pub use swim::{SILENCE_MAX, SILENCE_MIN};
