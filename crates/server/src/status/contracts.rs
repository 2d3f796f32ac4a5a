//! What `forebay contracts` shows of a stream, as JSON.

use super::{READERS_MAX, needed, who};
use forebay_core::contract::{Slices, Statistics};
use forebay_core::steps::{FieldMatch, Matching, Offered, ReaderMatches};
use serde_json::{Value, json};

/// How many fields are shown of all readers together: it travels in one message.
const MATCHES_MAX: usize = 20_000;

/// What is offered, and what of it each reader needs.
pub(crate) fn shown(stream: &str, matching: &Matching) -> Value {
    let Matching { run, last_closed, readers, fields } = matching;
    let mut room = MATCHES_MAX;
    let has_room = |reader: &&ReaderMatches| {
        let left = room.checked_sub(reader.matches.len() + reader.missing.len());
        room = left.unwrap_or(0);
        left.is_some()
    };
    let told: Vec<Value> = readers.iter().take(READERS_MAX).take_while(has_room).map(reader).collect();
    json!({
        "stream": stream,
        "run": run,
        "last_closed": last_closed,
        "fields": fields.iter().map(offered).collect::<Vec<_>>(),
        "readers_left_out": readers.len() - told.len(),
        "readers": told,
    })
}

fn offered(field: &Offered) -> Value {
    json!({
        "field": field.field,
        "dtype": field.dtype.name(),
        "static": field.steps.is_none(),
        "first": field.steps.map(|steps| steps.first),
        "apart": field.steps.map(|steps| steps.stride),
        "bytes": field.bytes,
        "readers": field.readers,
        "last_staged": field.staged.and_then(|(step, _)| step),
        "staged_bytes": field.staged.map(|(_, bytes)| bytes),
    })
}

fn reader(found: &ReaderMatches) -> Value {
    let mut told = who(&found.reader);
    told["needs"] = needed(&found.reader.needs);
    told["matches"] = found.matches.iter().map(matched).collect();
    told["missing"] = json!(found.missing);
    told["unmatched"] = json!(found.reader.unmatched);
    told
}

fn matched(found: &FieldMatch) -> Value {
    json!({
        "field": found.field,
        "static": found.steps.is_none(),
        "every": found.every,
        "first": found.steps.map(|steps| steps.first),
        "apart": found.steps.map(|steps| steps.stride),
        "region": found.part.as_ref().map(Slices::to_string),
        "statistics": match found.statistics {
            Statistics::None => None,
            Statistics::Along => Some("along"),
            Statistics::Alone => Some("alone"),
            Statistics::Extremes => Some("extremes"),
        },
        "bytes": found.bytes,
        "last": found.last,
    })
}
