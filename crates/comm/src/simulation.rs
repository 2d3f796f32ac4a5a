//! Many ranks in one thread, for tests: what runs is the real collectives. Their messages go straight from one rank to the other, and are
//! counted.

use crate::comm::Comm;
use crate::endpoint::{EndpointOptions, hub_of};
use crate::hub::Hub;
use crate::mail::{Admission, Envelope};
use crate::task::Task;
use forebay_core::ids::Lineage;
use forebay_core::{Error, Result};
use forebay_wire::comm::Label;
use forebay_wire::handshake::Secret;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Waker};

/// What was said.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) messages: usize,
    pub(crate) bytes: usize,
    /// Of the longest chain in which each message waits for the one before it.
    pub(crate) rounds: u32,
    /// Sent and received by the rank that has most.
    pub(crate) busiest: usize,
}

/// Between all ranks.
#[derive(Debug, Default)]
pub(crate) struct Network {
    hubs: OnceLock<Vec<Weak<Hub>>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    messages: usize,
    bytes: usize,
    /// By rank, how long the longest chain of messages is that has led to where it is.
    rounds: Vec<u32>,
    /// By rank, what it has sent and received.
    handled: Vec<usize>,
    /// The rounds in which messages come that were not received yet, by source, destination, space and tag.
    coming: HashMap<(u32, u32, u64, u64), VecDeque<u32>>,
}

impl Network {
    /// A message goes to a rank, at once.
    pub(crate) fn carry(&self, task: &Task, dest: u32, tag: u64, bytes: &[u8]) -> Result<()> {
        let label = task.label(tag);
        let envelope = Envelope { label, bytes: bytes.len() as u64 };
        let hub = self.hubs.get().and_then(|hubs| hubs.get(dest as usize)?.upgrade());
        let hub = hub.ok_or_else(|| Error::unreachable(format!("rank {dest} is gone")))?;
        let fill = |space: &mut [u8]| {
            space.copy_from_slice(bytes);
            Ok::<(), Infallible>(())
        };
        let admission = hub.state.lock().mail.whole(task.comm, envelope, fill);
        assert!(matches!(admission, Ok(Admission::Take)), "{admission:?}");
        let mut state = self.state.lock();
        state.messages += 1;
        state.bytes += bytes.len();
        state.handled[label.source as usize] += 1;
        let round = state.rounds[label.source as usize] + 1;
        state.coming.entry((label.source, dest, label.space, tag)).or_default().push_back(round);
        Ok(())
    }

    /// A rank has received a message.
    pub(crate) fn received(&self, rank: u32, label: &Label) {
        let mut state = self.state.lock();
        let coming = state.coming.get_mut(&(label.source, rank, label.space, label.tag));
        // What a rank sends to itself is no message.
        let Some(round) = coming.and_then(VecDeque::pop_front) else { return };
        state.handled[rank as usize] += 1;
        state.rounds[rank as usize] = state.rounds[rank as usize].max(round);
    }

    fn handled(&self) -> usize {
        self.state.lock().handled.iter().sum()
    }

    fn counts(&self) -> Counts {
        let state = self.state.lock();
        Counts {
            messages: state.messages,
            bytes: state.bytes,
            rounds: state.rounds.iter().copied().max().unwrap_or_default(),
            busiest: state.handled.iter().copied().max().unwrap_or_default(),
        }
    }
}

/// Where ranks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Where {
    /// Each on a host of its own.
    Apart,
    /// On one host of so many cores.
    Together(usize),
}

/// Runs the same on every rank, in turn, until all are over: what each gives, and what was said.
pub(crate) fn simulate<T, F>(size: u32, place: Where, work: impl Fn(Arc<Comm>) -> F) -> (Vec<T>, Counts)
where
    F: Future<Output = Result<T>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let network = Arc::new(Network::default());
    let address = |rank: u32| match place {
        Where::Apart => vec![format!("tcp:10.0.{}.{}:1", rank / 256, rank % 256)],
        Where::Together(_) => vec![format!("shm:here/{rank}")],
    };
    let members: Vec<Vec<String>> = (0..size).map(address).collect();
    let hub = |rank: u32| {
        let options = EndpointOptions {
            secret: Secret([1; 32]),
            lineage: Lineage([2; 16]),
            tcp: None,
            name: String::new(),
        };
        let mut hub = hub_of(options, address(rank), runtime.handle().clone()).unwrap();
        hub.network = Some(network.clone());
        if let Where::Together(cores) = place {
            hub.host_cores = cores;
        }
        Arc::new(hub)
    };
    let hubs: Vec<Arc<Hub>> = (0..size).map(hub).collect();
    network.hubs.set(hubs.iter().map(Arc::downgrade).collect()).unwrap();
    let ranks = size as usize;
    *network.state.lock() = State { rounds: vec![0; ranks], handled: vec![0; ranks], ..State::default() };
    let comms: Vec<Arc<Comm>> = (0..size)
        .zip(hubs)
        .map(|(rank, hub)| Arc::new(Comm::open(hub, 1, rank, members.clone(), None).unwrap()))
        .collect();
    let mut running: Vec<Pin<Box<F>>> = comms.iter().map(|comm| Box::pin(work(comm.clone()))).collect();
    let mut given: Vec<Option<T>> = comms.iter().map(|_| None).collect();
    let mut context = Context::from_waker(Waker::noop());
    while given.iter().any(Option::is_none) {
        let before = (network.handled(), given.iter().flatten().count());
        for (one, given) in running.iter_mut().zip(&mut given).filter(|(_, given)| given.is_none()) {
            if let Poll::Ready(ended) = one.as_mut().poll(&mut context) {
                *given = Some(ended.unwrap());
            }
        }
        assert_ne!((network.handled(), given.iter().flatten().count()), before, "nothing gets on any more");
    }
    (given.into_iter().flatten().collect(), network.counts())
}
