//! Finding what was put into the space, and waiting for what was not put yet.

use crate::connection::rpc::{GRACE, lock, unexpected};
use crate::reading::server_pool::PoolAnswer;
use crate::seconds::deadline_after;
use crate::space::found::FoundBlocks;
use crate::space::handle::{Space, not_owned};
use forebay_core::contract::Field;
use forebay_core::ids::{Epoch, ServerId, StepNumber};
use forebay_core::region::{Dims, Region};
use forebay_core::steps::FieldReport;
use forebay_core::{Error, ErrorKind, Result};
use forebay_wire::client::space::{Reply, Request, Search};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How many fields are remembered.
const FIELDS_MAX: usize = 1024;

/// How often a field may turn out to be another one while it is searched, once the deadline has passed.
const CHANGES_MAX: u32 = 8;

impl Space {
    /// The field as it is at a step, waiting until something of it was put, no longer than `timeout`.
    pub fn field(&self, field: &str, step: StepNumber, timeout: Duration) -> Result<Field> {
        self.guard.check("space")?;
        let deadline = deadline_after(timeout);
        self.pool.group().retry_while_failing_over(deadline, || self.field_now(field, step, deadline))
    }

    fn field_now(&self, field: &str, step: StepNumber, deadline: Instant) -> Result<Field> {
        let found = self.ask_one(self.describer(field, step)?, field, step, (None, None), deadline)?;
        let field = found.report.field.clone();
        self.remember(&field);
        Ok(field)
    }

    /// Finds the blocks that meet a region, waiting until they cover it, no longer than `timeout`. The result
    /// keeps the blocks until it is dropped. Asks the owners of the region's tiles at once; the one that
    /// describes the field only if they do not know all of it yet.
    pub fn find(
        &self,
        field: &str,
        step: StepNumber,
        region: &Region,
        timeout: Duration,
    ) -> Result<FoundBlocks<'_>> {
        self.guard.check("space")?;
        let deadline = deadline_after(timeout);
        self.pool.group().retry_while_failing_over(deadline, || self.find_now(field, step, region, deadline))
    }

    fn find_now(
        &self,
        field: &str,
        step: StepNumber,
        region: &Region,
        deadline: Instant,
    ) -> Result<FoundBlocks<'_>> {
        let describer = self.describer(field, step)?;
        // Whom to ask follows from the shape, and most fields have one at all steps.
        let mut known = lock(&self.known).get(field).cloned();
        let mut changes = 0;
        loop {
            let tiles = known.as_ref().map(|known| self.tiles(known, step));
            let (Some(as_known), Some(tiles)) = (&known, tiles.filter(|tiles| !tiles.is_single())) else {
                let shape = known.as_ref().and_then(|known| known.tiled_shape().map(Dims::from));
                let found = self.ask_one(describer, field, step, (Some(region), shape), deadline)?;
                self.remember(&found.report.field);
                if !found.held.is_empty() {
                    return Ok(found);
                }
                known = Some(found.report.field.clone());
                continue;
            };
            let owners = tiles.owners_of(region);
            let ask = |waits| self.ask_owners(&owners, as_known, step, region, (waits, deadline));
            if let Some(found) = ask(false)? {
                return Ok(found);
            }
            // A part was not put yet, or the field has another shape now, or another one has taken its place.
            let now = self.field_now(field, step, deadline)?;
            let is_news = now.tiled_shape() != as_known.tiled_shape();
            if !is_news && let Some(found) = ask(true)? {
                return Ok(found);
            }
            changes += u32::from(is_news);
            if Instant::now() >= deadline && (!is_news || changes > CHANGES_MAX) {
                return Err(Error::timeout(format!(
                    "field '{field}' at step {step} is removed and put again and again while it is searched"
                )));
            }
            known = Some(now);
        }
    }

    fn remember(&self, field: &Field) {
        let mut known = lock(&self.known);
        if known.len() >= FIELDS_MAX && !known.contains_key(&field.name) {
            known.clear();
        }
        known.insert(field.name.clone(), field.clone());
    }

    /// Asks one server for a region (and says by which shape this handle has chosen the server), or for the field alone.
    fn ask_one(
        &self,
        server: ServerId,
        field: &str,
        step: StepNumber,
        (region, shape): (Option<&Region>, Option<Dims>),
        deadline: Instant,
    ) -> Result<FoundBlocks<'_>> {
        let question = |_| find_message(field, step, region, shape.clone(), left_until(deadline));
        let mut told = self.pool.ask_all([server], question, deadline + GRACE, "to find an array");
        let Some((_, told)) = told.pop() else { return Err(Error::internal("nobody was asked")) };
        let PoolAnswer { message, rpc, request } = told?;
        let (held, term, report) = match message {
            Reply::Found { held, term, report, .. } => (held, term, report),
            Reply::NotOwned => return Err(not_owned(server, field, step)),
            other => return Err(unexpected(&other)),
        };
        let held = if held { vec![(rpc, request)] } else { Vec::new() };
        Ok(FoundBlocks { space: self, report: *report, step, term, held })
    }

    /// Asks all owners of a region at once. `None` if the owners know different fields or, where they do not wait for the region, if
    /// some do not know all of it yet.
    fn ask_owners(
        &self,
        owners: &[ServerId],
        field: &Field,
        step: StepNumber,
        region: &Region,
        (waits, deadline): (bool, Instant),
    ) -> Result<Option<FoundBlocks<'_>>> {
        let question = |_| {
            let patience = if waits { left_until(deadline) } else { Duration::ZERO };
            find_message(&field.name, step, Some(region), field.shape.clone(), patience)
        };
        let owners = owners.iter().copied();
        let until = if waits { deadline } else { deadline.min(Instant::now()) } + GRACE;
        let answers = self.pool.ask_all(owners, question, until, "to find an array");
        let report = FieldReport::new(field.clone(), Vec::new());
        let mut found = FoundBlocks { space: self, report, step, term: Epoch::MAX, held: Vec::new() };
        let mut descriptions = BTreeSet::new();
        let mut blocks = BTreeMap::new();
        let mut complete = true;
        let mut failure = None;
        for (owner, answer) in answers {
            let (message, over) = match answer {
                Ok(PoolAnswer { message, rpc, request }) => (message, (rpc, request)),
                Err(error) if !waits && matches!(error.kind, ErrorKind::NotCovered | ErrorKind::Timeout) => {
                    complete = false;
                    continue;
                }
                Err(error) => {
                    failure = failure.or(Some(error));
                    continue;
                }
            };
            match message {
                Reply::Found { held: true, description, term, report } => {
                    found.held.push(over);
                    found.term = found.term.min(term);
                    found.report.field = report.field;
                    descriptions.insert(description);
                    blocks.extend(report.blocks.into_iter().map(|block| (block.key, block)));
                }
                // The field has another shape than this handle remembers.
                Reply::Found { .. } => complete = false,
                Reply::NotOwned => {
                    failure = failure.or(Some(not_owned(owner, &field.name, step)));
                }
                other => failure = failure.or(Some(unexpected(&other))),
            }
        }
        found.report.blocks = blocks.into_values().collect();
        match failure {
            Some(error) => Err(error),
            // What was found before and after a removal does not belong together.
            None => Ok((complete && descriptions.len() == 1).then_some(found)),
        }
    }
}

/// How much time is left.
fn left_until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now())
}

fn find_message(
    field: &str,
    step: StepNumber,
    region: Option<&Region>,
    shape: Option<Dims>,
    patience: Duration,
) -> Request {
    let (field, region) = (field.to_owned(), region.cloned());
    Request::Find(Box::new(Search { field, step, region, shape, patience_ms: patience.as_millis() as u64 }))
}
