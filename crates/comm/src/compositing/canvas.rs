//! The memory in which a rank's picture is put together.

use super::message::Planes;
use super::pixels::Pixels;
use std::ops::Range;

/// Colours and depths of some pixels.
pub(super) struct Canvas<'a> {
    pub(super) colors: &'a mut [u8],
    /// Empty: there are none.
    pub(super) depths: &'a mut [u8],
}

impl Canvas<'_> {
    pub(super) fn pixels(&self, pixels: Pixels) -> u32 {
        (self.colors.len() / pixels.color()) as u32
    }

    pub(super) fn planes(&self) -> Planes<'_> {
        Planes { colors: self.colors, depths: self.depths }
    }

    /// Some of its pixels.
    pub(super) fn part(&mut self, pixels: Pixels, range: &Range<u32>) -> Canvas<'_> {
        let of = |each: usize| range.start as usize * each..range.end as usize * each;
        Canvas { colors: &mut self.colors[of(pixels.color())], depths: &mut self.depths[of(pixels.depth())] }
    }

    /// Some of its pixels, and all others.
    pub(super) fn split(&mut self, pixels: Pixels, range: &Range<u32>) -> (Canvas<'_>, Others<'_>) {
        let cut = |each: usize| (range.start as usize * each, range.end as usize * each);
        let (start, end) = cut(pixels.color());
        let (low_colors, rest) = self.colors.split_at_mut(start);
        let (colors, high_colors) = rest.split_at_mut(end - start);
        let (start, end) = cut(pixels.depth());
        let (low_depths, rest) = self.depths.split_at_mut(start);
        let (depths, high_depths) = rest.split_at_mut(end - start);
        let others = Others {
            low: Canvas { colors: low_colors, depths: low_depths },
            high: Canvas { colors: high_colors, depths: high_depths },
            end: range.end,
        };
        (Canvas { colors, depths }, others)
    }
}

/// What lies before and behind a part.
pub(super) struct Others<'a> {
    low: Canvas<'a>,
    high: Canvas<'a>,
    /// Where what is behind begins.
    end: u32,
}

impl Others<'_> {
    /// A part that lies in them.
    pub(super) fn planes(&self, pixels: Pixels, range: &Range<u32>) -> Planes<'_> {
        if range.start >= self.end {
            return self.high.planes().part(pixels, &(range.start - self.end..range.end - self.end));
        }
        self.low.planes().part(pixels, range)
    }

    /// The same, to be written to.
    pub(super) fn part(&mut self, pixels: Pixels, range: &Range<u32>) -> Canvas<'_> {
        if range.start >= self.end {
            return self.high.part(pixels, &(range.start - self.end..range.end - self.end));
        }
        self.low.part(pixels, range)
    }
}
