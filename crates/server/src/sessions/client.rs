//! A client's connection, as the sessions of all roles use it.

use crate::node::Node;
use forebay_cluster::failure::process::{self, Process};
use forebay_core::ids::ServerId;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::asynchronous::{Outbox, Receiver};
use forebay_wire::protocol::Reply;
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A client's connection.
pub(super) struct Client {
    pub(super) node: Arc<Node>,
    pub(super) receiver: Receiver,
    pub(super) outbox: Arc<Outbox>,
    /// Its process, watched, if it is on this host: proves its death.
    pub(super) process: Option<Arc<Process>>,
    pub(super) shared_memory: bool,
    /// How long the server waits at most on the peer's behalf where it does not say so: a little less than it waits
    /// itself, so that it hears why.
    pub(super) patience: Duration,
}

impl Client {
    /// Answers a question.
    pub(super) fn reply<R: Reply>(&self, request: u64, answer: Result<R>) -> Result<()> {
        let header = self.node.header(request);
        match self.outbox.push(header, &answer) {
            // Longer than a message may be: the connection is as good as before.
            Err(error) if error.kind == ErrorKind::Invalid => self.outbox.push(header, &Err::<R, _>(error)),
            sent => sent,
        }
    }

    /// Answers a question, with a descriptor.
    pub(super) fn reply_with<R: Reply>(&self, request: u64, answer: R, descriptor: OwnedFd) -> Result<()> {
        self.outbox.push_with(self.node.header(request), &Ok::<R, Error>(answer), vec![descriptor], None)
    }

    /// Answers a question as it was handled: `None` if it is answered already, or needs no answer. What failed is told; an
    /// error after which the connection cannot go on is passed on. Returns what failed where nobody asked.
    pub(super) fn finish<R: Reply>(&self, request: u64, handled: Result<Option<R>>) -> Result<Option<Error>> {
        match handled {
            Ok(Some(answer)) if request != 0 => self.reply(request, Ok(answer)).map(|()| None),
            Ok(_) => Ok(None),
            Err(error) if is_fatal(&error) => Err(error),
            Err(error) if request != 0 => self.reply(request, Err::<R, _>(error)).map(|()| None),
            Err(error) => Ok(Some(error)),
        }
    }

    /// As `finish`, where what another server fails at does not harm the connection.
    pub(super) fn finish_reading<R: Reply>(
        &self,
        request: u64,
        handled: Result<Option<R>>,
    ) -> Result<Option<Error>> {
        match handled {
            Err(error) if error.kind == ErrorKind::Unreachable && request != 0 => {
                self.reply(request, Err::<R, _>(error)).map(|()| None)
            }
            Err(error) if error.kind == ErrorKind::Unreachable => Ok(Some(error)),
            handled => self.finish(request, handled),
        }
    }

    /// What says that something is kept is said only while the group stands behind this server; nothing is said where nobody
    /// asked.
    pub(super) async fn may_acknowledge(&self, request: u64) -> Result<()> {
        match request {
            0 => Ok(()),
            _ => self.node.may_acknowledge(self.patience).await,
        }
    }

    /// Waits until the client has closed its connection, or its process has ended: what is done for it needs not go on.
    pub(super) async fn left(&self) {
        tokio::select! {
            biased;
            () = self.receiver.hung_up() => {}
            () = process::ended(self.process.as_deref()) => {}
        }
    }

    /// Waits until the client's process has ended, if it may still use memory that is shared with it.
    pub(super) async fn until_memory_is_unused(&self, uses: bool) {
        if let (true, Some(process)) = (self.shared_memory && uses, &self.process) {
            process.ended().await;
        }
    }

    /// The server that coordinates a stream, if it is another one.
    pub(super) async fn find_elsewhere(&self, stream: &str) -> Result<Option<ServerId>> {
        let found = timeout(self.patience, self.node.find_place(stream)).await;
        let server = found.map_err(|_| {
            Error::timeout(format!(
                "it is not known yet which server coordinates {}: one stands still",
                forebay_query::in_words(stream)
            ))
        })?;
        Ok((server != self.node.id).then_some(server))
    }
}

/// Waits until a process has ended. Once that is known, only lets what has arrived be taken first.
pub(super) async fn process_ended(process: Option<&Process>, known: bool) {
    match process {
        Some(_) if known => tokio::time::sleep(Duration::from_millis(20)).await,
        process => process::ended(process).await,
    }
}

/// Tells in the log of a message that is not answered and failed.
pub(super) fn log_unanswered(error: Option<Error>) {
    if let Some(error) = error {
        tracing::info!("an unanswered message failed: {error}");
    }
}

/// Whether a connection cannot go on after an error.
fn is_fatal(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Protocol | ErrorKind::Unreachable)
}
