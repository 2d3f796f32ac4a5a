//! A rank drives a pipeline: its home asks the server that coordinates that, so that servers have no connections to ranks
//! of other homes.

use super::{PATIENCE_MAX, Session};
use crate::node::Node;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::message::{Drive, ToClient};
use forebay_wire::peer::PeerMessage;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How many questions of one rank may be unanswered.
const UNANSWERED_MAX: usize = 64;
/// How long to wait before a coordinator is asked again that is still to learn of the pipeline.
const ASK_AGAIN: Duration = Duration::from_millis(5);

impl Session {
    /// A rank wants something of a pipeline. Answered at once if that can be, else later, while other messages are taken.
    pub(super) async fn drive(&mut self, request: u64, drive: Drive) -> Result<Option<ToClient>> {
        let Some(producing) = &self.producing else { return Err(Error::step_order("join a stream first")) };
        if !producing.is(&drive.stream, drive.run, drive.rank) {
            return Err(Error::protocol("another rank than this one drives a pipeline"));
        }
        let node = self.node.clone();
        if request == 0 {
            let mut state = node.state.lock();
            let coordinator = node.coordinator_of(&state, &drive.stream);
            node.tell(&mut state, coordinator, PeerMessage::Drive { token: 0, drive: Box::new(drive) });
            node.drain(&mut state);
            return Ok(None);
        }
        while self.driving.try_join_next().is_some() {}
        if self.driving.len() >= UNANSWERED_MAX {
            return Err(Error::protocol("too many questions about a pipeline are unanswered"));
        }
        let mut answered = Box::pin(ask(node.clone(), drive));
        let at_once = poll_fn(|context| Poll::Ready(answered.as_mut().poll(context))).await;
        if let Poll::Ready(answer) = at_once {
            return Ok(Some(answer));
        }
        let outbox = self.outbox.clone();
        self.driving.spawn(async move {
            let answer = answered.await;
            if let Err(error) = outbox.push(node.header(request), &answer) {
                tracing::info!("a rank that drives a pipeline is not answered: {error}");
            }
        });
        Ok(None)
    }
}

/// Asks the coordinator, or the one that takes its place.
async fn ask(node: Arc<Node>, drive: Drive) -> ToClient {
    let deadline = Instant::now() + PATIENCE_MAX;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let question = |token| PeerMessage::Drive { token, drive: Box::new(drive.clone()) };
        let result = match node.ask_coordinator(&drive.stream, drive.rank, left, question).await {
            Ok(PeerMessage::Driven { result, .. }) => result,
            Ok(PeerMessage::Answer { result: Err(error), .. }) => Err(error),
            Ok(_) => Err(Error::internal("a coordinator gave another answer than asked for")),
            Err(error) => Err(error),
        };
        match result {
            Err(error) if error.kind == ErrorKind::Unreachable && !left.is_zero() => sleep(ASK_AGAIN).await,
            result => return result.map_or_else(ToClient::Failed, ToClient::Driven),
        }
    }
}
