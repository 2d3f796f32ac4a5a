//! Datagrams between servers of a group: sealed, and taken once.
//!
//! ```text
//! sender's incarnation (8)  counter (8)  what is said, sealed with XChaCha20-Poly1305
//! ```
//!
//! The key follows from the group's secret and its lineage; the nonce is what stands before the sealed part, which no two
//! datagrams of a group share. Sealed with it is who is meant: what is said to one server cannot be passed on to another.

use crate::handshake::Secret;
use blake2::Blake2sMac256;
use blake2::digest::{FixedOutput, KeyInit as _, Update as _};
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use forebay_core::ids::{Lineage, ServerId};
use forebay_core::roster::Incarnation;
use forebay_core::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What the key is for; the number changes with the format.
const PURPOSE: &[u8] = b"forebay datagram 2";
/// What stands before the sealed part.
const HEAD: usize = 16;
/// How many datagrams may come out of order.
const WINDOW: u64 = 128;

/// Seals and opens the datagrams of one group.
pub struct DatagramKey(XChaCha20Poly1305);

impl std::fmt::Debug for DatagramKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DatagramKey(..)")
    }
}

impl DatagramKey {
    /// The key of a group.
    pub fn new(secret: &Secret, lineage: &Lineage) -> Result<DatagramKey> {
        let mac = Blake2sMac256::new_from_slice(&secret.0);
        let mac = mac.map_err(|_| Error::internal("the group's secret is no key"))?;
        let key = mac.chain(PURPOSE).chain(lineage.0).finalize_fixed();
        Ok(DatagramKey(XChaCha20Poly1305::new(&key)))
    }

    /// Seals what a server says to another one. `counter`: no other datagram of this incarnation has it.
    pub fn seal(&self, from: Incarnation, counter: u64, to: ServerId, said: &[u8]) -> Result<Vec<u8>> {
        let mut datagram = [from.0.to_le_bytes(), counter.to_le_bytes()].concat();
        let payload = Payload { msg: said, aad: &to.0.to_le_bytes() };
        let sealed = self.0.encrypt(&nonce(&datagram), payload);
        datagram.extend(sealed.map_err(|_| Error::internal("a datagram cannot be sealed"))?);
        Ok(datagram)
    }

    /// Opens what was said to this server: who said it, its counter, and what. `None` if nobody of the group did.
    pub fn open(&self, me: ServerId, datagram: &[u8]) -> Option<(Incarnation, u64, Vec<u8>)> {
        let (head, sealed) = datagram.split_at_checked(HEAD)?;
        let (from, counter) = head.split_at(HEAD / 2);
        let payload = Payload { msg: sealed, aad: &me.0.to_le_bytes() };
        let said = self.0.decrypt(&nonce(head), payload).ok()?;
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).ok();
        Some((Incarnation(number(from)?), number(counter)?, said))
    }
}

/// What is said, as it travels.
pub fn encode<M: Serialize>(said: &M) -> Result<Vec<u8>> {
    postcard::to_allocvec(said).map_err(|e| Error::internal(format!("a datagram cannot be encoded: {e}")))
}

/// What was said.
pub fn decode<M: DeserializeOwned>(said: &[u8]) -> Result<M> {
    postcard::from_bytes(said).map_err(|e| Error::protocol(format!("a datagram cannot be read: {e}")))
}

fn nonce(head: &[u8]) -> XNonce {
    let mut nonce = XNonce::default();
    nonce[..HEAD].copy_from_slice(head);
    nonce
}

/// Which datagrams of one sender have been taken. (The sliding window of RFC 4303, section 3.4.3.)
#[derive(Debug, Clone, Copy, Default)]
pub struct ReplayWindow {
    /// One past the highest counter that was taken.
    next: u64,
    /// Whether those before were taken, the last one first.
    taken: u128,
}

impl ReplayWindow {
    /// Takes a datagram; `false` if it was taken before, or is too old to tell.
    pub fn take(&mut self, counter: u64) -> bool {
        let Some(next) = counter.checked_add(1) else { return false };
        if next > self.next {
            let ahead = u32::try_from(next - self.next).unwrap_or(u32::MAX);
            self.taken = self.taken.checked_shl(ahead).unwrap_or(0) | 1;
            self.next = next;
            return true;
        }
        let behind = self.next - next;
        let bit = 1u128.checked_shl(u32::try_from(behind).unwrap_or(u32::MAX)).unwrap_or(0);
        if behind >= WINDOW || self.taken & bit != 0 {
            return false;
        }
        self.taken |= bit;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const FROM: Incarnation = Incarnation(77);

    fn key(secret: u8, lineage: u8) -> DatagramKey {
        DatagramKey::new(&Secret([secret; 32]), &Lineage([lineage; 16])).unwrap()
    }

    #[test]
    fn only_who_is_meant_hears_only_its_group() {
        let datagram = key(1, 1).seal(FROM, 5, ServerId(3), b"ping").unwrap();
        assert_eq!(key(1, 1).open(ServerId(3), &datagram), Some((FROM, 5, b"ping".to_vec())));
        for (key, me) in [(key(2, 1), 3), (key(1, 2), 3), (key(1, 1), 4)] {
            assert_eq!(key.open(ServerId(me), &datagram), None);
        }
        for changed in 0..datagram.len() {
            let mut other = datagram.clone();
            other[changed] ^= 1;
            assert_eq!(key(1, 1).open(ServerId(3), &other), None, "byte {changed}");
            assert_eq!(key(1, 1).open(ServerId(3), &datagram[..changed]), None, "{changed} bytes");
        }
    }

    proptest! {
        #[test]
        fn each_datagram_is_taken_once(counters in prop::collection::vec(0u64..400, 1..300), base in 0u64..=u64::MAX - 1000) {
            let mut window = ReplayWindow::default();
            let mut taken = BTreeSet::new();
            for counter in counters {
                let counter = base + counter;
                let highest = taken.last().copied();
                let old = highest.is_some_and(|highest: u64| counter + WINDOW <= highest);
                prop_assert_eq!(window.take(counter), !old && taken.insert(counter));
            }
        }
    }
}
