//! Evaluating an expression at a step that this reader holds.
//!
//! - [`needed`]: which elements of a field are needed, its neighbours among them;
//! - [`sources`]: where they are, and what is gathered of them;
//! - this file: the rounds of questions.

mod needed;
mod sources;

use crate::reading::step::Step;
use forebay_core::Result;
use forebay_core::contract::Field;
use forebay_query::gather::{Gathered, Question};
use forebay_query::plan::{Measure, Plan};
use forebay_query::time::Moment;
use forebay_query::value::{Scalar, Unknown, UnknownKind};
use forebay_query::{Evaluation, Purpose, Schema, StepFacts, Syntax, check};
use forebay_store::evaluate::nothing;
use sources::Sources;
use std::sync::Arc;

impl Step {
    /// What an expression gives at this step: a number, a condition, or a place. Fields that it names without a stream are those
    /// of this one. On the holder's host elements are read where they lie; others are fetched. Fails with `Invalid`, `NotFound`,
    /// `TypeMismatch`, `OutOfBounds` or `Unsupported` where the text is wrong, and says the column; with `NotCovered` where elements
    /// lack, and with `Invalid` where an integer is beyond 64 bits.
    pub fn evaluate(&self, text: &str) -> Result<Scalar> {
        let syntax = Syntax::parse(text)?;
        let stream = &self.report().id.stream;
        let fields = self.fields().map(|found| found.field.clone()).collect();
        let schema = Schema::new(Some(stream)).with(stream, fields);
        let plan = Arc::new(check(&syntax, &schema, Purpose::Once)?);
        let moment = Moment { step: self.number(), time: self.report().time };
        let torn = || Unknown::new(UnknownKind::Torn, "the step is torn: a rank died in it, or left it out");
        let at_step = |field: &Field| if self.report().torn { Err(torn()) } else { Ok(field.clone()) };
        let fields = plan.fields.iter().map(|planned| at_step(&planned.field)).collect();
        let mut evaluation = Evaluation::new(plan.clone(), StepFacts { moment, fields }, None);
        loop {
            let questions = evaluation.questions();
            if questions.is_empty() {
                break;
            }
            let answers = questions.iter().map(|question| self.answer(&plan, question));
            evaluation.answer(answers.collect::<Result<Vec<Gathered>>>()?, None);
        }
        match evaluation.value() {
            Scalar::Unknown(why) => {
                Err(self.explained(why.error().during(format!("'{text}' at {}", self.report().id))))
            }
            value => Ok(value),
        }
    }

    /// The answer to a question, of all blocks.
    fn answer(&self, plan: &Plan, question: &Question) -> Result<Gathered> {
        let aggregate = &plan.aggregates[usize::from(question.aggregate)];
        let sources = Sources::find(self, plan, aggregate)?;
        if aggregate.measure == Measure::Covered {
            let holds = sources.parts()?.iter().map(|part| part.selection.volume()).sum::<u64>()
                == sources.all_volume();
            return Ok(Gathered::condition(holds));
        }
        let mut all = nothing(aggregate, question)?;
        for part in sources.parts()? {
            all.merge(sources.gather(aggregate, question, &part)?);
        }
        Ok(all)
    }
}
