//! What the other ranks of a parallel reader do when one dies.

/// What the other ranks of a parallel reader do when one dies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnRankLoss {
    /// They are told that it is lost. The default.
    #[default]
    Fail,
    /// They go on without it.
    GoOn,
}
