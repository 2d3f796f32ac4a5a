use super::*;
use crate::handshake::{Initiator, Prologue, Secret, respond};
use forebay_core::ErrorKind;
use forebay_core::ids::Lineage;
use proptest::prelude::*;

/// What travels in these tests.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
struct Text(Vec<u8>);

impl Message for Text {
    const PROTOCOL: Protocol = Protocol::Comm;
}

fn session() -> (crate::handshake::Session, crate::handshake::Session) {
    let prologue = Prologue { secret: &Secret([3; 32]), lineage: &Lineage([4; 16]), name: "server0" };
    let (initiator, opening) = Initiator::start(&prologue, "tcp").unwrap();
    let (answer, server) = respond(&prologue, "tcp", &opening);
    let (client, confirmation) = initiator.finish(&answer).unwrap();
    (client, server.unwrap().confirm(&confirmation).unwrap())
}

/// Feeds a stream to a decoder in pieces and collects frames and payloads.
fn decode(mut decoder: Decoder, stream: &[u8], cuts: &[usize]) -> Result<Vec<(Frame, Vec<u8>)>> {
    let mut frames = Vec::new();
    let mut at = 0;
    let mut cut = cuts.iter().cycle();
    let mut payload: Option<(Frame, Vec<u8>)> = None;
    loop {
        if let Some((frame, bytes)) = &mut payload {
            let wanted = frame.header.payload as usize;
            let mut rest = vec![0; wanted - bytes.len()];
            let n = decoder.take_payload(&mut rest);
            bytes.extend_from_slice(&rest[..n]);
            if bytes.len() == wanted {
                frames.extend(payload.take());
                continue;
            }
        } else if let Some(frame) = decoder.next_frame()? {
            payload = Some((frame, Vec::new()));
            continue;
        }
        if at == stream.len() {
            return Ok(frames);
        }
        let space = decoder.space();
        assert!(!space.is_empty());
        let n = (*cut.next().unwrap()).clamp(1, space.len()).min(stream.len() - at);
        space[..n].copy_from_slice(&stream[at..at + n]);
        decoder.on_filled(n);
        at += n;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn frames_survive_any_cutting(
        messages in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300_000), 0usize..5000), 1..5),
        cuts in prop::collection::vec(1usize..200_000, 1..8),
        sealed in any::<bool>(),
    ) {
        let ((mut sealer, _), (_, opener)) = session();
        let mut stream = Vec::new();
        for (index, (message, payload)) in messages.iter().enumerate() {
            let header = Header { request: index as u64, payload: *payload as u64, ..Header::default() };
            encode(&header, &Text(message.clone()), sealed.then_some(&mut sealer), &mut stream).unwrap();
            stream.extend(std::iter::repeat_n(index as u8, *payload));
        }
        let frames = decode(Decoder::new(sealed.then_some(opener)), &stream, &cuts).unwrap();
        prop_assert_eq!(frames.len(), messages.len());
        for (index, ((frame, bytes), (message, payload))) in frames.iter().zip(&messages).enumerate() {
            prop_assert_eq!(frame.header.request, index as u64);
            prop_assert_eq!(&frame.message::<Text>().unwrap().0, message);
            prop_assert_eq!(bytes, &vec![index as u8; *payload]);
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed(message in prop::collection::vec(any::<u8>(), 0..400), bit in any::<prop::sample::Index>(), sealed in any::<bool>()) {
        let ((mut sealer, _), (_, opener)) = session();
        let mut stream = Vec::new();
        encode(&Header::default(), &Text(message), sealed.then_some(&mut sealer), &mut stream).unwrap();
        let bit = bit.index(stream.len() * 8);
        stream[bit / 8] ^= 1 << (bit % 8);
        // Either an error, or the length grew and the decoder waits for bytes that never come.
        match decode(Decoder::new(sealed.then_some(opener)), &stream, &[1 << 20]) {
            Ok(frames) => prop_assert!(frames.is_empty()),
            Err(error) => prop_assert_eq!(error.kind, ErrorKind::Protocol),
        }
    }

    #[test]
    fn garbage_never_panics(stream in prop::collection::vec(any::<u8>(), 0..2000), sealed in any::<bool>()) {
        let (_, (_, opener)) = session();
        let _ = decode(Decoder::new(sealed.then_some(opener)), &stream, &[64]);
        let _ = Frame { header: Header::default(), protocol: Protocol::Producer as u8, body: stream }
            .message::<crate::client::producer::Request>();
    }
}

#[test]
fn absurd_lengths_are_refused_before_anything_is_allocated() {
    let mut stream = vec![0xff; HEADER];
    stream.extend([0; 100]);
    let mut decoder = Decoder::new(None);
    decoder.space()[..stream.len()].copy_from_slice(&stream);
    decoder.on_filled(stream.len());
    assert_eq!(decoder.next_frame().unwrap_err().kind, ErrorKind::Protocol);
}
