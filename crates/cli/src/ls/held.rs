//! What is held of a stream: its steps, and the fields and blocks of the latest one.

use super::{Listed, Ls};
use crate::Common;
use crate::summary;
use forebay_client::core::block::BlockRecord;
use forebay_client::core::contract::{Need, Needs};
use forebay_client::status::FieldStatus;
use forebay_client::{Error, ErrorKind, Result, Step, StepInfo, Stream};
use serde_json::{Value, json};

/// Of how large a field statistics are computed that its producer did not give.
const STATISTICS_MAX: u64 = 64 << 20;

/// A step that is held.
pub(super) struct HeldStep {
    pub(super) number: u64,
    pub(super) time: Option<f64>,
    pub(super) torn: bool,
    /// Whether a server that held something of it is gone, and nobody has a copy.
    pub(super) lost: bool,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
}

/// A field at the latest step.
pub(super) struct HeldField {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
}

/// A block of the latest step.
pub(super) struct HeldBlock {
    pub(super) field: String,
    pub(super) rank: u32,
    pub(super) number: u64,
    pub(super) server: u32,
    pub(super) bytes: u64,
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
    offset: Option<Vec<u64>>,
    shape: Vec<u64>,
}

impl HeldStep {
    pub(super) fn to_json(&self) -> Value {
        let HeldStep { number, time, torn, lost, bytes, blocks } = self;
        json!({
            "step": number, "time": time, "torn": torn, "lost": lost, "bytes": bytes, "blocks": blocks,
        })
    }
}

impl HeldField {
    pub(super) fn to_json(&self) -> Value {
        json!({ "bytes": self.bytes, "blocks": self.blocks, "min": self.min, "max": self.max })
    }
}

impl HeldBlock {
    pub(super) fn to_json(&self) -> Value {
        let HeldBlock { field, rank, number, server, bytes, min, max, offset, shape } = self;
        json!({
            "field": field, "rank": rank, "block": number, "server": server, "offset": offset, "shape": shape,
            "bytes": bytes, "min": min, "max": max,
        })
    }

    /// Its box as a region is written, or its shape where it has no place.
    pub(super) fn region(&self) -> String {
        let part = |(d, extent): (usize, &u64)| match &self.offset {
            Some(offset) => format!("{}:{}", offset[d], offset[d] + extent),
            None => extent.to_string(),
        };
        let parts: Vec<String> = self.shape.iter().enumerate().map(part).collect();
        if self.offset.is_some() {
            format!("[{}]", parts.join(", "))
        } else {
            format!("({})", parts.join(", "))
        }
    }
}

/// Fills in what is asked for of a stream, of a group with these members.
pub(super) fn look(common: &Common, ls: &Ls, members: &[u64], listed: &mut Listed<'_>) -> Result<()> {
    // Nobody is asked of a stream of which nothing is held.
    if listed.stream.held.blocks == 0 {
        return Ok(());
    }
    // The latest step may have other fields than those that are named.
    let need = |field: &&FieldStatus| Need::new(&field.name);
    let all = listed.fields.len() == listed.stream.fields.len();
    let needs = match all {
        true => Needs::all(1),
        false => Needs::Fields(listed.fields.iter().map(need).collect()),
    };
    let stream = Stream::open(&common.group_options()?, &listed.stream.name)?.needing(needs);
    if ls.times {
        for step in stream.held()? {
            let step = step?;
            // Of earlier runs there may be steps that a reader has still to read.
            if step.report().id.run < listed.stream.run {
                continue;
            }
            listed.steps.push(held_step(&step, members)?);
        }
    }
    if ls.long || ls.decomposition {
        let latest = match stream.latest() {
            Err(error) if error.kind == ErrorKind::NotFound => None,
            found => Some(found?),
        };
        if let Some(step) = latest.filter(|step| step.report().id.run >= listed.stream.run) {
            listed.latest = Some(held_step(&step, members)?);
            let is_listed = |name: &str| listed.fields.iter().any(|field| field.name == name);
            let names = step.fields().map(|field| &field.field.name[..]);
            for name in names.filter(|name| is_listed(name)) {
                if ls.long {
                    listed.values.push(held_field(&step, name)?);
                }
                if ls.decomposition {
                    listed.blocks.extend(held_blocks(&step, name)?);
                }
            }
        }
    }
    Ok(())
}

fn held_step(step: &Step, members: &[u64]) -> Result<HeldStep> {
    let StepInfo { number, time, bytes, blocks, torn, .. } = StepInfo::of(step)?;
    Ok(HeldStep { number, time, torn, lost: is_lost(step, members)?, bytes, blocks })
}

/// Whether what a server held of a step is lost that is gone: its first block is asked for.
fn is_lost(step: &Step, members: &[u64]) -> Result<bool> {
    let mut asked = Vec::new();
    for field in step.fields() {
        let name = &field.field.name;
        for (index, record) in step.records(name)?.iter().enumerate() {
            let server = u64::from(record.location.server.0);
            if record.inline.is_some() || members.contains(&server) || asked.contains(&server) {
                continue;
            }
            asked.push(server);
            match step.block(name, index) {
                Err(error) if says_lost(&error) => return Ok(true),
                found => drop(found?),
            }
        }
    }
    Ok(false)
}

/// Whether what was to be read is gone with its server.
fn says_lost(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::Lost | ErrorKind::Unreachable)
}

fn held_field(step: &Step, name: &str) -> Result<HeldField> {
    let summary = summary::of(step, name, STATISTICS_MAX)
        // Of what is lost nothing is computed.
        .or_else(|error| if says_lost(&error) { summary::of(step, name, 0) } else { Err(error) })
        .map_err(|error| error.during(format!("step {}", step.number())))?;
    let stats = summary.stats.filter(|stats| stats.count > 0);
    Ok(HeldField {
        name: name.to_owned(),
        bytes: summary.bytes,
        blocks: summary.blocks,
        min: stats.map(|stats| stats.min()),
        max: stats.map(|stats| stats.max()),
    })
}

fn held_blocks(step: &Step, name: &str) -> Result<Vec<HeldBlock>> {
    let records = step.records(name)?;
    let all: u64 = records.iter().map(|record| record.location.bytes).sum();
    let block = |(index, record): (usize, &BlockRecord)| {
        let computed = |limit| if all <= limit { step.block(name, index)?.statistics() } else { Ok(None) };
        let stats = match record.stats.as_ref().and_then(|stats| stats.whole()) {
            Some(stats) => Some(stats),
            None => match computed(STATISTICS_MAX) {
                Err(error) if says_lost(&error) => None,
                found => found.map_err(|error| error.during(format!("step {}", step.number())))?,
            },
        };
        let stats = stats.filter(|stats| stats.count > 0);
        Ok(HeldBlock {
            field: name.to_owned(),
            rank: record.key.rank,
            number: record.key.number,
            server: record.location.server.0,
            bytes: record.location.bytes,
            min: stats.map(|stats| stats.min()),
            max: stats.map(|stats| stats.max()),
            offset: record.extent.offset().map(<[u64]>::to_vec),
            shape: record.extent.shape().to_vec(),
        })
    };
    let mut blocks: Vec<HeldBlock> = records.iter().enumerate().map(block).collect::<Result<_>>()?;
    blocks.sort_by_key(|block| (block.rank, block.number));
    Ok(blocks)
}
