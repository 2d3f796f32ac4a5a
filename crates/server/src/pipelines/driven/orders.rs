//! What ranks ask for that drive a pipeline: that a step is active, that it is run, or nothing more than to be heard.

use super::{Asker, Pipeline, Streams};
use crate::context::Context;
use forebay_core::ids::{ServerId, StepNumber};
use forebay_core::{Error, Result};
use forebay_wire::drive::{DRIVEN_WINDOW, Drive, DriveAnswer, DriveOrder};
use std::collections::BTreeSet;

impl Pipeline {
    /// A rank wants something of the pipeline; its home is answered when that is done, or with the error.
    pub(in crate::pipelines) fn on_drive(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        drive: &Drive,
        asker: Asker,
    ) {
        if let Err(error) = self.take_order(streams, drive, asker) {
            super::tell_driven(cx, asker.server, asker.token, Err(error));
        }
        self.advance_driven(cx, streams, false);
    }

    fn take_order(&mut self, streams: &mut dyn Streams, drive: &Drive, asker: Asker) -> Result<()> {
        self.check_drive(streams, drive)?;
        let before = self.driven.as_ref().map_or(0, |driven| driven.run);
        if drive.run < before {
            return Err(Error::not_found(format!(
                "run {} of stream '{}' has ended: run {before} drives pipeline '{}' now",
                drive.run, drive.stream, self.spec.name
            )));
        }
        if drive.run > before {
            self.begin_run(streams, drive.run);
        }
        let Some(driven) = self.driven.as_mut() else { return Ok(()) };
        driven.on_active_steps(drive);
        match drive.order {
            DriveOrder::Activate(step) => {
                if driven.steps.len() < DRIVEN_WINDOW || driven.steps.contains_key(&step) {
                    let activated = self.activate(step, drive.server)?;
                    self.driven.iter_mut().for_each(|driven| driven.answer(asker, Ok(activated.clone())));
                } else {
                    driven.awaiting_room.insert((step, drive.rank), (drive.server, asker));
                }
                Ok(())
            }
            DriveOrder::Execute { step, attempt } => self.on_wanted(drive, asker, (step, attempt)),
            DriveOrder::Deactivate => Ok(()),
        }
    }

    /// A rank wants a step to be run for the `attempt`-th time.
    fn on_wanted(&mut self, drive: &Drive, asker: Asker, (step, attempt): (StepNumber, u32)) -> Result<()> {
        let is_past =
            |driven: &super::DrivenSteps| driven.retired.contains(&step) && !driven.steps.contains_key(&step);
        if self.driven.as_ref().is_some_and(is_past) {
            return Err(Error::not_found(format!(
                "step {step} of stream '{}' is held no more: a server has died while it was active",
                drive.stream
            )));
        }
        self.activate(step, drive.server)?;
        let Some(driven) = self.driven.as_mut() else { return Ok(()) };
        let Some(entry) = driven.steps.get_mut(&step) else { return Ok(()) };
        match entry.outcomes.range(attempt..).next() {
            Some((_, outcome)) => {
                let outcome = outcome.clone();
                driven.answer(asker, outcome);
            }
            None => drop(entry.waiting.insert(drive.rank, (attempt, asker))),
        }
        Ok(())
    }

    /// Whether a rank may drive the pipeline here and now.
    fn check_drive(&self, streams: &dyn Streams, drive: &Drive) -> Result<()> {
        let (name, stream) = (&drive.pipeline, &drive.stream);
        if self.spec.stream != *stream {
            return Err(Error::conflict(format!(
                "pipeline '{name}' runs on stream '{}' now: open the handle again",
                self.spec.stream
            )));
        }
        if !self.spec.driven {
            return Err(Error::invalid(format!(
                "pipeline '{name}' runs by itself on each closed step: create it with driven=True (--driven) to drive it"
            )));
        }
        if drive.active.len() > DRIVEN_WINDOW {
            return Err(Error::protocol("a rank with too many active steps"));
        }
        match streams.coordinator(stream).and_then(|coordinator| coordinator.size_of(drive.run)) {
            Some(ranks) if drive.rank < ranks => Ok(()),
            Some(ranks) => Err(Error::protocol(format!("rank {} of {ranks}", drive.rank))),
            // Its ranks come back one after the other.
            None => Err(Error::unreachable(format!("run {} of stream '{stream}' is not known", drive.run))),
        }
    }

    /// Activates what waits for room, as far as there is some.
    pub(super) fn activate_waiting(&mut self) {
        loop {
            let Some(driven) = self.driven.as_mut() else { return };
            let Some((step, _)) = driven.awaiting_room.keys().next().copied() else { return };
            if driven.steps.len() >= DRIVEN_WINDOW && !driven.steps.contains_key(&step) {
                return;
            }
            let Some((_, (server, asker))) = driven.awaiting_room.pop_first() else { return };
            let activated = self.activate(step, server);
            self.driven.iter_mut().for_each(|driven| driven.answer(asker, activated.clone()));
        }
    }

    /// A rank tells of a step: from now on it is known who runs it, and the next one.
    fn activate(&mut self, step: StepNumber, server: Option<ServerId>) -> Result<DriveAnswer> {
        let (name, servers) = (&self.spec.name, &self.servers);
        let driven = self.driven.as_mut().ok_or_else(|| Error::internal("a pipeline that is not driven"))?;
        let known = driven.steps.get(&step).filter(|known| known.workers.is_some());
        if let Some(known) = known.filter(|known| known.server != server) {
            let who = |server: Option<ServerId>| server.map_or("all servers".to_owned(), |s| s.to_string());
            return Err(Error::conflict(format!(
                "step {step} was activated for pipeline '{name}' on {}, and now on {}: all ranks must use one handle",
                who(known.server),
                who(server)
            )));
        }
        let ready: BTreeSet<ServerId> = match server {
            Some(one) if servers.contains(&one) => BTreeSet::from([one]),
            Some(one) => {
                let there: Vec<String> = servers.iter().map(ServerId::to_string).collect();
                return Err(Error::not_found(format!(
                    "pipeline '{name}' has no worker on {one}; it has some on {}",
                    there.join(", ")
                )));
            }
            None => self.ready.keys().filter(|server| !self.leaving.contains(server)).copied().collect(),
        };
        if driven.entry(step).workers.is_none() {
            let promised = driven.promised.replace(ready.clone()).filter(|_| server.is_none());
            let entry = driven.entry(step);
            entry.server = server;
            entry.workers = Some(promised.unwrap_or_else(|| ready.clone()));
            entry.next = ready;
        }
        let entry = driven.entry(step);
        Ok(DriveAnswer::Activated {
            workers: entry.workers.iter().flatten().copied().collect(),
            next: entry.next.iter().copied().collect(),
        })
    }
}
