//! What every implementation of [`Streams`] does: the one of a server, and the one that the tests of pipelines use.

use super::bench::{S0, S1, TestStreams, ended, field, first_of_two, joining};
use crate::context::{Common, Context};
use crate::node::Node;
use crate::streams::users::{StreamEvent, StreamUser, Streams};
use forebay_core::Result;
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::{Attachment, AttachmentId, Effect, Start, StreamCoordinator};
use std::sync::Arc;

/// The streams of a server that coordinates the stream "s".
pub(crate) trait Surroundings {
    /// Pipelines handle an event.
    fn with<T>(&mut self, event: impl FnOnce(&Context<'_>, &mut dyn Streams) -> T) -> T;

    /// Something happens to the stream itself.
    fn change(&mut self, change: impl FnOnce(&mut StreamCoordinator) -> Vec<Effect>);

    /// What the pipeline "p" was told since this was asked last, in order.
    fn told(&mut self) -> Vec<StreamEvent>;

    /// Which steps have become free since this was asked last.
    fn freed(&mut self) -> Vec<StepNumber>;
}

const ID: AttachmentId = AttachmentId(7);
const RUN: RunNumber = 1;
const NOTHING: [&str; 0] = [];

/// Runs the whole suite. Each case has new surroundings.
pub(crate) async fn suite<S: Surroundings>(mut new: impl AsyncFnMut() -> S) {
    nothing_follows_from_what_nobody_knows(&mut new().await);
    a_pipeline_is_told_of_each_step_in_order(&mut new().await);
    a_step_is_free_when_it_is_released(&mut new().await);
    what_a_pipeline_held_is_free_when_it_ends(&mut new().await);
    what_waits_is_told_before_the_attachment_is(&mut new().await);
    an_attachment_that_cannot_be_is_refused(&mut new().await);
    a_server_that_dies_changes_nothing_for_steps_that_are_told(&mut new().await);
}

fn nothing_follows_from_what_nobody_knows(around: &mut impl Surroundings) {
    around.with(|_, streams| {
        assert!(streams.coordinator("unknown").is_none());
        assert!(!streams.was_attached("unknown", ID) && !streams.was_attached("s", ID));
        assert!(streams.have_all_told() && streams.are_holders_members());
        streams.release("unknown", ID, (RUN, 0), false);
        streams.detach("unknown", ID);
    });
    assert_eq!(said(around.told()), NOTHING);
    assert_eq!(around.freed(), [0; 0]);
}

fn a_pipeline_is_told_of_each_step_in_order(around: &mut impl Surroundings) {
    attach(around, Start::Next).unwrap();
    assert_eq!(said(around.told()), ["attached"]);
    begin_run(around, 0);
    for step in [0, 1, 5] {
        end_step(around, step);
    }
    assert_eq!(said(around.told()), ["step 0", "step 1", "step 5"]);
    around.with(|_, streams| {
        assert!(streams.coordinator("s").is_some());
    });
}

fn a_step_is_free_when_it_is_released(around: &mut impl Surroundings) {
    attach(around, Start::Next).unwrap();
    begin_run(around, 0);
    end_step(around, 0);
    end_step(around, 1);
    assert_eq!(around.freed(), [0; 0], "it holds both");
    around.with(|_, streams| streams.release("s", ID, (RUN, 0), false));
    assert_eq!(around.freed(), [0]);
    around.with(|_, streams| streams.release("s", ID, (RUN, 0), false));
    assert_eq!(around.freed(), [0; 0], "it is free already");
    around.with(|_, streams| streams.release("s", AttachmentId(8), (RUN, 1), false));
    assert_eq!(around.freed(), [0; 0], "another one never held it");
}

fn what_a_pipeline_held_is_free_when_it_ends(around: &mut impl Surroundings) {
    attach(around, Start::Next).unwrap();
    begin_run(around, 0);
    end_step(around, 0);
    end_step(around, 1);
    around.told();
    around.with(|_, streams| streams.detach("s", ID));
    assert_eq!(around.freed(), [0, 1]);
    end_step(around, 2);
    assert_eq!(said(around.told()), NOTHING);
    around.with(|_, streams| streams.detach("s", ID));
    assert_eq!(said(around.told()), NOTHING);
}

fn what_waits_is_told_before_the_attachment_is(around: &mut impl Surroundings) {
    begin_run(around, 2);
    end_step(around, 0);
    end_step(around, 1);
    assert_eq!(said(around.told()), NOTHING, "nobody is there");
    attach(around, Start::Oldest).unwrap();
    assert_eq!(said(around.told()), ["step 0", "step 1", "attached"]);
}

/// It is to go on in a run that the stream has not had.
fn an_attachment_that_cannot_be_is_refused(around: &mut impl Surroundings) {
    begin_run(around, 0);
    assert!(attach(around, Start::Cursor(RUN + 1, 0)).is_err());
    assert_eq!(said(around.told()), NOTHING);
    end_step(around, 0);
    assert_eq!(said(around.told()), NOTHING);
}

/// The other server dies, which held nothing.
fn a_server_that_dies_changes_nothing_for_steps_that_are_told(around: &mut impl Surroundings) {
    attach(around, Start::Next).unwrap();
    begin_run(around, 0);
    end_step(around, 0);
    around.change(|stream| stream.on_server_gone(S1));
    end_step(around, 1);
    assert_eq!(said(around.told()), ["attached", "step 0", "step 1"]);
    around.with(|_, streams| streams.detach("s", ID));
    assert_eq!(around.freed(), [0, 1]);
}

// ---- what the suite is made of ----------------------------------------------------------------------

fn attach(around: &mut impl Surroundings, start: Start) -> Result<()> {
    let attachment = Attachment::new(Needs::all(1), S0, 10);
    around
        .with(|cx, streams| streams.attach(cx, "s", StreamUser::Pipeline("p".into()), ID, attachment, start))
}

/// The only rank begins the run, and says what it offers.
fn begin_run(around: &mut impl Surroundings, keep: u32) {
    around.change(|stream| {
        let (_, effects) = stream.join(joining(keep), S0).unwrap();
        stream.define(RUN, 0, field()).unwrap();
        effects
    });
}

fn end_step(around: &mut impl Surroundings, step: StepNumber) {
    around.change(|stream| stream.on_step_ended(RUN, 0, S0, ended(step)));
}

/// What the pipeline "p" was told, in words.
fn said(events: Vec<StreamEvent>) -> Vec<String> {
    let said = |event| {
        let (pipeline, what) = match event {
            StreamEvent::Step { user, report } => (user, format!("step {}", report.id.step)),
            StreamEvent::Attached { user } => (user, "attached".to_owned()),
            StreamEvent::NotOffered { user, .. } => (user, "not offered".to_owned()),
            StreamEvent::Failed { user, error } => (user, format!("failed: {error}")),
        };
        assert_eq!(pipeline, StreamUser::Pipeline("p".into()));
        what
    };
    events.into_iter().map(said).collect()
}

// ---- the streams of the tests of pipelines ----------------------------------------------------------

struct Double {
    node: Arc<Node>,
    common: Common,
    streams: TestStreams,
    _directory: tempfile::TempDir,
}

impl Surroundings for Double {
    fn with<T>(&mut self, event: impl FnOnce(&Context<'_>, &mut dyn Streams) -> T) -> T {
        let cx = Context { server: &self.node, common: &mut self.common };
        event(&cx, &mut self.streams)
    }

    fn change(&mut self, change: impl FnOnce(&mut StreamCoordinator) -> Vec<Effect>) {
        self.streams.change(change);
    }

    fn told(&mut self) -> Vec<StreamEvent> {
        self.streams.take_events()
    }

    fn freed(&mut self) -> Vec<StepNumber> {
        std::mem::take(&mut self.streams.freed)
    }
}

#[tokio::test]
async fn the_double_is_as_good_as_a_servers_streams() {
    suite(async || {
        let (node, directory) = first_of_two().await;
        let (common, streams) = (Common::default(), TestStreams::new());
        Double { node, common, streams, _directory: directory }
    })
    .await;
}
