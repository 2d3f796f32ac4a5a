//! A subscriber, as the server sees it that coordinates its subscription.

use crate::context::Context;
use forebay_core::Error;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::{AttachmentId, HeldStep, StepReport};
use forebay_query::subscription::Event;
use forebay_query::value::Unknown;
use forebay_transport::asynchronous::Outbox;
use forebay_wire::client::consumer;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A subscriber.
#[derive(Debug)]
pub(crate) struct Listener {
    outbox: Arc<Outbox>,
    /// How many events it may be told of with which it has not finished.
    window: u32,
    /// The number of the last event that it was told of.
    pub(super) told: u64,
    /// The steps of events with which it has not finished, and the numbers of these.
    unfinished: BTreeMap<(RunNumber, StepNumber), VecDeque<u64>>,
    /// The steps that it holds as it comes.
    held: Vec<HeldStep>,
}

impl Listener {
    /// One that holds these steps.
    pub(crate) fn new(outbox: Arc<Outbox>, window: u32, held: Vec<HeldStep>) -> Listener {
        let unfinished =
            held.iter().filter(|held| !held.pinned).map(|held| ((held.run, held.step), [0].into())).collect();
        Listener { outbox, window: window.clamp(1, 1024), told: 0, unfinished, held }
    }

    /// It wants to be told of nothing more.
    pub(super) fn close(&mut self) {
        self.window = 0;
        self.told = u64::MAX;
    }

    /// Whether it may be told of events yet.
    pub(super) fn is_open(&self) -> bool {
        self.window > 0
    }

    /// Whether it has not finished with an event of a step.
    pub(super) fn is_unfinished(&self, step: (RunNumber, StepNumber)) -> bool {
        self.unfinished.contains_key(&step)
    }

    /// The steps that it holds as it comes.
    pub(super) fn held(&self) -> Vec<(RunNumber, StepNumber)> {
        self.held.iter().map(|held| (held.run, held.step)).collect()
    }

    /// Whether it may be told of another event.
    pub(super) fn has_room(&self) -> bool {
        self.unfinished.values().map(VecDeque::len).sum::<usize>() < self.window as usize
    }

    /// It has finished with a step: the number of its event; of the first, if arrays of the space were put anew.
    pub(super) fn note_finished(&mut self, step: (RunNumber, StepNumber)) -> Option<u64> {
        let numbers = self.unfinished.get_mut(&step)?;
        let number = numbers.pop_front();
        if numbers.is_empty() {
            self.unfinished.remove(&step);
        }
        number
    }

    /// Tells it an event, with its step if that is held.
    pub(super) fn tell(
        &mut self,
        cx: &Context<'_>,
        attachment: AttachmentId,
        (event, missed): (&Event, u64),
        report: Option<Box<StepReport>>,
    ) {
        self.told = event.number;
        self.unfinished.entry((event.run, event.step)).or_default().push_back(event.number);
        let event = Box::new(event.clone());
        let told = consumer::Event::Fired { attachment, event, missed, report };
        cx.server.tell_client(&self.outbox, &told);
    }

    /// Tells it that nothing is known at a step.
    pub(super) fn tell_unknown(
        &self,
        cx: &Context<'_>,
        attachment: AttachmentId,
        (run, step): (RunNumber, StepNumber),
        why: &Unknown,
    ) {
        let why = Box::new(why.clone());
        cx.server.tell_client(&self.outbox, &consumer::Event::Unknown { attachment, run, step, why });
    }

    /// Tells it that the subscription has ended.
    pub(super) fn tell_ended(&self, cx: &Context<'_>, attachment: AttachmentId, error: Error) {
        cx.server.tell_client(&self.outbox, &consumer::Event::Detached { attachment, error });
    }
}
