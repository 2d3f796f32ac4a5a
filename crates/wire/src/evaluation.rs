//! Evaluations of expressions, as the servers that compute them and those who ask speak of them.

use forebay_core::contract::Field;
use forebay_core::ids::{ServerId, StepId};
use forebay_query::ReportedValue;
use forebay_query::gather::{Gathered, Question};
use forebay_query::pieces::Piece;
use forebay_query::value::Scalar;
use serde::{Deserialize, Serialize};

/// A text, and the fields by which it was checked: whoever reads it makes the same plan of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedText {
    /// The text.
    pub text: String,
    /// The stream of fields that it names without one.
    pub own: Option<String>,
    /// The fields that it names, by their streams.
    pub streams: Vec<(String, Vec<Field>)>,
    /// Whether it is watched, and not asked once.
    pub watched: bool,
}

/// What is asked of several servers about one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Inquiry {
    /// The step, for errors.
    pub id: StepId,
    /// The texts that questions belong to.
    pub texts: Vec<PlannedText>,
    /// The questions.
    pub asked: Vec<Asked>,
    /// What each server answers for: the receiver first.
    pub shares: Vec<Share>,
    /// Whether somebody waits for the answers; else they are a subscription's, and threads rest before if others want the processors.
    pub is_awaited: bool,
}

/// A question about a text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    /// Which text.
    pub text: u16,
    /// Of which list of pieces of each share.
    pub list: u16,
    /// The question.
    pub question: Question,
}

/// What a server answers for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Share {
    /// The server.
    pub server: ServerId,
    /// Lists of pieces: questions that are about the same elements share one.
    pub lists: Vec<Vec<Piece>>,
}

/// What computing has cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Cost {
    /// Bytes that were read.
    pub read: u64,
    /// Those of them that came from another server.
    pub fetched: u64,
    /// Seconds of one core.
    pub seconds: f64,
    /// Seconds from the first question to the last answer.
    pub asking: f64,
    /// Those of them in which the server that took longest was busy with its share.
    pub sharing: f64,
    /// Those of these in which a server waited for bytes of others.
    pub waiting: f64,
}

impl Cost {
    /// What something has cost that was done after this.
    pub fn then(self, other: Cost) -> Cost {
        Cost {
            asking: self.asking + other.asking,
            sharing: self.sharing + other.sharing,
            waiting: self.waiting + other.waiting,
            ..self.beside(other)
        }
    }

    /// What something has cost that was done at the same time.
    pub fn beside(self, other: Cost) -> Cost {
        Cost {
            read: self.read.saturating_add(other.read),
            fetched: self.fetched.saturating_add(other.fetched),
            seconds: self.seconds + other.seconds,
            asking: self.asking.max(other.asking),
            sharing: self.sharing.max(other.sharing),
            waiting: self.waiting.max(other.waiting),
        }
    }
}

/// The answers to an inquiry, in the order of its questions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answers {
    /// Each merged of all shares.
    pub gathered: Vec<Gathered>,
    /// What they have cost.
    pub cost: Cost,
}

/// What a text gives at a step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TextValue {
    /// The value, or why there is none.
    pub value: Scalar,
    /// Its bindings and aggregates.
    pub values: Vec<ReportedValue>,
    /// What that has cost the servers.
    pub cost: Cost,
}
