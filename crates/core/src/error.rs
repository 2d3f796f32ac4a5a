//! Errors: one append-only list of kinds, the same in every language and on the wire.

use serde::{Deserialize, Serialize};
use std::fmt;

/// What kind of failure it was. Numbers are part of the wire protocol and of the C ABI: the list only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[repr(u8)]
pub enum ErrorKind {
    /// An argument is wrong in itself.
    Invalid = 1,
    /// No such stream, field, step, pipeline or server.
    NotFound = 2,
    /// The deadline passed; the text names what was being waited for.
    Timeout = 3,
    /// The data was held by a process that died.
    Lost = 4,
    /// A region is not filled by what was put.
    NotCovered = 5,
    /// The same block with other content, or blocks that overlap.
    Conflict = 6,
    /// The dtype differs from the contract's.
    TypeMismatch = 7,
    /// Rank, offset or shape do not fit the field.
    OutOfBounds = 8,
    /// Can never fit into the byte budget.
    OverBudget = 9,
    /// Does not fit now, and the stream's policy is not to wait.
    Full = 10,
    /// The handle was closed.
    Closed = 11,
    /// The other side does not hold this group's secret.
    WrongSecret = 12,
    /// The other side speaks another protocol version.
    WrongVersion = 13,
    /// The peer cannot be reached, or went away.
    Unreachable = 14,
    /// A malformed message.
    Protocol = 15,
    /// The connection file is missing, stale, foreign or readable by others.
    ConnectionFile = 16,
    /// Not built yet, or not in this build.
    Unsupported = 17,
    /// A step number was used twice or goes backwards, or a call is out of order.
    StepOrder = 18,
    /// A handle was used in a forked child.
    Forked = 19,
    /// The stream has ended: no failure, the end of a loop.
    Ended = 20,
    /// A rank died in the step, or its deadline passed.
    Torn = 21,
    /// The stream's policy dropped it.
    Dropped = 22,
    /// A pipeline raised an error; the text holds its traceback.
    PipelineFailed = 23,
    /// A defect of Forebay's own.
    Internal = 24,
    /// The operating system refused something.
    Io = 25,
}

impl ErrorKind {
    /// Every kind, in the order of its number.
    pub const ALL: [ErrorKind; 25] = [
        ErrorKind::Invalid,
        ErrorKind::NotFound,
        ErrorKind::Timeout,
        ErrorKind::Lost,
        ErrorKind::NotCovered,
        ErrorKind::Conflict,
        ErrorKind::TypeMismatch,
        ErrorKind::OutOfBounds,
        ErrorKind::OverBudget,
        ErrorKind::Full,
        ErrorKind::Closed,
        ErrorKind::WrongSecret,
        ErrorKind::WrongVersion,
        ErrorKind::Unreachable,
        ErrorKind::Protocol,
        ErrorKind::ConnectionFile,
        ErrorKind::Unsupported,
        ErrorKind::StepOrder,
        ErrorKind::Forked,
        ErrorKind::Ended,
        ErrorKind::Torn,
        ErrorKind::Dropped,
        ErrorKind::PipelineFailed,
        ErrorKind::Internal,
        ErrorKind::Io,
    ];

    /// The number used by the C ABI.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// The name used in every language, in CamelCase (`NotCovered`).
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

/// A failure: its kind, and a text that says what failed, on what, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// The kind, by which programs decide.
    pub kind: ErrorKind,
    /// The text, for people.
    pub text: String,
}

/// The result of everything that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of this kind with this text.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Error { kind, text: text.into() }
    }

    /// The same error with a clause before its text that says during what it happened.
    pub fn during(mut self, what: impl fmt::Display) -> Self {
        self.text = format!("{what}: {}", self.text);
        self
    }

    /// An operating system error, with what was tried.
    pub fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        Error::new(ErrorKind::Io, format!("{what}: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.kind.name())
    }
}

impl std::error::Error for Error {}

/// Short constructors, one for each kind that library code raises often.
macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $kind:ident),* $(,)?) => {
        impl Error {
            $($(#[$doc])* pub fn $name(text: impl Into<String>) -> Self { Error::new(ErrorKind::$kind, text) })*
        }
    };
}

constructors! {
    /// [`ErrorKind::Invalid`].
    invalid => Invalid,
    /// [`ErrorKind::NotFound`].
    not_found => NotFound,
    /// [`ErrorKind::Timeout`].
    timeout => Timeout,
    /// [`ErrorKind::Conflict`].
    conflict => Conflict,
    /// [`ErrorKind::Protocol`].
    protocol => Protocol,
    /// [`ErrorKind::OutOfBounds`].
    out_of_bounds => OutOfBounds,
    /// [`ErrorKind::StepOrder`].
    step_order => StepOrder,
    /// [`ErrorKind::Unreachable`].
    unreachable => Unreachable,
    /// [`ErrorKind::Unsupported`].
    unsupported => Unsupported,
    /// [`ErrorKind::Internal`].
    internal => Internal,
}

impl Error {
    /// Whether the same call may succeed when it is tried again, although nobody changes anything: at the same server a moment
    /// later, or at another one that has taken its place.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }
}

impl ErrorKind {
    /// As [`Error::is_retryable`].
    pub const fn is_retryable(self) -> bool {
        match self {
            // A server that was slow, or stood still, may answer a later question; so may another one.
            ErrorKind::Timeout
            // The group gives up a server that is gone; another one takes its place, or that one comes back.
            | ErrorKind::Unreachable
            // Readers go on, and so memory becomes free.
            | ErrorKind::Full => true,
            // The caller made a mistake, which stays one.
            ErrorKind::Invalid
            | ErrorKind::NotFound
            | ErrorKind::Conflict
            | ErrorKind::TypeMismatch
            | ErrorKind::OutOfBounds
            | ErrorKind::OverBudget
            | ErrorKind::Unsupported
            | ErrorKind::StepOrder
            // A handle that is of no more use stays so.
            | ErrorKind::Closed
            | ErrorKind::Forked
            | ErrorKind::Ended
            // What is gone, or was never put into a step that is closed, does not come any more.
            | ErrorKind::Lost
            | ErrorKind::NotCovered
            | ErrorKind::Torn
            | ErrorKind::Dropped
            // Somebody has to change how the group is reached.
            | ErrorKind::WrongSecret
            | ErrorKind::WrongVersion
            | ErrorKind::ConnectionFile
            // The code that failed has to be repaired, or what the operating system refuses.
            | ErrorKind::Protocol
            | ErrorKind::PipelineFailed
            | ErrorKind::Internal
            | ErrorKind::Io => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_c_header() {
        let header = include_str!("../../../include/forebay.h");
        for (index, kind) in ErrorKind::ALL.iter().enumerate() {
            assert_eq!(kind.code(), index as i32 + 1);
            let snake = kind.name().chars().fold(String::new(), |mut s, c| {
                if c.is_uppercase() && !s.is_empty() {
                    s.push('_');
                }
                s.push(c.to_ascii_uppercase());
                s
            });
            let line = format!("FB_{snake} = {}", kind.code());
            assert!(header.contains(&line), "forebay.h lacks `{line}`");
        }
    }

    #[test]
    fn only_what_may_pass_by_itself_is_tried_again() {
        let retryable: Vec<ErrorKind> =
            ErrorKind::ALL.into_iter().filter(|kind| kind.is_retryable()).collect();
        assert_eq!(retryable, [ErrorKind::Timeout, ErrorKind::Full, ErrorKind::Unreachable]);
        assert!(Error::timeout("a deadline").is_retryable());
    }
}
