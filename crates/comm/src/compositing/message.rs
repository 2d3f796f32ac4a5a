//! Parts of pictures on their way: only the pixels that count.
//!
//! A message is the number of its layers, and of each: its position, the number of its runs, the number of its pixels, the runs (where each
//! begins, and its length), colours, depths.

use super::pixels::{Pixels, Side};
use std::ops::Range;

/// The bytes of a number.
const NUMBER: usize = 4;
/// The bytes of a run. So many pixels that do not count cost less than to begin another one.
const RUN: usize = 2 * NUMBER;
const GAP: usize = 2;

/// The memory of a picture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Planes<'a> {
    pub(super) colors: &'a [u8],
    /// Empty: there are none.
    pub(super) depths: &'a [u8],
}

impl<'a> Planes<'a> {
    /// Some of its pixels.
    pub(super) fn part(&self, pixels: Pixels, range: &Range<u32>) -> Planes<'a> {
        let of =
            |plane: &'a [u8], bytes: usize| &plane[range.start as usize * bytes..range.end as usize * bytes];
        Planes { colors: of(self.colors, pixels.color()), depths: of(self.depths, pixels.depth()) }
    }
}

/// Begins a message of so many layers.
pub(super) fn begin(message: &mut Vec<u8>, layers: usize) {
    message.clear();
    message.extend_from_slice(&(layers as u32).to_le_bytes());
}

/// Adds a layer: what counts by `pixels`, with what of it `carried` has.
pub(super) fn pack(
    message: &mut Vec<u8>,
    (pixels, carried): (Pixels, Pixels),
    position: u32,
    planes: Planes<'_>,
) {
    let head = message.len();
    message.extend_from_slice(&[0; 3 * NUMBER]);
    let mut run = None;
    let (mut runs, mut count) = (0, 0);
    let mut end_run = |message: &mut Vec<u8>, (start, end): (usize, usize)| {
        message.extend_from_slice(&(start as u32).to_le_bytes());
        message.extend_from_slice(&((end - start) as u32).to_le_bytes());
        runs += 1;
        count += end - start;
    };
    pixels.runs(planes.colors, planes.depths, |start, end| match &mut run {
        Some((_, last)) if start - *last < GAP => *last = end,
        _ => run.replace((start, end)).into_iter().for_each(|run| end_run(message, run)),
    });
    run.into_iter().for_each(|run| end_run(message, run));
    let ends = message.len();
    message.reserve(count * (carried.color() + carried.depth()));
    for (plane, bytes) in [(planes.colors, carried.color()), (planes.depths, carried.depth())] {
        for at in (head + 3 * NUMBER..ends).step_by(RUN) {
            let (start, length) = (number(message, at), number(message, at + NUMBER));
            message.extend_from_slice(&plane[start * bytes..(start + length) * bytes]);
        }
    }
    for (index, number) in [position, runs, count as u32].into_iter().enumerate() {
        message[head + index * NUMBER..][..NUMBER].copy_from_slice(&number.to_le_bytes());
    }
}

fn number(message: &[u8], at: usize) -> usize {
    message[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes) as usize)
}

/// A layer that has come.
#[derive(Debug)]
pub(super) struct Layer<'a> {
    pub(super) position: u32,
    runs: &'a [u8],
    planes: Planes<'a>,
}

impl Layer<'_> {
    /// Puts it together with what is there.
    pub(super) fn blend(&self, pixels: Pixels, (colors, depths): (&mut [u8], &mut [u8]), side: Side) {
        self.each(|there, here| {
            let planes = self.planes.part(pixels, &here);
            let own =
                (&mut colors[bytes(&there, pixels.color())], &mut depths[bytes(&there, pixels.depth())]);
            pixels.blend(own, (planes.colors, planes.depths), side);
        });
    }

    /// Puts it in the place of what is there.
    pub(super) fn write(&self, pixels: Pixels, (colors, depths): (&mut [u8], &mut [u8])) {
        self.each(|there, here| {
            let planes = self.planes.part(pixels, &here);
            colors[bytes(&there, pixels.color())].copy_from_slice(planes.colors);
            depths[bytes(&there, pixels.depth())].copy_from_slice(planes.depths);
        });
    }

    /// Where each run belongs, and where it stands here.
    fn each(&self, mut found: impl FnMut(Range<u32>, Range<u32>)) {
        let mut at = 0;
        for (start, length) in runs_of(self.runs) {
            found(start..start + length, at..at + length);
            at += length;
        }
    }
}

fn bytes(pixels: &Range<u32>, each: usize) -> Range<usize> {
    pixels.start as usize * each..pixels.end as usize * each
}

fn runs_of(runs: &[u8]) -> impl Iterator<Item = (u32, u32)> {
    runs.chunks_exact(RUN).map(|run| (number(run, 0) as u32, number(run, NUMBER) as u32))
}

/// The layers of a message about so many pixels; `None`: it is none.
pub(super) fn unpack(message: &[u8], pixels: Pixels, room: u32) -> Option<Vec<Layer<'_>>> {
    let mut rest = message;
    let layers = take_number(&mut rest)?;
    let mut found = Vec::new();
    for _ in 0..layers {
        let (position, runs, count) =
            (take_number(&mut rest)?, take_number(&mut rest)?, take_number(&mut rest)?);
        let runs = take(&mut rest, (runs as usize).checked_mul(RUN)?)?;
        let (mut end, mut sum) = (0u32, 0u32);
        for (start, length) in runs_of(runs) {
            if start < end {
                return None;
            }
            end = start.checked_add(length).filter(|end| *end <= room)?;
            // It cannot be more than there is room for.
            sum += length;
        }
        if sum != count {
            return None;
        }
        let count = count as usize;
        let colors = take(&mut rest, count.checked_mul(pixels.color())?)?;
        let depths = take(&mut rest, count.checked_mul(pixels.depth())?)?;
        found.push(Layer { position, runs, planes: Planes { colors, depths } });
    }
    rest.is_empty().then_some(found)
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(bytes)?;
    *rest = left;
    Some(taken)
}

fn take_number(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(*take(rest, NUMBER)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(pixels: Pixels, layers: &[(u32, &[u8], &[u8])]) -> Vec<u8> {
        let mut message = vec![7; 3];
        begin(&mut message, layers.len());
        for (position, colors, depths) in layers {
            pack(&mut message, (pixels, pixels), *position, Planes { colors, depths });
        }
        message
    }

    proptest! {
        #[test]
        fn pixels_that_count_come_as_they_are(alphas in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..200)) {
            let colors: Vec<u8> = alphas.iter().flat_map(|alpha| if *alpha == 0 { [0; 4] } else { [1, 2, 3, *alpha] }).collect();
            let message = message(Pixels::Over8, &[(3, &colors, &[]), (9, &[], &[])]);
            // As a message it is never much longer than the picture.
            prop_assert!(message.len() <= 28 + RUN + colors.len());
            let layers = unpack(&message, Pixels::Over8, alphas.len() as u32).unwrap();
            prop_assert_eq!([layers[0].position, layers[1].position], [3, 9]);
            let mut into = vec![0; colors.len()];
            layers[0].write(Pixels::Over8, (&mut into, &mut []));
            prop_assert_eq!(&into, &colors);
            let mut into = vec![0; colors.len()];
            layers[0].blend(Pixels::Over8, (&mut into, &mut []), Side::Behind);
            prop_assert_eq!(into, colors);
        }

        /// What a defective rank sends is refused, or stays within the picture.
        #[test]
        fn garbage_is_no_message(garbage in prop::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..100)) {
            for pixels in [Pixels::Nearest(1.0), Pixels::Over8, Pixels::Over32] {
                let Some(layers) = unpack(&garbage, pixels, 10) else { continue };
                let (mut colors, mut depths) = (vec![0; 10 * pixels.color()], vec![0; 10 * pixels.depth()]);
                for layer in layers {
                    layer.blend(pixels, (&mut colors, &mut depths), Side::Before);
                    layer.write(pixels, (&mut colors, &mut depths));
                }
            }
        }
    }

    #[test]
    fn what_is_cut_or_beyond_the_picture_is_refused() {
        let (colors, depths) = ([5; 40], [0; 40]);
        let whole = message(Pixels::Nearest(1.0), &[(0, &colors, &depths)]);
        assert!(unpack(&whole, Pixels::Nearest(1.0), 10).is_some());
        assert!(unpack(&whole, Pixels::Nearest(1.0), 9).is_none());
        assert!(unpack(&whole, Pixels::Over8, 10).is_none());
        assert!((0..whole.len()).all(|end| unpack(&whole[..end], Pixels::Nearest(1.0), 10).is_none()));
    }
}
