//! What those need of the streams that this server coordinates who use them within the server: pipelines and subscriptions; and what
//! streams tell them.

use crate::context::Context;
use forebay_core::Result;
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::{Attachment, AttachmentId, Start, StepReport, StreamCoordinator};

/// Who uses a stream within a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StreamUser {
    /// The pipeline of this name.
    Pipeline(String),
    /// Subscriptions that need the same: by their attachment.
    Subscriptions(AttachmentId),
}

/// The streams that this server coordinates, as others use them within it.
///
/// A stream's coordinator is changed at once. What follows from that (messages to homes, steps for readers and for those) the
/// implementation does when its user has handled its event: that is never called while it is being changed.
pub(crate) trait Streams {
    /// A user attaches to a stream: from now on the stream's steps come as [`StreamEvent`].
    fn attach(
        &mut self,
        cx: &Context<'_>,
        stream: &str,
        user: StreamUser,
        id: AttachmentId,
        attachment: Attachment,
        start: Start,
    ) -> Result<()>;

    /// A user has finished with a step; `pinned` says that memory of it is still shown somewhere.
    fn release(&mut self, stream: &str, id: AttachmentId, step: (RunNumber, StepNumber), pinned: bool);

    /// A step is chosen for a user that is told of no others.
    fn choose(&mut self, stream: &str, id: AttachmentId, step: (RunNumber, StepNumber));

    /// What a user needs is another thing from some step on. Fails where the stream's fields do not have that.
    fn change_needs(&mut self, stream: &str, id: AttachmentId, needs: Needs) -> Result<()>;

    /// A user may be told of so many steps before it releases one.
    fn set_window(&mut self, stream: &str, id: AttachmentId, window: u32);

    /// A user ends, or attaches no more: what it held of the stream is released.
    fn detach(&mut self, stream: &str, id: AttachmentId);

    /// A stream's coordinator, to be asked about runs and steps; `None` if nobody has used the stream here.
    fn coordinator(&self, stream: &str) -> Option<&StreamCoordinator>;

    /// Whether an attachment was known at the coordinator that has died: steps may wait for it.
    fn was_attached(&self, stream: &str, id: AttachmentId) -> bool;

    /// Whether all members have told what follows from the view in force: nothing more will be told of users whose
    /// coordinator has died.
    fn have_all_told(&self) -> bool;

    /// Whether only members hold blocks. Else some of them answer for arenas of servers that have died.
    fn are_holders_members(&self) -> bool;
}

/// What a stream tells a user that is attached to it.
#[derive(Debug)]
pub(crate) enum StreamEvent {
    /// A step is closed.
    Step {
        /// Who is told.
        user: StreamUser,
        /// The step.
        report: Box<StepReport>,
    },
    /// The user was told of all steps that waited for it when it attached.
    Attached {
        /// Who is told.
        user: StreamUser,
    },
    /// The ranks of a run offer none of the fields that the user needs.
    NotOffered {
        /// Who is told.
        user: StreamUser,
        /// The run.
        run: RunNumber,
        /// Its first step.
        step: StepNumber,
    },
    /// The user can be told of no more steps.
    Failed {
        /// Who is told.
        user: StreamUser,
        /// Why.
        error: forebay_core::Error,
    },
}

impl StreamEvent {
    /// Who is told.
    pub(crate) fn user(&self) -> &StreamUser {
        match self {
            StreamEvent::Step { user, .. }
            | StreamEvent::Attached { user }
            | StreamEvent::NotOffered { user, .. }
            | StreamEvent::Failed { user, .. } => user,
        }
    }
}
