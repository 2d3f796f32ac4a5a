//! One request to several servers at once: a server that stands still takes nothing of the others' time. Without a thread for
//! each, since a client starts none.

use crate::connection::connect::check_welcome;
use crate::connection::group::Group;
use crate::seconds::deadline_after;
use forebay_core::ids::ServerId;
use forebay_core::{Error, Result};
use forebay_transport::Address;
use forebay_transport::blocking::{Connection, PendingConnection, PollFlags, wait_for_any};
use forebay_wire::connection::{Hello, Role};
use forebay_wire::frame::Header;
use forebay_wire::protocol::Request;
use forebay_wire::request::Requests;
use std::collections::BTreeMap;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// How many servers are asked at once: each takes a descriptor.
const AT_ONCE: usize = 256;

/// What each server answered, or why it did not.
pub(crate) type Answers<R> = BTreeMap<ServerId, Result<R>>;

/// A server that is being asked.
struct Target {
    id: ServerId,
    name: String,
    address: Address,
    stage: Stage,
}

/// What a server that is asked is to do next.
enum Stage {
    Connect(PendingConnection),
    ShakeHands(PendingConnection),
    Welcome(Conversation),
    Answer(Conversation),
}

/// A connection, with the number of the one request over it that is open.
struct Conversation {
    connection: Connection,
    requests: Requests<Vec<OwnedFd>>,
    request: u64,
}

/// How far a server is after a step.
enum Progress<R> {
    Waiting(Box<Target>),
    Answered(Result<R>),
}

impl Target {
    fn waits_for(&self) -> (BorrowedFd<'_>, PollFlags) {
        match &self.stage {
            Stage::Connect(opening) => (opening.descriptor(), PollFlags::OUT),
            Stage::ShakeHands(opening) => (opening.descriptor(), PollFlags::IN),
            Stage::Welcome(conversation) | Stage::Answer(conversation) => {
                (conversation.connection.receiver.descriptor(), PollFlags::IN)
            }
        }
    }
}

impl Conversation {
    /// Sends a request. Waits only while the server takes no bytes.
    fn ask<Q: Request>(&mut self, question: &Q, epoch: u64, deadline: Instant) -> Result<()> {
        self.request = self.requests.open(false);
        let header = Header { request: self.request, epoch, ..Header::default() };
        self.connection.sender.send(&header, question, &[], deadline)
    }

    /// Takes what has come; the answer, if that is there.
    fn answer<Q: Request>(&mut self, what: &str) -> Result<Option<Result<Q::Reply>>> {
        while let Some(received) = self.connection.receiver.try_receive(what)? {
            self.requests.accept(received.frame, received.descriptors)?;
            if let Some(answer) = self.requests.take_answer(self.request) {
                return answer.frame.message().map(Some);
            }
        }
        Ok(None)
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
        let mut servers = servers.into_iter();
        let mut targets: Vec<Target> = Vec::new();
        let mut answers = Answers::<Q::Reply>::new();
        loop {
            while targets.len() < AT_ONCE
                && let Some(id) = servers.next()
            {
                match self.target(id) {
                    Ok(target) => targets.push(target),
                    Err(error) => drop(answers.insert(id, Err(error.about(id)))),
                }
            }
            if targets.is_empty() || answers.values().any(&is_enough) {
                return Ok(answers);
            }
            let waited: Vec<_> = targets.iter().map(Target::waits_for).collect();
            let ready = wait_for_any(&waited, deadline)?;
            if !ready.contains(&true) {
                let late = |id: ServerId, name: &str| {
                    let text = format!("the deadline passed while waiting for {name} {what}");
                    (id, Err(Error::timeout(text).about(id)))
                };
                answers.extend(targets.iter().map(|target| late(target.id, &target.name)));
                answers.extend(servers.map(|id| late(id, &id.to_string())));
                return Ok(answers);
            }
            let mut ready = ready.into_iter();
            let (now, later): (Vec<Target>, Vec<Target>) =
                targets.into_iter().partition(|_| ready.next().unwrap_or(false));
            targets = later;
            for target in now {
                let id = target.id;
                match self.advance(target, question, what, deadline) {
                    Ok(Progress::Waiting(target)) => targets.push(*target),
                    Ok(Progress::Answered(answer)) => drop(answers.insert(id, answer)),
                    Err(error) => drop(answers.insert(id, Err(self.with_remedy(id, error).about(id)))),
                }
            }
        }
    }

    fn target(&self, id: ServerId) -> Result<Target> {
        let (address, name) = self.address_of(id)?;
        let opening =
            PendingConnection::start(&address, &name, &Group::prologue(&self.known(), &id.to_string()))?;
        Ok(Target { id, name, address, stage: Stage::Connect(opening) })
    }

    /// The next step with a server for which there is no need to wait.
    fn advance<Q: Request>(
        &self,
        mut target: Target,
        question: &Q,
        what: &str,
        deadline: Instant,
    ) -> Result<Progress<Q::Reply>> {
        let epoch = self.known().view.epoch;
        target.stage = match target.stage {
            Stage::Connect(opening) => {
                opening.greet(deadline)?;
                Stage::ShakeHands(opening)
            }
            Stage::ShakeHands(opening) => {
                let connection = opening.finish(deadline)?;
                let mut conversation = Conversation { connection, requests: Requests::default(), request: 0 };
                conversation.ask(&self.hello(Role::Admin, &target.address), epoch, deadline)?;
                Stage::Welcome(conversation)
            }
            Stage::Welcome(mut conversation) => match conversation.answer::<Hello>("its welcome")? {
                Some(welcome) => {
                    check_welcome(target.id, welcome?)?;
                    conversation.ask(question, epoch, deadline)?;
                    Stage::Answer(conversation)
                }
                None => Stage::Welcome(conversation),
            },
            Stage::Answer(mut conversation) => match conversation.answer::<Q>(what)? {
                Some(answer) => return Ok(Progress::Answered(answer)),
                None => Stage::Answer(conversation),
            },
        };
        Ok(Progress::Waiting(Box::new(target)))
    }
}
