//! A frame's payload: which messages have one, and where it goes.

use super::client::Client;
use super::writing::Writing;
use crate::held::Held;
use forebay_core::{Error, Result};
use forebay_wire::client::block::BytesLocation;
use forebay_wire::frame::{Frame, Header};
use forebay_wire::protocol::Message;

/// An error if a payload comes with a message that has none: its bytes would be taken for the next messages.
pub(super) fn check_none(frame: &Frame) -> Result<()> {
    match frame.header.payload {
        0 => Ok(()),
        _ => Err(Error::protocol("a payload with a message that has none")),
    }
}

/// The message of a frame, to which this says whether it may have a payload.
pub(super) fn message<M: Message>(frame: &Frame, may_have_one: impl FnOnce(&M) -> bool) -> Result<M> {
    let message = frame.message()?;
    if !may_have_one(&message) {
        check_none(frame)?;
    }
    Ok(message)
}

/// Takes a payload into a range; `fresh` says whether pages of it may be missing. A range that cannot be mapped does not leave
/// the payload on the connection.
pub(super) async fn take_into(client: &mut Client, header: &Header, range: Held, fresh: bool) -> Result<()> {
    let mapping = client.node.store.lock().mapping(range.arena);
    match mapping {
        Ok(mapping) => {
            if fresh {
                mapping.populate(range.offset, header.payload);
            }
            client.receiver.payload_into(&mapping, range.offset, header).await
        }
        Err(error) => {
            client.receiver.discard_payload(header).await?;
            Err(error)
        }
    }
}

/// A block is refused: the range that its bytes were written to is free, and its payload is taken off the connection.
pub(super) async fn refuse(
    client: &mut Client,
    writing: Option<&mut Writing>,
    header: &Header,
    bytes: &BytesLocation,
) -> Result<()> {
    if let (BytesLocation::Granted { offset, generation, .. }, Some(writing)) = (bytes, writing) {
        writing.abort(&client.node, *offset, *generation);
    }
    client.receiver.discard_payload(header).await
}
