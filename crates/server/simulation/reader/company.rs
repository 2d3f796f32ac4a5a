//! With whom a simulated reader reads.

use forebay_core::identity::Identity;
use forebay_core::steps::{CohortRank, Sharer, Sharing, ToldStep};

/// With whom a reader reads.
#[derive(Debug, Clone)]
pub(in crate::simulation) enum Company {
    /// With nobody.
    Alone,
    /// It is one of so many ranks of a parallel reader.
    Ranks { rank: u32, size: u32 },
    /// It shares steps with others.
    Sharers(Sharing),
}

impl Company {
    /// What all of them are called.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Company::Alone => None,
            Company::Ranks { .. } => Some("ranks".into()),
            Company::Sharers(_) => Some("sharers".into()),
        }
    }

    pub(super) fn identity(&self) -> Identity {
        Identity { name: self.name(), ..Identity::default() }
    }

    /// What a rank says of itself, which was told of these steps.
    pub(super) fn rank(&self, told: &[ToldStep]) -> Option<CohortRank> {
        let Company::Ranks { rank, size } = *self else { return None };
        Some(CohortRank { rank, size, host: "h".into(), goes_on: true, told: told.to_vec() })
    }

    /// The same of one that shares steps, with its number if it has one.
    pub(super) fn sharer(&self, number: Option<u32>, told: &[ToldStep]) -> Option<Sharer> {
        let Company::Sharers(sharing) = *self else { return None };
        Some(Sharer { sharing, number, told: told.to_vec() })
    }

    /// Whether it is given only what it asks for.
    pub(super) fn asks(&self) -> bool {
        matches!(self, Company::Sharers(Sharing::OnDemand))
    }

    /// Whether each of them is told of all steps.
    pub(super) fn has_all(&self) -> bool {
        !matches!(self, Company::Sharers(_))
    }
}
