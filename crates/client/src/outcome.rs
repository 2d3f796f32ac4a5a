//! What became of a put.

/// What became of a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It is held by a server, and survives this process.
    Staged,
    /// Nothing wants it: it was not copied.
    Undemanded,
    /// There was no room, and the stream's policy is to go on: the step is counted as dropped.
    Dropped,
}
