//! What readers do that share the steps of a stream: they come, and leave.

use super::StreamCoordinator;
use crate::contract::Needs;
use crate::ids::{RunNumber, STATIC_STEP, StepNumber};
use crate::steps::attachment::{Attachment, AttachmentId, Phase, Queued, Start, Take};
use crate::steps::effect::Effect;
use crate::steps::report::HeldStep;
use crate::steps::share::{Share, Sharer, Sharing};
use crate::{Error, Result};
use std::collections::{BTreeSet, VecDeque};

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
        if comes_back {
            self.take_back_up(id, number, &sharer, &held, &mut effects);
        }
        self.tell_attachments(&mut effects);
        self.deliver(id, &mut effects);
        self.end_if_over(&mut effects);
        Ok((id, number, effects))
    }

    /// The readers of this name that share steps and take part.
    fn find_share(&self, name: &str) -> Option<AttachmentId> {
        let takes_part = |attachment: &&Attachment| {
            matches!(attachment.phase, Phase::Waiting | Phase::TakesPart(..))
                && attachment.share.as_ref().is_some_and(|share| share.record.name == name)
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
        let (id, away, start) = match kept.find(|(_, _, share)| share.name == name) {
            Some((id, record, share)) => {
                let theirs = (share.sharing, record.follow, record.needs.latest());
                self.check_agrees(comes_back, (sharer, &attachment), theirs)?;
                (id, share.sharers.clone(), Start::Next)
            }
            None => (id, BTreeSet::new(), start),
        };
        attachment.share = Some(Share::new(name, sharer.sharing, away));
        // What each holds it tells by itself; others hold steps after those that this one was told of.
        attachment.held_before.clear();
        Ok((id, self.attach(id, attachment, start)?))
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
            finished.remove(&(*run, *step));
            self.take_up((id, number), (*run, *step), *pinned);
        }
        let Some(attachment) = self.attachments.get_mut(&id) else { return };
        attachment.last = attachment.last.max(finished.last().copied());
        let is_finished = |queued: &Queued| finished.contains(&(queued.run, queued.step));
        let (waited, others): (VecDeque<Queued>, VecDeque<Queued>) =
            std::mem::take(&mut attachment.queue).into_iter().partition(is_finished);
        attachment.queue = others;
        for Queued { run, step, .. } in waited {
            self.let_go(run, step, effects);
        }
    }

    /// A reader that comes back holds a step, which does not wait for anybody any more.
    fn take_up(
        &mut self,
        (id, number): (AttachmentId, u32),
        (run, step): (RunNumber, StepNumber),
        pinned: bool,
    ) {
        let known = self.runs.get_mut(&run).and_then(|run| run.held_mut(step)).filter(|step| !step.dropped);
        let (Some(known), Some(attachment)) = (known, self.attachments.get_mut(&id)) else { return };
        let waited = attachment.queue.iter().position(|queued| (queued.run, queued.step) == (run, step));
        waited.and_then(|place| attachment.queue.remove(place));
        let of_all = if pinned { &mut attachment.pinned } else { &mut attachment.delivered };
        let is_new = of_all.insert((run, step));
        known.holds = known.holds + u32::from(is_new) - u32::from(waited.is_some());
        if let Some(share) = &mut attachment.share {
            share.holders.note(number, (run, step), pinned);
        }
    }

    /// One of the readers that share steps has closed, or has died; arrays of the steps in `kept` live on. What it had not looked
    /// at is given to others, and so is what it had not finished with when it died, once nothing of it lives.
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
        let mut finished = Vec::new();
        for (step, pinned) in held {
            match kept.contains(&step) {
                // It may still look at it.
                true if died => {}
                true => finished.push((step, true)),
                false if pinned || closing || step.1 == STATIC_STEP => finished.push((step, false)),
                false => {
                    if let Some(share) = &mut attachment.share {
                        share.take_back(step, died);
                    }
                    attachment.queue_again(step);
                }
            }
        }
        let mut effects = Vec::new();
        for (step, pinned) in finished {
            effects.extend(self.release_by(id, number, step, pinned));
        }
        let is_last = |attachment: &Attachment| attachment.share.as_ref().is_some_and(Share::is_empty);
        if was_here && self.attachments.get(&id).is_some_and(is_last) {
            effects.extend(self.on_stop(id, &[]));
            let held = self.attachments.get(&id).map(Attachment::held_by_readers).unwrap_or_default();
            effects.extend(self.close(id, &held));
        }
        self.tell_attachments(&mut effects);
        self.deliver(id, &mut effects);
        self.end_if_over(&mut effects);
        effects
    }

    /// Readers have had time to come back: the steps that others hold who have not are given to those that are there.
    pub(super) fn give_up_sharers_that_stay_away(&mut self) -> Vec<Effect> {
        let mut effects = Vec::new();
        let shares = self.attachments.iter_mut().filter_map(|(id, attachment)| {
            attachment.share.as_mut().filter(|share| !share.is_empty())?.give_up_away().then_some(*id)
        });
        for id in shares.collect::<BTreeSet<AttachmentId>>() {
            self.tell_attachments(&mut effects);
            self.deliver(id, &mut effects);
        }
        effects
    }
}

#[cfg(test)]
mod tests;
