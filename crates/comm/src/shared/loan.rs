//! A long message that its sender lends: the receiver reads it where it lies, and gives it back.
//!
//! Each loan has a word. Its sender may take it back at any time, such as at its deadline: what the receiver has read by then is
//! not valid, and the receiver is told so when it gives it back. So nobody takes bytes for a message that were changed meanwhile.

use super::atomic::Atomic;

/// How many loans one may have from another at once.
pub(crate) const LOANS: usize = 32;

const FREE: u64 = 0;
const LENT: u64 = 1;
const READ: u64 = 2;
const BACK: u64 = 3;
const STATES: u64 = 4;

/// The word of a loan; `number` tells one from those before it at the same place.
#[derive(Debug)]
pub(crate) struct Loan<'a, A: Atomic> {
    pub(crate) word: &'a A,
    pub(crate) number: u32,
}

impl<A: Atomic> Loan<'_, A> {
    fn state(&self, state: u64) -> u64 {
        u64::from(self.number) * STATES + state
    }

    /// The sender lends.
    pub(crate) fn lend(&self) {
        self.word.set(self.state(LENT));
    }

    /// The receiver begins to read. `false`: it was taken back.
    pub(crate) fn begin(&self) -> bool {
        self.word.set_if(self.state(LENT), self.state(READ))
    }

    /// The receiver has read all. `false`: it was taken back meanwhile, and what was read is nothing.
    pub(crate) fn give_back(&self) -> bool {
        self.word.set_if(self.state(READ), self.state(BACK))
    }

    /// The receiver does not want it.
    pub(crate) fn decline(&self) {
        let _ = self.begin() && self.give_back();
    }

    /// Whether the receiver has given it back.
    pub(crate) fn is_back(&self) -> bool {
        self.word.get() == self.state(BACK)
    }

    /// The sender takes it back. `false`: the receiver has it whole already.
    pub(crate) fn take_back(&self) -> bool {
        self.word.set_if(self.state(LENT), self.state(FREE))
            || self.word.set_if(self.state(READ), self.state(FREE))
    }
}
