//! What is to be evaluated at a step, and what comes of it.

use super::Subscriptions;
use super::copies::Key;
use super::partner::Joined;
use super::subscription::about;
use super::watch::{Holder, Watch};
use super::work::{Done, Due, ProgressOf, Work};
use crate::context::Context;
use crate::streams::users::{StreamEvent, StreamUser, Streams};
use forebay_core::contract::Field;
use forebay_core::ids::{RunNumber, StepNumber, Timestamp};
use forebay_core::steps::{AttachmentId, StepReport};
use forebay_core::{Error, ErrorKind};
use forebay_query::SPACE;
use forebay_query::subscription::{Evaluated, ResponseTime, Settled};
use forebay_query::time::Moment;
use forebay_query::value::{Unknown, UnknownKind};
use forebay_wire::evaluation::Cost;
use std::sync::Arc;
use std::time::Duration;

impl Subscriptions {
    /// A stream tells subscriptions of a step, or that there will be none.
    pub(crate) fn on_stream_event(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        event: StreamEvent,
    ) {
        match event {
            StreamEvent::Step { user: StreamUser::Subscriptions(id), report } => {
                match self.watches.get_mut(&id) {
                    Some(watch) => watch.push(*report),
                    None => return,
                }
                self.advance(cx, streams, id);
            }
            StreamEvent::Failed { user: StreamUser::Subscriptions(id), error } => {
                self.on_failed(cx, streams, id, &error);
            }
            StreamEvent::NotOffered { user: StreamUser::Subscriptions(id), run, step } => {
                self.on_not_offered(cx, streams, id, (run, step));
            }
            // For others.
            StreamEvent::Step { .. }
            | StreamEvent::Attached { .. }
            | StreamEvent::NotOffered { .. }
            | StreamEvent::Failed { .. } => {}
        }
    }

    /// What is to be begun, now that the event is over.
    pub(crate) fn take_work(&mut self) -> Option<Work> {
        self.work.pop_front()
    }

    /// The ranks of a run offer none of the fields that a watch needs: those who listen are told at its first step.
    fn on_not_offered(
        &mut self,
        cx: &mut Context<'_>,
        streams: &dyn Streams,
        id: AttachmentId,
        step: (RunNumber, StepNumber),
    ) {
        let Some(stream) = self.watches.get(&id).map(|watch| watch.stream.clone()) else { return };
        let Some(coordinator) = streams.coordinator(&stream) else { return };
        let fields = [(stream.clone(), coordinator.offered().0.cloned().collect::<Vec<Field>>())];
        for name in self.users_of(id) {
            let key = (stream.clone(), name);
            let found = self.coordinated.get_mut(&key);
            let Some(found) = found.filter(|found| found.partners.is_empty() && !found.state.is_paused)
            else {
                continue;
            };
            let Err(error) = found.check(&fields) else { continue };
            let why = Unknown::new(UnknownKind::NotOffered, error.text);
            if found.state.note_unknown(step, &why) {
                found.listeners().for_each(|(id, listener)| listener.tell_unknown(cx, *id, step, &why));
            }
            self.keep_elsewhere(cx, &key);
        }
    }

    /// A stream tells a watch of no more steps: its subscriptions end.
    fn on_failed(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        id: AttachmentId,
        error: &Error,
    ) {
        let Some(watch) = self.watches.remove(&id) else { return };
        streams.detach(&watch.stream, id);
        self.after_end.retain(|_, of| *of != id);
        for name in &watch.users {
            self.end(cx, streams, &(watch.stream.clone(), name.clone()), &about(name, error));
        }
    }

    /// Begins with the next step of a watch, if none is evaluated.
    pub(super) fn advance(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams, id: AttachmentId) {
        while let Some(watch) = self.watches.get(&id)
            && let Some((report, waiting)) = watch.next()
        {
            let (report, began) = (report.clone(), cx.server.environment.now());
            let partners = match self.joined_at(watch, (report.id.run, report.id.step), waiting) {
                Joined::Waits => return,
                Joined::Ready(partners) => Ok(partners),
                Joined::Never(why) => Err(why),
            };
            if let Some(watch) = self.watches.get_mut(&id) {
                watch.begin_next();
            }
            let clock = cx.server.environment.wall_clock();
            let (due, failed) = self.due(streams, (id, clock), (&report, began), &partners);
            if due.is_empty() {
                self.on_evaluated(cx, streams, id, &report, failed);
                continue;
            }
            let partners = partners.unwrap_or_default();
            self.work.push_back(Work { watch: id, report, partners, due, began });
            // What failed already is settled with the others.
            self.failed_at_once.extend(failed.into_iter().map(|done| (id, done)));
        }
    }

    /// The texts that are to be evaluated at a step, and those that do not fit its fields.
    fn due(
        &mut self,
        streams: &dyn Streams,
        (id, clock): (AttachmentId, Timestamp),
        (report, began): (&StepReport, Duration),
        partners: &Result<Vec<Arc<StepReport>>, Unknown>,
    ) -> (Vec<Due>, Vec<Done>) {
        let stream = &report.id.stream;
        let mut all = vec![(stream.clone(), fields_at(streams, stream, report))];
        let partners_of = partners.iter().flatten();
        all.extend(partners_of.map(|report| (report.id.stream.clone(), fields_at(streams, "", report))));
        let step = (report.id.run, report.id.step);
        let (mut due, mut failed) = (Vec::new(), Vec::new());
        for name in self.users_of(id) {
            let Some(found) = self.coordinated.get_mut(&(stream.to_owned(), name.clone())) else { continue };
            let is_past = stream != SPACE && found.state.last.is_some_and(|last| step <= last);
            if found.state.is_paused || is_past || found.is_over().is_some() || found.is_expired(clock) {
                continue;
            }
            if found.state.from.is_none() {
                found.state.from = streams.coordinator(stream).and_then(|known| known.active_from(id));
            }
            let creation = found.creation;
            let fails = |why: Unknown| {
                let (name, evaluation, cost) = (name.clone(), Err(why), Cost::default());
                Done { name, creation, evaluation, watch: None, cost, began }
            };
            if let Err(why) = partners {
                failed.push(fails(why.clone()));
                continue;
            }
            let checked = found.check(&all);
            if checked.as_ref().is_ok_and(|is_new| *is_new)
                && let Some(watch) = self.watches.get_mut(&id)
            {
                watch.has_new_plans = true;
            }
            if !found.is_due(step.1) {
                continue;
            }
            match (checked, found.text()) {
                (Ok(_), Some(text)) => {
                    let (text, watch) = (text.clone(), found.state.watch_for(&text.plan, step.0, step.1));
                    due.push(Due { name, creation, text, watch });
                }
                (checked, _) => {
                    let kind = match checked.as_ref().err().map(|error| error.kind) {
                        Some(ErrorKind::NotFound) | None => UnknownKind::NotOffered,
                        Some(ErrorKind::OutOfBounds) => UnknownKind::NotCovered,
                        Some(_) => UnknownKind::Mismatch,
                    };
                    let text = checked.err().map(|error| error.text).unwrap_or_default();
                    failed.push(fails(Unknown::new(kind, text)));
                }
            }
        }
        (due, failed)
    }

    /// Texts were evaluated at a step: events are told, and the step is let go of when other servers know.
    pub(crate) fn on_evaluated(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        id: AttachmentId,
        report: &Arc<StepReport>,
        mut all: Vec<Done>,
    ) {
        all.extend(self.failed_at_once.extract_if(.., |(watch, _)| *watch == id).map(|(_, done)| done));
        let Some(watch) = self.watches.get_mut(&id) else { return };
        if watch.evaluating.as_ref().is_none_or(|evaluating| !Arc::ptr_eq(evaluating, report)) {
            return;
        }
        watch.evaluating = None;
        let (stream, step) = (watch.stream.clone(), (report.id.run, report.id.step));
        let mut progress = Vec::new();
        for done in all {
            let key = (stream.clone(), done.name.clone());
            let found = self.coordinated.get(&key).filter(|found| found.creation == done.creation);
            if found.is_some() {
                progress.extend(self.settle_one(cx, &key, report, done));
            }
        }
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.note_recent(step);
        }
        for told in progress.iter().filter(|told| told.event.is_some()) {
            let run_at = self.pipelines.iter().filter(|((of, name), _)| *of == stream && *name == told.name);
            run_at.for_each(|(_, pipeline)| streams.choose(&stream, *pipeline, step));
        }
        if self.watches.get(&id).is_some_and(Watch::tells_once_kept) {
            return self.tell_once_kept(cx, streams, (id, step), &progress);
        }
        self.tell_progress(cx, (id, step), (&stream, None), progress.iter());
        for told in progress {
            let key = (stream.clone(), told.name);
            self.deliver(cx, streams, &key);
            self.end_if_over(cx, streams, &key);
        }
        if let Some(watch) = self.watches.get_mut(&id) {
            watch.end(step, &Holder::Evaluation);
        }
        self.release_free(streams, id);
        self.need_what_plans_need(streams, id);
        self.advance(cx, streams, id);
    }

    /// Those who listen are told of what came of a step once others know: what is put in the space has no order of its own, and steps of
    /// further streams are let go of, so that whoever took this server's place before might number events otherwise.
    fn tell_once_kept(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        (id, step): (AttachmentId, (RunNumber, StepNumber)),
        progress: &[ProgressOf],
    ) {
        let completed = self.take_completed(cx, id, step.1);
        let Some(watch) = self.watches.get_mut(&id) else { return };
        watch.is_telling = true;
        let stream = watch.stream.clone();
        let others_are_told = self.tell_progress(cx, (id, step), (&stream, completed), progress.iter());
        self.let_go(streams, id, |watch| watch.end(step, &Holder::Evaluation));
        if !others_are_told {
            self.tell_kept(cx, streams, (id, step));
        }
    }

    /// Others know what came of a step: those who listen are told, and the next one is evaluated.
    pub(super) fn tell_kept(
        &mut self,
        cx: &mut Context<'_>,
        streams: &mut dyn Streams,
        (id, step): (AttachmentId, (RunNumber, StepNumber)),
    ) {
        let Some(watch) = self.watches.get_mut(&id) else { return };
        watch.is_telling = false;
        let stream = watch.stream.clone();
        for name in self.users_of(id) {
            let key = (stream.clone(), name);
            if let Some(found) = self.coordinated.get_mut(&key) {
                found.may_tell = u64::MAX;
            }
            self.let_partners_go(cx, &key, step.1);
            self.deliver(cx, streams, &key);
            self.end_if_over(cx, streams, &key);
        }
        self.release_free(streams, id);
        self.need_what_plans_need(streams, id);
        self.advance(cx, streams, id);
    }

    /// What comes of one text.
    fn settle_one(
        &mut self,
        cx: &mut Context<'_>,
        key: &Key,
        report: &StepReport,
        done: Done,
    ) -> Option<ProgressOf> {
        let found = self.coordinated.get_mut(key)?;
        let (run, step) = (report.id.run, report.id.step);
        let evaluated = Evaluated {
            run,
            moment: Moment { step, time: report.time },
            evaluation: done.evaluation.as_ref().map_err(Clone::clone),
            watch: done.watch,
            missed: report.missed,
        };
        let number = found.log.next_number();
        let Settled { event, unknown } = found.state.settle(&found.definition, evaluated, number);
        let counts = &mut found.state.counts;
        counts.seconds += done.cost.seconds;
        counts.read = counts.read.saturating_add(done.cost.read);
        counts.response.add(response(done.cost, cx.server.environment.now().saturating_sub(done.began)));
        let keeps_after = found.take_keeps_after();
        let keeps = found.definition.keeps.filter(|_| event.is_some());
        if let Some(keeps) = keeps {
            found.keep_after(keeps.after);
        }
        if self.watches.get(&found.watch).is_some_and(Watch::tells_once_kept) {
            found.may_tell = found.log.last_number();
        }
        if let Some(event) = &event {
            found.log.push(event.clone());
        }
        if let Some(why) = &unknown {
            for (id, listener) in found.listeners() {
                listener.tell_unknown(cx, *id, (run, step), why);
            }
        }
        let until = cx.server.environment.now() + Duration::from_secs(found.definition.hold.into());
        let (name, watch) = (key.1.clone(), found.watch);
        if let Some(watch) = self.watches.get_mut(&watch) {
            if event.is_some() && watch.arrays.is_none() {
                watch.hold_for_event((run, step), &name, until);
            }
            match keeps {
                Some(keeps) => watch.keep((run, step), &name, keeps.before as usize),
                None if keeps_after => watch.keep((run, step), &name, 0),
                None => {}
            }
        }
        Some(ProgressOf { name, event: event.map(Box::new) })
    }

    /// Tells those who listen to a subscription of the events that they were not told of.
    pub(super) fn deliver(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams, key: &Key) {
        let Some(found) = self.coordinated.get_mut(key) else { return };
        let watch = found.watch;
        for id in found.listener_ids() {
            let Some(mut told) = found.listener(id).map(|listener| listener.told) else { continue };
            while found.listener(id).is_some_and(|listener| listener.has_room())
                && let Some((event, missed)) = log_after(&found.log, told)
                && event.number <= found.may_tell
            {
                told = event.number;
                let step = (event.run, event.step);
                let is_held = self.watches.get(&watch).is_some_and(|watch| watch.holds(step));
                let report = is_held.then(|| report_of(streams, &key.0, watch, step)).flatten();
                if report.is_some()
                    && let Some(watch) = self.watches.get_mut(&watch)
                {
                    watch.hold_for_listener(step, id);
                }
                if let Some(listener) = found.listener_mut(id) {
                    listener.tell(cx, id, (&event, missed), report);
                }
            }
        }
        if found.are_all_told()
            && let Some(watch) = self.watches.get_mut(&watch)
        {
            for (run, step, _) in watch.held_for_name(&key.1, &[]) {
                watch.end((run, step), &Holder::Event(key.1.clone()));
            }
        }
        self.release_free(streams, watch);
    }

    /// A subscription that has had all its events ends, once those who listen were told of them.
    pub(super) fn end_if_over(&mut self, cx: &mut Context<'_>, streams: &mut dyn Streams, key: &Key) {
        let Some(found) = self.coordinated.get(key) else { return };
        if let Some(why) = found.is_over().filter(|_| found.are_all_told()) {
            self.end(cx, streams, key, &why);
        }
    }
}

/// What the servers were busy with from when a step was told of until its events are.
fn response(cost: Cost, all: Duration) -> ResponseTime {
    ResponseTime {
        managing: (all.as_secs_f64() - cost.asking).max(0.0),
        waiting: cost.waiting,
        computing: (cost.sharing - cost.waiting).max(0.0),
        aggregating: (cost.asking - cost.sharing).max(0.0),
    }
}

/// The next event for one who was told of that of this number.
fn log_after(
    log: &forebay_query::subscription::EventLog,
    told: u64,
) -> Option<(forebay_query::subscription::Event, u64)> {
    log.after(told).map(|(event, missed)| (event.clone(), missed))
}

/// A step as it is told to a subscriber.
fn report_of(
    streams: &dyn Streams,
    stream: &str,
    id: AttachmentId,
    (run, step): (RunNumber, StepNumber),
) -> Option<Box<StepReport>> {
    let report = streams.coordinator(stream)?.report_of(id, run, step).ok()?;
    Some(Box::new(report.with_statistics_for(None)))
}

/// The fields of a stream as they are at a step: those that are not offered there as they were declared.
fn fields_at(streams: &dyn Streams, stream: &str, report: &StepReport) -> Vec<Field> {
    let at_step =
        report.fields.iter().chain(report.statics.iter().flatten()).map(|found| found.field.clone());
    let mut fields: Vec<Field> = at_step.collect();
    if let Some(coordinator) = streams.coordinator(stream) {
        let (offered, _) = coordinator.offered();
        let declared: Vec<Field> =
            offered.filter(|field| !fields.iter().any(|known| known.name == field.name)).cloned().collect();
        fields.extend(declared);
    }
    fields
}
