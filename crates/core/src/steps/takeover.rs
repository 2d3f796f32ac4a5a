//! What a coordinator that takes the place of another one, which has died, is being told of the time before.

use crate::ids::{RunNumber, ServerId, StepNumber};
use crate::steps::attachment::{AttachmentId, AttachmentRecord};
use std::collections::{BTreeMap, BTreeSet};

/// What was told so far and is settled only when all have told.
#[derive(Debug, Default)]
pub(super) struct Reports {
    /// The attachments of which servers were told.
    pub(super) attachments: BTreeMap<AttachmentId, AttachmentRecord>,
    /// Steps of which a server holds or knows blocks.
    pub(super) held: BTreeMap<(RunNumber, StepNumber), BTreeSet<ServerId>>,
}

/// How far a coordinator is with taking the place of others.
///
/// ```text
///              the coordinator before this one has died
///   Settled ────────────────────────────────────────────► Telling
///      ▲                                                     │
///      └───────────── settle: all homes have told ───────────┘
/// ```
///
/// While homes are telling, no step closes.
#[derive(Debug, Default)]
pub(super) struct Takeover {
    /// What was told so far; `None` once it is settled.
    telling: Option<Reports>,
    /// The homes that have told, now or in a takeover before.
    pub(super) homes: BTreeSet<ServerId>,
    /// Whether any server was ever told of an attachment of the stream: then those that are not known are none.
    pub(super) readers_were_known: bool,
    /// How many steps attachments had missed, as the coordinator before has told that has left.
    pub(super) missed: BTreeMap<AttachmentId, u64>,
    /// How often was looked since readers could come back.
    pub(super) looks: u32,
}

impl Takeover {
    /// Homes tell, or go on telling.
    pub(super) fn begin(&mut self) -> &mut Reports {
        self.telling.get_or_insert_default()
    }

    /// What was told so far, while homes are telling.
    pub(super) fn reports(&self) -> Option<&Reports> {
        self.telling.as_ref()
    }

    pub(super) fn reports_mut(&mut self) -> Option<&mut Reports> {
        self.telling.as_mut()
    }

    /// All homes have told. Returns what they told, if any was to tell.
    pub(super) fn settle(&mut self) -> Option<Reports> {
        self.telling.take()
    }
}
