//! One question to several servers at once: one that stands still takes nothing of the others' time. Without a
//! thread for each, since a client starts none.

use crate::group::{Group, check_welcome};
use crate::seconds::deadline_after;
use forebay_core::ids::ServerId;
use forebay_core::{Error, Result};
use forebay_transport::Address;
use forebay_transport::blocking::{Connection, Opening, PollFlags, wait_for_any};
use forebay_wire::frame::Header;
use forebay_wire::connection::{Role, Welcome};
use forebay_wire::protocol::{Reply, Request};
use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// How many servers are asked at once: each takes a descriptor.
const AT_ONCE: usize = 256;

/// What each server said, or why it did not.
pub(crate) type Answers<R> = BTreeMap<ServerId, Result<R>>;

/// A server that is being asked.
struct Asked {
    id: ServerId,
    name: String,
    address: Address,
    at: At,
}

/// How far it is.
enum At {
    Connecting(Opening),
    Greeting(Opening),
    Welcome(Connection),
    Answer(Connection),
}

impl Asked {
    fn waits_for(&self) -> (BorrowedFd<'_>, PollFlags) {
        match &self.at {
            At::Connecting(opening) => (opening.descriptor(), PollFlags::OUT),
            At::Greeting(opening) => (opening.descriptor(), PollFlags::IN),
            At::Welcome(connection) | At::Answer(connection) => {
                (connection.receiver.descriptor(), PollFlags::IN)
            }
        }
    }
}

impl Group {
    /// Asks these servers the same, as an administrator, until each has answered, the deadline has passed or `is_enough` says of an
    /// answer that the others are of no interest: those have none then.
    pub(crate) fn ask_all<Q: Request>(
        &self,
        servers: impl IntoIterator<Item = ServerId>,
        question: &Q,
        what: &str,
        is_enough: impl Fn(&Result<Q::Reply>) -> bool,
    ) -> Result<Answers<Q::Reply>> {
        self.ask_all_within(self.options().patience(), servers, question, what, is_enough)
    }

    /// As `ask_all`, with another deadline.
    pub(crate) fn ask_all_within<Q: Request>(
        &self,
        patience: Duration,
        servers: impl IntoIterator<Item = ServerId>,
        question: &Q,
        what: &str,
        is_enough: impl Fn(&Result<Q::Reply>) -> bool,
    ) -> Result<Answers<Q::Reply>> {
        let deadline = deadline_after(patience);
        let mut waiting = servers.into_iter();
        let mut asked: Vec<Asked> = Vec::new();
        let mut answers = Answers::<Q::Reply>::new();
        loop {
            while asked.len() < AT_ONCE
                && let Some(id) = waiting.next()
            {
                match self.start(id) {
                    Ok(one) => asked.push(one),
                    Err(error) => drop(answers.insert(id, Err(error))),
                }
            }
            if asked.is_empty() || answers.values().any(&is_enough) {
                return Ok(answers);
            }
            let waited: Vec<_> = asked.iter().map(Asked::waits_for).collect();
            let ready = wait_for_any(&waited, deadline)?;
            if !ready.contains(&true) {
                let late = |name: &str| {
                    Error::timeout(format!("the deadline passed while waiting for {name} {what}"))
                };
                answers.extend(asked.iter().map(|one| (one.id, Err(late(&one.name)))));
                answers.extend(waiting.map(|id| (id, Err(late(&id.to_string())))));
                return Ok(answers);
            }
            let mut ready = ready.into_iter();
            let (now, later): (Vec<Asked>, Vec<Asked>) =
                asked.into_iter().partition(|_| ready.next().unwrap_or(false));
            asked = later;
            for one in now {
                let id = one.id;
                match self.go_on(one, question, what, deadline) {
                    Ok(Progress::Asked(one)) => asked.push(one),
                    Ok(Progress::Answered(answer)) => drop(answers.insert(id, Ok(answer))),
                    Err(error) => drop(answers.insert(id, Err(error))),
                }
            }
        }
    }

    fn start(&self, id: ServerId) -> Result<Asked> {
        let (address, name) = self.place_of(id)?;
        let opening = Opening::start(&address, &name, &Group::door(&self.known(), &id.to_string()))?;
        Ok(Asked { id, name, address, at: At::Connecting(opening) })
    }

    /// The next step with a server for which there is no need to wait.
    fn go_on<Q: Request>(
        &self,
        one: Asked,
        question: &Q,
        what: &str,
        deadline: Instant,
    ) -> Result<Progress<Q::Reply>> {
        let Asked { id, name, address, at } = one;
        let header = |request| Header { request, epoch: self.known().view.epoch, ..Header::default() };
        let at = match at {
            At::Connecting(opening) => {
                opening.greet(deadline)?;
                At::Greeting(opening)
            }
            At::Greeting(opening) => {
                let mut connection = opening.finish(deadline)?;
                let hello = self.hello(Role::Admin, &address);
                connection.sender.send(&header(1), &hello, &[], deadline)?;
                At::Welcome(connection)
            }
            At::Welcome(mut connection) => {
                check_welcome(id, told::<Welcome>(&mut connection, "its welcome", deadline)?)?;
                connection.sender.send(&header(2), question, &[], deadline)?;
                At::Answer(connection)
            }
            At::Answer(mut connection) => {
                return told(&mut connection, what, deadline).map(Progress::Answered);
            }
        };
        Ok(Progress::Asked(Asked { id, name, address, at }))
    }
}

enum Progress<R> {
    Asked(Asked),
    Answered(R),
}

/// What a server answers; what failed is an error.
fn told<R: Reply>(connection: &mut Connection, what: &str, deadline: Instant) -> Result<R> {
    connection.receiver.receive(deadline, what)?.frame.message::<Result<R>>()?
}
