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
use std::time::Instant;

/// Where a reader goes on that was told of no step yet; `None`: as it began.
pub(super) fn next_if_none_came(
    start: Start,
    from: Option<(RunNumber, StepNumber)>,
) -> Option<(RunNumber, StepNumber)> {
    match start {
        Start::Oldest | Start::Latest | Start::Held(..) => None,
        Start::Cursor(run, step) => Some((run, step)),
        Start::Next | Start::Run | Start::Rejoin(..) => from,
    }
}

/// Attaches at the server that coordinates the stream. Returns the run and the step from which on the reader takes part, unless
/// there has been no run yet.
pub(super) fn attach_to(
    group: &Group,
    attach: &Attach,
    pool: &ServerPool,
    deadline: Instant,
) -> Result<(StepSource, Option<(RunNumber, StepNumber)>)> {
    let request = Request::Attach(Box::new(attach.clone()));
    let ask = |rpc: &Rpc, left| match rpc.call_within(&request, None, left, "to attach")?.message {
        Reply::Attached { attachment, from } => Ok(CoordinatorAnswer::Answer((attachment, from))),
        Reply::Redirect(server) => Ok(CoordinatorAnswer::Redirect(server)),
        other => Err(unexpected(&other)),
    };
    let asked = group.at_coordinator(&attach.stream, &Role::Consumer, deadline, ask)?;
    let (server, rpc, (attachment, from)) = asked;
    let rpc = Arc::new(rpc);
    pool.adopt(server, rpc.clone());
    Ok((StepSource { rpc, server, held_as: HoldOwner::Attachment(attachment) }, from))
}
