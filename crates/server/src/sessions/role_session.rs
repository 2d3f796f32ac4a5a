//! What a connection does in one role, and what all roles have in common.

use super::client::Client;
use forebay_core::{Error, Result};
use forebay_wire::frame::Frame;
use forebay_wire::protocol::Protocol;
use std::time::Duration;

/// The longest that a client can ask a server to wait on its behalf by default.
pub(super) const PATIENCE_MAX: Duration = Duration::from_secs(600);

/// What a connection does in one role.
pub(super) trait RoleSession {
    /// The connection.
    fn client(&self) -> &Client;
    fn client_mut(&mut self) -> &mut Client;

    /// The peer was welcomed.
    fn on_welcomed(&mut self) -> Result<()> {
        Ok(())
    }

    /// Handles one message, and answers it if it asks. An error ends the connection.
    async fn on_frame(&mut self, frame: Frame) -> Result<()>;

    /// This server begins to leave its group: whether the connection is to end now.
    async fn on_leaving(&mut self) -> bool {
        false
    }

    /// Whether all is said: the connection ends.
    fn is_over(&self) -> bool {
        false
    }

    /// Whether the next message is expected at once.
    fn expects_more_at_once(&self) -> bool {
        false
    }

    /// The connection has ended: releases what the peer held. What it may still write to or look at in shared memory is given
    /// back only when its process has ended. `dubious`: it ended by an error.
    async fn on_end(&mut self, dubious: bool);
}

/// The error for a message of a protocol that this role does not speak.
pub(super) fn not_spoken(role: &str, protocol: Protocol) -> Error {
    Error::protocol(format!("the protocol '{}' is not spoken on a connection of {role}", protocol.name()))
}
