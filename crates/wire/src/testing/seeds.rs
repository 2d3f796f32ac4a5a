//! Valid messages with blocks in them: chance alone seldom makes those.

use crate::client::block::{BytesLocation, PutBlock};
use crate::client::consumer::{self, Attach};
use crate::client::producer;
use crate::client::reading::{self, Fetch, Part};
use crate::client::space::{self, SpacePut};
use crate::drive::{Drive, DriveOrder};
use crate::peer::{self, PeerMessage};
use forebay_core::Result;
use forebay_core::attr::Attrs;
use forebay_core::block::{BlockRecord, Extent, Location};
use forebay_core::contract::{Field, Index, Need, Needs, Period, Slice, Slices, Statistics, Terms};
use forebay_core::dtype::Dtype;
use forebay_core::identity::Identity;
use forebay_core::ids::{BlockKey, ServerId, StepId};
use forebay_core::stats::{BlockStats, Extremes, Moments, Sum, Value};
use forebay_core::steps::{
    AttachmentId, CohortRank, FieldContribution, FieldReport, HeldStep, Sharer, Sharing, StepContribution,
    StepReport, ToldStep,
};
use std::sync::Arc;

/// A field of two dimensions, with all that can be said of one.
pub fn field() -> Field {
    let mut field = Field::new("U", Dtype::F64, Some(&[20, 30]), 2);
    field.dims = vec!["y".into(), "x".into()];
    field.spacing = vec![0.5, 0.25];
    field.units = "m/s".into();
    field
}

/// A part of it, with ghosts.
pub fn extent(row: u64) -> Extent {
    Extent::new(Some(&[row, 0]), &[2, 7], &[1, 0], &[0, 2]).unwrap()
}

/// Three blocks, one of them inside the message.
pub fn blocks() -> Vec<BlockRecord> {
    let bytes = extent(0).bytes(Dtype::F64).unwrap();
    let block = |number: u64, inline: bool| BlockRecord {
        key: BlockKey::whole(1, number),
        level: 0,
        extent: extent(2 * number),
        location: Location {
            server: ServerId(0),
            arena: 1,
            offset: 4096 * number,
            bytes,
            generation: 7 + number,
        },
        inline: inline.then(|| vec![9; bytes as usize].into()),
        stats: (number == 2).then(|| Arc::new(seed_block_stats())),
    };
    vec![block(0, true), block(1, false), block(2, false)]
}

/// The field with its blocks.
pub fn field_report() -> FieldReport {
    FieldReport::new(field(), blocks())
}

/// A step with one field.
pub fn step_report() -> StepReport {
    let id = StepId { stream: "s".into(), run: 1, step: 12 };
    StepReport {
        id,
        time: 0.5,
        missed: 2,
        rewound: false,
        torn: true,
        dropped: false,
        fields: vec![field_report()],
        statics: Some(vec![field_report()]),
        own_attrs: None,
        attrs: None,
        term: 3,
        ranks: 5,
        absent: vec![1],
        attempt: 1,
    }
}

/// A block of the field that is put.
pub fn put(bytes: BytesLocation) -> PutBlock {
    PutBlock {
        field: "U".into(),
        number: 3,
        part: 2,
        level: 0,
        extent: extent(4),
        stats: None,
        of_field: false,
        bytes,
    }
}

/// The same, to the space.
pub fn space_put(bytes: BytesLocation) -> SpacePut {
    SpacePut { field: field(), step: 3, by: 7, replicas: 1, block: put(bytes) }
}

/// A part of a block.
pub fn part() -> Part {
    Part { offset: [1, 0][..].into(), shape: [1, 3][..].into(), step: [1, 2][..].into() }
}

/// What clients ask, in each protocol that carries something with an inner shape.
#[derive(Debug)]
pub struct Requests {
    /// Of the protocol `producer`.
    pub producer: Vec<producer::Request>,
    /// Of the protocol `consumer`.
    pub consumer: Vec<consumer::Request>,
    /// Of the protocol `reading`.
    pub reading: Vec<reading::Request>,
    /// Of the protocol `space`.
    pub space: Vec<space::Request>,
}

fn seed_block_stats() -> BlockStats {
    let (min, max) = (Value::Float(-1.0), Value::Float(2.0));
    let extremes = Some(Extremes { min, max, min_at: 2, max_at: 0 });
    let moments = Some(Moments { sum: Sum::Float(3.0, 0.0), m2: 0.5 });
    BlockStats { extremes, count: 13, nan: 1, moments, tiles: Box::default() }
}

/// A part of a field every so many steps.
fn seed_terms() -> Terms {
    let slice = Slice { start: Some(Index::FromStart(3)), stop: Some(Index::FromEnd(1)), step: 2 };
    Terms {
        period: Period { every: 3, first: Some(1005) },
        part: Slices::new(vec![slice], vec![Slice::ALL]).ok(),
        statistics: Statistics::Along,
    }
}

/// Requests of each of these protocols.
pub fn requests() -> Requests {
    let needs = Needs::Fields(vec![Need { dtype: Some(Dtype::F64), terms: seed_terms(), ..Need::new("U") }]);
    let inline = BytesLocation::Inline(vec![1; 216].into());
    let told = ToldStep { run: 1, step: 9, missed: 2, rewound: false };
    let attach = Attach {
        stream: "s".into(),
        needs: needs.into(),
        window: 3,
        start: Default::default(),
        follow: true,
        take: Default::default(),
        reader: Identity { name: Some("viewer".into()), host: "node1".into(), pid: 7 },
        held: vec![HeldStep { run: 1, step: 11, pinned: true }],
        given_back: Some((1, 10)),
        back: Some(AttachmentId(7)),
        patience_ms: 7,
        listen: None,
        cohort: Some(CohortRank { rank: 1, size: 3, host: "h".into(), goes_on: true, told: vec![told] }),
        sharer: None,
        is_followed: true,
    };
    let sharer = Sharer { sharing: Sharing::RoundRobin, number: Some(2), told: vec![told] };
    let sharing = Attach { cohort: None, sharer: Some(sharer), ..attach.clone() };
    let drive = Drive {
        pipeline: "p".into(),
        stream: "s".into(),
        run: 1,
        rank: 2,
        server: Some(ServerId(1)),
        active: vec![11, 12],
        latest: 12,
        order: DriveOrder::Execute { step: 11, attempt: 2 },
    };
    let fetch = Fetch {
        arena: 1,
        offset: 4096,
        bytes: 216,
        generation: 5,
        stored: [3, 9][..].into(),
        element: 8,
        part: part(),
    };
    Requests {
        producer: vec![
            producer::Request::Define(field()),
            producer::Request::Put(put(inline.clone())),
            producer::Request::Put(put(BytesLocation::Granted { arena: 1, offset: 4096, generation: 5 })),
            producer::Request::Drive(Box::new(drive)),
        ],
        consumer: [attach, sharing].map(|attach| consumer::Request::Attach(Box::new(attach))).into(),
        reading: vec![
            reading::Request::FetchMany(vec![fetch.clone(), fetch.clone()]),
            reading::Request::Fetch(fetch),
        ],
        space: vec![
            space::Request::Put(Box::new(space_put(inline))),
            space::Request::Evaluate { step: 3, text: "max(U)".into(), fields: vec![field_report()] },
        ],
    }
}

/// What a reader is told.
pub fn event() -> consumer::Event {
    consumer::Event::Step { attachment: AttachmentId(4), report: Box::new(step_report()) }
}

/// What was found in the space.
pub fn found() -> Result<space::Reply> {
    Ok(space::Reply::Found { held: true, description: 1, term: 2, report: Box::new(field_report()) })
}

/// What servers tell each other.
pub fn peer() -> Vec<PeerMessage> {
    let fields = vec![FieldContribution::new(field(), blocks())];
    let ended = StepContribution {
        step: 12,
        time: 1.0,
        fields,
        dropped: false,
        torn: false,
        attrs: Attrs::default(),
        servers: Vec::new(),
    };
    let (stream, ended) = ("s".into(), Arc::new(ended));
    let locations = blocks().iter().map(|block| block.location).collect();
    vec![
        peer::streams::Message::StepEnded { stream, run: 1, rank: 1, ended, copied: true }.into(),
        peer::space::Message::Register { token: 9, step: 3, description: 0, report: field_report() }.into(),
        peer::space::Message::Free { token: 9, locations }.into(),
    ]
}
