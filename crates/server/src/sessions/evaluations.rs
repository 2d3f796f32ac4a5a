//! Expressions that a client asks for once.

use super::client::Client;
use crate::evaluation::{CheckedText, facts};
use crate::node::{Evaluating, Node};
use forebay_core::steps::{FieldReport, StepReport};
use forebay_core::{Error, ErrorKind, Result};
use forebay_query::Evaluation;
use forebay_wire::evaluation::{PlannedText, TextValue};
use forebay_wire::protocol::Reply;
use std::sync::Arc;
use tokio::task::JoinSet;

/// How many evaluations of one client may run at once.
const RUNNING_MAX: usize = 64;

/// The evaluations of one client. They end with it.
#[derive(Default)]
pub(super) struct Evaluations {
    running: JoinSet<()>,
}

impl Evaluations {
    /// Evaluates a text at a step that the client holds. Answered later, while other messages are taken.
    pub(super) fn begin<R: Reply + 'static>(
        &mut self,
        client: &Client,
        request: u64,
        (report, text): (StepReport, String),
        reply: impl FnOnce(Box<TextValue>) -> R + Send + 'static,
    ) -> Result<Option<R>> {
        while self.running.try_join_next().is_some() {}
        if request == 0 {
            return Err(Error::protocol("an evaluation without a number of its own"));
        }
        if self.running.len() >= RUNNING_MAX {
            let text = format!("{RUNNING_MAX} evaluations of this client run already: let some end first");
            return Err(Error::new(ErrorKind::Full, text));
        }
        let checked = checked(&report, text)?;
        let (node, outbox) = (client.node.clone(), client.outbox.clone());
        self.running.spawn(async move {
            let value = evaluated(&node, report, checked).await;
            let header = node.header(request);
            let answer = Ok::<R, Error>(reply(Box::new(value)));
            // One that is gone needs none.
            let _ = outbox.push(header, &answer);
        });
        Ok(None)
    }
}

fn checked(report: &StepReport, text: String) -> Result<CheckedText> {
    let stream = &report.id.stream;
    let fields: Vec<&FieldReport> = report.fields.iter().chain(report.statics.iter().flatten()).collect();
    let fields = fields.into_iter().map(|found| found.field.clone()).collect();
    let streams = vec![(stream.clone(), fields)];
    CheckedText::of(PlannedText { text, own: Some(stream.clone()), streams, watched: false })
}

async fn evaluated(node: &Arc<Node>, report: StepReport, text: CheckedText) -> TextValue {
    let evaluation = Evaluation::new(text.plan.clone(), facts(&text.plan, &[&report]), None);
    let mut evaluating = [Evaluating { text, evaluation, state: None }];
    let cost = node.evaluate(&report.id, &[&report], &mut evaluating, node.unique()).await;
    let [Evaluating { evaluation, .. }] = evaluating;
    let values = evaluation.reported();
    TextValue { value: evaluation.value(), values, cost }
}
