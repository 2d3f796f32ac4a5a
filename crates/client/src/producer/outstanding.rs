//! Puts of a step whose answers nobody has waited for yet.

use forebay_core::Error;
use forebay_wire::client::block::PutBlock;
use std::collections::VecDeque;

/// The puts of a step that the home server had not answered when they returned.
#[derive(Debug, Default)]
pub(super) struct OutstandingPuts {
    pub(super) waiting: VecDeque<OutstandingPut>,
    /// How many of them found no room, and were dropped as the stream's policy says.
    pub(super) dropped: u64,
    /// The first one that failed and of which the caller was not told, and how many more there are.
    failed: Option<(Error, u64)>,
}

/// A put that the home server has not answered.
#[derive(Debug)]
pub(super) struct OutstandingPut {
    /// The number of the request.
    pub(super) request: u64,
    pub(super) field: String,
    pub(super) number: u64,
    pub(super) part: u32,
}

impl OutstandingPut {
    pub(super) fn is_of(&self, put: &PutBlock) -> bool {
        (put.number, put.part) == (self.number, self.part) && put.field == self.field
    }
}

impl OutstandingPuts {
    /// A put has failed.
    pub(super) fn note_failure(&mut self, error: Error) {
        match &mut self.failed {
            None => self.failed = Some((error, 0)),
            Some((_, more)) => *more += 1,
        }
    }

    /// What has failed, once.
    pub(super) fn take_failure(&mut self) -> Option<Error> {
        let (mut error, more) = self.failed.take()?;
        if more > 0 {
            error.text += &format!(" (and {more} more of the puts that were not waited for)");
        }
        Some(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_failure_is_told_once_with_the_number_of_the_others() {
        let mut puts = OutstandingPuts::default();
        assert!(puts.take_failure().is_none());
        puts.note_failure(Error::invalid("first"));
        puts.note_failure(Error::conflict("second"));
        let told = puts.take_failure().unwrap();
        assert_eq!(told.kind, Error::invalid("").kind);
        assert!(told.text.starts_with("first (and 1 more"), "{told}");
        assert!(puts.take_failure().is_none());
    }
}
