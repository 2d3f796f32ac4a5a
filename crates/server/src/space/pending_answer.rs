//! What another server was asked.

use crate::questions::Answer;
use forebay_core::ids::ServerId;
use tokio::sync::oneshot;

/// An answer that another server is to give.
#[derive(Debug)]
pub(crate) struct PendingAnswer {
    pub(crate) server: ServerId,
    pub(crate) token: u64,
    /// Ends without an answer if the server dies.
    pub(crate) answer: oneshot::Receiver<Answer>,
}
