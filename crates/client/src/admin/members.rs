//! Changing who is a member: a server leaves, the group goes on without servers that are lost, or ends.

use crate::admin::handle::Admin;
use crate::connection::group::pause_before_retry;
use crate::connection::rpc::unexpected;
use forebay_core::ids::ServerId;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::blocking;
use forebay_transport::connection_file::ServerEntry;
use forebay_wire::client::admin::{Reply, Request};
use forebay_wire::connection::Role;
use serde_json::Value;
use std::time::{Duration, Instant};

/// How long the connection file may take to tell of a server that has left.
const LEFT: Duration = Duration::from_secs(2);

impl Admin {
    /// Has a server leave the group: its ranks, workers and steps go to the others, which answer for them from then on; then
    /// it ends. Waits until the group has agreed, no longer than the deadline; after an error the server stays. The last
    /// server that holds something is refused unless `discard`, which gives up what no other can hold.
    pub fn remove_server(&self, server: ServerId, discard: bool) -> Result<ServerId> {
        let _ = self.group.refresh();
        let known = self.group.known();
        if !known.view.members.contains(&server) {
            let names: Vec<String> = known.view.members.iter().map(ToString::to_string).collect();
            let text = format!("the group has no {server}; there are {}", names.join(", "));
            return Err(Error::not_found(text).about(server));
        }
        let patience = self.group.options().patience();
        let patience_ms = u64::try_from(patience.as_millis()).unwrap_or(u64::MAX);
        let deadline = Instant::now() + patience;
        let rpc = self.group.connect(server, Role::Admin)?;
        let leave = Request::LeaveGroup { discard, patience_ms };
        // The server gives up first, and says what it waited for.
        match rpc.call_within(
            &leave,
            None,
            patience.saturating_add(Duration::from_secs(1)),
            "to leave the group",
        ) {
            // The server may end before it has sent its answer.
            Err(error) if error.kind != ErrorKind::Unreachable => Err(error),
            answer => {
                let error = answer.err();
                let unanswered = error.is_some();
                let server = self.wait_until_left(server, error, deadline)?;
                match unanswered && self.was_given_up(server) {
                    true => {
                        let text = format!(
                            "the group has given up {server} before it could leave: what it alone held is lost, unless it \
                             comes back"
                        );
                        Err(Error::new(ErrorKind::Lost, text).about(server))
                    }
                    false => Ok(server),
                }
            }
        }
    }

    /// Whether the other servers say that they gave this one up, and it did not leave by itself.
    fn was_given_up(&self, server: ServerId) -> bool {
        let lost = self.status().map(|status| status.lost).unwrap_or_default();
        lost.iter().any(|lost| lost.server == u64::from(server.0))
    }

    /// Waits until the connection file tells that a server has left.
    fn wait_until_left(&self, server: ServerId, error: Option<Error>, deadline: Instant) -> Result<ServerId> {
        let deadline = deadline.max(Instant::now() + LEFT);
        while self.group.refresh().is_ok() && self.group.known().view.members.contains(&server) {
            if Instant::now() >= deadline || blocking::interrupted() {
                let text = format!("{server} has left, but the connection file does not tell so");
                let late = || Error::timeout(text).about(server);
                return Err(error.unwrap_or_else(late));
            }
            pause_before_retry();
        }
        Ok(server)
    }

    /// Goes on with those servers of the group that answer, where they are half of them or fewer and so cannot agree on
    /// that by themselves: returns them, and those that are given up. Only says which they are unless `force`. None of those
    /// given up may still run: what it acknowledges would be lost; one that is seen later comes back as a new member.
    pub fn heal(&self, force: bool) -> Result<(Vec<ServerId>, Vec<ServerId>)> {
        let _ = self.group.refresh();
        let members = self.group.known().view.members.clone();
        let answers = self.group.ask_all(members, &Request::Status, "to say that it is there", |_| false)?;
        let reach = |answer: &Reply| match answer {
            Reply::Status(text) => serde_json::from_str::<Value>(text).ok()?["gone"].as_array().map(Vec::len),
            _ => None,
        };
        let lost =
            answers.iter().filter_map(|(server, answer)| Some((reach(answer.as_ref().ok()?)?, *server)));
        // A server goes on with those that it reaches: one that has lost others, which reach each other, is the last to ask.
        let one = lost.min().map(|(_, server)| server);
        let nobody = || Error::unreachable("no server of the group answers: `forebay up` starts a new group");
        let rpc = self.group.connect(one.ok_or_else(nobody)?, Role::Admin)?;
        match rpc.call(&Request::Heal { force }, "to find out which servers are there")?.message {
            Reply::Healed { kept, given_up } => Ok((kept, given_up)),
            other => Err(unexpected(&other)),
        }
    }

    /// Ends every server of the group; tells how many. Servers that are gone already count as ended; one that
    /// does not answer is an error, after all others were told: those tell it, too, so that one which stands still ends when
    /// it goes on.
    pub fn shutdown(&self) -> Result<usize> {
        let _ = self.group.refresh();
        let known = self.group.known();
        let members = known.view.members.clone();
        let answers = self.group.ask_all(members, &Request::Shutdown, "to end", |_| false)?;
        let ended = answers.values().filter(|answer| answer.is_ok()).count();
        let failed = |(id, answer): (ServerId, Result<Reply>)| Some((id, answer.err()?));
        let silent: Vec<(ServerId, Error)> = answers
            .into_iter()
            .filter_map(failed)
            .filter(|(_, error)| error.kind != ErrorKind::Unreachable)
            .collect();
        let Some((_, error)) = silent.first() else { return Ok(ended) };
        if ended == 0 {
            return Err(error.clone());
        }
        let is_silent = |server: &&ServerEntry| silent.iter().any(|(id, _)| *id == server.id);
        let servers = known.file.servers.iter().filter(is_silent);
        let names: Vec<String> =
            servers.map(|server| format!("{} (process {})", server.id, server.pid)).collect();
        let names = names.join(", ");
        let text = format!(
            "the deadline passed while waiting for {names} to end. The other servers end and tell so: each of these ends \
             when it goes on; to end one now, kill its process"
        );
        let error = Error::new(error.kind, text);
        Err(if let [(server, _)] = silent[..] { error.about(server) } else { error })
    }
}
