//! Where the events of a subscription are told: at the server that coordinates its stream.

use crate::connection::coordinator::CoordinatorAnswer;
use crate::connection::group::Group;
use crate::connection::rpc::{Rpc, unexpected};
use crate::reading::held_steps::{HoldOwner, StepSource};
use crate::reading::server_pool::ServerPool;
use forebay_core::Result;
use forebay_core::steps::HeldStep;
use forebay_query::subscription::Definition;
use forebay_wire::client::consumer::{Attach, Reply, Request};
use forebay_wire::connection::Role;
use forebay_wire::subscription::{From, Listen};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What a subscriber listens with.
pub(super) struct Listening<'a> {
    pub(super) group: &'a Group,
    pub(super) stream: &'a str,
    pub(super) definition: &'a Definition,
    /// With which event to begin, and of which subscription of its name that is one, if that is known.
    pub(super) from: (From, Option<u64>),
    pub(super) window: u32,
    pub(super) held: Vec<HeldStep>,
}

/// Where a subscriber listens, and to what.
pub(super) struct Heard {
    pub(super) source: StepSource,
    /// Tells the subscription from earlier ones of the same name.
    pub(super) creation: u64,
    /// The number of the last event before those that are told.
    pub(super) last: u64,
}

/// Listens at the server that coordinates the stream.
pub(super) fn listen(listening: Listening<'_>, pool: &ServerPool, deadline: Instant) -> Result<Heard> {
    let Listening { group, stream, definition, from: (from, creation), window, held } = listening;
    let (name, definition) = (definition.name.clone(), Some(Box::new(definition.clone())));
    let listen = Listen { name, from, creation, definition };
    let attach = Attach::to_listen(stream, window, group.identity(), held, listen);
    let request = Request::Attach(Box::new(attach));
    let ask = |rpc: &Rpc, left: Duration| match rpc
        .call_within(&request, None, left, "to listen to a subscription")?
        .message
    {
        Reply::Listening { attachment, creation, last } => {
            Ok(CoordinatorAnswer::Answer((attachment, creation, last)))
        }
        Reply::Redirect(server) => Ok(CoordinatorAnswer::Redirect(server)),
        other => Err(unexpected(&other)),
    };
    let (server, rpc, (attachment, creation, last)) =
        group.at_coordinator(stream, &Role::Consumer, deadline, ask)?;
    let rpc = Arc::new(rpc);
    pool.adopt(server, rpc.clone());
    let source = StepSource { rpc, server, held_as: HoldOwner::Attachment(attachment) };
    Ok(Heard { source, creation, last })
}
