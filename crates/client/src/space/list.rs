//! Listing what there is in the space.

use crate::connection::rpc::unexpected;
use crate::reading::server_pool::PoolAnswer;
use crate::space::handle::Space;
use forebay_core::contract::Field;
use forebay_core::ids::{DescriptionNumber, ServerId, StepNumber};
use forebay_core::{Error, Result};
use forebay_wire::client::space::{Listed, Reply, Request};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Instant;

/// An array in the space.
#[derive(Debug, Clone, PartialEq)]
pub struct SpaceArray {
    /// What it is, with its global shape.
    pub field: Field,
    /// At which step.
    pub step: StepNumber,
    /// How many blocks were put of it.
    pub blocks: u64,
    /// How many bytes these have, without copies.
    pub bytes: u64,
}

impl SpaceArray {
    /// The same as JSON.
    pub fn to_json(&self) -> Value {
        let SpaceArray { field, step, blocks, bytes } = self;
        json!({
            "name": field.name, "step": step, "dtype": field.dtype.to_string(), "shape": field.shape.as_deref(),
            "blocks": blocks, "bytes": bytes,
        })
    }
}

/// What is held of an array under one description.
#[derive(Default)]
struct Sum {
    described: Option<(DescriptionNumber, Field)>,
    held: BTreeMap<DescriptionNumber, (u64, u64)>,
}

impl Space {
    /// What there is in the space, by name and step. Asks all servers, in pages; what is put or removed meanwhile may be
    /// in it or not.
    pub fn list(&self) -> Result<Vec<SpaceArray>> {
        self.guard.check("space")?;
        let group = self.pool.group();
        let deadline = Instant::now() + group.limit();
        group.retry_while_failing_over(deadline, || {
            let mut sums: BTreeMap<(String, StepNumber), Sum> = BTreeMap::new();
            // From where each server goes on.
            let mut asked: BTreeMap<ServerId, Option<(String, StepNumber)>> =
                group.known().view.members.iter().map(|server| (*server, None)).collect();
            while !asked.is_empty() {
                let question = |server| Request::List { after: asked.get(&server).cloned().flatten() };
                let answers = self.pool.ask_all(asked.keys().copied(), question, deadline, "to list arrays");
                for (server, answer) in answers {
                    let PoolAnswer { message, .. } = answer?;
                    let Reply::Listed { arrays, more } = message else { return Err(unexpected(&message)) };
                    let last = arrays.last().map(|array| (array.name.clone(), array.step));
                    match last.filter(|_| more) {
                        Some(last)
                            if asked.get(&server).is_some_and(|after| after.as_ref() >= Some(&last)) =>
                        {
                            return Err(
                                Error::protocol(format!("{server} lists the same again")).about(server)
                            );
                        }
                        Some(last) => drop(asked.insert(server, Some(last))),
                        None => drop(asked.remove(&server)),
                    }
                    arrays.into_iter().for_each(|array| add(&mut sums, array));
                }
            }
            Ok(sums.into_iter().filter_map(|((_, step), sum)| sum.finish(step)).collect())
        })
    }
}

fn add(sums: &mut BTreeMap<(String, StepNumber), Sum>, listed: Listed) {
    let Listed { name, step, described, held } = listed;
    let sum = sums.entry((name, step)).or_default();
    sum.described = sum.described.take().or(described);
    for (description, blocks, bytes) in held {
        let known = sum.held.entry(description).or_default();
        *known = (known.0.saturating_add(blocks), known.1.saturating_add(bytes));
    }
}

impl Sum {
    /// The array, if a server describes it, and something of it was put.
    fn finish(self, step: StepNumber) -> Option<SpaceArray> {
        let (description, field) = self.described?;
        let (blocks, bytes) = self.held.get(&description).copied()?;
        Some(SpaceArray { field, step, blocks, bytes })
    }
}
