//! Frames: a header of fixed size, a body of bounded size, and possibly raw payload bytes after it.
//!
//! ```text
//! body length (4)  descriptors (1)  flags (1)  protocol (1)  zero (1)  request (8)  epoch (8)  payload length (8)  crc (4)
//! ```
//!
//! All little-endian. The CRC-32 covers the header before it and the body; payload bytes are not covered
//! (over TCP they can be sealed). The sender's epoch lets a receiver tell a stale message; the protocol says which
//! enumeration the body is one of ([`crate::protocol`]).

use crate::protocol::{Message, Protocol};
use crate::seal::{Opener, PLAIN_MAX, RECORD_MAX, Sealer};
use forebay_core::{Error, Result};
use serde::Serialize;

/// Bytes of a header.
pub const HEADER: usize = 36;
/// The largest body.
pub const BODY_MAX: usize = 16 << 20;
/// The most file descriptors that travel with one frame.
pub const DESCRIPTORS_MAX: usize = 8;
const FLAG_SEALED_PAYLOAD: u8 = 1;

/// What a frame says besides its body.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Header {
    /// Ties an answer to its question; 0 for messages that are neither.
    pub request: u64,
    /// The epoch of the sender's view.
    pub epoch: u64,
    /// Raw bytes that follow the body.
    pub payload: u64,
    /// File descriptors that travel with it.
    pub descriptors: u8,
    /// Whether the payload is sealed too.
    pub sealed_payload: bool,
}

/// A received frame; its payload, if any, is still to be taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The header.
    pub header: Header,
    /// The number of the protocol that the message is of: any, as it came.
    pub protocol: u8,
    /// The encoded message.
    pub body: Vec<u8>,
}

impl Frame {
    /// The protocol that the message is of; an error if there is no such protocol.
    pub fn protocol(&self) -> Result<Protocol> {
        Protocol::of_number(self.protocol)
            .ok_or_else(|| Error::protocol(format!("there is no protocol {}", self.protocol)))
    }

    /// Decodes the message; one of another protocol is an error, and so are bytes left over.
    pub fn message<M: Message>(&self) -> Result<M> {
        if self.protocol != M::PROTOCOL as u8 {
            let said = Protocol::of_number(self.protocol).map_or("no protocol", Protocol::name);
            return Err(Error::protocol(format!(
                "a message of the protocol '{}' was expected, and one of '{said}' has come",
                M::PROTOCOL.name()
            )));
        }
        let bad = |why: String| {
            Error::protocol(format!("a message of {} bytes cannot be decoded: {why}", self.body.len()))
        };
        let (message, rest) =
            postcard::take_from_bytes(&self.body).map_err(|error| bad(error.to_string()))?;
        if !rest.is_empty() {
            return Err(bad(format!("{} bytes are left over", rest.len())));
        }
        Ok(message)
    }
}

/// How many bytes a message, or a part of one, takes when it is encoded.
pub fn encoded_bytes<M: Serialize>(message: &M) -> Result<usize> {
    postcard::serialize_with_flavor(message, postcard::ser_flavors::Size::default())
        .map_err(|error| Error::internal(format!("a message cannot be encoded: {error}")))
}

/// Encodes a frame onto the end of `out`, sealed if a sealer is given.
pub fn encode<M: Message>(
    header: &Header,
    message: &M,
    sealer: Option<&mut Sealer>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let start = out.len();
    out.resize(start + HEADER, 0);
    let mut bytes = postcard::to_extend(message, std::mem::take(out))
        .map_err(|error| Error::internal(format!("a message cannot be encoded: {error}")))?;
    let length = bytes.len() - start - HEADER;
    if length > BODY_MAX {
        bytes.truncate(start);
        *out = bytes;
        return Err(Error::invalid(format!(
            "a message of {length} bytes exceeds the limit of {BODY_MAX}: use fewer fields or blocks"
        )));
    }
    let head = &mut bytes[start..start + HEADER];
    head[0..4].copy_from_slice(&(length as u32).to_le_bytes());
    head[4] = header.descriptors;
    head[5] = if header.sealed_payload { FLAG_SEALED_PAYLOAD } else { 0 };
    head[6] = message.protocol_number();
    head[8..16].copy_from_slice(&header.request.to_le_bytes());
    head[16..24].copy_from_slice(&header.epoch.to_le_bytes());
    head[24..32].copy_from_slice(&header.payload.to_le_bytes());
    let crc = crc_of(&bytes[start..start + 32], &bytes[start + HEADER..]);
    bytes[start + 32..start + HEADER].copy_from_slice(&crc.to_le_bytes());
    if let Some(sealer) = sealer {
        let plain = bytes.split_off(start);
        sealer.seal(&plain, &mut bytes)?;
    }
    *out = bytes;
    Ok(())
}

fn crc_of(head: &[u8], body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(body);
    hasher.finalize()
}

/// Cuts a byte stream into frames, opening them if they are sealed.
#[derive(Debug)]
pub struct Decoder {
    /// Bytes as they came, `at..end` not yet used.
    buffer: Vec<u8>,
    at: usize,
    end: usize,
    opener: Option<Opener>,
    /// Opened bytes of the frame that is being received.
    plain: Vec<u8>,
}

const BUFFER: usize = 2 * (RECORD_MAX + 1);

impl Decoder {
    /// A decoder at the start of a stream.
    pub fn new(opener: Option<Opener>) -> Decoder {
        Decoder { buffer: vec![0; BUFFER], at: 0, end: 0, opener, plain: Vec::new() }
    }

    /// Where the next bytes of the stream go; never empty while [`Decoder::next_frame`] wants more.
    pub fn space(&mut self) -> &mut [u8] {
        if self.at == self.end {
            (self.at, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.end - self.at);
        }
        &mut self.buffer[self.end..]
    }

    /// That many bytes were put into [`Decoder::space`].
    pub fn on_filled(&mut self, n: usize) {
        self.end = (self.end + n).min(self.buffer.len());
    }

    /// The next frame, or `None` if more bytes are needed. After an error the stream is unusable.
    pub fn next_frame(&mut self) -> Result<Option<Frame>> {
        loop {
            if self.opener.is_some() && !self.open_record()? && !self.frame_is_complete()? {
                return Ok(None);
            }
            match (self.frame_is_complete()?, self.opener.is_some()) {
                (true, _) => return self.take_frame().map(Some),
                (false, true) => continue,
                (false, false) => {
                    let wanted = self.frame_length(&self.buffer[self.at..self.end])?;
                    self.make_room(wanted);
                    return Ok(None);
                }
            }
        }
    }

    /// Moves one record into `plain`, unless a whole frame is there already: what follows may be raw.
    fn open_record(&mut self) -> Result<bool> {
        if self.frame_is_complete()? {
            return Ok(false);
        }
        let Some(record) = self.record() else { return Ok(false) };
        let (start, stop) = record;
        let filled = self.plain.len();
        if filled + (stop - start) > HEADER + BODY_MAX + RECORD_MAX {
            return Err(Error::protocol("a sealed frame exceeds the limit"));
        }
        self.plain.resize(filled + (stop - start).min(PLAIN_MAX), 0);
        if let Some(opener) = &mut self.opener {
            let n = opener.open(&self.buffer[start..stop], &mut self.plain[filled..])?;
            self.plain.truncate(filled + n);
        }
        self.at = stop;
        Ok(true)
    }

    /// Whether nothing is kept that was received and not taken.
    pub fn is_empty(&self) -> bool {
        self.at == self.end && self.plain.is_empty()
    }

    /// Where the next whole record's ciphertext lies in the buffer.
    fn record(&self) -> Option<(usize, usize)> {
        let bytes = &self.buffer[self.at..self.end];
        let length = usize::from(u16::from_le_bytes([*bytes.first()?, *bytes.get(1)?]));
        (bytes.len() >= 2 + length).then_some((self.at + 2, self.at + 2 + length))
    }

    fn received(&self) -> &[u8] {
        if self.opener.is_some() { &self.plain } else { &self.buffer[self.at..self.end] }
    }

    fn frame_is_complete(&self) -> Result<bool> {
        let received = self.received();
        Ok(received.len() >= HEADER && received.len() >= self.frame_length(received)?)
    }

    /// The length of the frame that begins here, or of a header while that is incomplete.
    fn frame_length(&self, received: &[u8]) -> Result<usize> {
        let Some(head) = received.get(..HEADER) else { return Ok(HEADER) };
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        if length > BODY_MAX {
            return Err(Error::protocol(format!(
                "a frame claims a body of {length} bytes; the limit is {BODY_MAX}"
            )));
        }
        Ok(HEADER + length)
    }

    fn make_room(&mut self, wanted: usize) {
        if self.buffer.len() < wanted {
            self.buffer.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.end - self.at);
            self.buffer.resize(wanted, 0);
        }
    }

    fn take_frame(&mut self) -> Result<Frame> {
        let received = self.received();
        let length = self.frame_length(received)?;
        let (head, body) = received[..length].split_at(HEADER);
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&head[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let crc = u32::from_le_bytes([head[32], head[33], head[34], head[35]]);
        if crc != crc_of(&head[..32], body) {
            return Err(Error::protocol("a frame's checksum is wrong: it was changed on its way"));
        }
        let (descriptors, flags) = (head[4], head[5]);
        if usize::from(descriptors) > DESCRIPTORS_MAX || flags & !FLAG_SEALED_PAYLOAD != 0 {
            return Err(Error::protocol("a frame's header makes no sense"));
        }
        let header = Header {
            request: number(8),
            epoch: number(16),
            payload: number(24),
            descriptors,
            sealed_payload: flags & FLAG_SEALED_PAYLOAD != 0,
        };
        let frame = Frame { header, protocol: head[6], body: body.to_vec() };
        if self.opener.is_some() {
            // A sender never puts two frames into one record.
            if self.plain.len() != length {
                return Err(Error::protocol("a sealed record does not end with its frame"));
            }
            self.plain.clear();
        } else {
            self.at += length;
        }
        // A body of many MiB is rare: do not keep its buffer.
        if self.buffer.len() > 4 * BUFFER && self.end - self.at <= BUFFER {
            self.buffer.copy_within(self.at..self.end, 0);
            (self.at, self.end) = (0, self.end - self.at);
            self.buffer.truncate(BUFFER);
            self.buffer.shrink_to_fit();
        }
        Ok(frame)
    }

    /// Moves raw payload bytes that have already arrived into `destination`; returns how many.
    pub fn take_payload(&mut self, destination: &mut [u8]) -> usize {
        let n = destination.len().min(self.end - self.at);
        destination[..n].copy_from_slice(&self.buffer[self.at..self.at + n]);
        self.at += n;
        n
    }

    /// Opens one sealed payload record, if it has arrived, into `destination`; returns how many bytes it had
    /// (0: more is needed).
    pub fn take_sealed_payload(&mut self, destination: &mut [u8]) -> Result<usize> {
        let Some((start, stop)) = self.record() else { return Ok(0) };
        let Some(opener) = &mut self.opener else {
            return Err(Error::protocol("a sealed payload on a stream that is not sealed"));
        };
        if stop - start > destination.len() + 16 {
            return Err(Error::protocol("a sealed payload is longer than its frame said"));
        }
        let n = opener.open(&self.buffer[start..stop], destination)?;
        self.at = stop;
        Ok(n)
    }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
