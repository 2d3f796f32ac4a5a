//! As many records as one message takes.

use forebay_core::block::BlockRecord;
use forebay_core::steps::FieldReport;
use forebay_wire::client::reading::Reply;

/// About how many bytes of records are told at a time.
const ANSWER_BYTES: usize = 4 << 20;

/// A report in parts that messages take.
pub(crate) fn in_parts(report: FieldReport) -> impl Iterator<Item = FieldReport> {
    let FieldReport { field, blocks, .. } = report;
    let mut blocks = blocks.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut part = Vec::new();
        let mut bytes = 0;
        while bytes < ANSWER_BYTES {
            let Some(block) = blocks.next() else { break };
            bytes += bytes_of(&block);
            part.push(block);
        }
        (!part.is_empty()).then(|| FieldReport::new(field.clone(), part))
    })
}

/// About how many bytes a record takes in a message.
fn bytes_of(block: &BlockRecord) -> usize {
    size_of::<BlockRecord>() + block.heap_bytes() + block.inline.as_ref().map_or(0, |inline| inline.len())
}

/// As many records as one answer takes, and whether there are more.
pub(super) fn some_of<'a>(mut blocks: impl Iterator<Item = &'a BlockRecord>) -> Reply {
    let mut told = Vec::new();
    let mut bytes = 0;
    while bytes < ANSWER_BYTES {
        let Some(block) = blocks.next() else { return Reply::Records { blocks: told, more: false } };
        bytes += bytes_of(block);
        told.push(block.clone());
    }
    Reply::Records { blocks: told, more: blocks.next().is_some() }
}
