//! Whether a rank may begin a step without a question to its home server, which it tells by a word that both share.

use crate::put_target::PutTarget;
use forebay_core::ids::StepNumber;

/// What a rank knows of its home server that lets it begin a step without a question.
#[derive(Debug, Default)]
pub(super) enum FastPath {
    /// The home has not answered the last question: the demand may be an old one, and the shared word says nothing.
    #[default]
    Closed,
    /// The demand of the last answer holds as long as the shared word lets the rank begin.
    Open {
        /// The last step that the home was told of, if the next one like it needs no memory.
        small: Option<StepNumber>,
    },
}

impl FastPath {
    /// Begins a step by the shared word, if the home server has not said that it must be asked, and would have nothing to give
    /// or to tell. `is_wanted`: something of this rank is. Costs a look at the connection, so that the home's death is noticed.
    pub(super) fn try_begin(&self, home: &PutTarget, is_wanted: bool, step: StepNumber) -> bool {
        let (FastPath::Open { small }, Some(arena)) = (self, &home.arena) else { return false };
        let needs_nothing = !is_wanted || small.is_some_and(|last| arena.is_taken(last));
        needs_nothing && home.rpc.is_quiet() && arena.try_begin(step)
    }

    /// The home server is asked, or is another one.
    pub(super) fn close(&mut self) {
        *self = FastPath::Closed;
    }

    /// The home server has answered.
    pub(super) fn open(&mut self) {
        *self = FastPath::Open { small: None };
    }

    /// The rank ends a step in which it put something, or could have. `is_small`: for all of that no memory was needed.
    pub(super) fn note_staged(&mut self, step: StepNumber, is_small: bool) {
        if let FastPath::Open { small } = self {
            *small = is_small.then_some(step);
        }
    }

    /// The rank ends a step of which nothing of this rank was wanted, and tells its home so.
    pub(super) fn note_passed(&mut self, step: StepNumber) {
        if let FastPath::Open { small } = self {
            *small = small.map(|_| step);
        }
    }
}
