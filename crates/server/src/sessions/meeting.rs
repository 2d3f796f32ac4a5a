//! The connection of a process that opens a communicator by its name: it waits here for the others.

use super::client::{Client, log_unanswered};
use super::payload;
use super::role_session::{PATIENCE_MAX, RoleSession, not_spoken};
use crate::meetings::{Coming, Met};
use crate::node::Node;
use forebay_cluster::failure::process;
use forebay_cluster::forming::random;
use forebay_core::identity::Identity;
use forebay_core::ids::check_name;
use forebay_core::{Error, Result};
use forebay_wire::client::meeting::{Reply, Request, SIZE_MAX, place_of};
use forebay_wire::frame::Frame;
use forebay_wire::protocol::Protocol;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until};

/// How often this server looks whether processes still meet here: members change.
const LOOK: Duration = Duration::from_millis(500);
/// How many addresses one process has.
const ADDRESSES_MAX: usize = 8;

/// The session of one that comes.
pub(super) struct Session {
    client: Client,
    who: Identity,
}

impl RoleSession for Session {
    fn client(&self) -> &Client {
        &self.client
    }

    fn client_mut(&mut self) -> &mut Client {
        &mut self.client
    }

    async fn on_frame(&mut self, frame: Frame) -> Result<()> {
        payload::check_none(&frame)?;
        if frame.protocol()? != Protocol::Meeting {
            return Err(not_spoken("one that opens a communicator", frame.protocol()?));
        }
        let Request::Come { name, rank, size, addresses, patience_ms } = frame.message()?;
        let coming = Coming { name, rank, size, who: self.who.clone(), addresses };
        let answer = self.come(coming, Duration::from_millis(patience_ms).min(PATIENCE_MAX)).await;
        log_unanswered(self.client.finish_reading(frame.header.request, answer.map(Some))?);
        Ok(())
    }

    async fn on_end(&mut self, _dubious: bool) {}
}

impl Session {
    pub(super) fn new(client: Client, who: Identity) -> Session {
        Session { client, who }
    }

    async fn come(&mut self, coming: Coming, patience: Duration) -> Result<Reply> {
        check(&coming)?;
        let place = place_of(&coming.name);
        if let Some(server) = self.client.find_elsewhere(&place).await? {
            return Ok(Reply::Redirect(server));
        }
        let deadline = Instant::now() + patience;
        let mut stay = Stay::begin(&self.client.node, coming)?;
        loop {
            tokio::select! {
                biased;
                met = &mut stay.told => {
                    let Met { id, members } = met.map_err(|_| Error::internal("a meeting ended untold"))?;
                    return Ok(Reply::Met { id, members: members.to_vec() });
                }
                said = self.client.receiver.next() => return Err(match said {
                    Ok(Some(_)) => Error::protocol("a message while it waits for the other ranks"),
                    Ok(None) => Error::unreachable("it does not wait for the other ranks any more"),
                    Err(error) => error,
                }),
                () = process::ended(self.client.process.as_deref()) => {
                    return Err(Error::unreachable("its process has ended"));
                }
                () = sleep_until(deadline) => return Err(stay.late(patience)),
                () = sleep(LOOK) => {
                    if let Some(server) = self.client.find_elsewhere(&place).await? {
                        return Ok(Reply::Redirect(server));
                    }
                }
            }
        }
    }
}

/// One rank waits, as long as this lives.
struct Stay {
    node: Arc<Node>,
    name: String,
    rank: u32,
    ticket: u64,
    told: oneshot::Receiver<Met>,
}

impl Stay {
    fn begin(node: &Arc<Node>, coming: Coming) -> Result<Stay> {
        let (name, rank) = (coming.name.clone(), coming.rank);
        let id = u64::from_le_bytes(random()?);
        let (ticket, told) = node.state.lock().meetings.come(coming, id)?;
        Ok(Stay { node: node.clone(), name, rank, ticket, told })
    }

    fn late(&self, patience: Duration) -> Error {
        let missing = self.node.state.lock().meetings.missing(&self.name);
        Error::timeout(format!(
            "{missing} of communicator '{}' did not open it within {patience:?}",
            self.name
        ))
    }
}

impl Drop for Stay {
    fn drop(&mut self) {
        self.node.state.lock().meetings.withdraw(&self.name, self.rank, self.ticket);
    }
}

fn check(coming: &Coming) -> Result<()> {
    let Coming { name, rank, size, addresses, .. } = coming;
    check_name("communicator", name)?;
    if *size == 0 || *size > SIZE_MAX || rank >= size {
        return Err(Error::invalid(format!(
            "communicator '{name}': there is no rank {rank} of {size}, which may be {SIZE_MAX} at most"
        )));
    }
    if addresses.is_empty() || addresses.len() > ADDRESSES_MAX {
        return Err(Error::invalid(format!(
            "communicator '{name}': rank {rank} has {} addresses",
            addresses.len()
        )));
    }
    addresses.iter().try_for_each(|address| check_name("address", address))
}
