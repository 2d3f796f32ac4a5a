//! The kinds of errors.
//!
//! Generated from interface/forebay.toml by scripts/generate_faces.py: change it there.

use serde::{Deserialize, Serialize};

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
    /// A region is not filled by what was put; the text names the missing part.
    NotCovered = 5,
    /// The same block with other content, blocks that overlap, or ranks that do not agree.
    Conflict = 6,
    /// The dtype differs from the contract's.
    TypeMismatch = 7,
    /// The number of dimensions, offset or shape do not fit the field.
    OutOfBounds = 8,
    /// It can never fit into the byte budget.
    OverBudget = 9,
    /// It did not fit, although the call waited for room: see `Policy::Block`, the space, and servers that leave.
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
    /// A rank died in the step, or left it out. Today only the execution of a driven pipeline fails with it; a
    /// reader is told by the step's `torn`.
    Torn = 21,
    /// The step was dropped: by the stream's policy, or since a part found no room, or it is held no longer. Who
    /// asks for it by its number is told so, and the execution of a driven pipeline; a reader is told by the next
    /// step's `missed`.
    Dropped = 22,
    /// A pipeline raised an error; the text holds its traceback.
    PipelineFailed = 23,
    /// A defect of Forebay's own; please report it.
    Internal = 24,
    /// The operating system refused something; the text says what.
    Io = 25,
    /// The run is over, and not all its ranks closed it: raised after all that can be read was told, by loops,
    /// too.
    Crashed = 26,
}

impl ErrorKind {
    /// Every kind, in the order of its number.
    pub const ALL: [ErrorKind; 26] = [
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
        ErrorKind::Crashed,
    ];

    /// The name in C, as a text that ends with NUL.
    pub const fn c_name(self) -> &'static std::ffi::CStr {
        match self {
            ErrorKind::Invalid => c"FB_INVALID",
            ErrorKind::NotFound => c"FB_NOT_FOUND",
            ErrorKind::Timeout => c"FB_TIMEOUT",
            ErrorKind::Lost => c"FB_LOST",
            ErrorKind::NotCovered => c"FB_NOT_COVERED",
            ErrorKind::Conflict => c"FB_CONFLICT",
            ErrorKind::TypeMismatch => c"FB_TYPE_MISMATCH",
            ErrorKind::OutOfBounds => c"FB_OUT_OF_BOUNDS",
            ErrorKind::OverBudget => c"FB_OVER_BUDGET",
            ErrorKind::Full => c"FB_FULL",
            ErrorKind::Closed => c"FB_CLOSED",
            ErrorKind::WrongSecret => c"FB_WRONG_SECRET",
            ErrorKind::WrongVersion => c"FB_WRONG_VERSION",
            ErrorKind::Unreachable => c"FB_UNREACHABLE",
            ErrorKind::Protocol => c"FB_PROTOCOL",
            ErrorKind::ConnectionFile => c"FB_CONNECTION_FILE",
            ErrorKind::Unsupported => c"FB_UNSUPPORTED",
            ErrorKind::StepOrder => c"FB_STEP_ORDER",
            ErrorKind::Forked => c"FB_FORKED",
            ErrorKind::Ended => c"FB_ENDED",
            ErrorKind::Torn => c"FB_TORN",
            ErrorKind::Dropped => c"FB_DROPPED",
            ErrorKind::PipelineFailed => c"FB_PIPELINE_FAILED",
            ErrorKind::Internal => c"FB_INTERNAL",
            ErrorKind::Io => c"FB_IO",
            ErrorKind::Crashed => c"FB_CRASHED",
        }
    }

    /// Whether the same call may succeed later although its caller has changed nothing.
    pub const fn is_retryable(self) -> bool {
        matches!(self, ErrorKind::Timeout | ErrorKind::Full | ErrorKind::Unreachable)
    }
}
