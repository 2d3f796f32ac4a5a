//! Valid messages with blocks in them: chance alone seldom makes those.

#![allow(dead_code, reason = "each test uses a part")]

use forebay_core::block::{BlockRecord, Extent, Location, Stats};
use forebay_core::contract::{Field, Need, Needs};
use forebay_core::dtype::Dtype;
use forebay_core::ids::{BlockKey, ServerId, StepId};
use forebay_core::steps::{AttachmentId, EndedField, FieldReport, HeldStep, StepEnded, StepReport};
use forebay_wire::message::{Bytes, Drive, DriveOrder, Part, PutBlock, SpacePut, ToClient, ToServer};
use forebay_wire::peer::PeerMessage;
use std::sync::Arc;

pub(crate) fn field() -> Field {
    let mut field = Field::new("U", Dtype::F64, Some(&[20, 30]), 2);
    field.dims = vec!["y".into(), "x".into()];
    field.spacing = vec![0.5, 0.25];
    field.units = "m/s".into();
    field
}

pub(crate) fn extent(row: u64) -> Extent {
    Extent::new(Some(&[row, 0]), &[2, 7], &[1, 0], &[0, 2]).unwrap()
}

/// Three blocks, one of them inside the message.
pub(crate) fn blocks() -> Vec<BlockRecord> {
    let bytes = extent(0).bytes(Dtype::F64).unwrap();
    let block = |number: u64, inline: bool| BlockRecord {
        key: BlockKey { rank: 1, number },
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
        stats: (number == 2)
            .then(|| Box::new(Stats { min: -1.0, max: 2.0, sum: 3.0, count: 4, non_finite: 0 })),
    };
    vec![block(0, true), block(1, false), block(2, false)]
}

pub(crate) fn field_report() -> FieldReport {
    FieldReport::new(field(), blocks())
}

pub(crate) fn step_report() -> StepReport {
    let id = StepId { stream: "s".into(), run: 1, step: 12 };
    StepReport {
        id,
        time: 0.5,
        missed: 2,
        rewound: false,
        torn: true,
        dropped: false,
        fields: vec![field_report()],
        attrs: None,
        term: 3,
    }
}

pub(crate) fn put(bytes: Bytes) -> PutBlock {
    PutBlock { field: "U".into(), number: 3, level: 0, extent: extent(4), stats: None, bytes }
}

pub(crate) fn space_put(bytes: Bytes) -> SpacePut {
    SpacePut { field: field(), step: 3, by: 7, replicas: 1, block: put(bytes) }
}

pub(crate) fn part() -> Part {
    Part { offset: [1, 0][..].into(), shape: [1, 3][..].into(), step: [1, 2][..].into() }
}

pub(crate) fn to_server() -> Vec<ToServer> {
    let needs = Needs::Fields(vec![Need { field: "U".into(), dtype: Some(Dtype::F64), every: 3 }]);
    let inline = Bytes::Inline(vec![1; 216].into());
    vec![
        ToServer::Define(field()),
        ToServer::Put(put(inline.clone())),
        ToServer::Put(put(Bytes::Granted { arena: 1, offset: 4096, generation: 5 })),
        ToServer::SpacePut(Box::new(space_put(inline))),
        ToServer::Attach {
            stream: "s".into(),
            needs,
            window: 3,
            start: Default::default(),
            follow: true,
            held: vec![HeldStep { run: 1, step: 11, pinned: true }],
            back: Some(AttachmentId(7)),
        },
        ToServer::Drive(Box::new(Drive {
            pipeline: "p".into(),
            stream: "s".into(),
            run: 1,
            rank: 2,
            server: Some(ServerId(1)),
            active: vec![11, 12],
            latest: 12,
            order: DriveOrder::Execute { step: 11, attempt: 2 },
        })),
        ToServer::Fetch {
            arena: 1,
            offset: 4096,
            bytes: 216,
            generation: 5,
            stored: [3, 9][..].into(),
            element: 8,
            part: part(),
        },
    ]
}

pub(crate) fn to_client() -> Vec<ToClient> {
    vec![
        ToClient::Step { attachment: AttachmentId(4), report: Box::new(step_report()) },
        ToClient::Found { held: true, description: 1, term: 2, report: Box::new(field_report()) },
    ]
}

pub(crate) fn peer() -> Vec<PeerMessage> {
    let fields = vec![EndedField::new(field(), blocks())];
    let ended = StepEnded { step: 12, time: 1.0, fields, dropped: false, torn: false, servers: Vec::new() };
    vec![
        PeerMessage::StepEnded { stream: "s".into(), run: 1, rank: 1, ended: Arc::new(ended), copied: true },
        PeerMessage::SpaceRegister { token: 9, step: 3, description: 0, report: field_report() },
        PeerMessage::SpaceFree { token: 9, locations: blocks().iter().map(|block| block.location).collect() },
    ]
}
