//! Evaluating an expression at a step that this reader holds.
//!
//! - [`arrays`]: the bytes of pieces, and what is gathered of them;
//! - this file: the rounds of questions.

mod arrays;

use crate::connection::rpc::unexpected;
use crate::reading::block_lookup::Records;
use crate::reading::seen::check_needed;
use crate::reading::step::Step;
use arrays::answer_of;
use forebay_core::contract::Field;
use forebay_core::ids::StepId;
use forebay_core::steps::FieldReport;
use forebay_core::{ErrorKind, Result};
use forebay_query::decide::known_pieces;
use forebay_query::gather::{Gathered, Question};
use forebay_query::pieces::{FieldBlocks, pieces};
use forebay_query::plan::{Domain, Measure, Plan, PlannedField};
use forebay_query::time::Moment;
use forebay_query::value::{Scalar, Unknown, UnknownKind};
use forebay_query::{Evaluation, Purpose, Schema, StepFacts, Syntax, check};
use forebay_store::evaluate::nothing;
use forebay_wire::client::consumer::{Reply, Request};
use std::sync::Arc;

impl Step {
    /// What an expression gives at this step: a number, a condition, or a place. Fields that it names without a stream are those
    /// of this one. Where all blocks that it takes lie on this host, they are read where they lie, by this process; else the servers
    /// evaluate it beside them, and nothing but the answer travels. Fails with `Invalid`, `NotFound`, `TypeMismatch`, `OutOfBounds`
    /// or `Unsupported` where the text is wrong, and says the column; with `NotCovered` where elements lack, and with `Invalid` where
    /// an integer is beyond 64 bits.
    pub fn evaluate(&self, text: &str) -> Result<Scalar> {
        let syntax = Syntax::parse(text)?;
        let stream = &self.report().id.stream;
        let fields = self.fields().map(|found| found.field.clone()).collect();
        let schema = Schema::new(Some(stream)).with(stream, fields);
        let plan = Arc::new(check(&syntax, &schema, Purpose::Once)?);
        let value = match self.ask_servers(&plan, text)? {
            Some(value) => value,
            None => self.evaluate_here(&plan)?,
        };
        match value {
            Scalar::Unknown(why) => {
                Err(self.explained(why.error().during(format!("'{text}' at {}", self.report().id))))
            }
            value => Ok(value),
        }
    }

    /// What the servers say, if blocks lie on other hosts.
    fn ask_servers(&self, plan: &Plan, text: &str) -> Result<Option<Scalar>> {
        let Some((source, attachment)) = self.consumer_source() else { return Ok(None) };
        if self.are_all_here(plan)? {
            return Ok(None);
        }
        let StepId { run, step, .. } = self.report().id;
        let request = Request::Evaluate { attachment, run, step, text: text.to_owned() };
        match source.rpc.call(&request, "to evaluate an expression").map(|answer| answer.message) {
            Ok(Reply::Evaluated(evaluated)) => Ok(Some(evaluated.value)),
            Ok(other) => Err(unexpected(&other)),
            // The step lives on without the server that has told of it.
            Err(error) if error.kind == ErrorKind::Unreachable => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether all blocks of the plan's fields lie on this host, or came with the step.
    fn are_all_here(&self, plan: &Plan) -> Result<bool> {
        for planned in &plan.fields {
            let (found, records) = self.found_needed(planned, &plan.domains[planned.domain])?;
            for record in records.iter().filter(|record| record.inline.is_none()) {
                if !self.is_here(&found.field, record)? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn evaluate_here(&self, plan: &Arc<Plan>) -> Result<Scalar> {
        let moment = Moment { step: self.number(), time: self.report().time };
        let torn = || Unknown::new(UnknownKind::Torn, "the step is torn: a rank died in it, or left it out");
        let is_torn = |field: &Field| self.report().torn && !field.is_static;
        let at_step = |field: &Field| if is_torn(field) { Err(torn()) } else { Ok(field.clone()) };
        let fields = plan.fields.iter().map(|planned| at_step(&planned.field)).collect();
        let mut evaluation = Evaluation::new(plan.clone(), StepFacts { moment, fields }, None);
        loop {
            let questions = evaluation.questions();
            if questions.is_empty() {
                return Ok(evaluation.value());
            }
            let answers = questions.iter().map(|question| self.answer(plan, question));
            evaluation.answer(answers.collect::<Result<Vec<Gathered>>>()?, None);
        }
    }

    /// A field, and where its blocks are: an error if this reader does not need all that is taken of it.
    fn found_needed(&self, planned: &PlannedField, domain: &Domain) -> Result<(&FieldReport, Records<'_>)> {
        let known = self.found_records(&planned.field.name)?;
        if let Some(taken) = domain.selection(&known.0.field).map_err(|why| why.error())? {
            check_needed(&self.report().id.to_string(), known.0, &taken)?;
        }
        Ok(known)
    }

    /// The answer to a question, of all blocks.
    fn answer(&self, plan: &Plan, question: &Question) -> Result<Gathered> {
        let aggregate = &plan.aggregates[usize::from(question.aggregate)];
        let domain = &plan.domains[aggregate.domain];
        let mut found = Vec::with_capacity(plan.fields.len());
        for planned in &plan.fields {
            let is_of_domain = planned.domain == aggregate.domain;
            found.push(is_of_domain.then(|| self.found_needed(planned, domain)).transpose()?);
        }
        let fields: Vec<Option<FieldBlocks<'_>>> = found
            .iter()
            .map(|known| known.as_ref().map(|(found, records)| FieldBlocks { field: &found.field, records }))
            .collect();
        let pieces = pieces(plan, aggregate, &fields).map_err(|why| self.explained(why.error()))?;
        if aggregate.measure == Measure::Covered {
            return Ok(pieces.covered());
        }
        let mut all = nothing(aggregate, question)?;
        let known = known_pieces(aggregate, question, pieces.list.iter());
        for (piece, known) in pieces.list.iter().zip(known) {
            match known {
                Some(known) => all.merge(known),
                None => all.merge(answer_of(self, plan, (aggregate, question), piece)?),
            }
        }
        Ok(all)
    }
}
