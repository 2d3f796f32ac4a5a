//! Finding who holds a block when the server is gone that held it.

use crate::connection::group::pause_before_retry;
use crate::connection::probe::{PROBE, RetryWindow};
use crate::connection::rpc::{GRACE, lock, unexpected};
use crate::reading::server_pool::ServerPool;
use forebay_core::block::Location;
use forebay_core::ids::ServerId;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking;
use forebay_wire::client::reading::{Reply, Request, SUCCESSORS_PATIENCE};
use std::time::Instant;

impl ServerPool {
    /// Who holds a block whose server is gone: one of the servers that have succeeded it. This reader asked `tried` for the block
    /// just now.
    pub(super) fn find_holder(
        &self,
        location: &Location,
        tried: ServerId,
        why: &Error,
    ) -> Result<(ServerId, u32)> {
        let Location { offset, bytes, generation, .. } = *location;
        let mut window = RetryWindow::until(Instant::now() + self.group.limit());
        loop {
            let _ = self.group.refresh();
            let mut undecided = None;
            for (server, arena) in self.successors(location, tried, &mut undecided)? {
                let has = Request::HasBlock { arena, offset, bytes, generation };
                let has = self.connection(server).and_then(|rpc| rpc.call(&has, "to say if it has a block"));
                match has {
                    Ok(_) => return Ok((server, arena)),
                    // Another successor may hold it.
                    Err(error) if error.kind == ErrorKind::Lost => {}
                    Err(error) if error.kind == ErrorKind::Unreachable => undecided = Some(error),
                    Err(error) => return Err(error),
                }
            }
            match undecided {
                Some(_) if blocking::interrupted() => {
                    return Err(blocking::interrupted_while("another server to say who holds a block"));
                }
                Some(_) if window.may_retry(&self.group) && self.group.is_any_there() => pause_before_retry(),
                Some(undecided) => {
                    let text = format!("{}; {}", why.text, undecided.text);
                    return Err(Error::new(undecided.kind, text).about_that_of(&undecided));
                }
                // The data had one holder, and that is gone.
                None => {
                    let lost = Error::new(ErrorKind::Lost, format!("{why}; what it held is lost"));
                    return Err(lost.about(location.server));
                }
            }
        }
    }

    /// The servers that have succeeded a server that is gone in holding an arena, as any member tells; none if all say that there
    /// are none. `undecided` is why another server may tell more, a moment later.
    fn successors(
        &self,
        location: &Location,
        tried: ServerId,
        undecided: &mut Option<Error>,
    ) -> Result<Vec<(ServerId, u32)>> {
        let question = Request::FindSuccessors { server: location.server, arena: location.arena };
        let (mut unreached, mut none_does) = (None, false);
        let mut members = self.group.known().view.members.clone();
        members.retain(|server| *server != location.server && *server != tried);
        // This reader asks them one after the other; those come last that did not answer the last time.
        members.sort_by_key(|server| lock(&self.silent).contains(server));
        for server in members {
            let rpc = match self.connection_until(server, Instant::now() + PROBE) {
                Ok(rpc) => rpc,
                Err(error) if error.is_retryable() => {
                    unreached = Some(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            // A server waits no longer until it knows; where this one stands still, another one can tell as well.
            let patience = rpc.patience().min(SUCCESSORS_PATIENCE + GRACE);
            let told = rpc.call_within(&question, None, patience, "to say who holds a block");
            match &told {
                Err(error) if error.kind == ErrorKind::Timeout => lock(&self.silent).insert(server),
                _ => lock(&self.silent).remove(&server),
            };
            match told {
                Ok(answer) => match answer.message {
                    Reply::Successors { servers } => return Ok(servers),
                    other => return Err(unexpected(&other)),
                },
                // This server takes the one that is gone for a member still.
                Err(error) if error.kind == ErrorKind::Unreachable && !rpc.is_broken() => {
                    *undecided = Some(error);
                }
                Err(error) if error.is_retryable() => {
                    unreached = Some(error);
                }
                Err(error) if error.kind == ErrorKind::Lost => none_does = true,
                Err(error) => return Err(error),
            }
        }
        // A server that was not reached may be the successor: if it is gone, too, those that are left soon say so.
        if !none_does && let Some(error) = unreached {
            undecided.get_or_insert(error);
        }
        Ok(Vec::new())
    }
}
