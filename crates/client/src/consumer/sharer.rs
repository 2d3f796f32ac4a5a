//! What a reader that shares steps with others of its name says of itself, and which steps it has asked for.

use crate::declared::ConsumerOptions;
use forebay_core::steps::{Sharer, Sharing};
use forebay_core::{Error, Result};

/// Steps that were asked for, where they are shared out on demand.
#[derive(Debug, Default)]
pub(super) struct Asks {
    /// How many calls wait for one.
    pub(super) waiting: u32,
    /// How many were asked for and have not come: those of a call that did not wait long enough are for the next.
    pub(super) asked: u32,
}

impl Asks {
    /// A step has come.
    pub(super) fn note_step(&mut self) {
        self.asked = self.asked.saturating_sub(1);
    }

    /// Another server is to be asked, which knows of nothing that was asked for.
    pub(super) fn forget(&mut self) {
        self.asked = 0;
    }
}

/// How a reader shares steps with others, as it says when it attaches; `None` if it does not.
pub(super) fn sharer_of(options: &ConsumerOptions) -> Result<Option<Sharer>> {
    let sharing = options.share;
    if sharing == Sharing::None {
        return Ok(None);
    }
    if options.size > 1 {
        return Err(Error::invalid(format!(
            "share is '{sharing}' and size is {}: the ranks of a parallel reader are given the same steps",
            options.size
        )));
    }
    if options.group.name.is_none() {
        return Err(Error::invalid(format!(
            "share is '{sharing}', but the reader has no name: readers that share steps have one, which says that they belong \
             together"
        )));
    }
    Ok(Some(Sharer { sharing, number: None, told: Vec::new() }))
}
