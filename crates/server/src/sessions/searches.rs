//! What a client looks for in the space, and what it holds of that: by the numbers of its questions.

use super::client::Client;
use crate::node::Node;
use crate::space::FieldAtStep;
use crate::space::owner::search::Search;
use forebay_cluster::environment::HashMap;
use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::asynchronous::Outbox;
use forebay_wire::client::space::{Reply, Search as Request};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet};

/// How many searches of one client may wait.
const WAITING_MAX: usize = 4096;

/// The searches of one client.
#[derive(Default)]
pub(super) struct Searches {
    /// Those that wait for what is not there yet.
    waiting: JoinSet<()>,
    known: Arc<Mutex<HashMap<u64, Progress>>>,
}

/// What became of a search so far.
enum Progress {
    /// It is being asked for.
    Begun,
    /// It waits.
    Waits(AbortHandle),
    /// What was found is held, under this number.
    Holds(u64),
}

impl Searches {
    /// Finds blocks of the space, waiting until they cover a region, and holds them for this client. Answered at once if they
    /// are there, else later, while other messages are taken: another thread of the client may put what this one waits for.
    pub(super) async fn find(
        &mut self,
        client: &Client,
        request: u64,
        wanted: Request,
    ) -> Result<Option<Reply>> {
        let Searches { waiting, known } = self;
        while waiting.try_join_next().is_some() {}
        if request == 0 || known.lock().contains_key(&request) {
            return Err(Error::protocol("a search without a number of its own"));
        }
        known.lock().insert(request, Progress::Begun);
        let (node, searches) = (client.node.clone(), known.clone());
        let mut found = Box::pin(async move { find(&node, &searches, request, wanted).await });
        let at_once = poll_fn(|context| Poll::Ready(found.as_mut().poll(context))).await;
        if let Poll::Ready(answer) = at_once {
            return tell(&client.node, &client.outbox, known, request, answer).map(|()| None);
        }
        if waiting.len() >= WAITING_MAX {
            known.lock().remove(&request);
            let text = format!("{WAITING_MAX} searches of this client wait already: let some end first");
            return Err(Error::new(ErrorKind::Full, text));
        }
        let (node, outbox, searches) = (client.node.clone(), client.outbox.clone(), known.clone());
        let abort = waiting.spawn(async move {
            let answer = found.await;
            if node.goes_on().await
                && let Err(error) = tell(&node, &outbox, &searches, request, answer)
            {
                tracing::info!("a client that waits for an array is not answered: {error}");
            }
        });
        if let Some(search @ Progress::Begun) = known.lock().get_mut(&request) {
            *search = Progress::Waits(abort);
        }
        Ok(None)
    }

    /// The client has finished with what was found, or does not wait for it any more.
    pub(super) fn release(&self, node: &Node, request: u64) {
        release(node, &self.known, request);
    }

    /// The client is not there any more to be told of anything. What was found stays held.
    pub(super) fn on_client_gone(&mut self) {
        self.waiting.abort_all();
        self.known.lock().retain(|_, search| matches!(search, Progress::Holds(_)));
    }

    /// Whether the client may look at something that was found.
    pub(super) fn hold_something(&self) -> bool {
        self.known.lock().values().any(|search| matches!(search, Progress::Holds(_)))
    }

    /// The client looks at nothing any more.
    pub(super) fn release_all(&self, node: &Node) {
        let known = std::mem::take(&mut *self.known.lock());
        for search in known.into_values() {
            if let Progress::Holds(lease) = search {
                node.space_release(lease);
            }
        }
    }
}

/// Tells what was found. What makes a longer answer than a message may be is not held.
fn tell(
    node: &Node,
    outbox: &Outbox,
    searches: &Mutex<HashMap<u64, Progress>>,
    request: u64,
    answer: Result<Reply>,
) -> Result<()> {
    let header = node.header(request);
    match outbox.push(header, &answer) {
        Err(error) if error.kind == ErrorKind::Invalid => {
            release(node, searches, request);
            outbox.push(header, &Err::<Reply, _>(error))
        }
        told => told,
    }
}

/// The client has finished with what was found, or does not wait for it any more.
fn release(node: &Node, searches: &Mutex<HashMap<u64, Progress>>, request: u64) {
    let search = searches.lock().remove(&request);
    match search {
        Some(Progress::Holds(lease)) => node.space_release(lease),
        Some(Progress::Waits(abort)) => abort.abort(),
        Some(Progress::Begun) | None => {}
    }
}

/// Looks for something, and holds what is found unless the client has given up meanwhile.
async fn find(
    node: &Node,
    searches: &Mutex<HashMap<u64, Progress>>,
    request: u64,
    wanted: Request,
) -> Result<Reply> {
    let Request { field, step, region, shape, patience_ms } = wanted;
    let patience = Duration::from_millis(patience_ms);
    let found = node.space_find(Search::new(FieldAtStep { field, step }, region, shape), patience).await;
    // Nothing is waited for from here on: what is held is known to be.
    let lease = found.as_ref().ok().and_then(|found| found.as_ref()).map_or(0, |found| found.lease);
    if !note_end(&mut searches.lock(), request, lease) {
        node.space_release(lease);
    }
    let Some(found) = found? else { return Ok(Reply::NotOwned) };
    Ok(Reply::Found {
        held: lease != 0,
        description: found.description,
        term: node.epoch(),
        report: Box::new(found.report),
    })
}

/// A search has ended, with what is held if that is not 0. Returns whether the client is there to hold it.
fn note_end(searches: &mut HashMap<u64, Progress>, request: u64, lease: u64) -> bool {
    match searches.get_mut(&request) {
        Some(search) if lease != 0 => *search = Progress::Holds(lease),
        Some(_) => drop(searches.remove(&request)),
        None => return lease == 0,
    }
    true
}
