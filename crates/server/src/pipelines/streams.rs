//! What pipelines need of the streams that this server coordinates, and what those tell them.

use crate::context::Context;
use forebay_core::Result;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::{Attachment, AttachmentId, Start, StepReport, StreamCoordinator};

/// The streams that this server coordinates, as pipelines use them.
///
/// A stream's coordinator is changed at once. What follows from that (messages to homes, steps for readers and pipelines) the
/// implementation does when the pipelines have handled their event: they are never called while they are being changed.
pub(crate) trait Streams {
    /// A pipeline attaches to its stream: from now on the stream's steps come by [`super::Pipelines::on_stream_event`].
    fn attach(
        &mut self,
        cx: &Context<'_>,
        stream: &str,
        pipeline: &str,
        id: AttachmentId,
        attachment: Attachment,
        start: Start,
    ) -> Result<()>;

    /// A pipeline has finished with a step; `pinned` says that workers still show memory of it.
    fn release(&mut self, stream: &str, id: AttachmentId, step: (RunNumber, StepNumber), pinned: bool);

    /// A pipeline ends, or attaches no more: what it held of the stream is released.
    fn detach(&mut self, stream: &str, id: AttachmentId);

    /// A stream's coordinator, to be asked about runs and steps; `None` if nobody has used the stream here.
    fn coordinator(&self, stream: &str) -> Option<&StreamCoordinator>;

    /// Whether an attachment was known at the coordinator that has died: steps may wait for it.
    fn was_attached(&self, stream: &str, id: AttachmentId) -> bool;

    /// Whether all members have told what follows from the view in force: nothing more will be told of pipelines whose
    /// coordinator has died.
    fn have_all_told(&self) -> bool;

    /// Whether only members hold blocks. Else some of them answer for arenas of servers that have died.
    fn are_holders_members(&self) -> bool;
}

/// What a stream tells a pipeline that is attached to it.
#[derive(Debug)]
pub(crate) enum StreamEvent {
    /// A step is closed.
    Step {
        /// The pipeline.
        pipeline: String,
        /// The step.
        report: Box<StepReport>,
    },
    /// The pipeline was told of all steps that waited for it when it attached.
    Attached {
        /// The pipeline.
        pipeline: String,
    },
    /// The pipeline can be told of no more steps.
    Failed {
        /// The pipeline.
        pipeline: String,
        /// Why.
        error: forebay_core::Error,
    },
}
