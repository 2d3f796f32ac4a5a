//! How a consumer is opened.

use crate::connection::group_options::GroupOptions;
use forebay_core::contract::Needs;
use forebay_core::steps::Start;

/// How to open a consumer.
#[derive(Debug, Clone)]
pub struct ConsumerOptions {
    /// The group.
    pub group: GroupOptions,
    /// The stream's name; it need not exist yet.
    pub stream: String,
    /// What is needed.
    pub needs: Needs,
    /// How many steps may be held at once, 1 to 1024; more wait in the stream, under its policy.
    pub window: u32,
    /// With which step to begin.
    pub start: Start,
    /// Whether to go on with the next run when one ends.
    pub follow: bool,
    /// How many bytes of earlier steps arrays may keep in the servers' memory; beyond that, blocks of further
    /// steps are copied. `None`: 1 GiB. One step may be kept whatever its size.
    pub pin_bytes: Option<u64>,
}

impl ConsumerOptions {
    /// All fields of a stream, with all defaults.
    pub fn new(stream: &str) -> ConsumerOptions {
        ConsumerOptions {
            group: GroupOptions::default(),
            stream: stream.to_owned(),
            needs: Needs::All { every: 1 },
            window: 4,
            start: Start::Next,
            follow: false,
            pin_bytes: None,
        }
    }
}
