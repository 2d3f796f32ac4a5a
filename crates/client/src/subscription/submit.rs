//! Making subscriptions over a connection that stays: the next one costs a question and its answer.

use crate::connection::coordinator::CoordinatorAnswer;
use crate::connection::group::Group;
use crate::connection::rpc::{Rpc, lock, unexpected};
use crate::group_options::GroupOptions;
use crate::subscription::handle::Subscription;
use forebay_core::{ErrorKind, Result};
use forebay_query::subscription::Definition;
use forebay_transport::fork::ForkGuard;
use forebay_wire::client::consumer::{Reply, Request};
use forebay_wire::connection::Role;
use forebay_wire::subscription::From;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How many connections stay, each to the server that coordinates a stream.
const CONNECTIONS_MAX: usize = 16;

/// Makes subscriptions, and keeps the connections over which it did. Those that are not to be kept end a while after it, unless somebody
/// listens to them.
#[derive(Debug)]
pub struct Subscriber {
    guard: ForkGuard,
    group: Group,
    connections: Mutex<BTreeMap<String, Arc<Rpc>>>,
}

/// A subscription, as its server knows it.
struct Made {
    /// Tells it from earlier ones of the same name.
    creation: u64,
    /// The number of its last event.
    last: u64,
    /// That of the last event with which a subscriber has finished.
    finished: u64,
}

/// Counts the subscriptions of this process that were given no name.
static UNNAMED: AtomicU64 = AtomicU64::new(0);

impl Subscriber {
    /// Finds the group. Waits for one that is forming.
    pub fn open(options: &GroupOptions) -> Result<Subscriber> {
        Ok(Subscriber {
            guard: ForkGuard::new(),
            group: Group::find(options)?,
            connections: Mutex::default(),
        })
    }

    /// A name that no other subscription has.
    pub fn unused_name(&self) -> String {
        let who = self.group.identity();
        let number = UNNAMED.fetch_add(1, Ordering::Relaxed) + 1;
        format!("{}-{}-{number}", who.host, who.pid)
    }

    /// Makes a subscription: the servers watch from the next step on that begins after they have agreed on it. One of its name that
    /// watches for the same goes on. Waits for one answer; the first one of a stream for a connection, too. The stream need not be
    /// there yet. Fails with `Invalid`, `NotFound`, `TypeMismatch`, `OutOfBounds` or `Unsupported` where the text is wrong, as far as
    /// that is known already, and with `Conflict` where another subscription has the name.
    pub fn subscribe(&self, definition: Definition, from: From, window: u32) -> Result<Subscription> {
        self.guard.check("subscriber")?;
        let stream = definition.stream()?;
        let request = Request::Subscribe { stream: stream.clone(), definition: Box::new(definition.clone()) };
        let deadline = Instant::now() + self.group.limit();
        let known = lock(&self.connections).get(&stream).cloned();
        let asked = known.map(|rpc| (rpc.call(&request, "to make a subscription"), rpc));
        let Made { creation, last, finished } = match asked
            .map(|(answer, _)| answer.map(|answer| answer.message))
        {
            Some(Ok(Reply::Subscribed { creation, last, finished, .. })) => Made { creation, last, finished },
            Some(Err(error)) if error.kind != ErrorKind::Unreachable => return Err(error),
            // Another server coordinates the stream now, or none was asked yet.
            _ => self.connect(&stream, &request, deadline)?,
        };
        // Events that come before this process listens are told to it all the same.
        let from = match from {
            From::Next => From::After(last),
            From::Resume => From::After(finished),
            From::After(number) => From::After(number.min(last)),
            From::First => From::First,
        };
        Ok(Subscription::new(self.group.clone(), stream, definition, (from, creation), window))
    }

    fn connect(&self, stream: &str, request: &Request, deadline: Instant) -> Result<Made> {
        let ask = |rpc: &Rpc, left: Duration| match rpc
            .call_within(request, None, left, "to make a subscription")?
            .message
        {
            Reply::Subscribed { creation, last, finished, .. } => {
                Ok(CoordinatorAnswer::Answer(Made { creation, last, finished }))
            }
            Reply::Redirect(server) => Ok(CoordinatorAnswer::Redirect(server)),
            other => Err(unexpected(&other)),
        };
        let (_, rpc, made) = self.group.at_coordinator(stream, &Role::Consumer, deadline, ask)?;
        let mut connections = lock(&self.connections);
        if connections.len() >= CONNECTIONS_MAX {
            connections.pop_first();
        }
        connections.insert(stream.to_owned(), Arc::new(rpc));
        Ok(made)
    }
}
