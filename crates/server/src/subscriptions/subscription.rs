//! One subscription, as the server sees it that coordinates it.

use super::listener::Listener;
use super::needs::needs_of;
use super::partner::Partner;
use crate::context::Context;
use crate::evaluation::CheckedText;
use forebay_core::contract::{Field, Needs};
use forebay_core::ids::{RunNumber, StepNumber, Timestamp};
use forebay_core::steps::AttachmentId;
use forebay_core::{Error, Result};
use forebay_query::subscription::{Definition, EventLog, State};
use forebay_query::value::Unknown;
use forebay_query::{Schema, Syntax};
use forebay_wire::evaluation::PlannedText;
use forebay_wire::subscription::From;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Streams by their names, with their fields.
type FieldsOfStreams = Vec<(String, Vec<Field>)>;

/// A subscription.
#[derive(Debug)]
pub(super) struct Subscription {
    /// Tells it from earlier ones of the same name.
    pub(super) creation: u64,
    pub(super) definition: Definition,
    pub(super) state: State,
    pub(super) log: EventLog,
    /// The number of the last event with which a subscriber has finished.
    pub(super) finished: u64,
    /// Which steps it is told of.
    pub(super) watch: AttachmentId,
    /// The further streams that it names.
    pub(super) partners: Vec<Partner>,
    /// The text as it was checked, and the fields by which it was, of each stream.
    checked: Option<(CheckedText, FieldsOfStreams)>,
    /// Those who have made it, by their connections.
    pub(super) connections: BTreeSet<u64>,
    listeners: BTreeMap<AttachmentId, Listener>,
    /// Since when nobody is connected.
    alone_since: Duration,
    /// How many of the next steps are kept.
    keeps_next: u32,
    /// Up to which event those who listen may be told: of the space no further than others know.
    pub(super) may_tell: u64,
}

impl Subscription {
    pub(super) fn new(creation: u64, definition: Definition, now: Duration) -> Subscription {
        let partners = partners_of(&definition);
        Subscription {
            creation,
            definition,
            partners,
            state: State::default(),
            log: EventLog::default(),
            finished: 0,
            watch: AttachmentId(0),
            checked: None,
            connections: BTreeSet::new(),
            listeners: BTreeMap::new(),
            alone_since: now,
            keeps_next: 0,
            may_tell: u64::MAX,
        }
    }

    /// Checks the text against the fields of its streams, unless it was. Keeps the plan before if it does not fit. Tells whether there
    /// is another plan.
    pub(super) fn check(&mut self, streams: &[(String, Vec<Field>)]) -> Result<bool> {
        let named_by = |text: Option<&CheckedText>| -> FieldsOfStreams {
            let is_named = |field: &&Field| text.is_none_or(|text| text.names(&field.name));
            let of = |fields: &[Field]| fields.iter().filter(is_named).cloned().collect();
            streams.iter().map(|(stream, fields)| (stream.clone(), of(fields))).collect()
        };
        let known = self.checked.as_ref();
        if known.is_some_and(|(text, known)| *known == named_by(Some(text))) {
            return Ok(false);
        }
        let (text, own) = (self.definition.text.clone(), self.definition.own.clone());
        let checked = CheckedText::of(PlannedText { text, own, streams: streams.to_vec(), watched: true })?;
        let named = named_by(Some(&checked));
        self.checked = Some((checked, named));
        Ok(true)
    }

    /// The text with its plan, once its fields are known.
    pub(super) fn text(&self) -> Option<&CheckedText> {
        self.checked.as_ref().map(|(text, _)| text)
    }

    /// Whether all fields that belong to steps are offered at this one.
    pub(super) fn is_due(&self, step: StepNumber) -> bool {
        let streams = self.checked.iter().flat_map(|(_, streams)| streams);
        let fields = streams.flat_map(|(_, fields)| fields);
        fields.into_iter().all(|field| field.is_static || field.output_at(step).is_some())
    }

    /// What it needs of its stream.
    pub(super) fn needs(&self, stream: &str) -> Result<Needs> {
        let syntax = Syntax::parse(&self.definition.text)?;
        Ok(needs_of(&self.definition, stream, &syntax, self.text().map(|text| &*text.plan)))
    }

    /// A subscriber listens from now on. Returns the number of the last event before those that it is told of.
    pub(super) fn add_listener(&mut self, id: AttachmentId, mut listener: Listener, from: From) -> u64 {
        let before = match from {
            From::Next => self.log.last_number(),
            From::First => 0,
            From::Resume => self.finished,
            // It may have been told by a coordinator before this one of events that are to be evaluated again.
            From::After(number) => number,
        };
        listener.told = before;
        self.listeners.insert(id, listener);
        before
    }

    /// A subscriber that has just come is told where nothing was known before, and why.
    pub(super) fn tell_reasons(&self, cx: &Context<'_>, id: AttachmentId) {
        let Some(listener) = self.listeners.get(&id) else { return };
        for (kind, (run, step, text)) in &self.state.reasons {
            listener.tell_unknown(cx, id, (*run, *step), &Unknown::new(*kind, text.clone()));
        }
    }

    /// A subscriber has finished with a step.
    pub(super) fn on_released(&mut self, id: AttachmentId, step: (RunNumber, StepNumber)) {
        let Some(listener) = self.listeners.get_mut(&id) else { return };
        if let Some(number) = listener.note_finished(step) {
            self.finished = self.finished.max(number);
        }
    }

    /// A subscriber listens no more.
    pub(super) fn remove_listener(&mut self, id: AttachmentId, now: Duration) -> Option<Listener> {
        let listener = self.listeners.remove(&id);
        self.remove_connection(id.0, now);
        listener
    }

    /// A connection has ended.
    pub(super) fn remove_connection(&mut self, connection: u64, now: Duration) {
        self.connections.remove(&connection);
        if !self.is_connected() {
            self.alone_since = self.alone_since.max(now);
        }
    }

    fn is_connected(&self) -> bool {
        !self.connections.is_empty() || !self.listeners.is_empty()
    }

    /// For how long nobody is connected.
    pub(super) fn is_alone_for(&mut self, now: Duration) -> Duration {
        if self.is_connected() {
            self.alone_since = now;
        }
        now.saturating_sub(self.alone_since)
    }

    pub(super) fn listeners(&self) -> impl Iterator<Item = (&AttachmentId, &Listener)> {
        self.listeners.iter()
    }

    pub(super) fn listener_ids(&self) -> Vec<AttachmentId> {
        self.listeners.keys().copied().collect()
    }

    pub(super) fn listener(&self, id: AttachmentId) -> Option<&Listener> {
        self.listeners.get(&id)
    }

    /// How many steps before one that fires are kept.
    pub(super) fn looks_back(&self) -> usize {
        self.definition.keeps.map_or(0, |keeps| keeps.before as usize)
    }

    /// So many of the next steps are kept.
    pub(super) fn keep_after(&mut self, steps: u32) {
        self.keeps_next = self.keeps_next.max(steps);
    }

    /// Whether a step is kept that comes after one that has fired.
    pub(super) fn take_keeps_after(&mut self) -> bool {
        let keeps = self.keeps_next > 0;
        self.keeps_next = self.keeps_next.saturating_sub(1);
        keeps
    }

    pub(super) fn listener_mut(&mut self, id: AttachmentId) -> Option<&mut Listener> {
        self.listeners.get_mut(&id)
    }

    /// Whether anybody may be told of events.
    pub(super) fn has_open_listeners(&self) -> bool {
        self.listeners.values().any(Listener::is_open)
    }

    /// Whether all who listen were told of all events.
    pub(super) fn are_all_told(&self) -> bool {
        let last = self.log.last_number();
        let mut open = self.listeners.values().filter(|listener| listener.is_open()).peekable();
        open.peek().is_some() && open.all(|listener| listener.told >= last)
    }

    /// Whether its time is over: nothing is evaluated any more.
    pub(super) fn is_expired(&self, clock: Timestamp) -> bool {
        self.definition.expires.is_some_and(|expires| expires <= clock)
    }

    /// Whether nobody is to be told of its events any more, once its time is over: they wait as long as their steps do.
    pub(super) fn is_done_with(&self, clock: Timestamp) -> bool {
        let over = self.definition.expires.unwrap_or_default();
        let until = over.0.saturating_add(1000 * u64::from(self.definition.hold));
        self.finished >= self.log.last_number() || self.are_all_told() || until <= clock.0
    }

    /// Why it ends by itself, if it does.
    pub(super) fn is_over(&self) -> Option<String> {
        let limit = self.definition.limit.filter(|_| self.state.is_over(&self.definition))?;
        Some(format!("subscription '{}' has had its {limit} events", self.definition.name))
    }
}

/// The further streams that a subscription names, besides its first one.
fn partners_of(definition: &Definition) -> Vec<Partner> {
    let Ok(syntax) = Syntax::parse(&definition.text) else { return Vec::new() };
    let streams = Schema::streams_of(definition.own.as_deref(), syntax.taken_fields());
    let of = |stream: &String| Partner::new(stream, needs_of(definition, stream, &syntax, None));
    streams.iter().skip(1).map(of).collect()
}

/// The error of a text that does not fit the fields of a step.
pub(super) fn about(name: &str, error: &Error) -> String {
    format!("subscription '{name}': {}", error.text)
}
