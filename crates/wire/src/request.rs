//! The requests of one connection: their numbers, the answers that wait for whoever asked, the data that comes after an
//! answer, and the events that the peer tells unasked.
//!
//! Sans-IO: the caller sends and receives, and hands each frame that came to [`Requests::accept`]. So one state machine serves
//! connections that block and connections that do not.

use crate::connection::CloseReason;
use crate::frame::Frame;
use crate::protocol::Protocol;
use forebay_core::{Error, Result};
use std::collections::{HashMap, VecDeque};

/// What waits on one connection. `T` is what the caller receives beside a frame, such as file descriptors.
#[derive(Debug)]
pub struct Requests<T = ()> {
    last: u64,
    /// Bounded by the caller, who asks no more than so many at once.
    open: HashMap<u64, Request<T>>,
    /// Events that nobody took yet. Bounded by what the peer may tell: an attachment's window.
    events: VecDeque<Frame>,
    /// While data is due it comes before any other frame.
    data: Option<Data>,
}

/// An answer with what was received beside its frame.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer<T> {
    /// The frame.
    pub frame: Frame,
    /// What came beside it.
    pub beside: T,
}

/// The payload of an answer, as far as it was not received yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Data {
    /// The request that it answers.
    pub request: u64,
    /// How many bytes are still to come.
    pub left: u64,
    /// Whether they are sealed.
    pub sealed: bool,
}

#[derive(Debug)]
struct Request<T> {
    wants_data: bool,
    answer: Option<Answer<T>>,
}

impl<T> Default for Requests<T> {
    fn default() -> Requests<T> {
        Requests { last: 0, open: HashMap::new(), events: VecDeque::new(), data: None }
    }
}

impl<T> Requests<T> {
    /// The number of a new request. Only one that wants data may be answered with some.
    pub fn open(&mut self, wants_data: bool) -> u64 {
        self.last += 1;
        self.open.insert(self.last, Request { wants_data, answer: None });
        self.last
    }

    /// Whether somebody still waits for the answer to a request, or for its data.
    pub fn is_open(&self, request: u64) -> bool {
        self.open.contains_key(&request)
    }

    /// Closes a request: its answer is dropped when it comes. Whether its data is due, which somebody must then skip.
    pub fn close(&mut self, request: u64) -> bool {
        self.open.remove(&request);
        self.data.is_some_and(|data| data.request == request)
    }

    /// The answer to a request, if it has come. The request stays open until [`Requests::close`], since its data may follow.
    pub fn take_answer(&mut self, request: u64) -> Option<Answer<T>> {
        self.open.get_mut(&request)?.answer.take()
    }

    /// The oldest event that nobody took.
    pub fn take_event(&mut self) -> Option<Frame> {
        self.events.pop_front()
    }

    /// The events that nobody took, oldest first.
    pub fn events(&self) -> impl Iterator<Item = &Frame> {
        self.events.iter()
    }

    /// The data that comes next, before any other frame.
    pub fn data(&self) -> Option<Data> {
        self.data
    }

    /// So many bytes of the data that was due have been received.
    pub fn received_data(&mut self, bytes: u64) {
        if let Some(data) = &mut self.data {
            data.left = data.left.saturating_sub(bytes);
        }
        self.data = self.data.filter(|data| data.left > 0);
    }

    /// Keeps a frame that came for whoever waits for it. After an error the connection is of no more use: the peer has said why
    /// it ends it, or has sent data that nobody asked for.
    pub fn accept(&mut self, frame: Frame, beside: T) -> Result<()> {
        let header = frame.header;
        let request = self.open.get_mut(&header.request);
        if header.payload > 0 {
            if request.as_ref().is_some_and(|request| !request.wants_data) {
                return Err(Error::protocol("data came where none was asked for"));
            }
            let (request, left, sealed) = (header.request, header.payload, header.sealed_payload);
            self.data = Some(Data { request, left, sealed });
        }
        match request {
            Some(request) => request.answer = Some(Answer { frame, beside }),
            // Whoever asked gave up at a deadline.
            None if header.request != 0 => {}
            None if frame.protocol == Protocol::Connection as u8 => {
                return Err(frame.message().map_or_else(|error| error, |CloseReason(error)| error));
            }
            None => self.events.push_back(frame),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::consumer::Event;
    use crate::frame::{Decoder, Header, encode};
    use crate::protocol::Message;
    use forebay_core::ErrorKind;
    use forebay_core::steps::AttachmentId;
    use forebay_core::steps::RunEnd;

    fn frame<M: Message>(request: u64, payload: u64, message: &M) -> Frame {
        let mut bytes = Vec::new();
        encode(&Header { request, payload, ..Header::default() }, message, None, &mut bytes).unwrap();
        let mut decoder = Decoder::new(None);
        decoder.space()[..bytes.len()].copy_from_slice(&bytes);
        decoder.on_filled(bytes.len());
        decoder.next_frame().unwrap().unwrap()
    }

    fn event(missed: u64) -> Event {
        let end = RunEnd { run: 1, summary: None, continued_by: None, missed, late: None, looked: false };
        Event::Ended { attachment: AttachmentId(1), end: Box::new(end) }
    }

    #[test]
    fn answers_wait_for_those_who_asked_in_any_order() {
        let mut requests = Requests::default();
        let (first, second, third) = (requests.open(false), requests.open(false), requests.open(false));
        assert_eq!((first, second, third), (1, 2, 3));
        requests.accept(frame(second, 0, &event(2)), "two").unwrap();
        requests.accept(frame(first, 0, &event(1)), "one").unwrap();
        assert_eq!(requests.take_answer(third), None);
        assert_eq!(requests.take_answer(first).map(|answer| answer.beside), Some("one"));
        assert_eq!(requests.take_answer(first), None, "it was taken");
        requests.close(third);
        requests.accept(frame(third, 0, &event(3)), "late").unwrap();
        assert_eq!(requests.take_answer(third), None, "whoever asked had given up");
        assert_eq!(requests.take_answer(second).map(|answer| answer.beside), Some("two"));
        assert!(requests.take_event().is_none());
    }

    #[test]
    fn events_keep_their_order_beside_answers() {
        let mut requests = Requests::default();
        let asked = requests.open(false);
        for missed in [7, 8] {
            requests.accept(frame(0, 0, &event(missed)), ()).unwrap();
        }
        requests.accept(frame(asked, 0, &event(9)), ()).unwrap();
        assert_eq!(requests.events().count(), 2);
        let told: Vec<Event> =
            std::iter::from_fn(|| requests.take_event()).map(|frame| frame.message().unwrap()).collect();
        assert_eq!(told, [event(7), event(8)]);
        assert!(requests.is_open(asked));
    }

    #[test]
    fn data_is_due_until_it_was_received_whoever_still_wants_it() {
        let mut requests = Requests::default();
        let asked = requests.open(true);
        requests.accept(frame(asked, 100, &event(0)), ()).unwrap();
        requests.received_data(60);
        assert_eq!(requests.data(), Some(Data { request: asked, left: 40, sealed: false }));
        assert!(requests.close(asked), "its data is in the way");
        assert!(!requests.is_open(asked));
        requests.received_data(40);
        assert_eq!(requests.data(), None);
        assert!(!requests.close(asked));
        // That of an answer to a request that was given up is due, too.
        requests.accept(frame(asked, 5, &event(0)), ()).unwrap();
        assert_eq!(requests.data().map(|data| data.left), Some(5));
    }

    #[test]
    fn a_connection_ends_with_unwanted_data_or_with_last_words() {
        let mut requests = Requests::default();
        let asked = requests.open(false);
        let error = requests.accept(frame(asked, 1, &event(0)), ()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Protocol);
        let why = Error::timeout("you took nothing for a minute");
        let error = requests.accept(frame(0, 0, &CloseReason(why.clone())), ()).unwrap_err();
        assert_eq!(error, why);
    }
}
