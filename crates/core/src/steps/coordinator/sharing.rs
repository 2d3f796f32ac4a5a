//! What readers do that share the steps of a stream: they come, and leave.

use super::StreamCoordinator;
use crate::contract::Needs;
use crate::ids::{RunNumber, STATIC_STEP, StepNumber};
use crate::steps::attachment::{Attachment, AttachmentId, Phase, Start, Take};
use crate::steps::effect::Effect;
use crate::steps::queued::Queued;
use crate::steps::report::HeldStep;
use crate::steps::share::{Share, Sharer, Sharing};
use crate::{Error, Result};
use std::collections::BTreeSet;

impl StreamCoordinator {
    /// A reader comes that shares steps with others of its name, or comes back. Returns what names them all (`id`, if it is the
    /// first), and its number among them.
    pub fn share(
        &mut self,
        id: AttachmentId,
        comes_back: bool,
        sharer: Sharer,
        attachment: Attachment,
        start: Start,
    ) -> Result<(AttachmentId, u32, Vec<Effect>)> {
        sharer.check()?;
        attachment.needs.check()?;
        let name = attachment.name().cloned().ok_or_else(|| {
            Error::invalid("readers that share steps have one `name`: it says which belong together")
        })?;
        if attachment.take == Take::Latest || matches!(start, Start::Held(..)) {
            return Err(Error::invalid(
                "readers that share steps are given each of those that come: take 'all', and another start than 'held'",
            ));
        }
        let (who, window) = (attachment.reader.clone().unwrap_or_default(), attachment.window);
        let held = attachment.held_before.clone();
        let (id, mut effects) = match self.find_share(&name) {
            Some(id) => {
                if let Some((known, share)) =
                    self.attachments.get(&id).and_then(|known| Some((known, known.share.as_ref()?)))
                {
                    let theirs = (share.record.sharing, known.follow, known.demanded());
                    self.check_agrees(comes_back, (&sharer, &attachment), theirs)?;
                }
                (id, Vec::new())
            }
            None => self.begin_share(id, comes_back, &name, &sharer, attachment, start)?,
        };
        let Some(share) = self.attachments.get_mut(&id).and_then(|known| known.share.as_mut()) else {
            return Err(Error::internal(format!("the readers '{name}' are not there")));
        };
        let number = share.come(sharer.number, who, window);
        let end = share.end.clone();
        if comes_back {
            self.take_back_up(id, number, &sharer, &held, &mut effects);
        }
        // The others do not mind to be told once more.
        effects.extend(end.map(|end| Effect::Ended(id, end)));
        self.on_share_changed(id, &mut effects);
        Ok((id, number, effects))
    }

    /// The readers of this name that share steps and take part, or were told of the end of the latest run.
    fn find_share(&self, name: &str) -> Option<AttachmentId> {
        let takes_part = |attachment: &&Attachment| {
            let is_here = match attachment.phase {
                Phase::Waiting | Phase::TakesPart(..) => true,
                Phase::Ended(run, _) => run == self.last_run && !attachment.follow,
                Phase::Looking | Phase::Closing(_) => false,
            };
            is_here && attachment.share.as_ref().is_some_and(|share| share.record.name == name)
        };
        let mut known = self.attachments.iter().filter(|(_, attachment)| takes_part(attachment));
        known.next().map(|(id, _)| *id)
    }

    /// Checks that a reader says the same as those that have come before it, here or at the coordinator before.
    fn check_agrees(
        &self,
        comes_back: bool,
        (sharer, mine): (&Sharer, &Attachment),
        (sharing, follow, needs): (Sharing, bool, &Needs),
    ) -> Result<()> {
        let same = [
            (sharing == sharer.sharing, "share"),
            (follow == mine.follow, "follow"),
            // One that comes back may not have heard of the last change.
            (comes_back || needs == mine.demanded(), "fields"),
        ];
        let Some((_, what)) = same.iter().find(|(same, _)| !same) else { return Ok(()) };
        let who = mine.reader.clone().unwrap_or_default();
        Err(Error::conflict(format!(
            "readers of stream '{}' share its steps: {who} does not have the same {what} as those that have come before",
            self.name
        )))
    }

    /// The first reader of its name comes, here: it takes the place that is kept for all of them, if the coordinator before knew
    /// some. Returns what names them.
    fn begin_share(
        &mut self,
        id: AttachmentId,
        comes_back: bool,
        name: &str,
        sharer: &Sharer,
        mut attachment: Attachment,
        start: Start,
    ) -> Result<(AttachmentId, Vec<Effect>)> {
        let kept = self.attachments.iter().filter(|(_, stood_in)| stood_in.is_stand_in());
        let mut kept = kept.filter_map(|(id, stood_in)| {
            let record = stood_in.told.as_ref()?;
            Some((*id, record, record.share.as_ref()?))
        });
        let (id, away, start, below) = match kept.find(|(_, _, share)| share.name == name) {
            Some((id, record, share)) => {
                let theirs = (share.sharing, record.follow, record.needs.latest());
                self.check_agrees(comes_back, (sharer, &attachment), theirs)?;
                (id, share.sharers.clone(), Start::Next, share.below)
            }
            None => (id, BTreeSet::new(), start, None),
        };
        attachment.share = Some(Share::new(name, sharer.sharing, away));
        // What each holds it tells by itself; others hold steps after those that this one was told of.
        attachment.held_before.clear();
        let mut effects = self.attach(id, attachment, start)?;
        self.finish_before(id, below, &mut effects);
        Ok((id, effects))
    }

    /// All before this step was finished at the coordinator before: it waits for nobody.
    fn finish_before(
        &mut self,
        id: AttachmentId,
        below: Option<(RunNumber, StepNumber)>,
        effects: &mut Vec<Effect>,
    ) {
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        let is_finished = |queued: &Queued| Some((queued.run, queued.step)) < below;
        let finished = attachment.take_queued(is_finished);
        if let Some(share) = &mut attachment.share {
            share.record.below = below;
        }
        for (run, step) in finished {
            self.let_go(run, step, effects);
        }
    }

    /// A reader comes back to a stream that another server coordinated: of the steps that it was told of, it holds these, and has
    /// finished with the others.
    fn take_back_up(
        &mut self,
        id: AttachmentId,
        number: u32,
        sharer: &Sharer,
        held: &[HeldStep],
        effects: &mut Vec<Effect>,
    ) {
        let mut finished = sharer.told_steps();
        for HeldStep { run, step, pinned } in held {
            // One of which only arrays live, and that it does not tell, it has given back.
            let was_told = finished.remove(&(*run, *step));
            self.take_up((id, number), (*run, *step), *pinned, was_told || !pinned);
        }
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        attachment.last = attachment.last.max(finished.last().copied());
        let waited = attachment.take_queued(|queued| finished.contains(&(queued.run, queued.step)));
        for (run, step) in waited {
            self.let_go(run, step, effects);
        }
    }

    /// A reader that comes back holds a step. It does not wait for anybody any more, if it `is_taken`.
    fn take_up(
        &mut self,
        (id, number): (AttachmentId, u32),
        (run, step): (RunNumber, StepNumber),
        pinned: bool,
        is_taken: bool,
    ) {
        let known = self.runs.get_mut(&run).and_then(|run| run.held_mut(step));
        let known = known.filter(|known| !known.dropped);
        let (Some(known), Some(attachment)) = (known, self.attachments.get_mut(&id)) else { return };
        let id_of_step = (run, step);
        let waits = |queued: &Queued| is_taken && (queued.run, queued.step) == id_of_step;
        let waited = attachment.take_queued(waits).len() as u32;
        let is_open = !known.is_closed();
        // Another one may hold it, too.
        let held = attachment.is_held(id_of_step);
        known.holds = known.holds + u32::from(!held) - waited;
        if !pinned {
            attachment.pinned.remove(&id_of_step);
            attachment.delivered.insert(id_of_step);
        } else if !held {
            attachment.pinned.insert(id_of_step);
        }
        if let Some(share) = &mut attachment.share {
            share.holders.note(number, id_of_step, pinned);
            if is_taken {
                share.take_given_back(id_of_step);
            } else if is_open && step != STATIC_STEP {
                share.note_given_back(id_of_step);
            }
        }
    }

    /// One of the readers that share steps has closed, or has died; arrays of the steps in `kept` live on. With which it had not
    /// finished, others are given: what it may still look at once it does no more.
    pub(super) fn leave_share(
        &mut self,
        id: AttachmentId,
        number: u32,
        kept: &[(RunNumber, StepNumber)],
        died: bool,
    ) -> Vec<Effect> {
        let Some(attachment) = self.attachments.get_mut(&id) else { return Vec::new() };
        let closing = attachment.is_closing();
        let Some(share) = &mut attachment.share else { return Vec::new() };
        let was_here = share.leave(number);
        let held = share.held_by(number);
        let (mut finished, mut given_again) = (Vec::new(), Vec::new());
        for (step, pinned) in held {
            let is_finished = pinned || closing || step.1 == STATIC_STEP;
            match (kept.contains(&step), is_finished) {
                (true, false) => {}
                (kept, true) => finished.push((step, kept)),
                (false, false) => given_again.push(step),
            }
        }
        let mut effects = Vec::new();
        for step in given_again {
            self.give_again(id, number, step, false, died);
        }
        for (step, pinned) in finished {
            effects.extend(self.release_shared(id, number, step, (pinned, false)));
        }
        if was_here {
            self.close_if_none_is_left(id, &mut effects);
        }
        self.on_share_changed(id, &mut effects);
        effects
    }

    /// The last of those that share steps has gone: the next of their name goes on with the first step that was not finished.
    fn close_if_none_is_left(&mut self, id: AttachmentId, effects: &mut Vec<Effect>) {
        let none = |share: &Share| share.is_empty() && !share.awaits_some();
        if self.attachments.get(&id).and_then(|attachment| attachment.share.as_ref()).is_some_and(none) {
            effects.extend(self.on_stop(id, &[]));
            let held = self.attachments.get(&id).map(Attachment::held_by_readers).unwrap_or_default();
            effects.extend(self.close(id, &held));
        }
    }

    /// Some have come, or gone, or have finished with steps.
    fn on_share_changed(&mut self, id: AttachmentId, effects: &mut Vec<Effect>) {
        if let Some(attachment) = self.attachments.get_mut(&id) {
            attachment.note_how_far();
        }
        self.tell_attachments(effects);
        self.deliver(id, effects);
        self.end_if_over(effects);
    }

    /// A step with which one of those that share steps has not finished waits for another one.
    fn give_again(
        &mut self,
        id: AttachmentId,
        number: u32,
        step: (RunNumber, StepNumber),
        pinned: bool,
        failed: bool,
    ) {
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        if attachment.give_again(number, step, pinned, failed)
            && let Some(known) = self.runs.get_mut(&step.0).and_then(|run| run.held_mut(step.1))
        {
            known.holds += 1;
        }
    }

    /// One of those that share steps has finished with one, or only arrays of it live on there. Where it could not do with it what it
    /// wanted (`gives_back`), another one is given it; so it is with what one had not finished with that has left.
    pub(super) fn release_shared(
        &mut self,
        id: AttachmentId,
        number: u32,
        step: (RunNumber, StepNumber),
        (pinned, gives_back): (bool, bool),
    ) -> Vec<Effect> {
        let Some(attachment) = self.attachments.get_mut(&id) else { return Vec::new() };
        let closing = attachment.is_closing();
        let Some(share) = &mut attachment.share else { return Vec::new() };
        let mut effects = Vec::new();
        if step.1 == STATIC_STEP && !pinned && share.reads_run(number, step.0) {
            // It was told of them once more since then, with a step of another run between.
            return effects;
        }
        if share.has_not_finished(number, step) && !closing && (gives_back || !share.is_here(number)) {
            self.give_again(id, number, step, pinned, true);
            self.on_share_changed(id, &mut effects);
            return effects;
        }
        let is_told = share.note_finished();
        if let Some(pinned) = attachment.release_by(number, step, pinned) {
            effects = self.release(id, step.0, step.1, pinned);
        }
        if is_told {
            self.on_share_changed(id, &mut effects);
        } else {
            self.deliver(id, &mut effects);
        }
        effects
    }

    /// Readers have had time to come back: the steps that others hold who have not are given to those that are there.
    pub(super) fn give_up_sharers_that_stay_away(&mut self) -> Vec<Effect> {
        let mut given_up = Vec::new();
        for (id, attachment) in &mut self.attachments {
            let window = attachment.window as usize;
            let Some(share) = &mut attachment.share else { continue };
            let gone = share.give_up_away();
            if gone > 0 {
                // They hold no more than these of those that nobody else holds.
                let first = attachment.queue.iter().take(gone.saturating_mul(window));
                first.for_each(|queued| share.note_attempt((queued.run, queued.step)));
                given_up.push(*id);
            }
        }
        let mut effects = Vec::new();
        for id in given_up {
            self.close_if_none_is_left(id, &mut effects);
            self.on_share_changed(id, &mut effects);
        }
        effects
    }
}

#[cfg(test)]
mod tests;
