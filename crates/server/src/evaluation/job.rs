//! What a thread computes: the answers to questions, of the elements of a piece.

use forebay_core::Result;
use forebay_core::selection::Selection;
use forebay_query::Plan;
use forebay_query::gather::{Gathered, Question};
use forebay_query::pieces::Piece;
use forebay_query::plan::Aggregate;
use forebay_store::evaluate::{Shown, gather_piece};
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
    pub(crate) fn run(self) -> Result<Computed> {
        let began = Instant::now();
        let questions: Vec<(&Aggregate, &Question)> = self
            .questions
            .iter()
            .map(|(_, plan, question)| (&plan.aggregates[usize::from(question.aggregate)], question))
            .collect();
        let answers = gather_piece(&questions, &self.piece, &self.parts, &self.bytes)?;
        let places = self.questions.iter().map(|(place, _, _)| *place);
        Ok(Computed { answers: places.zip(answers).collect(), seconds: began.elapsed().as_secs_f64() })
    }
}
