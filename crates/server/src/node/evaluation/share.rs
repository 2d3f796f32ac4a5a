//! The answers for what this server holds.

use super::super::Node;
use super::bytes::Bytes;
use crate::evaluation::{CheckedText, Computed, Job, boxes_of};
use forebay_core::{Error, Result};
use forebay_query::Plan;
use forebay_query::gather::Question;
use forebay_query::pieces::{Held, Piece, Source};
use forebay_store::evaluate::nothing;
use forebay_wire::evaluation::{Answers, Asked, Cost};
use std::sync::Arc;
use tokio::task::JoinSet;

/// How many elements one job computes with: as many as take a few milliseconds.
const JOB: u64 = 1 << 20;
/// How many bytes are copied for one job, of elements that lie in several blocks or on other servers.
const COPIED: u64 = 8 << 20;

/// Questions by their places among all that are asked.
type Questions = Vec<(usize, Arc<Plan>, Question)>;

impl Node {
    /// The answers of the pieces in these lists.
    pub(super) async fn answer_share(
        self: &Arc<Node>,
        texts: &[CheckedText],
        asked: &[Asked],
        lists: Vec<Vec<Piece>>,
    ) -> Result<Answers> {
        let unfit = || Error::protocol("an inquiry that does not fit its texts");
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
        let mut running =
            Running { answers: Answers { gathered, cost: Cost::default() }, jobs: JoinSet::new() };
        for (pieces, questions) in lists.into_iter().zip(of_list) {
            for piece in pieces {
                self.begin_piece(&mut running, piece, &questions).await?;
            }
        }
        running.take_all(0).await?;
        Ok(running.answers)
    }

    /// Has the elements of a piece computed with, so many at a time. Waits while enough others are computed.
    async fn begin_piece(
        self: &Arc<Node>,
        running: &mut Running,
        piece: Piece,
        questions: &Questions,
    ) -> Result<()> {
        let piece = self.with_copies_of_what_is_elsewhere(piece);
        let reach = |field: usize, dim: usize| {
            let of = |(_, plan, question): &(usize, Arc<Plan>, Question)| {
                plan.aggregates[usize::from(question.aggregate)].program.reach(field as u16, dim as u8)
            };
            questions.iter().map(of).fold((0, 0), |most, one| (most.0.max(one.0), most.1.max(one.1)))
        };
        let whole = piece.copied_bytes() == Some(0);
        let widest = piece.sources.iter().flatten().map(|source| source.dtype.size() as u64).sum::<u64>();
        let most = if whole { JOB } else { (COPIED / widest.max(1)).min(JOB) };
        // Blocks that are read where they lie are so once for all parts.
        let held = if whole {
            Some(Arc::new(self.bytes_of(&piece, &mut running.answers.cost).await?))
        } else {
            None
        };
        for part in boxes_of(&piece.part, most) {
            let unfit = || Error::protocol("a piece whose arrays lack its elements");
            let piece = piece.narrowed(part, reach).ok_or_else(unfit)?;
            let bytes = match &held {
                Some(held) => held.clone(),
                None => Arc::new(self.bytes_of(&piece, &mut running.answers.cost).await?),
            };
            running.answers.cost.read += piece.part.volume() * widest;
            let job = Job { piece, bytes, questions: questions.clone() };
            running.take_all(self.pool.width() - 1).await?;
            let node = self.clone();
            running.jobs.spawn(async move { node.pool.run(move || job.run()).await? });
        }
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
    jobs: JoinSet<Result<Computed>>,
}

impl Running {
    /// Takes in what is computed, until no more than so many jobs are left.
    async fn take_all(&mut self, left: usize) -> Result<()> {
        while self.jobs.len() > left
            && let Some(done) = self.jobs.join_next().await
        {
            let Computed { answers, seconds } =
                done.map_err(|error| Error::internal(error.to_string()))??;
            self.answers.cost.seconds += seconds;
            for (place, gathered) in answers {
                if let Some(all) = self.answers.gathered.get_mut(place) {
                    all.merge(gathered);
                }
            }
        }
        Ok(())
    }
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
