//! What is known of a pixel, and what becomes of two that lie behind each other.

use std::ops::Range;

/// What a picture has of each pixel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pixels {
    /// Red, green, blue and alpha of 8 bits, and a depth of 32 bits. It counts if that is less than this. The nearest one is seen.
    Nearest(f32),
    /// Red, green, blue, each multiplied with alpha, and alpha, of 8 bits. It counts if alpha is not 0. All are seen through each other.
    Over8,
    /// The same of 32 bits.
    Over32,
}

/// Where what comes lies, seen from what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Between it and who looks. Of two of the same depth it is seen.
    Before,
    /// Behind it.
    Behind,
}

/// The bytes of a depth.
pub(super) const DEPTH: usize = 4;
/// How many pixels are looked at together.
const BLOCK: usize = 64;

impl Pixels {
    /// The bytes of a colour.
    pub(super) fn color(self) -> usize {
        match self {
            Pixels::Nearest(_) | Pixels::Over8 => 4,
            Pixels::Over32 => 16,
        }
    }

    /// The bytes of a depth, if there are any.
    pub(super) fn depth(self) -> usize {
        match self {
            Pixels::Nearest(_) => DEPTH,
            Pixels::Over8 | Pixels::Over32 => 0,
        }
    }

    /// What all ranks must have in common.
    pub(super) fn code(self) -> u64 {
        match self {
            Pixels::Nearest(far) => 1 << 32 | u64::from(far.to_bits()),
            Pixels::Over8 => 2 << 32,
            Pixels::Over32 => 3 << 32,
        }
    }

    /// Whether the pixel of these bytes counts.
    fn counts(self, color: &[u8], depth: &[u8]) -> bool {
        match self {
            Pixels::Nearest(far) => number(depth) < far,
            Pixels::Over8 => color[3] != 0,
            Pixels::Over32 => number(&color[12..]) > 0.0,
        }
    }

    /// Whether all of these pixels count, or none; `None`: some do.
    fn count_all(self, colors: &[u8], depths: &[u8]) -> Option<bool> {
        let (mut all, mut any) = (true, false);
        let mut see = |counts: bool| {
            all &= counts;
            any |= counts;
        };
        match self {
            Pixels::Nearest(far) => {
                depths.as_chunks::<4>().0.iter().for_each(|depth| see(f32::from_ne_bytes(*depth) < far))
            }
            Pixels::Over8 => colors.as_chunks::<4>().0.iter().for_each(|color| see(color[3] != 0)),
            Pixels::Over32 => {
                colors.as_chunks::<16>().0.iter().for_each(|color| see(number(&color[12..]) > 0.0))
            }
        }
        (all || !any).then_some(all)
    }

    /// From the first pixel that counts to the one behind the last; empty: none does.
    pub(super) fn extent(self, colors: &[u8], depths: &[u8]) -> Range<usize> {
        let pixels = colors.len() / self.color();
        let (mut blocks, mut blocks_back) = (self.blocks(colors, depths), self.blocks(colors, depths).rev());
        let is_seen = |block: &(usize, &[u8], &[u8])| self.count_all(block.1, block.2) != Some(false);
        let Some((start, colors, depths)) = blocks.find(is_seen) else { return 0..0 };
        let first = start + self.first(colors, depths, 0..colors.len() / self.color());
        let last = blocks_back.find(is_seen).map_or(pixels, |(start, colors, depths)| {
            start + self.first(colors, depths, (0..colors.len() / self.color()).rev())
        });
        first..(last + 1).min(pixels)
    }

    /// The first of these pixels that counts.
    fn first(self, colors: &[u8], depths: &[u8], mut order: impl Iterator<Item = usize>) -> usize {
        let found = order.find(|index| {
            let (at, to) = (index * self.color(), index * self.depth());
            self.counts(&colors[at..at + self.color()], &depths[to..to + self.depth()])
        });
        found.unwrap_or_default()
    }

    /// The pixels in blocks that are looked at together: where each begins, its colours and depths.
    fn blocks<'a>(
        self,
        colors: &'a [u8],
        depths: &'a [u8],
    ) -> impl DoubleEndedIterator<Item = (usize, &'a [u8], &'a [u8])> {
        let (color, depth) = (self.color(), self.depth());
        let pixels = colors.len() / color;
        (0..pixels.div_ceil(BLOCK)).map(move |index| {
            let (start, end) = (index * BLOCK, ((index + 1) * BLOCK).min(pixels));
            (start, &colors[start * color..end * color], &depths[start * depth..end * depth])
        })
    }

    /// Where in a picture pixels begin to count, or end to: `found` is told of each run of them, from its first one to the one behind its
    /// last, both counted from `start`.
    pub(super) fn runs(self, colors: &[u8], depths: &[u8], mut found: impl FnMut(usize, usize)) {
        let (color, depth) = (self.color(), self.depth());
        let pixels = colors.len() / color;
        let mut begun = None;
        let mut note = |at: usize, counts: bool| match (begun, counts) {
            (None, true) => begun = Some(at),
            (Some(start), false) => {
                found(start, at);
                begun = None;
            }
            _ => {}
        };
        for (start, colors, depths) in self.blocks(colors, depths) {
            if let Some(counts) = self.count_all(colors, depths) {
                note(start, counts);
                continue;
            }
            for index in 0..colors.len() / color {
                let (at, to) = (index * color, index * depth);
                note(start + index, self.counts(&colors[at..at + color], &depths[to..to + depth]));
            }
        }
        note(pixels, false);
    }

    /// Puts pixels together with those that are there, in their place.
    pub(super) fn blend(
        self,
        (colors, depths): (&mut [u8], &mut [u8]),
        (their_colors, their_depths): (&[u8], &[u8]),
        side: Side,
    ) {
        match self {
            Pixels::Nearest(far) => {
                let here = colors.as_chunks_mut::<4>().0.iter_mut().zip(depths.as_chunks_mut::<4>().0);
                let theirs = their_colors.as_chunks::<4>().0.iter().zip(their_depths.as_chunks::<4>().0);
                match side {
                    Side::Before => here.zip(theirs).for_each(|(here, theirs)| {
                        // What is there may be no number.
                        let (own, depth) = (f32::from_ne_bytes(*here.1), f32::from_ne_bytes(*theirs.1));
                        take_if((depth < far) & ((depth <= own) | own.is_nan()), here, theirs);
                    }),
                    Side::Behind => here.zip(theirs).for_each(|(here, theirs)| {
                        let (own, depth) = (f32::from_ne_bytes(*here.1), f32::from_ne_bytes(*theirs.1));
                        take_if((depth < far) & ((depth < own) | own.is_nan()), here, theirs);
                    }),
                }
            }
            Pixels::Over8 => {
                let both = colors.as_chunks_mut::<4>().0.iter_mut().zip(their_colors.as_chunks::<4>().0);
                match side {
                    Side::Before => both.for_each(|(own, theirs)| *own = over8(*theirs, *own)),
                    Side::Behind => both.for_each(|(own, theirs)| *own = over8(*own, *theirs)),
                }
            }
            Pixels::Over32 => {
                let both = colors.as_chunks_mut::<16>().0.iter_mut().zip(their_colors.as_chunks::<16>().0);
                match side {
                    Side::Before => both.for_each(|(own, theirs)| *own = over32(theirs, own)),
                    Side::Behind => both.for_each(|(own, theirs)| *own = over32(own, theirs)),
                }
            }
        }
    }
}

fn number(bytes: &[u8]) -> f32 {
    bytes.first_chunk().map_or(f32::NAN, |bytes| f32::from_ne_bytes(*bytes))
}

fn take_if(wins: bool, here: (&mut [u8; 4], &mut [u8; 4]), theirs: (&[u8; 4], &[u8; 4])) {
    // All bits, or none. Of an `if` the compiler makes a branch for each pixel; so it looks at several pixels together, four times as fast.
    let mask = u32::from(wins).wrapping_neg();
    let choose = |theirs: &[u8; 4], own: &[u8; 4]| {
        let own = u32::from_ne_bytes(*own);
        own ^ ((own ^ u32::from_ne_bytes(*theirs)) & mask)
    };
    *here.0 = choose(theirs.0, here.0).to_ne_bytes();
    *here.1 = choose(theirs.1, here.1).to_ne_bytes();
}

/// Porter and Duff, "Compositing digital images" (1984): front + (1 - alpha of front) x back, rounded to the nearest.
fn over8(front: [u8; 4], back: [u8; 4]) -> [u8; 4] {
    let through = 255 - u32::from(front[3]);
    std::array::from_fn(|channel| {
        let part = u32::from(back[channel]) * through + 128;
        // A division by 255.
        (u32::from(front[channel]) + ((part + (part >> 8)) >> 8)).min(255) as u8
    })
}

/// The same. What is no number, or has an alpha that is none, is not seen.
fn over32(front: &[u8; 16], back: &[u8; 16]) -> [u8; 16] {
    let is_seen = |pixel: &[u8; 16]| number(&pixel[12..]) > 0.0;
    if !is_seen(front) {
        return *back;
    }
    if !is_seen(back) {
        return *front;
    }
    let through = 1.0 - number(&front[12..]);
    let mut seen = [0; 16];
    for channel in 0..4 {
        let at = channel * 4;
        let value = number(&front[at..]) + through * number(&back[at..]);
        seen[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn front_is_seen_through_by_what_it_leaves() {
        assert_eq!(over8([10, 20, 30, 255], [200, 200, 200, 255]), [10, 20, 30, 255]);
        assert_eq!(over8([0, 0, 0, 0], [1, 2, 3, 4]), [1, 2, 3, 4]);
        assert_eq!(over8([64, 0, 0, 128], [100, 100, 100, 255]), [114, 50, 50, 255]);
        // Colours that are no part of their alpha do not wrap.
        assert_eq!(over8([255, 255, 255, 1], [255, 255, 255, 255]), [255; 4]);
        // As exact as a division, for every alpha and every colour.
        for alpha in 0..=255 {
            for back in 0..=255u8 {
                let exact = (f64::from(back) * f64::from(255 - alpha) / 255.0).round() as u8;
                assert_eq!(over8([0, 0, 0, alpha], [back, 0, 0, 0])[0], exact, "{alpha} before {back}");
            }
        }
    }

    #[test]
    fn runs_are_found_wherever_they_begin_and_end() {
        for pixels in [0, 1, 31, 32, 33, 100] {
            for seed in 0..200u64 {
                let counts: Vec<bool> =
                    (0..pixels).map(|at| (seed.wrapping_mul(at * at + 7) >> 3) % 5 < seed % 6).collect();
                let colors: Vec<u8> = counts.iter().flat_map(|counts| [9, 9, 9, u8::from(*counts)]).collect();
                let mut found = vec![false; pixels as usize];
                let mut last = None;
                Pixels::Over8.runs(&colors, &[], |start, end| {
                    assert!(start < end && last.is_none_or(|last| last < start));
                    found[start..end].fill(true);
                    last = Some(end);
                });
                assert_eq!(found, counts);
                let extent = Pixels::Over8.extent(&colors, &[]);
                assert_eq!(extent.start, counts.iter().position(|counts| *counts).unwrap_or_default());
                assert_eq!(extent.end, counts.iter().rposition(|counts| *counts).map_or(0, |last| last + 1));
            }
        }
    }

    #[test]
    fn what_is_no_number_is_background() {
        let depths =
            |depths: &[f32]| depths.iter().flat_map(|depth| depth.to_ne_bytes()).collect::<Vec<u8>>();
        let (mut own, theirs) =
            (depths(&[f32::NAN, 0.5, 0.5, 1.0, 0.25]), depths(&[0.75, f32::NAN, 0.5, 1.0, 0.5]));
        for (side, tie) in [(Side::Before, 2), (Side::Behind, 1)] {
            let mut colors = vec![1; 20];
            let mut depths = own.clone();
            Pixels::Nearest(1.0).blend((&mut colors, &mut depths), (&[2; 20], &theirs), side);
            let seen: Vec<u8> = colors.iter().step_by(4).copied().collect();
            assert_eq!(seen, [2, 1, tie, 1, 1]);
        }
        own.truncate(4);
        assert_eq!(Pixels::Nearest(1.0).extent(&[0; 4], &own), 0..0);
        let float =
            |pixel: [f32; 4]| -> [u8; 16] { std::array::from_fn(|at| pixel[at / 4].to_ne_bytes()[at % 4]) };
        let (none, half) = (float([f32::NAN; 4]), float([0.5, 0.0, 0.0, 0.5]));
        assert_eq!((over32(&none, &half), over32(&half, &none)), (half, half));
        assert_eq!(over32(&half, &half), float([0.75, 0.0, 0.0, 0.75]));
    }
}
