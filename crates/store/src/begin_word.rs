//! The words that a rank and its home server share, so that a step begins without a question where nothing of it
//! is wanted, or where the server has nothing to give: no memory, and no word of what went wrong before.
//!
//! A demand holds from one past the highest step that was begun anywhere. Whoever begins a step must
//! therefore be heard of before the next change is decided, which costs a question for each step. Here the
//! rank notes in shared memory that it begins a step, and the server reads that when a change is prepared;
//! from then on the rank must ask again. Both sides change the one word atomically, so that a step is
//! either seen by the server or asked for.
//!
//! A second word says which step the server has taken whole, by which the rank knows that it would be told of
//! nothing if it asked. That word orders nothing: a rank that reads an old one asks.
//!
//! A third word says in which step the rank has put something last: small blocks wait in the rank until the step's end, and
//! a rank that dies before that has told nobody of them. It orders nothing either: the server reads it when the rank is gone.
//!
//! One suite runs with the standard atomics and with loom's, which try every interleaving.

use forebay_core::ids::StepNumber;
use std::sync::atomic::{AtomicU64, Ordering};

/// Set while the rank must ask.
const ASK: u64 = 1 << 63;

/// An atomic number: the standard one, or a model's.
pub trait Atomic {
    /// Reads it.
    fn load(&self) -> u64;
    /// Writes it.
    fn store(&self, value: u64);
    /// Writes `new` if it is still `current`.
    fn compare_exchange(&self, current: u64, new: u64) -> bool;
    /// Sets bits; returns what it was.
    fn fetch_or(&self, bits: u64) -> u64;
}

impl Atomic for AtomicU64 {
    fn load(&self) -> u64 {
        AtomicU64::load(self, Ordering::SeqCst)
    }
    fn store(&self, value: u64) {
        AtomicU64::store(self, value, Ordering::SeqCst);
    }
    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        AtomicU64::compare_exchange(self, current, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
    fn fetch_or(&self, bits: u64) -> u64 {
        AtomicU64::fetch_or(self, bits, Ordering::SeqCst)
    }
}

/// The word: one more than the highest step that the rank began by itself, and whether it must ask.
#[derive(Debug, Clone, Copy)]
pub struct BeginWord<'a, A: Atomic = AtomicU64>(pub &'a A);

impl<A: Atomic> BeginWord<'_, A> {
    /// The rank begins a step. `false`: it must ask the server.
    pub fn try_begin(&self, step: StepNumber) -> bool {
        let seen = self.0.load();
        step < ASK - 1 && seen & ASK == 0 && self.0.compare_exchange(seen, step + 1)
    }

    /// The server makes the rank ask before it begins another step; returns the highest step that it began
    /// by itself.
    pub fn revoke(&self) -> Option<StepNumber> {
        (self.0.fetch_or(ASK) & !ASK).checked_sub(1)
    }

    /// The highest step that the rank has begun: by itself, or with leave to go on by itself after it.
    pub fn last(&self) -> Option<StepNumber> {
        (self.0.load() & !ASK).checked_sub(1)
    }

    /// The server lets the rank begin steps beyond this one by itself, until it says otherwise. Only for a rank
    /// that waits for the server's answer, and so changes nothing meanwhile.
    pub fn allow_begin_after(&self, step: StepNumber) {
        // Numbers that the word cannot hold are always asked for.
        if step < ASK - 1 {
            self.0.store(step + 1);
        }
    }
}

/// The word: one more than the last step that the server has taken whole, with nothing to be said of it.
#[derive(Debug, Clone, Copy)]
pub struct TakenWord<'a, A: Atomic = AtomicU64>(pub &'a A);

impl<A: Atomic> TakenWord<'_, A> {
    /// The server has taken a step whole.
    pub fn take(&self, step: StepNumber) {
        // A number that the word cannot hold is not said: the rank asks.
        if let Some(next) = step.checked_add(1) {
            self.0.store(next);
        }
    }

    /// Whether the server has taken this step whole, and none after it.
    pub fn is_taken(&self, step: StepNumber) -> bool {
        step.checked_add(1).is_some_and(|next| self.0.load() == next)
    }
}

/// The word: one more than the last step in which the rank has put something.
#[derive(Debug, Clone, Copy)]
pub struct PutWord<'a, A: Atomic = AtomicU64>(pub &'a A);

impl<A: Atomic> PutWord<'_, A> {
    /// The rank has put something in a step.
    pub fn note(&self, step: StepNumber) {
        if let Some(next) = step.checked_add(1) {
            self.0.store(next);
        }
    }

    /// The last step in which the rank has put something, if it has in any.
    pub fn last(&self) -> Option<StepNumber> {
        self.0.load().checked_sub(1)
    }
}

#[cfg(test)]
mod tests;
