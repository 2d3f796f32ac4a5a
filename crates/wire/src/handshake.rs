//! The handshake: Noise `NNpsk0`, keyed by the group's secret.
//!
//! ```text
//! opening      : magic (8)  version (2)  length (2)  first Noise message
//! answer       : magic (8)  version (2)  status (1)  length (2)  second Noise message, or why it was refused
//! confirmation : a sealed record of the new session
//! ```
//!
//! The opening alone proves nothing: it may be somebody else's, heard before and said again. Only who made it
//! can seal the confirmation, and nothing else is heard before that. It costs no round trip.
//!
//! The lineage is part of the prologue, so that a connection file of an earlier group is refused as one
//! with a wrong secret is. So are the transport and the server that is meant: what is said to one server
//! cannot be passed on to another. Version and secret have error kinds of their own and are never retried.

use crate::VERSION;
use crate::seal::{Opener, RECORD_OVERHEAD, Sealer, halves};
use forebay_core::ids::Lineage;
use forebay_core::{Error, ErrorKind, Result};
use snow::{Builder, HandshakeState};

const MAGIC: &[u8; 8] = b"FOREBAY\n";
const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";
const OPENING_HEAD: usize = 12;
const ANSWER_HEAD: usize = 13;
/// What a confirmation says, sealed.
const CONFIRMED: &[u8; 8] = MAGIC;
/// How long a confirmation is: a record's length, what it says, and the seal.
const CONFIRMATION: usize = RECORD_OVERHEAD + CONFIRMED.len();
/// No part of a handshake is longer.
pub const HANDSHAKE_MAX: usize = 1024;

/// The group's secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub [u8; 32]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Where a handshake leads to. Both sides must mean the same.
#[derive(Debug, Clone, Copy)]
pub struct Prologue<'a> {
    /// The group's secret.
    pub secret: &'a Secret,
    /// The group's lineage.
    pub lineage: &'a Lineage,
    /// Who answers there, by a name that nobody else in the group has, such as `server0`.
    pub name: &'a str,
}

/// The two halves of an authenticated session.
pub type Session = (Sealer, Opener);

/// A session whose other side has not shown yet that it made the opening.
#[derive(Debug)]
pub struct UnconfirmedSession(Session);

/// The side that connects.
#[derive(Debug)]
pub struct Initiator(Box<HandshakeState>);

fn noise(error: snow::Error) -> Error {
    Error::internal(format!("the handshake failed: {error}"))
}

fn builder<'a>(secret: &'a Secret, prologue: &'a [u8]) -> Result<Builder<'a>> {
    let pattern = PATTERN.parse().map_err(noise)?;
    Builder::new(pattern).psk(0, &secret.0).and_then(|builder| builder.prologue(prologue)).map_err(noise)
}

fn prologue_bytes(prologue: &Prologue<'_>, transport: &str) -> Vec<u8> {
    [
        &MAGIC[..],
        &VERSION.to_le_bytes(),
        &prologue.lineage.0,
        transport.as_bytes(),
        b"/",
        prologue.name.as_bytes(),
    ]
    .concat()
}

fn wrong_secret() -> Error {
    Error::new(
        ErrorKind::WrongSecret,
        "the other side does not hold this group's secret, or is not the server that was meant: the connection file is \
         stale or belongs to another group; use the file that the running group wrote",
    )
}

fn wrong_version(theirs: u16) -> Error {
    Error::new(
        ErrorKind::WrongVersion,
        format!(
            "the other side speaks protocol version {theirs}, this one, Forebay {}, speaks {VERSION}: install the same release on \
             both sides; `forebay doctor` tells which ones are found here",
            env!("CARGO_PKG_VERSION")
        ),
    )
}

impl Initiator {
    /// Starts a handshake over a transport; returns the opening to send.
    pub fn start(prologue: &Prologue<'_>, transport: &str) -> Result<(Initiator, Vec<u8>)> {
        let bytes = prologue_bytes(prologue, transport);
        let mut state = builder(prologue.secret, &bytes)?.build_initiator().map_err(noise)?;
        let mut message = [0; HANDSHAKE_MAX];
        let length = state.write_message(&[], &mut message).map_err(noise)?;
        let mut opening = [&MAGIC[..], &VERSION.to_le_bytes(), &(length as u16).to_le_bytes()].concat();
        opening.extend_from_slice(&message[..length]);
        Ok((Initiator(Box::new(state)), opening))
    }

    /// How many bytes the answer has in all, once its head can be read.
    pub fn answer_length(received: &[u8]) -> Result<Option<usize>> {
        check_head(received, false)?;
        Ok(length_at(received, ANSWER_HEAD))
    }

    /// Takes the whole answer; returns the session and the confirmation to send before all else.
    pub fn finish(mut self, answer: &[u8]) -> Result<(Session, Vec<u8>)> {
        check_head(answer, false)?;
        let body = answer
            .get(ANSWER_HEAD..)
            .ok_or_else(|| Error::protocol("the handshake's answer is cut short"))?;
        if answer[10] != 0 {
            let kind =
                ErrorKind::ALL.get(usize::from(answer[10]) - 1).copied().unwrap_or(ErrorKind::Protocol);
            return Err(match kind {
                ErrorKind::WrongSecret => wrong_secret(),
                ErrorKind::WrongVersion => wrong_version(version_of(answer)),
                kind => Error::new(kind, String::from_utf8_lossy(body).into_owned()),
            });
        }
        self.0.read_message(body, &mut [0; HANDSHAKE_MAX]).map_err(|_| wrong_secret())?;
        let (mut sealer, opener) = halves(self.0.into_stateless_transport_mode().map_err(noise)?);
        let mut confirmation = Vec::with_capacity(CONFIRMATION);
        sealer.seal(CONFIRMED, &mut confirmation)?;
        Ok(((sealer, opener), confirmation))
    }
}

impl UnconfirmedSession {
    /// How many bytes the confirmation has in all.
    pub fn confirmation_length(_received: &[u8]) -> Result<Option<usize>> {
        Ok(Some(CONFIRMATION))
    }

    /// Takes the whole confirmation.
    pub fn confirm(self, confirmation: &[u8]) -> Result<Session> {
        let (sealer, mut opener) = self.0;
        let mut said = [0; CONFIRMED.len()];
        let sealed = confirmation.get(2..CONFIRMATION).unwrap_or_default();
        match opener.open(sealed, &mut said) {
            Ok(_) if said == *CONFIRMED => Ok((sealer, opener)),
            _ => Err(Error::new(
                ErrorKind::WrongSecret,
                "the other side does not hold this group's secret: it repeats what somebody else has said",
            )),
        }
    }
}

/// How many bytes the opening has in all, once its head can be read.
pub fn opening_length(received: &[u8]) -> Result<Option<usize>> {
    check_head(received, true)?;
    Ok(length_at(received, OPENING_HEAD))
}

/// The side that accepts: takes the whole opening; returns the answer to send, whatever the result is.
pub fn respond(
    prologue: &Prologue<'_>,
    transport: &str,
    opening: &[u8],
) -> (Vec<u8>, Result<UnconfirmedSession>) {
    match try_respond(prologue, transport, opening) {
        Ok((message, session)) => (answer(0, &message), Ok(UnconfirmedSession(session))),
        Err(error) => (refusal(&error), Err(error)),
    }
}

/// The answer of a side that accepts nobody for this reason.
pub fn refusal(error: &Error) -> Vec<u8> {
    answer(error.kind.code() as u8, error.text.as_bytes())
}

fn answer(status: u8, body: &[u8]) -> Vec<u8> {
    let body = &body[..body.len().min(HANDSHAKE_MAX - ANSWER_HEAD)];
    let head = [&MAGIC[..], &VERSION.to_le_bytes(), &[status], &(body.len() as u16).to_le_bytes()];
    [&head.concat(), body].concat()
}

fn try_respond(prologue: &Prologue<'_>, transport: &str, opening: &[u8]) -> Result<(Vec<u8>, Session)> {
    check_head(opening, true)?;
    let bytes = prologue_bytes(prologue, transport);
    let mut state = builder(prologue.secret, &bytes)?.build_responder().map_err(noise)?;
    let first = opening.get(OPENING_HEAD..).unwrap_or_default();
    state.read_message(first, &mut [0; HANDSHAKE_MAX]).map_err(|_| wrong_secret())?;
    let mut message = vec![0; HANDSHAKE_MAX];
    let length = state.write_message(&[], &mut message).map_err(noise)?;
    message.truncate(length);
    Ok((message, halves(state.into_stateless_transport_mode().map_err(noise)?)))
}

fn version_of(head: &[u8]) -> u16 {
    u16::from_le_bytes([head[8], head[9]])
}

/// Checks as much of the head as has arrived; `opening` is refused at once when its version differs, an
/// answer says so itself.
fn check_head(received: &[u8], opening: bool) -> Result<()> {
    let known = received.len().min(MAGIC.len());
    if received[..known] != MAGIC[..known] {
        return Err(Error::protocol("the other side is no Forebay process: check the address and port"));
    }
    if received.len() >= 10 && version_of(received) != VERSION && (opening || received.get(10) == Some(&0)) {
        return Err(wrong_version(version_of(received)));
    }
    Ok(())
}

fn length_at(received: &[u8], head: usize) -> Option<usize> {
    let bytes = received.get(head - 2..head)?;
    Some(head + usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    use crate::seal::PLAIN_MAX;

    const LINEAGE: Lineage = Lineage([7; 16]);
    const SECRET: Secret = Secret([1; 32]);
    const DOOR: Prologue<'_> = Prologue { secret: &SECRET, lineage: &LINEAGE, name: "server0" };

    #[test]
    fn both_sides_agree_and_talk() {
        let (initiator, opening) = Initiator::start(&DOOR, "shm").unwrap();
        assert_eq!(opening_length(&opening).unwrap(), Some(opening.len()));
        let (answer, server) = respond(&DOOR, "shm", &opening);
        assert_eq!(Initiator::answer_length(&answer).unwrap(), Some(answer.len()));
        let ((mut sealer, _), confirmation) = initiator.finish(&answer).unwrap();
        assert_eq!(UnconfirmedSession::confirmation_length(&[]).unwrap(), Some(confirmation.len()));
        let (_, mut opener) = server.unwrap().confirm(&confirmation).unwrap();
        let plain: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
        let mut sealed = Vec::new();
        sealer.seal(&plain, &mut sealed).unwrap();
        let mut opened = Vec::new();
        let mut rest = &sealed[..];
        while !rest.is_empty() {
            let length = usize::from(u16::from_le_bytes([rest[0], rest[1]]));
            let mut buffer = vec![0; PLAIN_MAX];
            let n = opener.open(&rest[2..2 + length], &mut buffer).unwrap();
            opened.extend_from_slice(&buffer[..n]);
            rest = &rest[2 + length..];
        }
        assert_eq!(opened, plain);
    }

    #[test]
    fn a_wrong_secret_lineage_or_version_is_told_apart() {
        let (initiator, opening) = Initiator::start(&DOOR, "shm").unwrap();
        let (answer, server) = respond(&Prologue { secret: &Secret([2; 32]), ..DOOR }, "shm", &opening);
        assert_eq!(server.unwrap_err().kind, ErrorKind::WrongSecret);
        assert_eq!(initiator.finish(&answer).unwrap_err().kind, ErrorKind::WrongSecret);

        let (_, opening) = Initiator::start(&DOOR, "shm").unwrap();
        let (_, server) = respond(&Prologue { lineage: &Lineage([8; 16]), ..DOOR }, "shm", &opening);
        assert_eq!(server.unwrap_err().kind, ErrorKind::WrongSecret);

        let (initiator, mut opening) = Initiator::start(&DOOR, "shm").unwrap();
        opening[8] = 99;
        let (answer, server) = respond(&DOOR, "shm", &opening);
        assert_eq!(server.unwrap_err().kind, ErrorKind::WrongVersion);
        assert_eq!(initiator.finish(&answer).unwrap_err().kind, ErrorKind::WrongVersion);
    }

    #[test]
    fn an_opening_leads_to_the_door_that_it_was_made_for() {
        let (initiator, opening) = Initiator::start(&DOOR, "shm").unwrap();
        let (_, server) = respond(&Prologue { name: "server1", ..DOOR }, "shm", &opening);
        assert_eq!(server.unwrap_err().kind, ErrorKind::WrongSecret);
        let (answer, server) = respond(&DOOR, "tcp", &opening);
        assert_eq!(server.unwrap_err().kind, ErrorKind::WrongSecret);
        assert_eq!(initiator.finish(&answer).unwrap_err().kind, ErrorKind::WrongSecret);
    }

    #[test]
    fn an_opening_that_is_repeated_is_not_confirmed() {
        let (initiator, opening) = Initiator::start(&DOOR, "shm").unwrap();
        let (answer, _) = respond(&DOOR, "shm", &opening);
        let (_, confirmation) = initiator.finish(&answer).unwrap();
        // All that was heard is said again, or a part of it, or something else.
        for said in [&confirmation[..], &[], &confirmation[..10], &[0; CONFIRMATION], &[0; 3 * CONFIRMATION]]
        {
            let (_, again) = respond(&DOOR, "shm", &opening);
            assert_eq!(again.unwrap().confirm(said).unwrap_err().kind, ErrorKind::WrongSecret);
        }
    }

    proptest! {
        #[test]
        fn garbage_is_refused(mut opening in prop::collection::vec(any::<u8>(), 0..200), magic in any::<bool>()) {
            if magic && opening.len() >= 10 {
                opening[..8].copy_from_slice(MAGIC);
                opening[8..10].copy_from_slice(&VERSION.to_le_bytes());
            }
            let _ = opening_length(&opening);
            prop_assert!(respond(&DOOR, "shm", &opening).1.is_err());
            let (initiator, _) = Initiator::start(&DOOR, "shm").unwrap();
            prop_assert!(initiator.finish(&opening).is_err());
        }
    }
}
