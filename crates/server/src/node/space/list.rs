//! Listing what this server describes and holds of the space.

use super::Node;
use crate::space::FieldAtStep;
use forebay_core::ids::StepNumber;
use forebay_wire::client::space::Listed;

/// How many arrays are listed at once.
const LISTED_MAX: usize = 1000;

impl Node {
    /// The first arrays after this one that this server describes or holds blocks of, and whether there are further ones.
    pub(crate) fn space_list(&self, after: Option<(String, StepNumber)>) -> (Vec<Listed>, bool) {
        let after = after.map(|(field, step)| FieldAtStep { field, step });
        let mut found = self.in_space(|space, cx, _| space.list(cx, after.as_ref(), LISTED_MAX + 1));
        let more = found.len() > LISTED_MAX;
        found.truncate(LISTED_MAX);
        (found, more)
    }
}
