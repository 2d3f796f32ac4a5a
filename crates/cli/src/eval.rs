//! `forebay eval`: what an expression gives at steps.

use crate::Common;
use crate::completion;
use crate::get::{StepChoice, Wanted, each};
use crate::output::Output;
use crate::values::{json_of, text_of};
use clap_complete::ArgValueCompleter;
use forebay_client::query::Syntax;
use forebay_client::query::schema::Schema;
use forebay_client::{Error, ErrorKind, Result, Space, SpaceOptions};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Evaluate an expression at one step, or at several that are held
///
/// As in forebay eval 'max(grayscott.U[0:32]) > 0.9'. Fields are stream.field,
/// or just field with --stream; names and precedence are those of NumPy. Where
/// servers hold blocks on other hosts they compute beside them.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Eval {
    /// The expression
    text: String,
    /// The stream of fields that are named without one
    #[arg(long, value_name = "STREAM", add = ArgValueCompleter::new(completion::streams))]
    stream: Option<String>,
    /// Which step: its number, or oldest, latest or next, or several of those
    /// that are held, as A:B or A:B:STEP. What has not come yet is waited for
    #[arg(long, default_value = "latest", value_name = "STEP", value_parser = StepChoice::parse)]
    step: StepChoice,
    /// Of arrays in the space: --step is a number; what was not put is waited
    /// for, as long as --timeout says
    #[arg(long, conflicts_with = "stream")]
    space: bool,
}

pub(crate) fn eval(common: &Common, eval: &Eval, output: &Output) -> Result<ExitCode> {
    if eval.space {
        return in_space(common, eval, output);
    }
    let syntax = Syntax::parse(&eval.text)?;
    let streams = Schema::streams_of(eval.stream.as_deref(), syntax.taken_fields());
    let stream = match &streams[..] {
        [stream] => stream.clone(),
        [] => {
            return Err(Error::invalid(
                "of which stream? Write stream.field, or name the stream of all fields with --stream",
            ));
        }
        _ => {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "fields of several streams ({}): an expression that is evaluated once has those of one",
                    streams.join(", ")
                ),
            ));
        }
    };
    let named = syntax.taken_fields().map(|field| field.name.clone());
    let mut fields: Vec<String> = named.collect();
    fields.sort_unstable();
    fields.dedup();
    let wanted = Wanted { stream, fields, step: eval.step };
    let (mut values, mut lines) = (Vec::new(), Vec::new());
    let several = matches!(eval.step, StepChoice::Range { .. });
    each(common, &wanted, output, |step| {
        let value = step.evaluate(&eval.text)?;
        let (number, time) = (step.number(), step.report().time);
        let time = Some(time).filter(|time| time.is_finite());
        values.push(json!({ "step": number, "time": time, "value": json_of(&value) }));
        lines.push(if several { format!("{number} {}", text_of(&value)) } else { text_of(&value) });
        Ok(())
    })?;
    let value = if several { Value::Array(values) } else { values.pop().unwrap_or_default() };
    output.result(&value, |_| lines);
    Ok(ExitCode::SUCCESS)
}

fn in_space(common: &Common, eval: &Eval, output: &Output) -> Result<ExitCode> {
    let StepChoice::Number(step) = eval.step else {
        return Err(Error::invalid(
            "arrays of the space are put at steps: give the number of one with --step",
        ));
    };
    let group = common.group_options()?;
    let patience = group.patience();
    let value = Space::open(&SpaceOptions::new(group))?.evaluate(&eval.text, step, patience)?;
    output.result(&json!({ "step": step, "value": json_of(&value) }), |_| vec![text_of(&value)]);
    Ok(ExitCode::SUCCESS)
}
