//! What several servers' spaces do together.

mod below;
mod blocks;
mod servers;

use super::FieldAtStep;
use super::holder::registration::OwnerRequest;
use super::owner::removal::RemovalStart;
use super::owner::search::{Search, SearchOutcome};
use crate::questions::Answer;
use blocks::Block;
use forebay_core::ErrorKind;
use forebay_core::ids::ServerId;
use forebay_core::steps::FieldReport;
use forebay_wire::peer::space::Message;
use servers::Servers;

const FIRST: ServerId = ServerId(0);
const SECOND: ServerId = ServerId(1);
const THIRD: ServerId = ServerId(2);

/// A server that describes a field begins to remove it.
fn begin_removal(servers: &mut Servers, at: ServerId, key: &FieldAtStep) -> RemovalStart {
    let start = servers.at(at, |space, cx, group| space.owner.begin_removal(cx, group, key));
    servers.deliver();
    start
}

#[test]
fn a_block_that_is_removed_while_a_reader_looks_is_freed_when_it_has_finished() {
    let mut servers = Servers::new(3);
    let key = servers.described_by(SECOND);
    // Small enough to have one owner.
    let block = Block::new(4, 0, 4);
    let description = servers.put(FIRST, &key, &block).unwrap();
    let found = servers.find(SECOND, &key, &block);
    assert_eq!(found.description, description);
    assert_eq!(found.report.blocks, [block.record(FIRST)]);
    assert!(matches!(begin_removal(&mut servers, SECOND, &key), RemovalStart::Done));
    assert!(matches!(servers.search(SECOND, &mut block.search(&key)).unwrap(), SearchOutcome::Missing(_)));
    assert!(servers.freed(FIRST).is_empty(), "a reader looks at it");
    servers.at(SECOND, |space, cx, group| space.owner.on_release(cx, group, found.lease));
    assert!(
        !servers.at(SECOND, |space, _, _| space.owner.has_freed_all()),
        "the holder was told, and has not answered"
    );
    servers.deliver();
    assert_eq!(servers.freed(FIRST), [block.range()]);
    assert!(servers.at(SECOND, |space, _, _| space.owner.has_freed_all()));
    assert!(servers.at(FIRST, |space, _, _| !space.holds_blocks()));
    assert!(servers.put(FIRST, &key, &block).unwrap() > description, "it is described anew");
}

#[tokio::test]
async fn a_search_waits_until_blocks_cover_the_owners_tiles() {
    let mut servers = Servers::new(3);
    let key = servers.described_by(THIRD);
    let [low, high] = [Block::new(500, 0, 201), Block::new(500, 201, 299)];
    let mut search = Block::new(500, 0, 500).search(&key);
    let SearchOutcome::Missing(change) = servers.search(THIRD, &mut search).unwrap() else { panic!() };
    servers.put(FIRST, &key, &low).unwrap();
    change.await;
    let SearchOutcome::Missing(change) = servers.search(THIRD, &mut search).unwrap() else { panic!() };
    let late = servers.at(THIRD, |space, cx, group| space.owner.on_patience_over(cx, group, &mut search));
    assert_eq!(late.unwrap_err().kind, ErrorKind::NotCovered);
    servers.put(SECOND, &key, &high).unwrap();
    change.await;
    for owner in [FIRST, SECOND, THIRD] {
        assert!(!servers.find(owner, &key, &Block::new(500, 0, 500)).report.blocks.is_empty());
    }
    let mut unshaped = Search::new(key.clone(), None, None);
    assert!(
        matches!(servers.search(FIRST, &mut unshaped).unwrap(), SearchOutcome::NotOwned),
        "it does not describe it"
    );
}

#[test]
fn a_removal_waits_for_what_is_being_registered() {
    let mut servers = Servers::new(3);
    let key = servers.described_by(THIRD);
    let [low, high] = [Block::new(500, 0, 201), Block::new(500, 201, 299)];
    let description = servers.put(FIRST, &key, &low).unwrap();
    let begun = servers.at(FIRST, |space, _, _| space.holder.begin_registration(&key, &high.field()));
    assert_eq!(begun.unwrap(), Some(description));
    let RemovalStart::Begun(removal, mut revoked) = begin_removal(&mut servers, THIRD, &key) else {
        panic!()
    };
    assert!(
        revoked.iter_mut().any(|pending| pending.answer.try_recv().is_err()),
        "a block is being registered"
    );
    assert!(matches!(begin_removal(&mut servers, THIRD, &key), RemovalStart::Busy(_)));
    servers.at(FIRST, |space, cx, _| space.holder.end_registration(cx, description, false));
    servers.deliver();
    let mut forgotten = servers.at(THIRD, |space, cx, _| space.owner.on_revoked(cx, &removal));
    servers.deliver();
    assert!(forgotten.iter_mut().all(|pending| pending.answer.try_recv().is_ok()));
    servers.at(THIRD, |space, cx, _| space.owner.end_removal(cx, &removal));
    assert_eq!(servers.freed(FIRST), [low.range()]);
    assert!(servers.put(FIRST, &key, &high).unwrap() > description);
}

#[test]
fn a_holder_that_is_told_twice_to_free_answers_twice() {
    let mut servers = Servers::new(3);
    let key = servers.described_by(SECOND);
    let block = Block::new(4, 0, 4);
    servers.put(FIRST, &key, &block).unwrap();
    let locations = vec![block.record(FIRST).location];
    for token in [101, 102] {
        let free = Message::Free { token, locations: locations.clone() };
        servers.at(FIRST, |space, cx, group| space.on_message(cx, group, SECOND, free));
        assert_eq!(servers.freed(FIRST), [block.range()]);
    }
    servers.deliver();
}

#[test]
fn a_block_that_is_put_again_elsewhere_is_freed_where_it_was() {
    let mut servers = Servers::new(3);
    let key = servers.described_by(SECOND);
    let block = Block::new(4, 0, 4);
    servers.put(FIRST, &key, &block).unwrap();
    servers.put(THIRD, &key, &block).unwrap();
    assert_eq!(servers.freed(FIRST), [block.range()]);
    assert_eq!(servers.find(SECOND, &key, &block).report.blocks, [block.record(THIRD)]);
}

#[test]
fn who_owns_the_tiles_of_a_dead_server_is_told_of_their_blocks() {
    let mut servers = Servers::new(3);
    let key = servers.described_by(THIRD);
    let block = Block::new(4, 0, 4);
    let description = servers.put(FIRST, &key, &block).unwrap();
    servers.kill(THIRD);
    let heir = servers.describer_of(&key);
    assert_ne!(heir, THIRD);
    // What is asked before all have told waits: the field was described before.
    let again = servers.at(SECOND, |space, cx, _| {
        let report = FieldReport::new(block.field(), Vec::new());
        let request = OwnerRequest { owner: heir, description: 0, report };
        space.holder.ask_owners(cx, &key, [request], true).remove(0)
    });
    servers.deliver();
    let mut pending = again.pending.unwrap();
    assert!(pending.answer.try_recv().is_err(), "the heir does not know yet whether it was described");
    servers.all_have_told();
    let answer = pending.answer.try_recv().unwrap();
    assert!(matches!(answer, Answer::Described(Ok(known)) if known == description));
    assert_eq!(servers.find(heir, &key, &block).report.blocks, [block.record(FIRST)]);
}
