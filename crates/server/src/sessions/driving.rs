//! A rank drives a pipeline: its home asks the server that coordinates that, so that servers have no connections to ranks
//! of other homes.

use super::client::Client;
use super::role_session::PATIENCE_MAX;
use crate::node::Node;
use crate::questions::Answer;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::producer::Reply;
use forebay_wire::drive::{Drive, DriveAnswer};
use forebay_wire::peer::pipelines::Message;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// How many questions of one rank may be unanswered.
const UNANSWERED_MAX: usize = 64;
/// How long to wait before a coordinator is asked again that is still to learn of the pipeline.
const ASK_AGAIN: Duration = Duration::from_millis(5);

/// What a rank asked for of pipelines that it drives, and is answered later.
#[derive(Debug, Default)]
pub(super) struct Driving(JoinSet<()>);

impl Driving {
    /// A rank wants something of a pipeline. Answered at once if that can be, else later, while other messages are taken.
    pub(super) async fn on_request(&mut self, client: &Client, request: u64, drive: Drive) -> Result<()> {
        let node = client.node.clone();
        if request == 0 {
            let mut state = node.state.lock();
            let coordinator = node.coordinator_of(&state, &drive.stream);
            node.tell(&mut state, coordinator, Message::Drive { token: 0, drive: Box::new(drive) });
            node.drain(&mut state);
            return Ok(());
        }
        while self.0.try_join_next().is_some() {}
        if self.0.len() >= UNANSWERED_MAX {
            return Err(Error::protocol("too many questions about a pipeline are unanswered"));
        }
        let mut answered = Box::pin(ask(node.clone(), drive));
        let at_once = poll_fn(|context| Poll::Ready(answered.as_mut().poll(context))).await;
        if let Poll::Ready(answer) = at_once {
            return client.reply(request, answer.map(Reply::Driven));
        }
        let outbox = client.outbox.clone();
        self.0.spawn(async move {
            let answer = answered.await.map(Reply::Driven);
            if let Err(error) = outbox.push(node.header(request), &answer) {
                tracing::info!("a rank that drives a pipeline is not answered: {error}");
            }
        });
        Ok(())
    }
}

/// Asks the coordinator, or the one that takes its place.
async fn ask(node: Arc<Node>, drive: Drive) -> Result<DriveAnswer> {
    let deadline = Instant::now() + PATIENCE_MAX;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let question = |token| Message::Drive { token, drive: Box::new(drive.clone()) };
        let result = match node.ask_coordinator(&drive.stream, drive.rank, left, question).await {
            Ok(Answer::Driven(result)) => result,
            Ok(_) => Err(Error::internal("a coordinator gave another answer than asked for")),
            Err(error) => Err(error),
        };
        match result {
            Err(error) if error.kind == ErrorKind::Unreachable && !left.is_zero() => sleep(ASK_AGAIN).await,
            result => return result,
        }
    }
}
