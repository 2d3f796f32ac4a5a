//! What `forebay subscriptions` shows.

use super::Subscriptions;
use forebay_core::ids::ServerId;
use forebay_query::SPACE;
use forebay_query::value::UnknownKind;
use serde_json::{Map, Value, json};

/// How many are told at once.
const TOLD_AT_ONCE: usize = 1000;

impl Subscriptions {
    /// The subscriptions that this server coordinates, but for the first ones: some, and whether there are more.
    pub(crate) fn status(&self, server: ServerId, skip: u64) -> (Value, bool) {
        let skip = usize::try_from(skip).unwrap_or(usize::MAX);
        let more = self.coordinated.len().saturating_sub(skip) > TOLD_AT_ONCE;
        let shown =
            self.coordinated.iter().skip(skip).take(TOLD_AT_ONCE).map(|((stream, name), subscription)| {
                let (definition, state) = (&subscription.definition, &subscription.state);
                let counts = &state.counts;
                let unknown: Map<String, Value> = counts
                    .unknown
                    .iter()
                    .map(|(kind, count)| (name_of(*kind).to_owned(), json!(count)))
                    .collect();
                json!({
                    "name": name,
                    "stream": Some(stream).filter(|stream| *stream != SPACE),
                    "server": server.0,
                    "text": definition.text,
                    "every": definition.every,
                    "on": definition.on.name(),
                    "limit": definition.limit,
                    "expires": definition.expires.map(|expires| expires.0),
                    "missing": definition.missing.name(),
                    "keep": definition.keep,
                    "paused": state.is_paused,
                    "subscribers": subscription.listeners().count(),
                    "evaluated": counts.evaluated,
                    "held": counts.held,
                    "events": counts.events,
                    "unknown": unknown,
                    "unknown_why": state.unknown.as_ref().map(|why| &why.text),
                    "missed": counts.missed,
                    "seconds": counts.seconds,
                    "read_bytes": counts.read,
                    "response": {
                        "managing": counts.response.managing,
                        "waiting": counts.response.waiting,
                        "computing": counts.response.computing,
                        "aggregating": counts.response.aggregating,
                    },
                    "last_run": state.last.map(|(run, _)| run),
                    "last_step": state.last.map(|(_, step)| step),
                    "last_event_step": subscription.log.all().last().map(|event| event.step),
                })
            });
        (shown.collect(), more)
    }
}

/// What a sort of reason is called.
fn name_of(kind: UnknownKind) -> &'static str {
    match kind {
        UnknownKind::Torn => "torn",
        UnknownKind::NotCovered => "not covered",
        UnknownKind::Lost => "lost",
        UnknownKind::NotOffered => "not offered",
        UnknownKind::Overflow => "overflow",
        UnknownKind::History => "history",
        UnknownKind::NoPartner => "no partner",
        UnknownKind::Mismatch => "mismatch",
    }
}
