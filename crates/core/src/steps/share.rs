//! Readers of one name that share the steps of a stream: each step is given to one of them, and to another one if that dies. To
//! the coordinator they are one attachment.

mod members;
mod sharer;

pub(super) use members::Share;
pub use members::ShareRecord;
pub use sharer::{Sharer, Sharing};
