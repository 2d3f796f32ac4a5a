//! Where readers with a name have stopped, and the next of that name goes on.

use super::StreamCoordinator;
use crate::ids::{RunNumber, StepNumber};
use crate::steps::attachment::{Attachment, AttachmentId, Start};
use crate::steps::effect::Effect;
use crate::steps::run::Run;
use crate::steps::step::Step;
use crate::{Error, Result};

/// How many readers may be about to attach that go on where others have stopped.
const CURSORS_MAX: usize = 1 << 16;

impl StreamCoordinator {
    /// What servers know of where the last reader of this name has stopped, told before the next one attaches.
    pub fn learn_cursor(&mut self, name: &str, cursor: (RunNumber, StepNumber)) {
        // Of those that did not attach after all some are left.
        if self.cursors.len() >= CURSORS_MAX {
            self.cursors.clear();
        }
        self.cursors.insert(name.to_owned(), cursor);
    }

    /// A reader stops. It has looked at these of the steps that it was told of and has not finished with: not so one that died.
    pub fn on_stop(&self, id: AttachmentId, looked_at: &[(RunNumber, StepNumber)]) -> Vec<Effect> {
        let stops = |attachment: &&Attachment| {
            attachment.demands
                && !attachment.is_stand_in()
                && (!attachment.is_closing() || attachment.cohort.is_some() || attachment.share.is_some())
        };
        let stopped = self.attachments.get(&id).filter(stops);
        let known =
            stopped.and_then(|stopped| Some((stopped.name()?.clone(), stopped.goes_on_at(looked_at)?)));
        known.map(|(name, cursor)| Effect::Cursor(name, cursor)).into_iter().collect()
    }

    /// Where the next readers of their names would begin, if those that are here died now.
    pub fn places(&self) -> Vec<(String, (RunNumber, StepNumber))> {
        self.attachments.values().filter_map(Attachment::place).collect()
    }

    /// Where a reader begins that goes on after the last one of its name.
    pub(super) fn resumed(&mut self, attachment: &Attachment) -> Result<Start> {
        let name = attachment.name().ok_or_else(|| {
            Error::invalid(
                "start 'resume' is where the last reader of this name has stopped: give it a `name`",
            )
        })?;
        let known = self.cursors.remove(name).filter(|(run, _)| *run <= self.last_run);
        let Some((run, step)) = known else { return Ok(Start::Next) };
        if attachment.follow {
            return Ok(Start::Cursor(run, step));
        }
        // A run of which nothing is left for it has been read: it goes on with the next one.
        let is_left = |number: &RunNumber, run: &Run, from: StepNumber| {
            let mut closed = run.steps.range(from..).map(|(_, step)| step);
            *number == self.last_run || closed.any(Step::is_closed)
        };
        let mut runs = self.runs.range(run..);
        let next =
            runs.find(|(number, of_run)| is_left(number, of_run, if **number == run { step } else { 0 }));
        Ok(match next {
            Some((number, _)) if *number > run => Start::Cursor(*number, 0),
            _ => Start::Cursor(run, step),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Checked, S0, S1, delivered, field, needs, options, step, stream};
    use super::*;
    use crate::identity::Identity;
    use crate::ids::STATIC_STEP;
    use crate::steps::options::{Policy, RunOptions};
    use crate::steps::report::HeldStep;

    const VIEWER: AttachmentId = AttachmentId(20);

    fn viewer() -> Attachment {
        let mut viewer = Attachment::new(needs(1), S0, 8);
        viewer.reader = Some(Identity { name: Some("viewer".into()), host: "a".into(), pid: 1 });
        viewer
    }

    /// Steps 0 to 4 are kept, and a viewer of them that has released the first two.
    fn viewed() -> Checked {
        let mut stream = Checked::new("s", vec![S0, S1]);
        stream.attach(VIEWER, viewer(), Start::Resume).unwrap();
        for rank in 0..2 {
            let server = if rank == 0 { S0 } else { S1 };
            stream.join(rank, server, RunOptions { keep: 9, ..options(2, Policy::DropOldest) }).unwrap();
            stream.define(1, rank, field()).unwrap();
        }
        (0..5).for_each(|number| drop(step(&mut stream, number)));
        (0..2).for_each(|number| drop(stream.release(VIEWER, 1, number, false)));
        stream
    }

    fn stop(stream: &mut Checked, looked_at: &[(RunNumber, StepNumber)]) -> (RunNumber, StepNumber) {
        let effects = stream.on_stop(VIEWER, looked_at);
        let [Effect::Cursor(name, cursor)] = &effects[..] else { panic!("{effects:?}") };
        assert_eq!(name, "viewer");
        stream.close(VIEWER, &[]);
        stream.learn_cursor(name, *cursor);
        assert_eq!(stream.on_stop(VIEWER, &[]), [], "it has stopped");
        *cursor
    }

    #[test]
    fn what_a_reader_has_not_finished_with_is_read_by_the_next() {
        let mut stream = viewed();
        assert_eq!(stop(&mut stream, &[]), (1, 2));
        let effects = stream.attach(AttachmentId(21), viewer(), Start::Resume).unwrap();
        assert_eq!(delivered(&effects), [(2, 0), (3, 0), (4, 0)]);
    }

    #[test]
    fn what_a_reader_has_looked_at_is_not_read_again() {
        let mut stream = viewed();
        assert_eq!(stop(&mut stream, &[(1, 2)]), (1, 3));
        assert_eq!(stop_of_all(), (1, 5));
    }

    #[test]
    fn what_a_reader_has_given_back_is_read_by_the_next_if_it_was_the_last() {
        let mut stream = viewed();
        stream.give_back(VIEWER, None, (1, 2), false);
        assert_eq!(stop(&mut stream, &[(1, 3), (1, 4)]), (1, 2));
        let mut stream = viewed();
        stream.give_back(VIEWER, None, (1, 2), true);
        stream.release(VIEWER, 1, 3, false);
        assert_eq!(stop(&mut stream, &[]), (1, 4), "it has gone on");
        // One more that is given back is no progress, and what it says of arrays and of static fields neither.
        let mut stream = viewed();
        stream.release(VIEWER, 1, 3, true);
        (2..5)
            .filter(|number| *number != 3)
            .for_each(|n| drop(stream.give_back(VIEWER, None, (1, n), false)));
        stream.release(VIEWER, 1, 3, false);
        stream.release(VIEWER, 1, STATIC_STEP, false);
        assert_eq!(stop(&mut stream, &[]), (1, 2));
    }

    #[test]
    fn what_a_reader_had_given_back_it_tells_the_next_coordinator() {
        for given_back in [None, Some((1, 2))] {
            let mut stream = viewed();
            stream.close(VIEWER, &[]);
            let mut back = viewer().with_held_steps(vec![HeldStep { run: 1, step: 3, pinned: false }]);
            back.given_back = given_back;
            stream.attach(VIEWER, back, Start::Rejoin(1, 5)).unwrap();
            assert_eq!(stop(&mut stream, &[]), given_back.unwrap_or((1, 3)));
        }
    }

    fn stop_of_all() -> (RunNumber, StepNumber) {
        let mut stream = viewed();
        (2..5).for_each(|number| drop(stream.release(VIEWER, 1, number, true)));
        stop(&mut stream, &[])
    }

    #[test]
    fn who_has_no_name_and_who_looks_have_no_place() {
        let mut stream = stream(Policy::DropOldest, 1, 4);
        assert_eq!(stream.on_stop(AttachmentId(7), &[]), []);
        let error = stream.attach(VIEWER, Attachment::new(needs(1), S0, 1), Start::Resume).unwrap_err();
        assert!(error.text.contains("give it a `name`"), "{error}");
        stream.attach(VIEWER, viewer(), Start::HELD).unwrap();
        assert_eq!(stream.on_stop(VIEWER, &[]), []);
        assert_eq!(stream.on_stop(AttachmentId(99), &[]), []);
    }

    #[test]
    fn a_run_of_which_nothing_is_left_is_followed_by_the_next() {
        let mut stream = viewed();
        stream.learn_cursor("viewer", (9, 0));
        let later = stream.attach(AttachmentId(21), viewer(), Start::Resume).unwrap();
        assert_eq!(delivered(&later), [], "there was no such run: it begins as if there had been no reader");
        stream.learn_cursor("viewer", (0, 3));
        let first = stream.attach(AttachmentId(22), viewer(), Start::Resume).unwrap();
        assert_eq!(delivered(&first).len(), 5, "of run 0 nothing is left");
    }
}
