//! Bytes that no honest peer sends, to every decoder: an error or a value that keeps the promises of its
//! type, never a panic, and never much more memory than the bytes themselves take.

#![allow(unsafe_code, reason = "an allocator that counts")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use forebay_core::Result;
use forebay_core::block::Extent;
use forebay_core::contract::Field;
use forebay_core::directory::{FieldIndex, check_blocks};
use forebay_core::region::{MAX_NDIM, Region};
use forebay_core::roster::Roster;
use forebay_core::steps::FieldReport;
use forebay_wire::client::reading::Part;
use forebay_wire::for_each_message;
use forebay_wire::frame::{Frame, Header};
use forebay_wire::peer::PeerMessage;
use forebay_wire::protocol::{Message, Protocol};
use forebay_wire::testing::{Inventor, Plain, seeds, spoil};
use proptest::prelude::*;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

// ---- memory -----------------------------------------------------------------------------------------

/// Counts what each thread has allocated, at most at one time.
struct Counting;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // Not while a thread ends: then nobody asks any more.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

// SAFETY: the system's allocator does all the work.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most that was allocated at one time, beyond what was before.
fn peak_of<T>(work: impl FnOnce() -> T) -> (usize, T) {
    let before = NOW.get();
    PEAK.set(before);
    let result = work();
    ((PEAK.get() - before) as usize, result)
}

/// A list is at most this much larger than its encoding: an element that takes one byte there takes a
/// structure here.
const GROWTH: usize = 160;
/// What decoding may take besides: what a list reserves before its elements come.
const BASE: usize = 3 << 20;

// ---- what holds for every value ---------------------------------------------------------------------

/// Anything in the place of a message.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct Any<T>(T);

impl<T: Serialize + DeserializeOwned> Message for Any<T> {
    const PROTOCOL: Protocol = Protocol::Connection;
}

fn decode<M: Serialize + DeserializeOwned>(body: Vec<u8>) -> Result<M> {
    let frame = Frame { header: Header::default(), protocol: Protocol::Connection as u8, body };
    frame.message::<Any<M>>().map(|Any(message)| message)
}

fn encoded<M: Serialize>(message: &M) -> Vec<u8> {
    postcard::to_allocvec(message).unwrap()
}

/// Decodes and, if that succeeds, encodes the value and decodes it again: what was taken in can be passed on.
fn takes<M: DeserializeOwned + Serialize>(body: &[u8]) -> Option<M> {
    let given = body.to_vec();
    let (peak, decoded) = peak_of(|| decode::<M>(given));
    assert!(peak <= BASE + GROWTH * body.len(), "{peak} bytes for a message of {}", body.len());
    let value = decoded.ok()?;
    let again = encoded(&value);
    let twice: M = decode(again.clone()).expect("what was decoded can be passed on");
    assert_eq!(encoded(&twice), again);
    Some(value)
}

fn all_decoders(body: &[u8]) {
    macro_rules! take_all {
        ($($message:ty),*) => { $(takes::<$message>(body);)* };
    }
    for_each_message!(take_all);
    takes::<Roster>(body);
    takes::<Part>(body);
    if let Some(region) = takes::<Region>(body) {
        check_region(&region);
    }
    if let Some(extent) = takes::<Extent>(body) {
        check_extent(&extent);
    }
    if let Some(field) = takes::<Field>(body) {
        field.check().unwrap();
    }
    if let Some(report) = takes::<FieldReport>(body) {
        check_report(report);
    }
}

fn check_region(region: &Region) {
    assert!(region.ndim() <= MAX_NDIM);
    let ends: Vec<u64> = (0..region.ndim()).map(|d| region.end(d)).collect();
    assert_eq!(region.is_empty(), region.volume() == 0);
    assert!(region.contains(region) && ends.len() == region.ndim());
    if !region.is_empty() {
        assert_eq!(region.intersect(region).as_ref(), Some(region));
        assert!(region.subtract(region).is_empty());
    }
}

fn check_extent(extent: &Extent) {
    check_region(&Region::whole(&extent.stored_shape()).unwrap());
    check_region(&extent.interior());
    let _ = extent.bytes(forebay_core::dtype::Dtype::F64);
}

fn check_report(report: FieldReport) {
    check_blocks(&report.field, &report.blocks).unwrap();
    let mut index = FieldIndex::new(report.field.clone());
    for block in report.blocks {
        check_extent(&block.extent);
        let own = block.extent.interior();
        if index.insert(block).is_ok() {
            let _ = index.find(&own).count();
            let _ = index.check_covered("a step", &own);
        }
    }
}

// ---- the bytes --------------------------------------------------------------------------------------

/// Valid messages, of all protocols in turn.
fn messages() -> Vec<Plain> {
    let seeds::Requests { producer, consumer, reading, space } = seeds::requests();
    let mut all: Vec<Plain> = producer.iter().map(Plain::of).collect();
    all.extend(consumer.iter().map(Plain::of));
    all.extend(reading.iter().map(Plain::of));
    all.extend(space.iter().map(Plain::of));
    all.extend([Plain::of(&seeds::event()), Plain::of(&seeds::found())]);
    all.extend(seeds::peer().iter().map(Plain::from));
    all
}

fn seeds() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = messages().into_iter().map(|plain| plain.bytes).collect();
    all.extend([encoded(&seeds::field()), encoded(&seeds::extent(3)), encoded(&seeds::field_report())]);
    all
}

#[test]
fn valid_messages_pass() {
    macro_rules! pass {
        ($messages:expr) => {
            for message in $messages {
                let plain = Plain::of(&message);
                assert_eq!(takes(&plain.bytes).as_ref(), Some(&message));
                assert_eq!(plain.frame().message().as_ref(), Ok(&message));
            }
        };
    }
    let seeds::Requests { producer, consumer, reading, space } = seeds::requests();
    pass!(producer);
    pass!(consumer);
    pass!(reading);
    pass!(space);
    pass!([seeds::event()]);
    pass!([seeds::found()]);
    for message in seeds::peer() {
        assert_eq!(PeerMessage::read(&Plain::from(&message).frame()), Ok(message));
    }
    check_report(seeds::field_report());
}

/// What is said in one protocol is not taken for anything of another one, whatever its bytes would mean there.
#[test]
fn a_message_of_another_protocol_does_not_parse() {
    for plain in messages() {
        let mut frame = plain.frame();
        for protocol in Protocol::ALL.iter().map(|protocol| *protocol as u8).chain([0, 15, 255]) {
            frame.protocol = protocol;
            let mut spoken = Vec::new();
            macro_rules! note_spoken {
                ($($message:ty),*) => { $(
                    if frame.message::<$message>().is_ok() {
                        spoken.push(<$message as Message>::PROTOCOL as u8);
                    }
                )* };
            }
            for_each_message!(note_spoken);
            assert!(spoken.iter().all(|number| *number == protocol), "{protocol}: {spoken:?}");
            if protocol == plain.protocol {
                assert!(!spoken.is_empty(), "{plain:?}");
            }
        }
    }
}

/// What reads the blocks of a report relies on their boxes and lengths.
#[test]
fn reports_that_contradict_themselves_are_refused() {
    let spoilt = |change: fn(&mut FieldReport)| {
        let mut report = seeds::field_report();
        change(&mut report);
        takes::<FieldReport>(&encoded(&report)).is_none()
    };
    assert!(!spoilt(|_| {}));
    assert!(spoilt(|report| report.field.ndim = 3), "a shape of other dimensions");
    assert!(spoilt(|report| report.field.ndim = 200), "dimensions beyond counting");
    assert!(spoilt(|report| report.field.name = "a\nb".into()), "a bad name");
    assert!(spoilt(|report| report.field.shape = Some([3, 3][..].into())), "blocks outside");
    assert!(spoilt(|report| report.blocks[1].location.bytes += 8), "a block longer than its box");
    assert!(spoilt(|report| report.blocks[1].location.offset = u64::MAX), "beyond any arena");
    assert!(spoilt(|report| report.blocks[0].inline = Some([1; 8].into())), "fewer bytes than its box");
    assert!(
        spoilt(|report| report.blocks[1].extent = Extent::new(None, &[27], &[], &[]).unwrap()),
        "no place"
    );
}

#[test]
fn a_record_is_never_longer_than_it_is_counted_for() {
    let most = u64::MAX >> 4;
    for ndim in 1..=MAX_NDIM {
        let (mut shape, wide) = (vec![1; ndim], vec![0; ndim]);
        shape[0] = 1 << 56;
        let mut ghosts = wide.clone();
        ghosts[0] = most;
        let offset = vec![most; ndim];
        let extent = Extent::new(Some(&offset), &shape, &ghosts, &wide).unwrap();
        let mut put = seeds::put(forebay_wire::client::block::BytesLocation::Inline([7; 1024].into()));
        put.extent = extent.clone();
        let mut record = seeds::blocks().remove(2);
        record.key = forebay_core::ids::BlockKey::whole(u32::MAX, u64::MAX);
        record.level = u32::MAX;
        record.extent = extent;
        record.location = forebay_core::block::Location {
            server: forebay_core::ids::ServerId(u32::MAX),
            arena: u32::MAX,
            offset: u64::MAX,
            bytes: u64::MAX,
            generation: u64::MAX,
        };
        record.inline = Some([7; 1024].into());
        assert!(encoded(&record).len() <= put.record_bytes_max(), "{ndim} dimensions");
    }
}

/// A list may claim any length, and hold elements that are nearly nothing.
#[test]
fn long_lists_take_memory_in_proportion() {
    for seed in seeds() {
        for at in 0..seed.len() {
            let mut bytes = seed[..at].to_vec();
            bytes.extend([0x80, 0x80, 0x40]);
            bytes.resize(at + (1 << 20), 0);
            all_decoders(&bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(body in prop::collection::vec(any::<u8>(), 0..300)) {
        all_decoders(&body);
    }

    #[test]
    fn spoilt_messages(seed in any::<u64>()) {
        let (mut inventor, seeds) = (Inventor::new(seed), seeds());
        let whole = seeds[inventor.below(seeds.len() as u64) as usize].clone();
        let changes = 1 + inventor.below(4);
        all_decoders(&spoil(whole, &mut inventor, changes));
    }

    #[test]
    fn spoilt_inventions(seed in any::<u64>()) {
        let mut inventor = Inventor::new(seed);
        let mut makers: Vec<fn(&mut Inventor) -> Vec<u8>> = Vec::new();
        macro_rules! invent {
            ($($message:ty),*) => { $(makers.push(|inventor| encoded(&inventor.value::<$message>()));)* };
        }
        for_each_message!(invent);
        let whole = makers[inventor.below(makers.len() as u64) as usize](&mut inventor);
        let changes = inventor.below(3);
        all_decoders(&spoil(whole, &mut inventor, changes));
    }
}
