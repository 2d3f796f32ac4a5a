//! The answers for what this server holds.

use super::super::Node;
use super::bytes::Bytes;
use crate::evaluation::{CheckedText, Computed, Job, Weight};
use forebay_core::selection::Selection;
use forebay_core::{Error, Result};
use forebay_query::Plan;
use forebay_query::decide::{Unread, decide};
use forebay_query::gather::{Gathered, Question};
use forebay_query::pieces::{Held, Piece, Source};
use forebay_query::plan::Aggregate;
use forebay_store::evaluate::{CACHED, COPIED, JOB, boxes_of, nothing};
use forebay_wire::evaluation::{Answers, Asked, Cost};
use std::sync::Arc;
use tokio::task::JoinSet;

/// How many bytes are copied for one job, of elements that lie in several blocks or on other servers.
const COPIED_BYTES: u64 = 8 << 20;

/// With so many elements a thread computes that rests for others' sake.
const LIGHT_MAX: u64 = 1 << 14;
/// How many small jobs are given to a thread together.
const SMALL_MAX: usize = 256;

/// Questions by their places among all that are asked.
type Questions = Vec<(usize, Arc<Plan>, Question)>;

impl Node {
    /// The answers of the pieces in these lists, for which somebody waits or a subscription.
    pub(super) async fn answer_share(
        self: &Arc<Node>,
        texts: &[CheckedText],
        asked: &[Asked],
        lists: Vec<Vec<Piece>>,
        is_awaited: bool,
    ) -> Result<Answers> {
        let unfit = || Error::protocol("an inquiry that does not fit its texts");
        let began = self.environment.now();
        let (mut gathered, mut of_list) =
            (Vec::with_capacity(asked.len()), vec![Questions::new(); lists.len()]);
        for (place, Asked { text, list, question }) in asked.iter().enumerate() {
            let plan = &texts.get(usize::from(*text)).ok_or_else(unfit)?.plan;
            let aggregate = plan.aggregates.get(usize::from(question.aggregate)).ok_or_else(unfit)?;
            gathered.push(nothing(aggregate, question)?);
            // Of a list that is not there this server has nothing.
            if let Some(questions) = of_list.get_mut(usize::from(*list)) {
                questions.push((place, plan.clone(), question.clone()));
            }
        }
        let mut running = Running {
            answers: Answers { gathered, cost: Cost::default() },
            is_awaited,
            small: Vec::new(),
            small_elements: 0,
            jobs: JoinSet::new(),
        };
        for (pieces, questions) in lists.into_iter().zip(of_list) {
            for piece in pieces {
                self.begin_piece(&mut running, piece, &questions).await?;
            }
        }
        self.begin_jobs(&mut running).await?;
        running.take_all(0).await?;
        running.answers.cost.sharing = (self.environment.now() - began).as_secs_f64();
        Ok(running.answers)
    }

    /// Has the elements of a piece computed with that its statistics do not decide. Waits while enough others are computed.
    async fn begin_piece(
        self: &Arc<Node>,
        running: &mut Running,
        piece: Piece,
        questions: &Questions,
    ) -> Result<()> {
        let unread = running.take_known(&piece, questions);
        let piece = self.with_copies_of_what_is_elsewhere(piece);
        for Unread { parts, questions: places } in unread {
            let questions: Questions = places.iter().map(|place| questions[*place].clone()).collect();
            match piece.copied_bytes() {
                Some(0) => self.begin_parts(running, &piece, parts, &questions).await?,
                _ => self.begin_copied(running, &piece, parts, &questions).await?,
            }
        }
        Ok(())
    }

    /// Has elements computed with that are read where they lie.
    async fn begin_parts(
        self: &Arc<Node>,
        running: &mut Running,
        piece: &Piece,
        parts: Vec<Selection>,
        questions: &Questions,
    ) -> Result<()> {
        // Blocks are shown once for all parts.
        let bytes = Arc::new(self.bytes_of(piece, &mut running.answers.cost).await?);
        for (parts, elements) in together(&parts, questions.len() as u64) {
            let job = Job { piece: piece.clone(), parts, bytes: bytes.clone(), questions: questions.clone() };
            self.begin_job(running, job, elements).await?;
        }
        Ok(())
    }

    /// Has elements computed with that are copied before, with all that goes with them.
    async fn begin_copied(
        self: &Arc<Node>,
        running: &mut Running,
        piece: &Piece,
        parts: Vec<Selection>,
        questions: &Questions,
    ) -> Result<()> {
        let reach = |field: usize, dim: usize| {
            let of = |(_, plan, question): &(usize, Arc<Plan>, Question)| {
                plan.aggregates[usize::from(question.aggregate)].program.reach(field as u16, dim as u8)
            };
            questions.iter().map(of).fold((0, 0), |most, one| (most.0.max(one.0), most.1.max(one.1)))
        };
        let fits = |elements: &u64| elements * bytes_of_element(piece) <= COPIED_BYTES;
        let most = [JOB, COPIED].into_iter().find(fits).unwrap_or(CACHED);
        let boxes: Vec<Selection> = parts.iter().flat_map(|part| boxes_of(part, most)).collect();
        for part in boxes {
            let unfit = || Error::protocol("a piece whose arrays lack its elements");
            let piece = piece.narrowed(part.clone(), reach).ok_or_else(unfit)?;
            let bytes = Arc::new(self.bytes_of(&piece, &mut running.answers.cost).await?);
            let elements = part.volume();
            let job = Job { piece, parts: vec![part], bytes, questions: questions.clone() };
            self.begin_job(running, job, elements).await?;
        }
        Ok(())
    }

    /// Gives a job with so many elements to the threads, or has it wait for other small ones. Waits until there is room.
    async fn begin_job(
        self: &Arc<Node>,
        running: &mut Running,
        job: Job<Bytes>,
        elements: u64,
    ) -> Result<()> {
        running.answers.cost.read += elements * bytes_of_element(&job.piece);
        running.small_elements += elements;
        running.small.push(job);
        match running.small_elements >= CACHED || running.small.len() >= SMALL_MAX {
            true => self.begin_jobs(running).await,
            false => Ok(()),
        }
    }

    /// Gives all that waits to the threads, together.
    async fn begin_jobs(self: &Arc<Node>, running: &mut Running) -> Result<()> {
        let jobs = std::mem::take(&mut running.small);
        let elements = std::mem::take(&mut running.small_elements);
        let weight = match running.is_awaited {
            true => Weight::Awaited,
            false if elements <= LIGHT_MAX => Weight::Light,
            false => Weight::Heavy,
        };
        if jobs.is_empty() {
            return Ok(());
        }
        running.take_all(self.pool.width() - 1).await?;
        let node = self.clone();
        let run = move || jobs.into_iter().map(Job::run).collect::<Result<Vec<Computed>>>();
        running.jobs.spawn(async move { node.pool.run(weight, run).await? });
        Ok(())
    }

    /// The same, where blocks that are not here are to be copied.
    fn with_copies_of_what_is_elsewhere(&self, mut piece: Piece) -> Piece {
        let elsewhere = |source: &Source| match &source.held {
            Held::Block(record) => record.inline.is_none() && record.location.server != self.id,
            Held::Copies(_) => false,
        };
        for source in &mut piece.sources {
            *source =
                source.take().map(|source| if elsewhere(&source) { source.as_copied() } else { source });
        }
        piece
    }
}

/// What is being computed, and what has been.
struct Running {
    answers: Answers,
    /// Whether somebody waits for them.
    is_awaited: bool,
    /// Jobs that wait until they are worth a thread's while, and how many elements these have.
    small: Vec<Job<Bytes>>,
    small_elements: u64,
    jobs: JoinSet<Result<Vec<Computed>>>,
}

impl Running {
    /// Takes in what is computed, until no more than so many jobs are left.
    async fn take_all(&mut self, left: usize) -> Result<()> {
        while self.jobs.len() > left
            && let Some(done) = self.jobs.join_next().await
        {
            for Computed { answers, seconds } in
                done.map_err(|error| Error::internal(error.to_string()))??
            {
                self.answers.cost.seconds += seconds;
                for (place, gathered) in answers {
                    self.take(place, gathered);
                }
            }
        }
        Ok(())
    }

    /// Takes in what the statistics of a piece say; returns what has to be read.
    fn take_known(&mut self, piece: &Piece, questions: &Questions) -> Vec<Unread> {
        let asked: Vec<(&Aggregate, &Question)> = questions
            .iter()
            .map(|(_, plan, question)| (&plan.aggregates[usize::from(question.aggregate)], question))
            .collect();
        let (known, unread) = decide(piece, &asked);
        for ((place, _, _), known) in questions.iter().zip(known) {
            self.take(*place, known);
        }
        unread
    }

    /// Takes in an answer, of some of the elements.
    fn take(&mut self, place: usize, gathered: Gathered) {
        if let Some(all) = self.answers.gathered.get_mut(place) {
            all.merge(gathered);
        }
    }
}

/// Parts of a piece, as many together as are worth a job that answers so many questions; and how many elements these are.
fn together(parts: &[Selection], questions: u64) -> Vec<(Vec<Selection>, u64)> {
    let most = [JOB, COPIED].into_iter().find(|most| most * questions <= JOB).unwrap_or(CACHED);
    let mut jobs: Vec<(Vec<Selection>, u64)> = Vec::new();
    for part in parts.iter().flat_map(|part| boxes_of(part, most)) {
        let volume = part.volume();
        match jobs.last_mut() {
            Some((parts, elements)) if *elements + volume <= most => {
                parts.push(part);
                *elements += volume;
            }
            _ => jobs.push((vec![part], volume)),
        }
    }
    jobs
}

/// The bytes of all that is read for an element of a piece.
fn bytes_of_element(piece: &Piece) -> u64 {
    piece.sources.iter().flatten().map(|source| source.dtype.size() as u64).sum()
}

impl Node {
    /// The bytes of a piece's sources.
    async fn bytes_of(self: &Arc<Node>, piece: &Piece, cost: &mut Cost) -> Result<Vec<Option<Bytes>>> {
        let mut bytes = Vec::with_capacity(piece.sources.len());
        for source in &piece.sources {
            bytes.push(match source {
                Some(source) => Some(self.source_bytes(source, cost).await?),
                None => None,
            });
        }
        Ok(bytes)
    }
}
