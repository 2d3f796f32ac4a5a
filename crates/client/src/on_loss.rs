//! What a producer does when its servers are gone.

/// What a producer does when its servers are gone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnLoss {
    /// Goes on without staging, and counts the steps that were not staged. The default.
    #[default]
    Skip,
    /// Waits for another server, as long as any wait may take, and then fails.
    Fail,
}
