//! Evaluations of expressions among the servers of the group.
//!
//! - this module: the rounds of one or more evaluations at a step;
//! - [`records`]: where blocks are of which only their number was told;
//! - [`tree`]: an inquiry along the tree of servers;
//! - [`share`]: the answers for what this server holds;
//! - [`bytes`]: the bytes of pieces: here, or on other servers.

mod bytes;
mod records;
mod share;
mod tree;

use super::{Components, Node};
use crate::evaluation::{CheckedText, Round, StepBlocks};
use crate::questions::Answer;
use forebay_core::block::Location;
use forebay_core::ids::{ServerId, StepId};
use forebay_core::steps::StepReport;
use forebay_core::{Error, ErrorKind};
use forebay_query::Evaluation;
use forebay_query::time::WatchState;
use forebay_query::value::{Unknown, UnknownKind};
use forebay_wire::evaluation::{Answers, Cost};
use forebay_wire::peer::evaluation::Message;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tree::check_size;

/// How often a round is asked that loses a server, before its answers are not known.
const ATTEMPTS: u32 = 5;
/// How long to wait before it is asked again: until then it may be known who holds what that server held.
const AGAIN: Duration = Duration::from_millis(50);

/// How long it may take until it is known who holds what a server held that is gone.
const FOLLOWED: Duration = Duration::from_secs(10);

/// A text that is evaluated at a step.
#[derive(Debug)]
pub(crate) struct Evaluating {
    pub(crate) text: CheckedText,
    pub(crate) evaluation: Evaluation,
    /// What it remembers of steps before, if it is watched: changed as it is evaluated.
    pub(crate) state: Option<WatchState>,
}

impl Node {
    /// A message about evaluations.
    pub(super) fn on_evaluation(&self, state: &mut Components, from: ServerId, message: Message) {
        match message {
            Message::Inquire { token, inquiry } => {
                let Some(node) = self.me.upgrade() else { return };
                tokio::spawn(async move {
                    let answers = node.answer_inquiry(*inquiry, None).await;
                    let result = Box::new(answers.and_then(|answers| check_size(&answers).map(|()| answers)));
                    let mut state = node.state.lock();
                    node.tell(&mut state, from, Message::Answers { token, result });
                    node.drain(&mut state);
                });
            }
            Message::Answers { token, result } => {
                state.common.questions.answer(token, Answer::Evaluated(result));
            }
        }
    }

    /// Evaluates texts at one step, of which these are the reports: of each stream that they name one. All questions of a round are
    /// asked together, each once. `root` chooses the server at which the answers meet. Returns what it has cost.
    pub(crate) async fn evaluate(
        self: &Arc<Node>,
        id: &StepId,
        reports: &[&StepReport],
        evaluating: &mut [Evaluating],
        root: u64,
    ) -> Cost {
        let mut cost = Cost::default();
        let known = self.with_all_records(reports, evaluating).await;
        let reports = known.reports();
        // Nobody waits for what is watched.
        let is_awaited = evaluating.iter().all(|one| one.state.is_none());
        loop {
            let evaluations = evaluating.iter().map(|one| (&one.text, &one.evaluation));
            let blocks = StepBlocks { reports: &reports, unknown: &known.unknown };
            let Some(mut round) = Round::begin(id, blocks, evaluations) else { return cost };
            let began = self.environment.now();
            let answers = self.ask_round(&mut round, root, is_awaited).await;
            let asking = (self.environment.now() - began).as_secs_f64();
            let answers = answers.map(|answers| {
                cost = cost.then(Cost { asking, ..answers.cost });
                answers.gathered
            });
            round.take(answers.map_err(|error| unknown(&error)));
            for (index, one) in evaluating.iter_mut().enumerate() {
                one.evaluation.answer(round.answers_of(index), one.state.as_mut());
            }
        }
    }

    /// Asks all that a round asks. Where a server has gone meanwhile, it is asked again: others may hold the same.
    async fn ask_round(
        self: &Arc<Node>,
        round: &mut Round,
        root: u64,
        is_awaited: bool,
    ) -> Result<Answers, Error> {
        for attempt in 1.. {
            let there = self.servers_there();
            self.follow_blocks(round, &there).await?;
            let here = |server: ServerId| if there.contains(&server) { server } else { self.id };
            let Some(inquiry) = round.inquiry(root, is_awaited, here) else { break };
            match self.inquire(inquiry, round.texts()).await {
                Err(error) if error.kind == ErrorKind::Unreachable && attempt < ATTEMPTS => {
                    tracing::info!("an evaluation is begun again: {error}");
                    tokio::time::sleep(AGAIN * attempt).await;
                }
                answers => return answers,
            }
        }
        Ok(Answers { gathered: Vec::new(), cost: Cost::default() })
    }

    fn servers_there(&self) -> BTreeSet<ServerId> {
        let state = self.state.lock();
        let members = self.standing().view.members.clone();
        members.into_iter().filter(|id| self.is_member(&state, *id)).collect()
    }

    /// Blocks of servers that are gone are looked for where others hold them now.
    async fn follow_blocks(
        self: &Arc<Node>,
        round: &mut Round,
        there: &BTreeSet<ServerId>,
    ) -> Result<(), Error> {
        let gone = round.locations(|server| !there.contains(&server));
        let deadline = Instant::now() + FOLLOWED;
        let mut moved = HashMap::default();
        for location in gone {
            let candidates = self.who_answers(location.server, location.arena, deadline).await?;
            for (server, arena) in &candidates {
                let now = Location { server: *server, arena: *arena, ..location };
                if candidates.len() == 1 || self.has_block(&now).await {
                    moved.insert(location, now);
                    break;
                }
            }
        }
        round.relocate(&moved);
        Ok(())
    }
}

/// Why something is not known that could not be asked.
fn unknown(error: &Error) -> Unknown {
    let kind = match error.kind {
        ErrorKind::NotCovered => UnknownKind::NotCovered,
        ErrorKind::TypeMismatch => UnknownKind::Mismatch,
        _ => UnknownKind::Lost,
    };
    Unknown::new(kind, error.text.clone())
}
