//! What somebody was told of a run beside its steps.

use crate::ids::RunNumber;

/// Which run, and which version, of attributes and of static fields somebody was told last. The version 0 has none.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RunTold {
    attrs: (RunNumber, u64),
    statics: (RunNumber, u64),
}

impl RunTold {
    /// Whether one who remembers them has to be told of the attributes of a run, at this version.
    pub(super) fn note_attrs(&mut self, run: RunNumber, version: u64) -> bool {
        let (told_run, told) = std::mem::replace(&mut self.attrs, (run, version));
        (told_run, told) != (run, version) && (told, version) != (0, 0)
    }

    /// The same of the static fields.
    pub(super) fn note_statics(&mut self, run: RunNumber, version: u64) -> bool {
        std::mem::replace(&mut self.statics, (run, version)) != (run, version) && version > 0
    }
}
