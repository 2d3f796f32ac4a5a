//! A group of servers: who its members are, how they agree on it, and how they reach each other. It knows nothing of what the
//! servers do with that: what it is used by, it tells through one trait ([`Application`]).
//!
//! - [`cluster`]: what a member knows of its group and itself ([`Cluster`]);
//! - [`application`]: what the group tells the server that is its member;
//! - [`options`]: with what a member is started; [`environment`]: the host, the clock and the way to other servers;
//! - [`forming`]: founding a group, or joining one, through its connection file;
//! - [`membership`]: the agreement on the members, the lease that it gives, rosters that come into force, and healing;
//! - [`failure`]: members that fall silent (SWIM, pings), processes that die, and this server's own standstill;
//! - [`peers`]: connections to the other servers, and from them;
//! - `testing`: members of groups that tests make up (feature `testing`);
//! - [`watched`]: a value that others wait for.

pub mod application;
pub mod cluster;
pub mod environment;
pub mod failure;
pub mod forming;
pub mod membership;
pub mod options;
pub mod peers;
#[cfg(feature = "testing")]
pub mod testing;
pub mod watched;

pub use application::Application;
pub use cluster::Cluster;
pub use options::ClusterOptions;
