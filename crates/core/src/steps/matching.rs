//! What of a stream's offer its contracts need, seen from outside: how offer and contracts match.

use crate::contract::Sequence;
use crate::dtype::Dtype;
use crate::ids::{RunNumber, StepNumber};
use crate::steps::matched::FieldMatch;
use crate::steps::reader_status::ReaderStatus;

/// What all that is attached to a stream needs of the fields of its latest run.
#[derive(Debug, Clone, PartialEq)]
pub struct Matching {
    /// The latest run; `None` if there has been none.
    pub run: Option<RunNumber>,
    /// The highest step that was closed, as far as is known.
    pub last_closed: Option<StepNumber>,
    /// Each reader and pipeline.
    pub readers: Vec<ReaderMatches>,
    /// Each field that is offered.
    pub fields: Vec<Offered>,
}

/// What one reader needs, of what is offered.
#[derive(Debug, Clone, PartialEq)]
pub struct ReaderMatches {
    /// Who it is.
    pub reader: ReaderStatus,
    /// The fields that are offered, and needed by it.
    pub matches: Vec<FieldMatch>,
    /// The names of fields that it needs, and that are not offered.
    pub missing: Vec<String>,
}

/// A field that is offered.
#[derive(Debug, Clone, PartialEq)]
pub struct Offered {
    /// Its name.
    pub field: String,
    /// The type of its elements.
    pub dtype: Dtype,
    /// At which steps it is offered; `None` of one that is static.
    pub steps: Option<Sequence>,
    /// How many bytes it has, at a step; `None` if it has no global shape.
    pub bytes: Option<u64>,
    /// How many readers need it.
    pub readers: u64,
    /// The last step at which something of it was staged (`None` of one that is static), and how many bytes.
    pub staged: Option<(Option<StepNumber>, u64)>,
}
