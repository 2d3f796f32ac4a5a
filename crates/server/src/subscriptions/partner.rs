//! The further streams that a subscription's text names: their steps wait for the step of the same number of its first stream, and that
//! one waits for theirs.

use super::copies::Key;
use crate::context::Context;
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::{AttachmentId, FieldReport, StepReport};
use forebay_query::value::{Unknown, UnknownKind};
use forebay_transport::asynchronous::Outbox;
use forebay_wire::client::consumer::Request;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How many steps of a stream wait for those of others at most.
pub(super) const JOINED_MAX: usize = 16;

/// One of the further streams.
#[derive(Debug)]
pub(super) struct Partner {
    pub(super) stream: String,
    /// What is needed of it.
    pub(super) needs: Needs,
    /// Over which connection it is told of steps.
    pub(super) feed: Option<Arc<Outbox>>,
    /// As whom it is told over that connection, once it is agreed from which step on: of each run as another one.
    pub(super) attachments: Vec<AttachmentId>,
    /// Since when its steps are on their way again: the connection was lost, or another server went on. Until all have come that were
    /// there, the first stream waits.
    pub(super) lost_at: Option<Duration>,
    /// Its steps that wait, and the attachments that hold them.
    pub(super) steps: BTreeMap<StepNumber, (AttachmentId, Arc<StepReport>)>,
    /// What is static in its run: told with the first step alone.
    pub(super) statics: Option<Vec<FieldReport>>,
    /// The last step that it was told of.
    pub(super) last: Option<(RunNumber, StepNumber)>,
    /// Its run is over: with which run of the first stream it was joined until then. What that one has in another run waits for a new
    /// one of this stream.
    pub(super) over_for: Option<RunNumber>,
    /// Whoever feeds it ends.
    over: Arc<Notify>,
}

/// Whether the steps of this number of all further streams are there.
#[derive(Debug)]
pub(super) enum Joined {
    /// They are.
    Ready(Vec<Arc<StepReport>>),
    /// They may come.
    Waits,
    /// One does not.
    Never(Unknown),
}

/// A stream whose steps a subscription is to be told of.
#[derive(Debug, Clone)]
pub(crate) struct FeedOrder {
    /// The subscription.
    pub(crate) key: Key,
    pub(crate) creation: u64,
    /// The stream.
    pub(crate) stream: String,
    /// What is needed of it.
    pub(crate) needs: Needs,
    /// It is over.
    pub(crate) over: Arc<Notify>,
}

impl Partner {
    pub(super) fn new(stream: &str, needs: Needs) -> Partner {
        Partner {
            stream: stream.to_owned(),
            needs,
            feed: None,
            attachments: Vec::new(),
            lost_at: None,
            steps: BTreeMap::new(),
            statics: None,
            last: None,
            over_for: None,
            over: Arc::default(),
        }
    }

    pub(super) fn order(&self, key: &Key, creation: u64) -> FeedOrder {
        let (stream, needs, over) = (self.stream.clone(), self.needs.clone(), self.over.clone());
        FeedOrder { key: key.clone(), creation, stream, needs, over }
    }

    /// A step is told, to this attachment. `awaited` is the step of the first stream that is joined next, if it is there.
    pub(super) fn push(
        &mut self,
        cx: &Context<'_>,
        (attachment, mut report): (AttachmentId, StepReport),
        awaited: Option<StepNumber>,
    ) {
        let id = (report.id.run, report.id.step);
        if self.last.is_some_and(|last| id <= last) {
            // It was told before, to the one that this attachment has followed.
            self.let_go_of(cx, attachment, id);
            return;
        }
        if self.last.is_some_and(|(run, _)| run != id.0) {
            self.statics = None;
            self.let_go_up_to(cx, StepNumber::MAX);
        }
        match report.statics.is_some() {
            true => self.statics.clone_from(&report.statics),
            false => report.statics.clone_from(&self.statics),
        }
        (self.last, self.over_for) = (Some(id), None);
        self.steps.insert(id.1, (attachment, Arc::new(report)));
        self.trim(cx, awaited);
    }

    /// Of many that wait the oldest are let go of, unless the first stream is behind: then no more of them are told.
    pub(super) fn trim(&mut self, cx: &Context<'_>, awaited: Option<StepNumber>) {
        while self.steps.len() > JOINED_MAX
            && let Some(oldest) = self.steps.first_entry()
            && awaited.is_none_or(|awaited| *oldest.key() < awaited)
        {
            let (attachment, report) = oldest.remove();
            self.let_go_of(cx, attachment, (report.id.run, report.id.step));
        }
    }

    /// It is agreed from which step on it is told. What was there before has been told: steps that do not come from now on are late.
    pub(super) fn note_fed(&mut self, attachment: AttachmentId) {
        self.attachments.push(attachment);
        self.lost_at = None;
    }

    /// The connection is gone over which it was told: what was told is held there no longer, and is told again as far as it is there.
    pub(super) fn note_lost(&mut self, now: Duration) {
        self.last = self.steps.first_key_value().map_or(self.last, |(_, (_, report))| {
            report.id.step.checked_sub(1).map(|before| (report.id.run, before))
        });
        self.steps.clear();
        self.attachments.clear();
        self.feed = None;
        self.lost_at.get_or_insert(now);
    }

    /// Its steps are needed no more, by anybody who would go on in this server's place either.
    pub(super) fn end(&self, cx: &Context<'_>) {
        for attachment in self.attachments.iter().copied() {
            let detach = Request::Detach { attachment, held: Vec::new(), failed: false };
            self.feed.iter().for_each(|outbox| cx.server.tell_client(outbox, &detach));
        }
    }

    pub(super) fn let_go_up_to(&mut self, cx: &Context<'_>, step: StepNumber) {
        while let Some(first) = self.steps.first_entry()
            && *first.key() <= step
        {
            let (attachment, report) = first.remove();
            self.let_go_of(cx, attachment, (report.id.run, report.id.step));
        }
    }

    fn let_go_of(&self, cx: &Context<'_>, attachment: AttachmentId, (run, step): (RunNumber, StepNumber)) {
        let Some(outbox) = &self.feed else { return };
        let release = Request::Release { attachment, run, step, pinned: false, gives_back: false };
        cx.server.tell_client(outbox, &release);
    }

    /// The step of this number, for a step of this run of the first stream.
    fn at(&self, (run, step): (RunNumber, StepNumber)) -> Result<Option<&Arc<StepReport>>, Unknown> {
        let is_past = match self.over_for {
            Some(joined) => joined == run,
            None => self.last.is_some_and(|(_, last)| last >= step),
        };
        match self.steps.get(&step) {
            Some((_, report)) => Ok(Some(report)),
            None if is_past => {
                let text = format!("stream '{}' has no step {step}, or its time is over", self.stream);
                Err(Unknown::new(UnknownKind::NoPartner, text))
            }
            None => Ok(None),
        }
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        self.over.notify_one();
    }
}

/// Whether the steps of this number are there, of all of them. `waiting` steps of the first stream wait already.
pub(super) fn joined(partners: &[Partner], id: (RunNumber, StepNumber), waiting: usize) -> Joined {
    let step = id.1;
    let mut found = Vec::with_capacity(partners.len());
    for partner in partners {
        match partner.at(id) {
            Ok(Some(report)) => found.push(report.clone()),
            Ok(None) if waiting > JOINED_MAX && partner.lost_at.is_none() => {
                let text = format!(
                    "step {step} of stream '{}' has not come, and {JOINED_MAX} steps wait already",
                    partner.stream
                );
                return Joined::Never(Unknown::new(UnknownKind::NoPartner, text));
            }
            Ok(None) => return Joined::Waits,
            Err(why) => return Joined::Never(why),
        }
    }
    Joined::Ready(found)
}
