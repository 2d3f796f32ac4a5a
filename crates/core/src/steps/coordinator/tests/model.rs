//! Random calls against a plain account of what each reader is to be told.

use super::*;

/// A reader as it sees itself.
struct Reader {
    id: AttachmentId,
    /// The steps that it wants, in the order in which they closed.
    wanted: Vec<StepNumber>,
    /// How many of them it was told of, or told that they were dropped.
    accounted: usize,
    holds: Vec<StepNumber>,
    closed: bool,
    ended: u32,
}

/// A stream of two ranks, and all that is known of it from outside.
struct Model {
    stream: Checked,
    next: [StepNumber; 2],
    /// Steps that a rank has ended, and those of them that have closed.
    touched: BTreeSet<StepNumber>,
    closed: BTreeSet<StepNumber>,
    readers: Vec<Reader>,
}

impl Model {
    fn new(policy: Policy, keep: u32) -> Model {
        let mut stream = Checked::new("s", vec![S0, S1]);
        for rank in 0..2 {
            stream.join(rank, ServerId(rank), RunOptions { keep, ..options(2, policy) }).unwrap();
            stream.define(1, rank, field()).unwrap();
        }
        let (touched, closed) = (BTreeSet::new(), BTreeSet::new());
        Model { stream, next: [0; 2], touched, closed, readers: Vec::new() }
    }

    /// Takes in what follows, and checks that it agrees with what is known.
    fn apply(&mut self, effects: Vec<Effect>) {
        self.see_closed();
        for effect in effects {
            match effect {
                Effect::Prepare { version, .. } => {
                    for server in [S0, S1] {
                        let highest = self.next[server.0 as usize].checked_sub(1);
                        let effects = self.stream.on_prepared(server, version, highest);
                        self.apply(effects);
                    }
                }
                Effect::Deliver(id, report) => {
                    let reader = self.readers.iter_mut().find(|reader| reader.id == id).unwrap();
                    assert!(!reader.closed && reader.ended == 0);
                    reader.accounted += report.missed as usize;
                    assert_eq!(reader.wanted.get(reader.accounted), Some(&report.id.step), "{id:?}");
                    reader.accounted += 1;
                    reader.holds.push(report.id.step);
                }
                Effect::Ended(id, end) => {
                    let reader = self.readers.iter_mut().find(|reader| reader.id == id).unwrap();
                    reader.accounted += end.missed as usize;
                    assert_eq!(reader.accounted, reader.wanted.len(), "{id:?}");
                    reader.ended += 1;
                }
                Effect::Free { id, .. } => {
                    assert!(!self.readers.iter().any(|reader| reader.holds.contains(&id.step)), "{id:?}");
                }
                _ => {}
            }
        }
        self.see_closed();
        self.check();
    }

    fn see_closed(&mut self) {
        let open = &self.stream.runs[&1].open;
        let closed: Vec<_> =
            self.touched.difference(open).filter(|s| !self.closed.contains(s)).copied().collect();
        for step in closed {
            self.closed.insert(step);
            for reader in self.readers.iter_mut().filter(|reader| !reader.closed) {
                let attachment = &self.stream.attachments[&reader.id];
                if attachment.oldest || attachment.from().is_some_and(|from| from <= (1, step)) {
                    reader.wanted.push(step);
                }
            }
        }
    }

    fn check(&self) {
        let run = &self.stream.runs[&1];
        assert!(run.kept.len() <= run.options.keep as usize);
        for (number, step) in &run.steps {
            assert_eq!(step.is_closed(), !run.open.contains(number));
            let holds = self
                .stream
                .attachments
                .values()
                .filter(|a| a.holds().any(|held| held == (1, *number)))
                .count();
            assert_eq!(step.holds as usize, holds, "step {number}");
            assert!(!step.is_closed() || holds > 0 || run.kept.contains(number), "step {number} is nobody's");
        }
        // No rank stays behind a step that it has left out.
        for number in &run.open {
            assert!(self.next.iter().any(|next| next <= number), "step {number} waits for nobody");
        }
    }

    fn rank_ends(&mut self, rank: u32, skip: u64, dropped: bool, says_begun: bool) {
        let number = self.next[rank as usize] + skip;
        if says_begun {
            let effects = self.stream.on_step_begun(1, rank, number);
            self.apply_after_begin(rank, number, effects);
        }
        self.touched.insert(number);
        let effects = self.stream.on_step_ended(
            1,
            rank,
            ServerId(rank),
            StepContribution { dropped, ..ended(rank, number) },
        );
        self.next[rank as usize] = number + 1;
        self.apply(effects);
    }

    fn apply_after_begin(&mut self, rank: u32, number: StepNumber, effects: Vec<Effect>) {
        self.next[rank as usize] = number;
        self.apply(effects);
    }

    fn attach(&mut self, window: u32, start: Start) {
        let id = AttachmentId(self.readers.len() as u64);
        let mut wanted = Vec::new();
        if start == Start::Oldest {
            let steps = &self.stream.runs[&1].steps;
            wanted.extend(steps.iter().filter(|(_, step)| step.is_closed()).map(|(number, _)| *number));
        }
        let reader = Reader { id, wanted, accounted: 0, holds: Vec::new(), closed: false, ended: 0 };
        self.readers.push(reader);
        let effects = self.stream.attach(id, Attachment::new(needs(1), S0, window), start).unwrap();
        self.apply(effects);
    }

    fn release(&mut self, who: usize, pin: bool) {
        let Some(reader) = self.readers.get_mut(who).filter(|reader| !reader.holds.is_empty()) else {
            return;
        };
        let (id, step) = (reader.id, reader.holds[0]);
        if pin {
            let effects = self.stream.release(id, 1, step, true);
            self.apply(effects);
        }
        self.readers[who].holds.remove(0);
        let effects = self.stream.release(id, 1, step, false);
        self.apply(effects);
    }

    fn close(&mut self, who: usize, keeps: bool) {
        let Some(reader) = self.readers.get_mut(who).filter(|reader| !reader.closed) else { return };
        reader.closed = true;
        reader.holds.truncate(usize::from(keeps));
        let held: Vec<_> = reader.holds.iter().map(|step| (1, *step)).collect();
        let effects = self.stream.close(reader.id, &held);
        self.apply(effects);
    }
}

proptest! {
    /// Whatever ranks and readers do: each step that a reader wants is told or counted, in its place; nothing is
    /// freed that somebody holds, and nothing stays that nobody does.
    #[test]
    fn steps_are_told_or_counted_and_freed(
        (policy, keep) in (0u8..3, 0u32..3),
        actions in prop::collection::vec((0u8..12, 0u32..2, 0usize..4, any::<bool>()), 1..150),
    ) {
        let policy = [Policy::DropOldest, Policy::Latest, Policy::Block][usize::from(policy)];
        let mut model = Model::new(policy, keep);
        for (what, rank, who, yes) in actions {
            match what {
                0..=4 => model.rank_ends(rank, 0, what == 0 && yes, false),
                5 => model.rank_ends(rank, 1 + who as u64, false, yes),
                6 if model.readers.len() < 4 => {
                    // All is staged from the first step on only if some of it is kept.
                    let start = if yes && keep > 0 { Start::Oldest } else { Start::Next };
                    model.attach(1 + who as u32, start);
                }
                7 => {
                    let effects = model.stream.on_memory_pressure();
                    model.apply(effects);
                }
                8 if rank == 0 => model.close(who, yes),
                _ => model.release(who, yes),
            }
        }
        for rank in 0..2 {
            let effects = model.stream.on_rank_gone(1, rank, CLOSED);
            // It ends nothing any more.
            model.next[rank as usize] = 0;
            model.apply(effects);
        }
        for who in 0..model.readers.len() {
            while !model.readers[who].holds.is_empty() {
                model.release(who, false);
            }
            let reader = &model.readers[who];
            prop_assert_eq!(reader.ended, u32::from(!reader.closed));
        }
        let run = &model.stream.runs[&1];
        prop_assert!(run.steps.keys().eq(&run.kept));
    }
}
