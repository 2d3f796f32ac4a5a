//! Evaluating an expression of what was put into the space.

use crate::connection::rpc::unexpected;
use crate::seconds::deadline_after;
use crate::space::found::FoundBlocks;
use crate::space::handle::Space;
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::ids::{BlockKey, StepNumber};
use forebay_core::steps::FieldReport;
use forebay_core::{Error, Result};
use forebay_query::value::Scalar;
use forebay_query::{Purpose, SPACE, Schema, Syntax, check};
use forebay_wire::client::space::{Reply, Request};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

impl Space {
    /// What an expression gives of what is put of its fields at a step: a number, a condition, or a place. Waits until the regions that
    /// it names are covered, no longer than `timeout` all in all. The servers evaluate it beside the blocks, and nothing but the answer
    /// travels. Fails with `Invalid`, `NotFound`, `TypeMismatch`, `OutOfBounds` or `Unsupported` where the text is wrong, and says the
    /// column; with `NotCovered` where elements were not put in time, and `Timeout` where nothing of a field was.
    pub fn evaluate(&self, text: &str, step: StepNumber, timeout: Duration) -> Result<Scalar> {
        self.guard.check("space")?;
        let syntax = Syntax::parse(text)?;
        if let Some(field) = syntax.taken_fields().find(|field| field.stream.is_some()) {
            return Err(Error::invalid(format!(
                "field '{}': what is evaluated in the space names no streams",
                field.name
            )));
        }
        let deadline = deadline_after(timeout);
        self.pool
            .group()
            .retry_while_failing_over(deadline, || self.evaluate_now(text, &syntax, step, deadline))
    }

    fn evaluate_now(
        &self,
        text: &str,
        syntax: &Syntax,
        step: StepNumber,
        deadline: Instant,
    ) -> Result<Scalar> {
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut names: Vec<&str> = syntax.taken_fields().map(|field| &field.name[..]).collect();
        names.sort_unstable();
        names.dedup();
        let fields =
            names.into_iter().map(|name| self.field(name, step, left())).collect::<Result<Vec<Field>>>()?;
        let schema = Schema::new(Some(SPACE)).with(SPACE, fields.clone());
        let plan = check(syntax, &schema, Purpose::Once)?;
        let mut found: Vec<FoundBlocks<'_>> = Vec::with_capacity(fields.len());
        for field in &fields {
            for region in plan.regions_of(field)? {
                found.push(self.find(&field.name, step, &region, left())?);
            }
        }
        let reports = fields.iter().map(|field| report_of(field, &found)).collect();
        let question = Request::Evaluate { step, text: text.to_owned(), fields: reports };
        let rpc = self.pool.connection_until(self.home()?, deadline_after(left().max(AT_LEAST)))?;
        match rpc.call(&question, "to evaluate an expression")?.message {
            Reply::Evaluated(evaluated) => match evaluated.value {
                Scalar::Unknown(why) => {
                    Err(why.error().during(format!("'{text}' at step {step} of the space")))
                }
                value => Ok(value),
            },
            other => Err(unexpected(&other)),
        }
    }
}

/// For how long it is tried at least to reach a server, once all blocks are found.
const AT_LEAST: Duration = Duration::from_millis(500);

/// What was found of a field, each block once.
fn report_of(field: &Field, found: &[FoundBlocks<'_>]) -> FieldReport {
    let of_field = found.iter().filter(|found| found.report.field.name == field.name);
    let blocks: BTreeMap<BlockKey, BlockRecord> =
        of_field.flat_map(|found| &found.report.blocks).map(|block| (block.key, block.clone())).collect();
    FieldReport::new(field.clone(), blocks.into_values().collect())
}
