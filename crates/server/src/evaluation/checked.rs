//! Texts that were checked, and what is known of a step for them.

use forebay_core::Result;
use forebay_core::contract::Field;
use forebay_core::steps::StepReport;
use forebay_query::time::Moment;
use forebay_query::value::{Unknown, UnknownKind};
use forebay_query::{Plan, Purpose, Schema, StepFacts, Syntax, check};
use forebay_wire::evaluation::PlannedText;
use std::sync::Arc;

/// A text, and its plan.
#[derive(Debug, Clone)]
pub(crate) struct CheckedText {
    pub(crate) planned: Arc<PlannedText>,
    pub(crate) plan: Arc<Plan>,
    /// By aggregate: the same for all that gather the same, of whatever text.
    pub(super) keys: Arc<[String]>,
}

impl CheckedText {
    /// Parses and checks a text. Of the fields those are kept that it names.
    pub(crate) fn of(mut planned: PlannedText) -> Result<CheckedText> {
        let syntax = Syntax::parse(&planned.text)?;
        let mut schema = Schema::new(planned.own.as_deref());
        for (stream, fields) in &planned.streams {
            schema = schema.with(stream, fields.clone());
        }
        let purpose = if planned.watched { Purpose::Watch } else { Purpose::Once };
        let plan = check(&syntax, &schema, purpose)?;
        for (stream, fields) in &mut planned.streams {
            let is_named = |field: &Field| {
                plan.fields.iter().any(|planned| {
                    plan.domains[planned.domain].stream == *stream && planned.field.name == field.name
                })
            };
            fields.retain(is_named);
        }
        let keys = plan.aggregates.iter().map(|aggregate| key_of(&plan, aggregate)).collect();
        Ok(CheckedText { planned: Arc::new(planned), plan: Arc::new(plan), keys })
    }

    /// Whether the text names a field.
    pub(crate) fn names(&self, field: &str) -> bool {
        self.plan.fields.iter().any(|planned| planned.field.name == field)
    }
}

/// What an aggregate gathers, whatever its place in the plan.
fn key_of(plan: &Plan, aggregate: &forebay_query::plan::Aggregate) -> String {
    let mut taken: Vec<usize> = aggregate.program.fields().into_iter().map(usize::from).collect();
    taken.push(aggregate.field);
    let names: Vec<&str> = taken.iter().map(|index| &plan.fields[*index].field.name[..]).collect();
    // The places of fields in the plan stand in the program: with their names they say which fields are meant.
    let (domain, program) = (&plan.domains[aggregate.domain], &aggregate.program);
    let steps = (&program.instructions, program.value, program.mask);
    format!("{domain:?} {taken:?} {names:?} {:?} {steps:?}", aggregate.measure)
}

/// What is known of a step before anything is asked: of each stream its report.
pub(crate) fn facts(plan: &Plan, reports: &[&StepReport]) -> StepFacts {
    let moment = reports.first().map_or(Moment { step: 0, time: f64::NAN }, |report| Moment {
        step: report.id.step,
        time: report.time,
    });
    let of = |planned: &forebay_query::plan::PlannedField| {
        let (stream, name) = (&plan.domains[planned.domain].stream, &planned.field.name);
        let report = reports.iter().find(|report| report.id.stream == *stream).ok_or_else(|| {
            Unknown::new(UnknownKind::NoPartner, format!("stream '{stream}' has no such step"))
        })?;
        let statics = report.statics.iter().flatten();
        let found = report.fields.iter().chain(statics).find(|found| found.field.name == *name);
        match found {
            // What is static was put with no step.
            Some(found) if report.torn && !found.field.is_static => {
                let text = format!("{} is torn: a rank died in it, or left it out", report.id);
                Err(Unknown::new(UnknownKind::Torn, text))
            }
            Some(found) => Ok(found.field.clone()),
            None => {
                let text = format!("field '{name}' is no part of {}", report.id);
                Err(Unknown::new(UnknownKind::NotOffered, text))
            }
        }
    };
    StepFacts { moment, fields: plan.fields.iter().map(of).collect() }
}
