//! Requests over a connection: asked and awaited at once, or asked now and collected later.

use crate::connection::receive::RawAnswer;
use crate::connection::rpc::{Payload, Rpc, lock};
use forebay_core::{Error, Result};
use forebay_wire::frame::Header;
use forebay_wire::protocol::Request;
use std::marker::PhantomData;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// An answer with what came along; its payload is still to be received.
#[derive(Debug)]
pub(crate) struct Answer<R> {
    pub(crate) message: R,
    pub(crate) header: Header,
    pub(crate) descriptors: Vec<OwnedFd>,
}

/// A request that was sent, and whose answer was not taken yet. Dropping it gives the answer up.
#[derive(Debug)]
pub(crate) struct Call<'a, Q: Request> {
    rpc: &'a Rpc,
    request: u64,
    deadline: Instant,
    /// The server holds what it finds under the request's number: it is told to release that if the answer is not taken.
    holds: bool,
    asks: PhantomData<Q>,
}

impl Rpc {
    /// Asks and waits for the answer, no longer than the default deadline.
    pub(crate) fn call<Q: Request>(&self, message: &Q, what: &str) -> Result<Answer<Q::Reply>> {
        self.call_within(message, None, self.patience(), what)
    }

    /// Asks, with a payload or another deadline, and waits for the answer. An answer that says what failed
    /// is an error.
    pub(crate) fn call_within<Q: Request>(
        &self,
        message: &Q,
        payload: Option<Payload<'_>>,
        patience: Duration,
        what: &str,
    ) -> Result<Answer<Q::Reply>> {
        self.ask(message, payload, patience)?.answer(what)
    }

    /// Asks. The answer can be taken after others were asked.
    pub(crate) fn ask<Q: Request>(
        &self,
        message: &Q,
        payload: Option<Payload<'_>>,
        patience: Duration,
    ) -> Result<Call<'_, Q>> {
        self.start(message, payload, patience, false)
    }

    /// Asks for bytes and receives them to where they belong.
    pub(crate) fn fetch<Q: Request>(&self, message: &Q, target: &mut [u8], what: &str) -> Result<()> {
        self.ask_for_data(message)?.receive(target, what)
    }

    /// Asks for bytes, to be received after others were asked for: over one connection in the order in which they were asked for.
    pub(crate) fn ask_for_data<Q: Request>(&self, message: &Q) -> Result<Call<'_, Q>> {
        self.start(message, None, self.patience(), true)
    }

    fn start<Q: Request>(
        &self,
        message: &Q,
        payload: Option<Payload<'_>>,
        patience: Duration,
        wants_data: bool,
    ) -> Result<Call<'_, Q>> {
        let deadline = Instant::now() + patience;
        let request = self.open(wants_data);
        let mut call = Call { rpc: self, request, deadline, holds: false, asks: PhantomData };
        self.send(call.request, message, payload, call.deadline)?;
        call.holds = message.holds_what_is_found();
        Ok(call)
    }

    /// The number of a request that is about to be sent.
    fn open(&self, wants_data: bool) -> u64 {
        lock(&self.inbox).requests.open(wants_data)
    }

    /// Asks without waiting for the answer, which [`Rpc::collect`] gives; waits only while the server does not
    /// take the bytes. The payload is the caller's again on return. If the server is known to have ended the connection, that
    /// is an error now: what is sent to it would be lost.
    pub(crate) fn post<Q: Request>(&self, message: &Q, payload: Option<Payload<'_>>) -> Result<u64> {
        let deadline = Instant::now() + self.patience();
        self.with_sender(deadline, |sender| sender.check_not_ended())?;
        let request = self.open(false);
        let sent = self.send(request, message, payload, deadline);
        if sent.is_err() {
            self.forget(request);
        }
        sent.map(|()| request)
    }

    /// As [`Rpc::post`], but the request goes out with the next message that is sent.
    pub(crate) fn post_later<Q: Request>(&self, message: &Q) -> Result<u64> {
        let request = self.open(false);
        let deadline = Instant::now() + self.patience();
        let queued =
            self.with_sender(deadline, |sender| sender.queue(&self.header(request), message, deadline));
        if queued.is_err() {
            self.forget(request);
        }
        queued.map(|()| request)
    }

    /// Waits for the answer to what was posted, no longer than the default deadline. After a time-out it can
    /// be asked for again, or be forgotten.
    pub(crate) fn collect<Q: Request>(&self, request: u64, what: &str) -> Result<Q::Reply> {
        self.collect_until::<Q>(request, Instant::now() + self.patience(), what)
    }

    /// As [`Rpc::collect`], with another deadline.
    pub(crate) fn collect_until<Q: Request>(
        &self,
        request: u64,
        deadline: Instant,
        what: &str,
    ) -> Result<Q::Reply> {
        let answer = self.answer_to(request, deadline, what)?;
        self.forget(request);
        Ok(self.decode::<Q>(answer)?.message)
    }

    /// Nobody wants the answer to a request any more.
    pub(crate) fn forget(&self, request: u64) {
        let mut inbox = lock(&self.inbox);
        if inbox.requests.close(request) {
            // Another thread has to skip the data that is in the way.
            self.wake(&inbox);
        }
    }

    /// What an answer says. One that says what failed is an error; one that cannot be read breaks the connection.
    fn decode<Q: Request>(&self, answer: RawAnswer) -> Result<Answer<Q::Reply>> {
        let RawAnswer { frame, beside: descriptors } = answer;
        let said: Result<Q::Reply> =
            frame.message().map_err(|error| self.about_it(lock(&self.receiver).break_with(error)))?;
        Ok(Answer { message: said?, header: frame.header, descriptors })
    }
}

impl<Q: Request> Call<'_, Q> {
    /// The request's number.
    pub(crate) fn request(&self) -> u64 {
        self.request
    }

    /// Waits for the answer. One that says what failed is an error.
    pub(crate) fn answer(mut self, what: &str) -> Result<Answer<Q::Reply>> {
        self.take(what)
    }

    /// Receives the bytes that were asked for, to where they belong.
    pub(crate) fn receive(mut self, target: &mut [u8], what: &str) -> Result<()> {
        let (rpc, patience) = (self.rpc, self.rpc.patience());
        self.deadline = Instant::now() + patience;
        let header = self.take(what)?.header;
        if header.payload != target.len() as u64 {
            let error = Error::protocol(format!(
                "{} bytes came where {} were asked for",
                header.payload,
                target.len()
            ));
            return Err(rpc.about_it(lock(&rpc.receiver).break_with(error)));
        }
        // While this call lives, its data is due to nobody else.
        rpc.receive_data(target, header.sealed_payload, Instant::now() + patience)
    }

    fn take(&mut self, what: &str) -> Result<Answer<Q::Reply>> {
        let answer = self.rpc.answer_to(self.request, self.deadline, what)?;
        self.holds = false;
        self.rpc.decode::<Q>(answer)
    }
}

impl<Q: Request> Drop for Call<'_, Q> {
    fn drop(&mut self) {
        self.rpc.forget(self.request);
        if self.holds {
            self.rpc.release(self.request);
        }
    }
}
