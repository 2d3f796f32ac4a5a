//! The status of a group: what all servers say of themselves, and of their streams and pipelines.
//!
//! - [`told`]: the members of a status, made of their declaration;
//! - `gather`: asks the servers, and puts together what they answer.

mod gather;
pub mod told;
