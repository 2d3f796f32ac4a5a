//! Cohorts: the ranks of a parallel reader, which have one position in the stream. To the coordinator a cohort is one attachment.

mod members;
mod rank;

pub use members::CohortRecord;
pub(super) use members::{CatchUp, Cohort};
pub use rank::{CohortRank, ToldStep};
