//! What a thread computes: the answers to questions, of the elements of a piece.

use forebay_core::Result;
use forebay_core::selection::Selection;
use forebay_query::Plan;
use forebay_query::gather::{Gathered, Question};
use forebay_query::pieces::Piece;
use forebay_store::evaluate::{CACHED, Shown, boxes_of, gather_piece};
use std::sync::Arc;
use std::time::Instant;

/// Questions about elements of a piece.
pub(crate) struct Job<B> {
    pub(crate) piece: Piece,
    /// Which of its elements.
    pub(crate) parts: Vec<Selection>,
    /// Those of the piece's sources.
    pub(crate) bytes: Arc<Vec<Option<B>>>,
    /// By their places among all that are asked.
    pub(crate) questions: Vec<(usize, Arc<Plan>, Question)>,
}

/// What a job has computed.
#[derive(Debug)]
pub(crate) struct Computed {
    /// The answers, by the places of the questions.
    pub(crate) answers: Vec<(usize, Gathered)>,
    /// How long it took.
    pub(crate) seconds: f64,
}

impl<B: Shown> Job<B> {
    /// Computes the answers.
    pub(crate) fn run(mut self) -> Result<Computed> {
        let began = Instant::now();
        let is_alone = self.questions.len() == 1;
        let mut answers: Vec<(usize, Option<Gathered>)> =
            self.questions.iter().map(|(place, _, _)| (*place, None)).collect();
        let parts = std::mem::take(&mut self.parts);
        // Of what fits the cache all questions are answered before the next elements are looked at.
        let in_cache = |part: Selection| if is_alone { vec![part] } else { boxes_of(&part, CACHED) };
        for part in parts.into_iter().flat_map(in_cache) {
            self.piece.part = part;
            for ((_, answer), (_, plan, question)) in answers.iter_mut().zip(&self.questions) {
                let aggregate = &plan.aggregates[usize::from(question.aggregate)];
                let gathered = gather_piece(aggregate, question, &self.piece, &self.bytes)?;
                match answer {
                    Some(answer) => answer.merge(gathered),
                    None => *answer = Some(gathered),
                }
            }
        }
        let answers = answers.into_iter().filter_map(|(place, answer)| Some((place, answer?))).collect();
        Ok(Computed { answers, seconds: began.elapsed().as_secs_f64() })
    }
}
