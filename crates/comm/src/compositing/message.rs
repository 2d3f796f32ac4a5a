//! Parts of pictures on their way: only the pixels that count.
//!
//! A message is the number of its layers, and of each: its position, the number of its runs, the number of its pixels, whether these follow
//! in messages of their own, the runs (where each begins, and its length), and unless they follow, colours and depths of the pixels. What
//! follows is sent from where it lies: all from the first pixel that counts to the last one, if nearly all of them count.

use super::pixels::{Pixels, Side};
use std::ops::Range;

/// The bytes of a number.
const NUMBER: usize = 4;
/// The bytes of a run.
const RUN: usize = 2 * NUMBER;
/// The numbers of a layer before its runs.
const HEAD: usize = 4 * NUMBER;
/// From how many bytes on a plane is sent from where it lies: less is copied in less time than another message takes.
const LENT_MIN: usize = 64 << 10;

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
        let of = |plane: &'a [u8], each: usize| &plane[bytes(range, each)];
        let depths = if self.depths.is_empty() { &[] } else { of(self.depths, pixels.depth()) };
        Planes { colors: of(self.colors, pixels.color()), depths }
    }
}

/// What is sent of a layer.
pub(super) struct Outgoing<'a> {
    position: u32,
    runs: Vec<Range<u32>>,
    count: u32,
    /// What the message carries of each pixel.
    carried: Pixels,
    planes: Planes<'a>,
    is_lent: bool,
}

impl<'a> Outgoing<'a> {
    /// What counts by `pixels`, with what of it `carried` has.
    pub(super) fn of(
        position: u32,
        (pixels, carried): (Pixels, Pixels),
        planes: Planes<'a>,
        may_lend: bool,
    ) -> Outgoing<'a> {
        let (mut runs, mut count) = (Vec::new(), 0);
        pixels.runs(planes.colors, planes.depths, |start, end| {
            runs.push(start as u32..end as u32);
            count += (end - start) as u32;
        });
        let planes = if carried.depth() > 0 { planes } else { Planes { depths: &[], ..planes } };
        let mut layer = Outgoing { position, runs, count, carried, planes, is_lent: false };
        let span = layer.span();
        let lent = (span.end - span.start) as usize;
        layer.is_lent = may_lend && lent * carried.color() >= LENT_MIN && lent * 7 <= count as usize * 8;
        layer
    }

    /// From the first pixel that counts to the last one.
    fn span(&self) -> Range<u32> {
        span_of(self.runs.first().map(|run| run.start), self.runs.last().map(|run| run.end))
    }

    /// The planes that follow the message.
    pub(super) fn lent(&self) -> impl Iterator<Item = &'a [u8]> {
        let planes = self.planes.part(self.carried, &self.span());
        [planes.colors, planes.depths].into_iter().filter(|plane| self.is_lent && !plane.is_empty())
    }

    fn bytes(&self) -> usize {
        let each = self.carried.color() + self.carried.depth();
        HEAD + self.runs.len() * RUN + if self.is_lent { 0 } else { self.count as usize * each }
    }

    fn write(&self, out: &mut &mut [u8]) {
        for number in [self.position, self.runs.len() as u32, self.count, u32::from(self.is_lent)] {
            put(out, &number.to_le_bytes());
        }
        for run in &self.runs {
            put(out, &run.start.to_le_bytes());
            put(out, &(run.end - run.start).to_le_bytes());
        }
        let planes = [(self.planes.colors, self.carried.color()), (self.planes.depths, self.carried.depth())];
        for (plane, each) in planes.into_iter().filter(|(_, each)| !self.is_lent && *each > 0) {
            self.runs.iter().for_each(|run| put(out, &plane[bytes(run, each)]));
        }
    }
}

/// The length of a message.
pub(super) fn length(layers: &[Outgoing<'_>]) -> usize {
    NUMBER + layers.iter().map(Outgoing::bytes).sum::<usize>()
}

/// Writes a message of this length.
pub(super) fn write(layers: &[Outgoing<'_>], mut out: &mut [u8]) {
    put(&mut out, &(layers.len() as u32).to_le_bytes());
    layers.iter().for_each(|layer| layer.write(&mut out));
}

/// How long a message of one layer may be about so many pixels.
pub(super) fn longest(pixels: Pixels, count: usize) -> usize {
    NUMBER + HEAD + count.div_ceil(2) * RUN + count * (pixels.color() + pixels.depth())
}

fn put(out: &mut &mut [u8], bytes: &[u8]) {
    let (here, rest) = std::mem::take(out).split_at_mut(bytes.len());
    here.copy_from_slice(bytes);
    *out = rest;
}

fn number(message: &[u8], at: usize) -> u32 {
    message[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

/// A layer that has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layer<'a> {
    pub(super) position: u32,
    runs: &'a [u8],
    /// Of the pixels that count; or if it is lent, once they have come, of all from the first one on.
    planes: Planes<'a>,
    is_lent: bool,
}

impl<'a> Layer<'a> {
    /// If its planes follow, where they lie in the picture.
    pub(super) fn follows(&self) -> Option<Range<u32>> {
        let last = self
            .runs
            .len()
            .checked_sub(RUN)
            .map(|last| number(self.runs, last) + number(self.runs, last + NUMBER));
        self.is_lent.then(|| span_of((!self.runs.is_empty()).then(|| number(self.runs, 0)), last))
    }

    /// Whether all pixels from the first one to the last one count.
    pub(super) fn is_whole(&self) -> bool {
        self.runs.len() == RUN
    }

    /// The layer with the planes that have followed.
    pub(super) fn with(self, planes: Planes<'a>) -> Layer<'a> {
        Layer { planes, ..self }
    }

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
        let first = self.follows().map(|span| span.start);
        let mut at = 0;
        for (start, length) in runs_of(self.runs) {
            let here = first.map_or(at, |first| start - first);
            found(start..start + length, here..here + length);
            at += length;
        }
    }
}

fn span_of(first: Option<u32>, end: Option<u32>) -> Range<u32> {
    first.unwrap_or_default()..end.unwrap_or_default()
}

fn bytes(pixels: &Range<u32>, each: usize) -> Range<usize> {
    pixels.start as usize * each..pixels.end as usize * each
}

fn runs_of(runs: &[u8]) -> impl Iterator<Item = (u32, u32)> {
    runs.chunks_exact(RUN).map(|run| (number(run, 0), number(run, NUMBER)))
}

/// The layers of a message about so many pixels; `None`: it is none.
pub(super) fn unpack(message: &[u8], pixels: Pixels, room: u32) -> Option<Vec<Layer<'_>>> {
    let mut rest = message;
    let layers = take_number(&mut rest)?;
    let mut found = Vec::new();
    for _ in 0..layers {
        let (position, runs) = (take_number(&mut rest)?, take_number(&mut rest)?);
        let (count, is_lent) = (take_number(&mut rest)?, take_number(&mut rest)? != 0);
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
        let count = if is_lent { 0 } else { count as usize };
        let colors = take(&mut rest, count.checked_mul(pixels.color())?)?;
        let depths = take(&mut rest, count.checked_mul(pixels.depth())?)?;
        found.push(Layer { position, runs, planes: Planes { colors, depths }, is_lent });
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
        let layers: Vec<Outgoing<'_>> = layers
            .iter()
            .map(|(position, colors, depths)| {
                Outgoing::of(*position, (pixels, pixels), Planes { colors, depths }, true)
            })
            .collect();
        let mut message = vec![7; length(&layers)];
        write(&layers, &mut message);
        message
    }

    proptest! {
        #[test]
        fn pixels_that_count_come_as_they_are(alphas in prop::collection::vec(prop_oneof![Just(0u8), any::<u8>()], 0..200)) {
            let colors: Vec<u8> = alphas.iter().flat_map(|alpha| if *alpha == 0 { [0; 4] } else { [1, 2, 3, *alpha] }).collect();
            let message = message(Pixels::Over8, &[(3, &colors, &[]), (9, &[], &[])]);
            prop_assert!(message.len() <= longest(Pixels::Over8, alphas.len()) + HEAD);
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
                for mut layer in layers {
                    let (more_colors, more_depths) = (colors.clone(), depths.clone());
                    if let Some(span) = layer.follows() {
                        layer = layer.with(Planes { colors: &more_colors, depths: &more_depths }.part(pixels, &span));
                    }
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

    #[test]
    fn what_nearly_all_counts_of_follows_from_where_it_lies() {
        let mut colors = [9u8; 4 * 40_000];
        colors[..400].fill(0);
        colors[80_000..82_000].fill(0);
        let layer =
            Outgoing::of(0, (Pixels::Over8, Pixels::Over8), Planes { colors: &colors, depths: &[] }, true);
        let lent: Vec<&[u8]> = layer.lent().collect();
        assert_eq!(lent, [&colors[400..]]);
        let mut message = vec![0; length(&[layer])];
        let layer =
            Outgoing::of(0, (Pixels::Over8, Pixels::Over8), Planes { colors: &colors, depths: &[] }, true);
        write(&[layer], &mut message);
        assert!(message.len() < 100);
        let layers = unpack(&message, Pixels::Over8, 40_000).unwrap();
        assert_eq!((layers[0].follows(), layers[0].is_whole()), (Some(100..40_000), false));
        let mut into = vec![7; colors.len()];
        layers[0].with(Planes { colors: lent[0], depths: &[] }).write(Pixels::Over8, (&mut into, &mut []));
        assert!(into[..400].iter().chain(&into[80_000..82_000]).all(|byte| *byte == 7));
        assert!(into[400..80_000].iter().chain(&into[82_000..]).all(|byte| *byte == 9));
    }
}
