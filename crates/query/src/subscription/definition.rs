//! What is asked for.

use crate::schema::{SPACE, Schema};
use crate::syntax::{Duration, Level, Node, Problem, Syntax};
use crate::time::Turn;
use forebay_core::ids::{Timestamp, check_name};
use forebay_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// The most steps before one that fired, or after it, that are kept.
const KEPT_MAX: u32 = 64;
/// The longest that an event holds its step for subscribers that do not take it, in seconds.
const HOLD_MAX: u32 = 24 * 3600;

/// How many streams a text may name.
const STREAMS_MAX: usize = 8;

/// At which evaluations there are events.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum On {
    /// At each at which what is watched holds.
    #[default]
    Each,
    /// At the first of an episode.
    Rise,
    /// At the first after one.
    Fall,
    /// At both.
    Both,
}

impl On {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            On::Each => "each",
            On::Rise => "rise",
            On::Fall => "fall",
            On::Both => "both",
        }
    }

    /// Whether this is an event.
    pub fn includes(self, turn: Turn) -> bool {
        match self {
            On::Each => turn != Turn::Fell,
            On::Rise => turn == Turn::Rose,
            On::Fall => turn == Turn::Fell,
            On::Both => turn != Turn::Holds,
        }
    }
}

/// What an evaluation is that gives nothing known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Missing {
    /// It takes no part: neither does it count for `for`, nor does it end an episode.
    #[default]
    Skip,
    /// It counts as if what is watched did not hold.
    Reset,
}

impl Missing {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Missing::Skip => "skip",
            Missing::Reset => "reset",
        }
    }
}

/// Steps that are kept around one that fired.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct KeptSteps {
    /// So many before it.
    pub before: u32,
    /// So many after it.
    pub after: u32,
}

/// A subscription as it is asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Definition {
    /// Its name, unique in its stream.
    pub name: String,
    /// What is watched.
    pub text: String,
    /// The stream of fields that the text names without one; [`SPACE`] of what is put into the space.
    pub own: Option<String>,
    /// At every so many of the steps at which its fields are offered.
    pub every: u32,
    /// At which evaluations there are events.
    pub on: On,
    /// It ends after so many events.
    pub limit: Option<u64>,
    /// When it ends at the latest.
    pub expires: Option<Timestamp>,
    /// What evaluations are that give nothing known.
    pub missing: Missing,
    /// Whether it goes on without anybody who listens.
    pub keep: bool,
    /// Which steps are kept when it fires.
    pub keeps: Option<KeptSteps>,
    /// For how many seconds an event holds its step for subscribers that have not taken it.
    pub hold: u32,
}

impl Definition {
    /// A subscription without options.
    pub fn new(name: &str, text: &str) -> Definition {
        Definition {
            name: name.to_owned(),
            text: text.to_owned(),
            own: None,
            every: 1,
            on: On::Each,
            limit: None,
            expires: None,
            missing: Missing::Skip,
            keep: false,
            keeps: None,
            hold: 30,
        }
    }

    /// Checks all that can be wrong in itself. Returns the streams of the fields that the text names, its own first.
    pub fn check(&self) -> Result<Vec<String>> {
        check_name("subscription", &self.name)?;
        let fail = |text: String| Err(Error::invalid(text));
        if self.every == 0 {
            return fail("every is 0: use 1 for every step".to_owned());
        }
        if self.limit == Some(0) {
            return fail("limit is 0: leave it out for no limit".to_owned());
        }
        if let Some(kept) = self.keeps.filter(|kept| kept.before.max(kept.after) > KEPT_MAX) {
            return fail(format!(
                "{} steps before and {} after are to be kept: at most {KEPT_MAX}",
                kept.before, kept.after
            ));
        }
        if self.hold > HOLD_MAX {
            return fail(format!("an event is to hold its step for {} s: at most {HOLD_MAX}", self.hold));
        }
        let syntax = Syntax::parse(&self.text)?;
        if self.is_in_space() {
            return self.check_in_space(&syntax).map(|()| vec![SPACE.to_owned()]);
        }
        let streams = Schema::streams_of(self.own.as_deref(), syntax.taken_fields());
        if streams.len() > STREAMS_MAX {
            return fail(format!("{} streams in one text: at most {STREAMS_MAX}", streams.len()));
        }
        streams.iter().try_for_each(|stream| check_name("stream", stream))?;
        match (streams.is_empty(), syntax.taken_fields().next()) {
            (false, _) => Ok(streams),
            (true, Some(field)) => {
                let name = &field.name;
                fail(format!(
                    "field '{name}': of which stream? Write stream.{name}, or name the stream of all fields (stream=, on the command line --stream)"
                ))
            }
            (true, None) => fail("nothing is watched: the text names no field".to_owned()),
        }
    }

    /// Whether it watches what is put into the space.
    pub fn is_in_space(&self) -> bool {
        self.own.as_deref() == Some(SPACE)
    }

    fn check_in_space(&self, syntax: &Syntax) -> Result<()> {
        let fail = |text: String| Err(Error::invalid(text));
        if let Some(field) = syntax.taken_fields().find(|field| field.stream.is_some()) {
            return fail(format!("field '{}': what is watched in the space names no streams", field.name));
        }
        if let Some(field) = syntax.taken_fields().find(|field| field.level != Level::One(0)) {
            return fail(format!(
                "field '{}': what is watched in the space is watched at level 0",
                field.name
            ));
        }
        if syntax.taken_fields().next().is_none() {
            return fail("nothing is watched: the text names no field".to_owned());
        }
        if self.keeps.is_some() {
            return fail(
                "keep_around is for streams: arrays of the space are kept until they are removed".to_owned(),
            );
        }
        let holds = [syntax.hold(), syntax.until().and_then(|until| until.hold)];
        if holds.iter().flatten().any(|hold| matches!(hold, Duration::Time(_))) {
            return fail(
                "what is put into the space has no physical time: say for how many steps, not for how much time"
                    .to_owned(),
            );
        }
        let timed = syntax.nodes().find_map(|(id, node)| match node {
            Node::Call(name, _) if name == "time" || name == "rate" => Some((id, name)),
            _ => None,
        });
        if let Some((id, name)) = timed {
            let what = format!("{name}(): what is put into the space has no physical time");
            return Err(syntax.error(&Problem::invalid(syntax.span(id), what)));
        }
        Ok(())
    }

    /// The stream whose steps are watched: of several the one that the text names first, for whose steps those of the others are
    /// waited.
    pub fn stream(&self) -> Result<String> {
        let streams = self.check()?;
        Ok(streams.into_iter().next().unwrap_or_default())
    }

    /// Whether another one asks for the same, but for what does not concern what is watched.
    pub fn is_same(&self, other: &Definition) -> bool {
        let of = |one: &Definition| Definition { hold: 0, expires: None, keep: false, ..one.clone() };
        of(self) == of(other)
    }
}
