//! The steps that are held, one after the other, without a word to the simulation.

use forebay_client::{Consumer, ErrorKind, Result, Step};

/// The next step of a reader that looks at what is held; `None` after the last one.
pub(crate) fn next_held(consumer: &Consumer) -> Result<Option<Step>> {
    match consumer.next_step(None) {
        Ok(step) => Ok(Some(step)),
        Err(error) if error.kind == ErrorKind::Ended => Ok(None),
        Err(error) => Err(error),
    }
}
