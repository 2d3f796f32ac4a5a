//! About how long messages between servers are, for who queues them. To measure it exactly a message would have to be encoded.

use super::replication::BlockRange;
use super::{PeerMessage, cluster, directory, pipelines, replication, space, streams};
use forebay_core::block::BlockRecord;
use forebay_core::steps::FieldReport;

/// About how many bytes a message takes beside the bytes of blocks.
const MESSAGE_BYTES: usize = 256;
/// About how many bytes a block's record takes beside the block's own bytes.
const RECORD_BYTES: usize = 128;

impl PeerMessage {
    /// Whether [`PeerMessage::about_bytes`] says how long a message is, and not only that it is none that is full of blocks.
    pub fn is_counted(&self) -> bool {
        use cluster::Message as Cluster;
        use pipelines::Message as Pipelines;
        use replication::Message as Replication;
        use streams::Message as Streams;
        match self {
            PeerMessage::Cluster(message) => matches!(
                message,
                Cluster::Ping(_) | Cluster::Pong(_) | Cluster::LeavingAnswer { .. } | Cluster::GroupEnds
            ),
            PeerMessage::Streams(message) => matches!(
                message,
                Streams::StepEnded { .. }
                    | Streams::Done { .. }
                    | Streams::Sync { .. }
                    | Streams::RunOver { .. }
            ),
            PeerMessage::Replication(message) => matches!(
                message,
                Replication::Replicate { .. }
                    | Replication::Replicated { .. }
                    | Replication::Release { .. }
                    | Replication::Released { .. }
            ),
            PeerMessage::Directory(message) => matches!(message, directory::Message::Unregistered { .. }),
            PeerMessage::Space(message) => matches!(message, space::Message::Done { .. }),
            PeerMessage::Evaluation(_) | PeerMessage::Subscriptions(_) => false,
            PeerMessage::Pipelines(message) => {
                matches!(message, Pipelines::Drive { .. } | Pipelines::Driven { result: Ok(_), .. })
            }
        }
    }

    /// About how many bytes a message takes while it waits.
    pub fn about_bytes(&self) -> usize {
        let of = |blocks: &[BlockRecord]| -> usize {
            blocks
                .iter()
                .map(|block| RECORD_BYTES + block.inline.as_ref().map_or(0, |bytes| bytes.len()))
                .sum()
        };
        let reports =
            |reports: &[FieldReport]| -> usize { reports.iter().map(|report| of(&report.blocks)).sum() };
        let blocks = match self {
            PeerMessage::Streams(streams::Message::StepEnded { ended, .. }) => {
                ended.fields.iter().map(|field| of(&field.blocks)).sum()
            }
            PeerMessage::Directory(directory::Message::Register { owned, held, .. }) => {
                reports(owned) + reports(held)
            }
            PeerMessage::Directory(directory::Message::HandOver { owned, .. }) => reports(owned),
            PeerMessage::Space(
                space::Message::Register { report, .. } | space::Message::HandOver { report, .. },
            ) => of(&report.blocks),
            PeerMessage::Replication(replication::Message::Replicate { replica, .. }) => {
                let fields = replica.ended.iter().flat_map(|(_, ended)| &ended.fields);
                let told: usize = fields.map(|field| of(&field.blocks)).sum();
                told + reports(&replica.records) + replica.ranges.len() * size_of::<BlockRange>()
            }
            _ => 0,
        };
        MESSAGE_BYTES + blocks
    }
}
