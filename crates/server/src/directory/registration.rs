//! This server as the home of ranks: it registers what a rank put with the owners of the tiles, and only then tells the
//! stream's coordinator that the rank has ended the step: who is told of the step finds all of its blocks.
//!
//! The rank does not wait for this. What a rank does is told in order: its next steps, and its end, after this one. Blocks that
//! cannot be registered, since an owner is gone or silent, travel with the step instead.

mod step;

pub(crate) use step::{Done, RegisteredStep};

use crate::context::Context;
use crate::streams::local_ranks::RankKey;
use forebay_cluster::environment::HashMap;
use forebay_core::Error;
use forebay_core::ids::{BlockKey, ServerId, StepId, StepNumber};
use forebay_core::steps::StepContribution;
use forebay_core::tiles::TileCache;
use forebay_wire::peer::directory::Message;
use forebay_wire::peer::streams;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use step::StepRegistration;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// How long an owner may take to answer.
const OWNER_PATIENCE: Duration = Duration::from_secs(10);

/// What this server's ranks have done and the coordinators are to be told, once it is registered.
#[derive(Debug, Default)]
pub(crate) struct Registrations {
    by_rank: HashMap<RankKey, VecDeque<Item>>,
    /// Questions to owners, by token.
    asked: HashMap<u64, RankKey>,
}

/// Something that a rank has done.
#[derive(Debug)]
enum Item {
    Step(Box<StepRegistration>),
    /// A step of which other servers are to hold copies, before anybody is told of it.
    Replicating {
        step: StepNumber,
        ended: Arc<StepContribution>,
        done: Option<Done>,
    },
    /// Anything else that the coordinator is told of the rank.
    Tell(Box<streams::Message>),
    /// Somebody waits until all before it is told.
    Told(oneshot::Sender<()>),
}

/// What is to be done next of what a rank has done.
#[derive(Debug)]
pub(crate) enum Ready {
    /// The coordinator is told something of the rank.
    Tell(Box<streams::Message>),
    /// A step is registered: it gets the copies that it is to have, and the coordinator is told.
    Step(Box<RegisteredStep>),
}

impl Item {
    /// Whether copies are made of this step.
    fn replicates(&self, step: StepNumber) -> bool {
        matches!(self, Item::Replicating { step: of, .. } if *of == step)
    }
}

impl Registrations {
    /// Whether coordinators are told of all that ranks have done.
    pub(crate) fn are_told(&self) -> bool {
        self.by_rank.is_empty()
    }

    /// Whether the coordinator has been told of all that a rank has done.
    pub(crate) fn is_told(&self, rank: &RankKey) -> bool {
        !self.by_rank.contains_key(rank)
    }

    /// Tells when the coordinator has been told of all that a rank has done; `None` if it has been.
    pub(crate) fn until_told(&mut self, rank: &RankKey) -> Option<oneshot::Receiver<()>> {
        let queue = self.by_rank.get_mut(rank)?;
        let (sender, told) = oneshot::channel();
        queue.push_back(Item::Told(sender));
        Some(told)
    }

    /// The coordinator is to be told something of a rank after all that the rank ended before. Comes back if it can be told at
    /// once.
    pub(crate) fn defer(&mut self, rank: &RankKey, message: streams::Message) -> Option<streams::Message> {
        match self.by_rank.get_mut(rank) {
            Some(queue) => {
                queue.push_back(Item::Tell(Box::new(message)));
                None
            }
            None => Some(message),
        }
    }

    /// A rank has ended a step: its placed blocks are registered, if these tiles are given; then it gets so many copies.
    pub(crate) fn begin(
        &mut self,
        cx: &mut Context<'_>,
        (id, rank): (StepId, u32),
        ended: StepContribution,
        tiles: Option<&mut TileCache>,
        (copies, done): (u32, Option<Done>),
    ) {
        let key = (id.stream.clone(), id.run, rank);
        let mut step = StepRegistration::new(id, rank, ended, copies, done);
        if let Some(tiles) = tiles {
            for (server, message) in step.questions(&cx.server.standing().roster.shards, tiles) {
                self.ask(cx, &key, &mut step, server, message);
            }
        }
        self.by_rank.entry(key).or_default().push_back(Item::Step(Box::new(step)));
    }

    fn ask(
        &mut self,
        cx: &mut Context<'_>,
        key: &RankKey,
        step: &mut StepRegistration,
        server: ServerId,
        message: impl FnOnce(u64) -> Message,
    ) {
        let token = cx.server.unique();
        if cx.tell(server, message(token)) {
            step.on_asked(token, server);
            self.asked.insert(token, key.clone());
        } else {
            step.on_failed(server);
        }
    }

    /// An owner has registered what was asked for, apart from what it refused; or let go of what others refused. Of which rank
    /// that was.
    pub(crate) fn on_registered(
        &mut self,
        token: u64,
        refused: Vec<(String, BlockKey)>,
        error: Option<Error>,
    ) -> Option<RankKey> {
        let key = self.asked.remove(&token)?;
        let mut steps = self.by_rank.get_mut(&key).into_iter().flatten().filter_map(|item| match item {
            Item::Step(step) => Some(step),
            _ => None,
        });
        if let Some(step) = steps.find(|step| step.waits_for(token)) {
            step.on_registered(token, refused, error);
        }
        Some(key)
    }

    /// A server died: the ranks whose steps wait for it no more.
    pub(crate) fn on_server_gone(&mut self, server: ServerId) -> Vec<RankKey> {
        self.give_up(|asked, _| asked == server)
    }

    /// Gives up owners that do not answer: the ranks whose steps wait for them no more.
    pub(crate) fn give_up_overdue(&mut self) -> Vec<RankKey> {
        self.give_up(|_, since| since.elapsed() > OWNER_PATIENCE)
    }

    /// Nothing is awaited from these questions any more: their servers are gone, or silent for too long.
    fn give_up(&mut self, is_hopeless: impl Fn(ServerId, Instant) -> bool) -> Vec<RankKey> {
        let mut touched = Vec::new();
        for (key, queue) in &mut self.by_rank {
            for item in queue {
                let Item::Step(step) = item else { continue };
                for token in step.give_up(&is_hopeless) {
                    self.asked.remove(&token);
                    touched.push(key.clone());
                }
            }
        }
        touched
    }

    /// The next thing that a rank has done, in order, if it is complete.
    pub(crate) fn next(&mut self, cx: &mut Context<'_>, key: &RankKey) -> Option<Ready> {
        loop {
            let queue = self.by_rank.get_mut(key)?;
            match queue.pop_front() {
                Some(Item::Step(mut step)) => {
                    let cleans_up = step.is_answered() && step.begin_clean_up();
                    if cleans_up {
                        for (server, message) in step.clean_up_questions() {
                            self.ask(cx, key, &mut step, server, message);
                        }
                    }
                    if step.is_answered() && !cleans_up {
                        return Some(Ready::Step(Box::new(step.finish(cx.me()))));
                    }
                    self.by_rank.get_mut(key)?.push_front(Item::Step(step));
                    if !cleans_up {
                        return None;
                    }
                }
                Some(replicating @ Item::Replicating { .. }) => {
                    queue.push_front(replicating);
                    return None;
                }
                Some(Item::Tell(message)) => return Some(Ready::Tell(message)),
                Some(Item::Told(told)) => drop(told.send(())),
                None => {
                    self.by_rank.remove(key);
                    return None;
                }
            }
        }
    }

    /// Before anybody is told of a step that was next, other servers are to hold copies.
    pub(crate) fn begin_replicating(
        &mut self,
        key: &RankKey,
        step: StepNumber,
        ended: Arc<StepContribution>,
        done: Option<Done>,
    ) {
        let queue = self.by_rank.entry(key.clone()).or_default();
        queue.push_front(Item::Replicating { step, ended, done });
    }

    /// Other servers hold copies of a step, or cannot: who waits for that, if the step is next; `None` if it is not.
    pub(crate) fn take_done(&mut self, key: &RankKey, step: StepNumber) -> Option<Option<Done>> {
        let front = self.by_rank.get_mut(key)?.front_mut()?;
        match front {
            Item::Replicating { step: of, done, .. } if *of == step => Some(done.take()),
            _ => None,
        }
    }

    /// Nothing more is waited for before others are told that a rank has ended a step: what they are told, if it is next.
    pub(crate) fn end_replicating(
        &mut self,
        key: &RankKey,
        step: StepNumber,
    ) -> Option<Arc<StepContribution>> {
        let queue = self.by_rank.get_mut(key)?;
        queue.front().filter(|item| item.replicates(step))?;
        match queue.pop_front()? {
            Item::Replicating { ended, .. } => Some(ended),
            _ => None,
        }
    }

    /// Checks what always holds between two events.
    #[cfg(test)]
    pub(super) fn sanity_check(&self) -> std::result::Result<(), String> {
        let mut waiting = 0;
        for (key, queue) in &self.by_rank {
            if queue.is_empty() {
                return Err(format!("nothing waits of rank {} of stream '{}'", key.2, key.0));
            }
            for item in queue {
                let Item::Step(step) = item else { continue };
                let tokens = step.awaited();
                if let Some(token) = tokens.iter().find(|token| self.asked.get(token) != Some(key)) {
                    return Err(format!("question {token} is about another rank than {key:?}"));
                }
                waiting += tokens.len();
            }
        }
        match self.asked.len() == waiting {
            true => Ok(()),
            false => Err(format!("{} questions were asked, and {waiting} are waited for", self.asked.len())),
        }
    }
}
