//! The page of an arena by which its rank begins steps without a question.

use forebay_core::Result;
use forebay_core::ids::StepNumber;
use forebay_store::{BeginWord, Mapping, PutWord, TakenWord};

/// The page of an arena with the words by which its rank begins steps without a question, and says in which it has put
/// something.
#[derive(Debug)]
pub(crate) struct BeginPage(Mapping);

impl BeginPage {
    /// The page that this maps. The rank must ask until it is told otherwise.
    pub(crate) fn new(mapping: Mapping) -> Result<BeginPage> {
        mapping.atomic(0)?;
        let page = BeginPage(mapping);
        page.revoke_begin();
        Ok(page)
    }

    /// The rank must ask before it begins another step; returns the highest that it began by itself.
    pub(crate) fn revoke_begin(&self) -> Option<StepNumber> {
        BeginWord(self.0.atomic(0).ok()?).revoke()
    }

    /// The highest step that the rank has begun, as far as the word tells.
    pub(crate) fn last_begun(&self) -> Option<StepNumber> {
        BeginWord(self.0.atomic(0).ok()?).last()
    }

    /// The rank, which waits for an answer, may begin later steps by itself.
    pub(crate) fn allow_begin_after(&self, step: StepNumber) {
        if let Ok(word) = self.0.atomic(0) {
            BeginWord(word).allow_begin_after(step);
        }
    }

    /// The last step in which the rank has put something.
    pub(crate) fn last_put(&self) -> Option<StepNumber> {
        PutWord(self.0.atomic(16).ok()?).last()
    }

    /// This server has taken a step whole, and has nothing to say of it.
    pub(crate) fn take(&self, step: StepNumber) {
        if let Ok(word) = self.0.atomic(8) {
            TakenWord(word).take(step);
        }
    }
}
