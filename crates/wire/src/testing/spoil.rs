//! Messages that were changed on their way.

use super::Inventor;

/// Flips bits, cuts, doubles parts, and puts absurd lengths where lengths may be.
pub fn spoil(mut bytes: Vec<u8>, inventor: &mut Inventor, changes: u64) -> Vec<u8> {
    for _ in 0..changes {
        if bytes.is_empty() {
            break;
        }
        let at = inventor.below(bytes.len() as u64) as usize;
        let random = inventor.draw();
        match inventor.below(10) {
            0..4 => bytes[at] ^= 1 << (random % 8),
            4..6 => bytes[at] = (random % 20) as u8,
            6 => bytes.truncate(at),
            7 => drop(bytes.splice(at..=at, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1])),
            8 => drop(bytes.splice(at..=at, [0x80 | random as u8, 0xff, 0xff, 0x07])),
            _ => {
                let part = bytes[at..(at + 20).min(bytes.len())].to_vec();
                drop(bytes.splice(at..at, part));
            }
        }
    }
    bytes
}
