//! The streams and fields that a text may name.

use crate::syntax::{FieldUse, Problem, nearest};
use forebay_core::contract::Field;
use forebay_core::ids::check_name;
use forebay_core::{ErrorKind, Result};

/// What the space is called where fields belong to a stream: no stream has this name, since it has a control character.
pub const SPACE: &str = "\u{1}space";

/// Checks that this may be the name of a stream, or is the space.
pub fn check_watched(stream: &str) -> Result<()> {
    if stream == SPACE { Ok(()) } else { check_name("stream", stream) }
}

/// A stream as people are told of it, or the space.
pub fn in_words(stream: &str) -> String {
    if stream == SPACE { "the space".to_owned() } else { format!("stream '{stream}'") }
}

/// The streams and fields that a text may name.
#[derive(Debug, Clone, Default)]
pub struct Schema {
    /// The stream that fields without one belong to.
    own: Option<String>,
    streams: Vec<(String, Vec<Field>)>,
}

impl Schema {
    /// Fields that are named without a stream belong to `own`.
    pub fn new(own: Option<&str>) -> Schema {
        Schema { own: own.map(str::to_owned), streams: Vec::new() }
    }

    /// The same with the fields of one more stream.
    pub fn with(mut self, stream: &str, fields: Vec<Field>) -> Schema {
        self.streams.push((stream.to_owned(), fields));
        self
    }

    /// The streams that a text names, each once: what has to be known before it can be checked.
    pub fn streams_of<'a>(own: Option<&str>, fields: impl Iterator<Item = &'a FieldUse>) -> Vec<String> {
        let mut streams: Vec<String> = Vec::new();
        for field in fields {
            let named = field.stream.as_deref().or(own);
            if let Some(stream) = named.filter(|stream| !streams.iter().any(|known| known == stream)) {
                streams.push(stream.to_owned());
            }
        }
        streams
    }

    /// The field that a text names, and its stream.
    pub(crate) fn find(&self, named: &FieldUse) -> std::result::Result<(&str, &Field), Problem> {
        let fail = |what: String| Err(Problem::new(ErrorKind::NotFound, named.span, what));
        let Some(stream) = named.stream.as_ref().or(self.own.as_ref()) else {
            return fail(format!("field '{}': of which stream? Write stream.{}", named.name, named.name));
        };
        let Some((stream, fields)) = self.streams.iter().find(|(name, _)| name == stream) else {
            // Of what is watched all streams are known that it names.
            let known: Vec<_> = self.streams.iter().map(|(name, _)| &name[..]).collect();
            return fail(format!(
                "{} is another one than {}, and an expression that is evaluated once has fields of one{}",
                in_words(stream),
                known.iter().map(|known| in_words(known)).collect::<Vec<_>>().join(", "),
                did_you_mean(nearest(stream, known.into_iter()))
            ));
        };
        if let Some(field) = fields.iter().find(|field| field.name == named.name) {
            return Ok((stream, field));
        }
        let names: Vec<_> = fields.iter().map(|field| &field.name[..]).collect();
        let like = nearest(&named.name, names.iter().copied());
        let has = if names.is_empty() { "none".into() } else { names.join(", ") };
        let stream = in_words(stream);
        fail(format!("{stream} has no field '{}'; it has {has}{}", named.name, did_you_mean(like)))
    }
}

/// The end of a message that names what may have been meant.
pub(crate) fn did_you_mean(name: Option<&str>) -> String {
    name.map(|name| format!(". Did you mean '{name}'?")).unwrap_or_default()
}
