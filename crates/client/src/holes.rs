//! What becomes of those elements of a region that nobody has put.

/// What a read does where nothing was put.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Holes {
    /// It fails, before anything is written.
    #[default]
    Refused,
    /// It leaves the caller's elements there as they are.
    Left,
}
