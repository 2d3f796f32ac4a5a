//! Connections that say whatever a test wants.

use super::PATIENCE;
use forebay_core::Result;
use forebay_transport::blocking::Connection;
use forebay_wire::frame::Header;
use forebay_wire::peer::PeerMessage;
use forebay_wire::protocol::{Message, Reply, Request};
use forebay_wire::testing::Plain;
use std::time::Instant;

/// A connection that says what it is told to.
pub(crate) struct Raw {
    pub(crate) connection: Connection,
    requests: u64,
}

impl Raw {
    /// Over a connection on which nothing was said yet.
    pub(crate) fn over(connection: Connection) -> Raw {
        Raw { connection, requests: 1 }
    }

    /// Sends a message that asks for no answer.
    pub(crate) fn tell<M: Message>(&mut self, message: &M) -> Result<()> {
        self.connection.sender.send(&Header::default(), message, &[], Instant::now() + PATIENCE)
    }

    /// Sends a message with a header of the test's choice, and raw bytes after it.
    pub(crate) fn say<M: Message>(&mut self, header: Header, message: &M, payload: &[u8]) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        self.connection.sender.send(&header, message, &[], deadline)?;
        self.connection.sender.send_payload(payload, false, deadline)
    }

    /// As another server: tells a message of any protocol.
    pub(crate) fn tell_peer(&mut self, message: impl Into<PeerMessage>) -> Result<()> {
        self.tell(&Plain::from(&message.into()))
    }

    /// Asks and waits for the answer; what is told meanwhile is passed over. What failed is an error.
    pub(crate) fn ask<Q: Request>(&mut self, message: &Q) -> Result<Q::Reply> {
        self.requests += 1;
        let header = Header { request: self.requests, ..Header::default() };
        self.say(header, message, &[])?;
        self.answer::<Q::Reply>(self.requests).map(|(answer, _)| answer)
    }

    /// The answer to a request, with its payload.
    pub(crate) fn answer<R: Reply>(&mut self, request: u64) -> Result<(R, Vec<u8>)> {
        loop {
            let deadline = Instant::now() + PATIENCE;
            let received = self.connection.receiver.receive(deadline, "to answer")?;
            let header = received.frame.header;
            let mut payload = vec![0; header.payload as usize];
            self.connection.receiver.receive_payload(&mut payload, false, deadline)?;
            if header.request == request {
                return Ok((received.frame.message::<Result<R>>()??, payload));
            }
        }
    }
}
