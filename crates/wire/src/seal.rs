//! Sealing: a byte stream cut into authenticated, encrypted records (Noise transport messages).
//!
//! A record is its ciphertext's length (2 bytes, little-endian) and the ciphertext.

use forebay_core::{Error, ErrorKind, Result};
use snow::StatelessTransportState;
use std::sync::Arc;

/// The largest ciphertext of one record, as Noise defines it.
pub const RECORD_MAX: usize = 65535;
const TAG: usize = 16;
/// The most plain bytes that one record carries.
pub const PLAIN_MAX: usize = RECORD_MAX - TAG;

/// What a record has beside its plain bytes.
pub(crate) const RECORD_OVERHEAD: usize = 2 + TAG;

/// The sending half of a sealed stream.
#[derive(Debug)]
pub struct Sealer {
    state: Arc<StatelessTransportState>,
    nonce: u64,
}

/// The receiving half of a sealed stream.
#[derive(Debug)]
pub struct Opener {
    state: Arc<StatelessTransportState>,
    nonce: u64,
}

/// Both halves of a session that the handshake agreed on.
pub(crate) fn halves(state: StatelessTransportState) -> (Sealer, Opener) {
    let state = Arc::new(state);
    (Sealer { state: state.clone(), nonce: 0 }, Opener { state, nonce: 0 })
}

impl Sealer {
    /// The number of the next record.
    pub fn record(&self) -> u64 {
        self.nonce
    }

    /// The records from this number on were thrown away, and the next one takes the place of the first of them.
    /// No byte of them may have left this process: one number never seals two records that anybody sees.
    pub fn unseal_from(&mut self, record: u64) {
        self.nonce = self.nonce.min(record);
    }

    /// Appends `plain` to `out`, as one or more records. Copies once.
    pub fn seal(&mut self, plain: &[u8], out: &mut Vec<u8>) -> Result<()> {
        for chunk in plain.chunks(PLAIN_MAX) {
            let start = out.len();
            out.extend_from_slice(&((chunk.len() + TAG) as u16).to_le_bytes());
            out.resize(start + 2 + chunk.len() + TAG, 0);
            self.state
                .write_message(self.nonce, chunk, &mut out[start + 2..])
                .map_err(|error| Error::internal(format!("cannot seal a record: {error}")))?;
            self.nonce += 1;
        }
        Ok(())
    }
}

impl Opener {
    /// Opens one ciphertext into `plain`, which has room for [`PLAIN_MAX`] bytes or exactly as many as
    /// there are; returns how many there were. A record that was changed on its way is an error.
    pub fn open(&mut self, ciphertext: &[u8], plain: &mut [u8]) -> Result<usize> {
        let length = self.state.read_message(self.nonce, ciphertext, plain).map_err(|_| {
            Error::new(
                ErrorKind::Protocol,
                format!(
                    "record {} does not authenticate: it was changed, lost or repeated on its way",
                    self.nonce
                ),
            )
        })?;
        self.nonce += 1;
        Ok(length)
    }
}
