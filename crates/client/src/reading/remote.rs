//! Parts of blocks that lie on other hosts: many small ones in one request, and several requests on their way at once, to all
//! servers that hold some of them.

use crate::connection::call::Call;
use crate::connection::rpc::{Rpc, lock};
use crate::reading::server_pool::ServerPool;
use forebay_core::block::Location;
use forebay_core::ids::ServerId;
use forebay_core::region::{Dims, Region};
use forebay_core::{Error, ErrorKind, Result};
use forebay_store::strided::Target;
use forebay_wire::client::reading::{FETCHED_AT_ONCE_MAX, Fetch, Part, Request};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Parts of up to so many bytes go into one request with others.
const SMALL: u64 = 256 << 10;
/// How many bytes of small parts one request asks for.
const BATCH: u64 = 1 << 20;
/// How many requests are on their way at once.
const AHEAD: usize = 16;

/// A part of a block, and where its elements go.
pub(crate) struct RemotePart {
    pub(crate) location: Location,
    /// The extents of the block as it is stored.
    pub(crate) stored: Dims,
    pub(crate) element: usize,
    pub(crate) part: Part,
    /// In the array that is filled.
    pub(crate) region: Region,
}

/// Parts that one request asks for, by their places in the list.
struct Batch {
    server: ServerId,
    parts: Vec<usize>,
    bytes: u64,
}

impl RemotePart {
    fn bytes(&self) -> u64 {
        self.part.shape.iter().product::<u64>() * self.element as u64
    }

    fn request(&self, arena: u32) -> Fetch {
        let Location { offset, bytes, generation, .. } = self.location;
        let (stored, element) = (self.stored.clone(), self.element as u8);
        Fetch { arena, offset, bytes, generation, stored, element, part: self.part.clone() }
    }

    /// Takes its elements, dense and row-major.
    fn fill(&self, target: &mut Target<'_>, dense: &[u8]) -> Result<()> {
        let shape = &self.part.shape;
        let zero: Dims = shape.iter().map(|_| 0).collect();
        let one: Dims = shape.iter().map(|_| 1).collect();
        target.part(&self.region)?.fill_from_slice(dense, shape, &zero, &one)
    }

    /// Is fetched alone, from whichever server holds the block now.
    fn fetch(&self, pool: &ServerPool, target: &mut Target<'_>) -> Result<()> {
        let RemotePart { location, stored, element, part, region } = self;
        if let Some(dense) = target.part(region)?.as_dense() {
            return pool.fetch(location, stored, *element, part.clone(), dense);
        }
        let mut dense = pool.buffers.take(self.bytes() as usize);
        pool.fetch(location, stored, *element, part.clone(), dense.as_mut())?;
        self.fill(target, &dense)
    }
}

/// Fetches parts of blocks to where they belong. `about` says which part an error is about, by its place.
pub(crate) fn fetch_all(
    pool: &ServerPool,
    parts: &[RemotePart],
    target: &mut Target<'_>,
    about: impl Fn(usize, Error) -> Error,
) -> Result<()> {
    if let [only] = parts {
        return only.fetch(pool, target).map_err(|error| about(0, error));
    }
    let places: Vec<(ServerId, u32)> = parts.iter().map(|part| pool.place_of(&part.location)).collect();
    let batches = batches(parts, &places);
    let mut connections: BTreeMap<ServerId, Option<Arc<Rpc>>> = BTreeMap::new();
    for batch in &batches {
        connections.entry(batch.server).or_insert_with(|| pool.connection(batch.server).ok());
    }
    let mut asked: VecDeque<(Batch, Call<'_, Request>)> = VecDeque::new();
    let mut failed: Vec<usize> = Vec::new();
    for batch in batches {
        if asked.len() >= AHEAD
            && let Some((batch, call)) = asked.pop_front()
        {
            failed.extend(take((pool, parts), target, batch, call, &about)?);
        }
        let rpc = connections.get(&batch.server).and_then(Option::as_ref);
        match rpc.and_then(|rpc| ask(rpc, parts, &places, &batch).ok()) {
            Some(call) => asked.push_back((batch, call)),
            None => failed.extend(batch.parts),
        }
    }
    for (batch, call) in asked {
        failed.extend(take((pool, parts), target, batch, call, &about)?);
    }
    // Each is asked for alone: of whoever holds its block now, and so that an error is about the block that it concerns. Only now:
    // servers answer in order, and other answers that are on their way stand before this one.
    for index in failed {
        if let Some(part) = parts.get(index) {
            part.fetch(pool, target).map_err(|error| about(index, error))?;
        }
    }
    Ok(())
}

/// Which parts are asked for together.
fn batches(parts: &[RemotePart], places: &[(ServerId, u32)]) -> Vec<Batch> {
    let mut done = Vec::new();
    let mut open: BTreeMap<ServerId, Batch> = BTreeMap::new();
    for (index, (part, (server, _))) in parts.iter().zip(places).enumerate() {
        let (server, bytes) = (*server, part.bytes());
        if bytes > SMALL {
            done.push(Batch { server, parts: vec![index], bytes });
            continue;
        }
        let batch = open.entry(server).or_insert_with(|| Batch { server, parts: Vec::new(), bytes: 0 });
        batch.parts.push(index);
        batch.bytes += bytes;
        if batch.bytes >= BATCH || batch.parts.len() >= FETCHED_AT_ONCE_MAX {
            done.extend(open.remove(&server));
        }
    }
    done.extend(open.into_values());
    done
}

fn ask<'a>(
    rpc: &'a Rpc,
    parts: &[RemotePart],
    places: &[(ServerId, u32)],
    batch: &Batch,
) -> Result<Call<'a, Request>> {
    let one = |index: &usize| Some(parts.get(*index)?.request(places.get(*index)?.1));
    let mut fetches: Vec<Fetch> = batch.parts.iter().filter_map(one).collect();
    let request = match (fetches.len(), fetches.pop()) {
        (1, Some(only)) => Request::Fetch(only),
        (_, last) => Request::FetchMany(fetches.into_iter().chain(last).collect()),
    };
    rpc.ask_for_data(&request)
}

/// Takes what a request has asked for. Returns the parts that did not come.
fn take(
    (pool, parts): (&ServerPool, &[RemotePart]),
    target: &mut Target<'_>,
    batch: Batch,
    call: Call<'_, Request>,
    about: impl Fn(usize, Error) -> Error,
) -> Result<Vec<usize>> {
    let first = batch.parts.first().copied().unwrap_or_default();
    match receive((pool, parts), target, &batch, call) {
        Ok(()) => Ok(Vec::new()),
        Err(error) if error.kind == ErrorKind::Timeout => Err(about(first, error)),
        Err(_) => Ok(batch.parts),
    }
}

fn receive(
    (pool, parts): (&ServerPool, &[RemotePart]),
    target: &mut Target<'_>,
    batch: &Batch,
    call: Call<'_, Request>,
) -> Result<()> {
    const WHAT: &str = "to send blocks";
    if let [only] = batch.parts[..]
        && let Some(part) = parts.get(only)
        && let Some(dense) = target.part(&part.region)?.as_dense()
    {
        return call.receive(dense, WHAT);
    }
    let mut buffer = pool.buffers.take(batch.bytes as usize);
    call.receive(buffer.as_mut(), WHAT)?;
    let mut rest = &buffer[..];
    for index in &batch.parts {
        let Some(part) = parts.get(*index) else { continue };
        let (mine, others) = rest.split_at(part.bytes() as usize);
        part.fill(target, mine)?;
        rest = others;
    }
    Ok(())
}

impl ServerPool {
    /// The server that holds a block as far as is known here, and its arena's number there.
    fn place_of(&self, location: &Location) -> (ServerId, u32) {
        let key = (location.server, location.arena, location.offset, location.generation);
        lock(&self.moved).get(&key).copied().unwrap_or((location.server, location.arena))
    }
}
