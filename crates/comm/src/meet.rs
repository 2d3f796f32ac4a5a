//! Two processes of one host agree on memory that they share: the one that has dialled makes it.

use crate::channel::Channel;
use crate::hub::{Hub, HubState, Side};
use crate::peers::{Link, PeerId};
use crate::shared::{Bell, Foreign, Segment};
use forebay_core::{Error, Result};
use forebay_wire::comm::CommMessage;
use forebay_wire::frame::Header;
use rustix::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Offers memory to the process at the other end of a connection; `None`: there is none, or no descriptors, and nothing is shared.
pub(crate) fn offer(hub: &Hub, link: &Link) -> Option<Segment> {
    let made = Segment::new().and_then(|(segment, file)| Ok((segment, file, bell_of(hub)?)));
    let Ok((segment, file, bell)) = made else {
        link.say(&CommMessage::Apart);
        return None;
    };
    let (probe, number) = hub.probe.told();
    let share = CommMessage::Share { probe, number };
    let _ = link.outbox.push_with(Header::default(), &share, vec![file, bell], None);
    Some(segment)
}

/// The other end offers memory; this one takes it, or says that it cannot.
pub(crate) fn accept(
    hub: &Arc<Hub>,
    (side, link): (&mut Side, &Arc<Link>),
    (process, probe): (Option<u32>, (u64, u128)),
    descriptors: &[OwnedFd],
) -> Result<()> {
    let taken = match descriptors {
        [file, bell] => Segment::of_peer(file.as_fd())
            .and_then(|segment| Ok((segment, Bell::of_peer(bell.as_fd())?, bell_of(hub)?))),
        // They do not arrive where a process has as many as it may have.
        _ => Err(Error::protocol("memory is offered without a descriptor")),
    };
    let mut state = hub.state.lock();
    match taken {
        Ok((segment, bell, own_bell)) => {
            let foreign = process.and_then(|process| Foreign::find(process, probe));
            let reads = foreign.is_some();
            let (probe, number) = hub.probe.told();
            let shared = CommMessage::Shared { probe, number, reads };
            let _ = link.outbox.push_with(Header::default(), &shared, vec![own_bell], None);
            begin(&mut state, (side.peer, link), segment, bell, foreign);
        }
        Err(_) => link.say(&CommMessage::Apart),
    }
    settle(hub, &mut state, side, link);
    Ok(())
}

/// The other end has taken what was offered.
pub(crate) fn accepted(
    hub: &Arc<Hub>,
    (side, link): (&mut Side, &Arc<Link>),
    segment: Segment,
    (process, probe, reads): (Option<u32>, (u64, u128), bool),
    descriptors: &[OwnedFd],
) -> Result<()> {
    let [bell] = descriptors else {
        return Err(Error::protocol("memory is shared without a descriptor"));
    };
    let bell = Bell::of_peer(bell.as_fd())?;
    let foreign = process.and_then(|process| Foreign::find(process, probe));
    link.say(&CommMessage::Reads { reads: foreign.is_some() });
    let mut state = hub.state.lock();
    begin(&mut state, (side.peer, link), segment, bell, foreign);
    can_read(link, reads);
    settle(hub, &mut state, side, link);
    Ok(())
}

/// Whether the other end can read this process's memory.
pub(crate) fn can_read(link: &Link, reads: bool) {
    if let Some(shared) = link.shared.get() {
        shared.reads.store(reads, Ordering::Relaxed);
    }
}

/// It is known how messages go on a connection: they may.
pub(crate) fn settle(hub: &Arc<Hub>, state: &mut HubState, side: &mut Side, link: &Arc<Link>) {
    side.is_settled = true;
    if let Some(peer) = side.peer.and_then(|peer| state.peers.get(peer)) {
        peer.dialling &= side.has_accepted;
        if peer.links.is_empty() {
            // They keep their order on it.
            link.waiting.lock().extend(peer.waiting.drain(..));
        }
        peer.links.push(link.clone());
    }
    state.count_neighbours();
    if side.has_accepted {
        state.peers.unnamed -= 1;
        hub.bury(state);
    }
    hub.tell(state);
    // Short messages that were put aside for want of a connection are on their way now, whatever their process does meanwhile.
    let waiting = hub.clone();
    drop(hub.runtime.spawn(async move { waiting.advance_sends() }));
}

fn begin(
    state: &mut HubState,
    (peer, link): (Option<PeerId>, &Arc<Link>),
    segment: Segment,
    bell: Bell,
    foreign: Option<Foreign>,
) {
    let Segment { outward, inward } = segment;
    link.share(outward, bell);
    state.channels.insert(link.id, Channel::new(peer, link.clone(), inward, foreign));
}

fn bell_of(hub: &Hub) -> Result<OwnedFd> {
    hub.bell_file.try_clone().map_err(|e| Error::io("cannot pass a descriptor", &e))
}
