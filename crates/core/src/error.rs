//! Errors: one append-only list of kinds, the same in every language and on the wire.

mod kind;

use crate::server_id::ServerId;
pub use kind::ErrorKind;
use serde::{Deserialize, Serialize};
use std::fmt;

impl ErrorKind {
    /// The number used by the C ABI.
    pub const fn code(self) -> i32 {
        self as i32
    }

    /// The name used in every language, in CamelCase (`NotCovered`).
    pub fn name(self) -> String {
        format!("{self:?}")
    }
}

/// A failure: its kind, a text that says what failed, on what, and what to do, and the server that failed, if it was one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// The kind, by which programs decide.
    pub kind: ErrorKind,
    /// The text, for people.
    pub text: String,
    server: Option<ServerId>,
}

/// The result of everything that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of this kind with this text.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Error { kind, text: text.into(), server: None }
    }

    /// Whether the same call may succeed when it is tried again, although nobody changes anything: at the same server a moment
    /// later, or at another one that has taken its place.
    pub fn is_retryable(&self) -> bool {
        self.kind.is_retryable()
    }

    /// The server that it is about: one that could not be reached, did not answer in time or is not there, or that held what is
    /// lost. None if it is about no server, or about several.
    pub fn server(&self) -> Option<ServerId> {
        self.server
    }

    /// The same error, about this server; one that is about a server already stays so, since whoever raised it knew better. What
    /// is wrong with the call itself, or with this machine, is about no server, whomever it was to reach.
    pub fn about(mut self, server: ServerId) -> Self {
        if !matches!(self.kind, ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::Io) {
            self.server.get_or_insert(server);
        }
        self
    }

    /// The same error, about the server that another one is about which led to it.
    pub fn about_that_of(mut self, other: &Error) -> Self {
        self.server = self.server.or(other.server);
        self
    }

    /// The same error with a clause before its text that says during what it happened.
    pub fn during(mut self, what: impl fmt::Display) -> Self {
        self.text = format!("{what}: {}", self.text);
        self
    }

    /// An operating system error, with what was tried; and what to do, where a limit or a filter has refused it.
    pub fn io(what: impl fmt::Display, error: &std::io::Error) -> Self {
        let remedy = refusal(error).map(|remedy| format!(": {remedy}")).unwrap_or_default();
        Error::new(ErrorKind::Io, format!("{what}: {error}{remedy}"))
    }
}

/// What to do where the system refuses something for a reason that is not in what was asked.
fn refusal(error: &std::io::Error) -> Option<&'static str> {
    /// The process has as many open files as it may; Rust has no kind for it.
    const EMFILE: i32 = 24;
    /// So has the machine.
    const ENFILE: i32 = 23;
    /// Rights to a file are EACCES.
    const EPERM: i32 = 1;
    if let Some(EMFILE | ENFILE) = error.raw_os_error() {
        return Some("raise the limit of open files, see `ulimit -n`");
    }
    if error.raw_os_error() == Some(EPERM) {
        return Some(
            "a filter refuses this call, as those of containers do, or the file system has no such thing: see `forebay doctor`",
        );
    }
    match error.kind() {
        std::io::ErrorKind::FileTooLarge => {
            Some("the size of files is limited, shared memory too: raise the limit, see `ulimit -f`")
        }
        std::io::ErrorKind::OutOfMemory => {
            Some("there is no memory for it, or the address space is limited: see `ulimit -v`")
        }
        std::io::ErrorKind::Unsupported => Some(
            "the kernel is too old for this call, or a filter refuses it, as those of containers do: see `forebay doctor`",
        ),
        _ => None,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_their_names_in_c() {
        for (index, kind) in ErrorKind::ALL.iter().enumerate() {
            assert_eq!(kind.code(), index as i32 + 1);
            let name = kind.c_name().to_str().unwrap();
            assert_eq!(name.replace('_', "").to_lowercase(), format!("fb{}", kind.name().to_lowercase()));
        }
    }

    #[test]
    fn only_what_may_pass_by_itself_is_tried_again() {
        let retryable: Vec<ErrorKind> =
            ErrorKind::ALL.into_iter().filter(|kind| kind.is_retryable()).collect();
        assert_eq!(retryable, [ErrorKind::Timeout, ErrorKind::Full, ErrorKind::Unreachable]);
        assert!(Error::timeout("a deadline").is_retryable());
    }

    #[test]
    fn an_error_is_about_the_server_that_was_named_first() {
        let gone = Error::unreachable("no answer").about(ServerId(2)).about(ServerId(1)).during("a put");
        assert_eq!(gone.server(), Some(ServerId(2)));
        let late = Error::timeout("the deadline passed after that");
        assert_eq!(late.clone().about_that_of(&gone).server(), Some(ServerId(2)));
        assert_eq!(Error::invalid("a rank of -1").about(ServerId(2)).server(), None);
        assert_eq!(gone.clone().about_that_of(&late), gone);
        assert_eq!(late.server(), None);
    }
}
