//! Attaching a reader at the server that coordinates its stream.

use crate::connection::coordinator::CoordinatorAnswer;
use crate::connection::group::Group;
use crate::connection::rpc::{Rpc, unexpected};
use crate::reading::held_steps::{HoldOwner, StepSource};
use crate::reading::server_pool::ServerPool;
use forebay_core::Result;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::steps::Start;
use forebay_wire::client::consumer::{Attach, Reply, Request};
use forebay_wire::connection::Role;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Where a reader goes on that was told of no step yet; `None`: as it began.
pub(super) fn next_if_none_came(
    start: Start,
    from: Option<(RunNumber, StepNumber)>,
) -> Option<(RunNumber, StepNumber)> {
    match start {
        Start::Oldest | Start::Latest | Start::Held(..) | Start::Resume => None,
        Start::Cursor(run, step) => Some((run, step)),
        Start::Next | Start::Run | Start::Rejoin(..) => from,
    }
}

/// What a reader is told when it attaches.
pub(super) struct Attached {
    /// Who tells it of steps.
    pub(super) source: StepSource,
    /// The run and the step from which on it takes part, unless there has been no run yet.
    pub(super) from: Option<(RunNumber, StepNumber)>,
    /// The hosts of all ranks of its cohort.
    pub(super) hosts: Vec<String>,
    /// Its number among those with whom it shares steps.
    pub(super) number: Option<u32>,
}

/// Attaches at the server that coordinates the stream.
pub(super) fn attach_to(
    group: &Group,
    attach: &Attach,
    pool: &ServerPool,
    deadline: Instant,
) -> Result<Attached> {
    let request = |left: Duration| {
        let patience_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
        Request::Attach(Box::new(Attach { patience_ms, ..attach.clone() }))
    };
    let ask = |rpc: &Rpc, left| match rpc.call_within(&request(left), None, left, "to attach")?.message {
        Reply::Attached { attachment, from, hosts, number } => {
            Ok(CoordinatorAnswer::Answer((attachment, from, hosts, number)))
        }
        Reply::Redirect(server) => Ok(CoordinatorAnswer::Redirect(server)),
        other => Err(unexpected(&other)),
    };
    let asked = group.at_coordinator(&attach.stream, &Role::Consumer, deadline, ask)?;
    let (server, rpc, (attachment, from, hosts, number)) = asked;
    let rpc = Arc::new(rpc);
    pool.adopt(server, rpc.clone());
    let source = StepSource { rpc, server, held_as: HoldOwner::Attachment(attachment) };
    Ok(Attached { source, from, hosts, number })
}
