//! Fetching the bytes of copies from a primary on another host.

use super::super::Node;
use super::super::fetching::greet;
use crate::replication::backups::{FetchedRange, Order};
use forebay_core::ids::ServerId;
use forebay_core::{Error, Result};
use forebay_transport::asynchronous::{Requester, Target};
use forebay_wire::client::reading::{Fetch, Part, Reply, Request};
use forebay_wire::connection::Role;
use forebay_wire::peer::replication::{BlockRange, ReplicaUnit};
use std::sync::Weak;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// How long bytes may take that are fetched, and so many more seconds for each of this many.
const FETCHED: Duration = Duration::from_secs(30);
const FETCHED_A_SECOND: u64 = 10 << 20;

impl Node {
    /// Does what a primary on another host wants, in order: fetches the blocks that are to be held.
    pub(super) fn fetch_all(&self, from: ServerId, orders: mpsc::Receiver<Order>) {
        tokio::spawn(follow(self.me.clone(), from, orders));
    }
}

async fn follow(node: Weak<Node>, from: ServerId, mut orders: mpsc::Receiver<Order>) {
    let mut connection = None;
    while let Some(order) = orders.recv().await {
        let Some(node) = node.upgrade() else { return };
        match order {
            Order::Release(unit) => {
                node.with_replication(&mut node.state.lock(), |replication, cx, _| {
                    replication.backups.let_go(cx, from, &unit);
                });
            }
            Order::Hold(token, replica) => {
                let new = node.with_replication(&mut node.state.lock(), |replication, cx, _| {
                    replication.backups.begin_fetch(cx, from, &replica)
                });
                let result = match new {
                    Ok(new) => fetch_new(&node, from, &mut connection, &replica.unit, new).await,
                    Err(error) => Err(error),
                };
                let mut state = node.state.lock();
                node.with_replication(&mut state, |replication, cx, _| {
                    replication.backups.end_fetch(cx, from, (token, *replica), result);
                });
                node.drain(&mut state);
            }
        }
    }
}

async fn fetch_new(
    node: &Node,
    from: ServerId,
    connection: &mut Option<Requester>,
    unit: &ReplicaUnit,
    new: Vec<FetchedRange>,
) -> Result<()> {
    let mut result = Ok(());
    for FetchedRange { theirs, mine } in new {
        if result.is_ok() {
            let patience = FETCHED + Duration::from_secs(theirs.bytes / FETCHED_A_SECOND);
            result = fetch(node, from, connection, (&theirs, &mine), Instant::now() + patience).await;
            if result.is_err() {
                *connection = None;
            }
        }
        node.with_replication(&mut node.state.lock(), |replication, cx, _| {
            replication.backups.on_fetched(cx, from, unit, &mine, result.is_ok());
        });
    }
    result
}

async fn fetch(
    node: &Node,
    from: ServerId,
    connection: &mut Option<Requester>,
    (theirs, mine): (&BlockRange, &BlockRange),
    deadline: Instant,
) -> Result<()> {
    let requester = match connection {
        Some(requester) => requester,
        None => connection.insert(greet(node, (from, Role::Consumer), deadline).await?),
    };
    let mapping = node.store.lock().mapping(mine.arena)?;
    let one = |n: u64| [n][..].into();
    let part = Part { offset: one(0), shape: one(theirs.bytes), step: one(1) };
    let BlockRange { arena, offset, generation, bytes } = *theirs;
    let stored = one(bytes);
    let fetch = Request::Fetch(Fetch { arena, offset, bytes, generation, stored, element: 1, part });
    let target = Target { mapping: &mapping, offset: mine.offset, bytes };
    match requester.fetch(&fetch, target, deadline, "a block that is to be held").await? {
        Reply::Data => Ok(()),
        _ => Err(Error::protocol(format!("{from} sent something else than a block"))),
    }
}
