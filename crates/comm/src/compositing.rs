//! Pictures of all ranks are put together into one.
//!
//! Each rank divides its picture among all, in rounds, and puts together what it gets of its part (`rounds`, `exchange`); then the parts go to who gets
//! the whole. Only pixels that count are sent (`message`), and only the part of the picture is divided in which any rank has one. As much
//! of it is taken at once as fits into few megabytes, so that pictures of any size need no more memory than themselves.

mod canvas;
mod exchange;
mod message;
mod pixels;
mod rounds;
pub(crate) mod visibility;

use crate::collectives::equal_blocks;
use crate::comm::Comm;
use crate::kind::{Kind, What};
use crate::task::Task;
use canvas::Canvas;
use forebay_core::{Error, ErrorKind, Result};
use pixels::Pixels;
use rounds::{Rounds, part};
use std::ops::Range;

/// How many bytes of a picture are put together at once.
const BAND: usize = 2 << 20;
/// The bytes of what each rank tells before.
const ENTRY: usize = 48;

/// A layer of a picture: what is seen of something behind or before all of each other layer.
#[derive(Debug, Clone, Copy)]
pub struct Layer<'a> {
    /// Its place in the order from front to back: each layer of all ranks has another one.
    pub position: u32,
    /// Red, green, blue, each multiplied with alpha, and alpha, of each pixel.
    pub colors: &'a [u8],
}

/// The type of a channel of a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    /// 8 bits: 255 is 1.
    UInt8,
    /// IEEE 754 of 32 bits.
    Float32,
}

/// What a rank tells before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    pixels: u64,
    code: u64,
    layers: u64,
    /// The position of its first layer.
    position: u64,
    /// Where it has pixels that count.
    first: u64,
    end: u64,
}

/// How it is done, as all ranks agree.
struct Plan {
    pixels: Pixels,
    /// What goes to who gets the whole.
    result: Pixels,
    root: Option<u32>,
    rounds: Rounds,
    /// The rank of each place.
    ranks: Vec<u32>,
    /// This rank's place.
    place: u32,
    /// The pixels that are looked at, in bands.
    bands: Vec<Range<u32>>,
    /// Whether a rank has several layers.
    has_many: bool,
}

impl Comm {
    /// Puts the pictures of all ranks together: of each pixel what is nearest. `colors` have four bytes a pixel, `depths` a `f32`, in the
    /// machine's order, which counts if it is less than `far`. Of equal depths the lowest rank's is seen. The root, or every rank where that is
    /// `None`, has the result in the memory of its own picture, in which pixels stay that count nowhere, and has depths too with `with_depths`;
    /// else what the memory holds afterwards is of no use. All ranks give as many pixels. Waits for all.
    pub fn composite_nearest(
        &self,
        root: Option<u32>,
        (colors, depths): (&mut [u8], &mut [u8]),
        far: f32,
        with_depths: bool,
    ) -> Result<()> {
        if far.is_nan() {
            return Err(Error::invalid("far=NaN: give the depth from which on there is background"));
        }
        root.map_or(Ok(()), |root| self.check_rank(root))?;
        if colors.len() % 4 != 0 || colors.len() != depths.len() {
            let (colors, depths) = (colors.len(), depths.len());
            return Err(Error::invalid(format!(
                "a picture has four bytes of colour and four of depth for each pixel, not {colors} and {depths} in all"
            )));
        }
        let task = self.compositing(root);
        let pixels = Pixels::Nearest(far);
        let result = if with_depths { pixels } else { Pixels::Over8 };
        self.hub.run(&task, self.composite_of(&task, (root, pixels, result), Canvas { colors, depths }, None))
    }

    /// Puts the layers of all ranks together, of each of which one sees through to those behind, in the order of their positions. A rank may have
    /// none, one or several. The root, or every rank where that is `None`, has the result in `into`, from which others may leave that out;
    /// pixels that count nowhere are 0 there. A pixel counts if its alpha is not 0. All layers have as many pixels. Where each rank has no
    /// more than one layer, ranks exchange pictures in rounds; else each to each other one. Waits for all.
    pub fn composite_over(
        &self,
        root: Option<u32>,
        (count, channel): (usize, Channel),
        layers: &[Layer<'_>],
        into: Option<&mut [u8]>,
    ) -> Result<()> {
        root.map_or(Ok(()), |root| self.check_rank(root))?;
        let pixels = match channel {
            Channel::UInt8 => Pixels::Over8,
            Channel::Float32 => Pixels::Over32,
        };
        let bytes = count
            .checked_mul(pixels.color())
            .ok_or_else(|| Error::invalid(format!("a picture of {count} pixels is too large")))?;
        let all = layers.iter().map(|layer| layer.colors.len()).chain(into.as_ref().map(|into| into.len()));
        if let Some(other) = all.into_iter().find(|other| *other != bytes) {
            return Err(Error::invalid(format!(
                "a picture of {count} pixels has {bytes} bytes, not {other}"
            )));
        }
        if into.is_none() && root.is_none_or(|root| root == self.rank) {
            return Err(Error::invalid(format!(
                "rank {} gets the picture, and gives no memory for it",
                self.rank
            )));
        }
        let task = self.compositing(root);
        let mut own = Vec::new();
        let colors = match into {
            Some(into) => {
                into.fill(0);
                into
            }
            None => {
                own.try_reserve_exact(bytes).map_err(|_| {
                    Error::new(ErrorKind::Full, format!("there is no memory of {bytes} bytes for a picture"))
                })?;
                own.resize(bytes, 0);
                &mut own
            }
        };
        let canvas = Canvas { colors, depths: &mut [] };
        self.hub.run(&task, self.composite_of(&task, (root, pixels, pixels), canvas, Some(layers)))
    }

    fn compositing(&self, root: Option<u32>) -> Task {
        let kind = Kind::of(What::Composite);
        self.collective(root.map_or(kind, |root| kind.at(root)))
    }

    /// Each rank gives what stands on its canvas, or layers.
    async fn composite_of(
        &self,
        task: &Task,
        (root, pixels, result): (Option<u32>, Pixels, Pixels),
        canvas: Canvas<'_>,
        layers: Option<&[Layer<'_>]>,
    ) -> Result<()> {
        let plan = self.plan(task, (root, pixels, result), &canvas, layers).await?;
        if let (false, Some([layer])) = (plan.has_many, layers) {
            canvas.colors.copy_from_slice(layer.colors);
        }
        for band in &plan.bands {
            let bytes = |each: usize| band.start as usize * each..band.end as usize * each;
            let mut here = Canvas {
                colors: &mut canvas.colors[bytes(pixels.color())],
                depths: &mut canvas.depths[bytes(pixels.depth())],
            };
            if let (true, Some(layers)) = (plan.has_many, layers) {
                let parts: Vec<Layer<'_>> = layers
                    .iter()
                    .map(|layer| Layer {
                        position: layer.position,
                        colors: &layer.colors[bytes(pixels.color())],
                    })
                    .collect();
                self.blend_layers(task, &plan, &mut here, &parts).await?;
            } else {
                self.blend_rounds(task, &plan, &mut here).await?;
            }
            self.give_shares(task, &plan, &mut here).await?;
        }
        Ok(())
    }

    /// All tell what they have. So it is known who exchanges what, and that all have pictures of one kind.
    async fn plan(
        &self,
        task: &Task,
        (root, pixels, result): (Option<u32>, Pixels, Pixels),
        canvas: &Canvas<'_>,
        layers: Option<&[Layer<'_>]>,
    ) -> Result<Plan> {
        let mine = Entry::of(pixels, canvas, layers);
        let mut all = vec![0; ENTRY * self.size as usize];
        let blocks = equal_blocks(self.size, ENTRY, all.len())?;
        self.allgather_into_of(task, &mine.to_bytes(), (&mut all, blocks)).await?;
        let entries: Vec<Entry> = all.as_chunks().0.iter().map(Entry::from_bytes).collect();
        for (rank, entry) in entries.iter().enumerate() {
            if let Some(why) = mine.differs(entry) {
                let why = format_args!("rank {rank} gives {why} than rank {}", self.rank);
                return Err(task.failed(ErrorKind::Invalid, Some(0), why));
            }
        }
        let has_many = entries.iter().any(|entry| entry.layers > 1);
        let mut ranks: Vec<u32> = (0..self.size).collect();
        if layers.is_some() && !has_many {
            ranks.sort_by_key(|rank| (entries[*rank as usize].position, *rank));
            let twice = ranks.windows(2).find(|pair| {
                let [first, second] = [pair[0], pair[1]].map(|rank| entries[rank as usize]);
                second.layers > 0 && first.position == second.position
            });
            if let Some(pair) = twice {
                return Err(self.same_position(
                    task,
                    entries[pair[0] as usize].position as u32,
                    (pair[0], pair[1]),
                ));
            }
        }
        let place = ranks.iter().position(|rank| *rank == self.rank).unwrap_or_default() as u32;
        let seen = entries.iter().filter(|entry| entry.first < entry.end);
        let first = seen.clone().map(|entry| entry.first).min().unwrap_or_default();
        let window = first..seen.map(|entry| entry.end).max().unwrap_or_default();
        let layers = entries.iter().map(|entry| entry.layers).sum::<u64>().max(1);
        // Who puts a part together has that of all layers at once.
        let at_once = if has_many { layers.div_ceil(u64::from(self.size)) } else { 1 };
        let bands = bands_of(&window, (pixels.color() + pixels.depth()) as u64 * at_once);
        let rounds = if has_many { Rounds::direct(self.size) } else { Rounds::of(self.size) };
        Ok(Plan { pixels, result, root, rounds, ranks, place, bands, has_many })
    }

    fn same_position(&self, task: &Task, position: u32, (first, second): (u32, u32)) -> Error {
        let why = format_args!(
            "two layers have position {position}, of ranks {first} and {second}: which is in front?"
        );
        task.failed(ErrorKind::Invalid, Some(0), why)
    }
}

/// A window in parts that need no more memory than one may.
fn bands_of(window: &Range<u64>, bytes: u64) -> Vec<Range<u32>> {
    if window.is_empty() {
        return Vec::new();
    }
    let whole = window.start as u32..window.end as u32;
    let count = ((window.end - window.start) * bytes).div_ceil(BAND as u64).max(1) as usize;
    (0..count).map(|index| part(&whole, index, count)).collect()
}

impl Entry {
    fn of(pixels: Pixels, canvas: &Canvas<'_>, layers: Option<&[Layer<'_>]>) -> Entry {
        let extents: Vec<Range<usize>> = match layers {
            None => vec![pixels.extent(canvas.colors, canvas.depths)],
            Some(layers) => layers.iter().map(|layer| pixels.extent(layer.colors, &[])).collect(),
        };
        let seen = extents.iter().filter(|extent| !extent.is_empty());
        let first = seen.clone().map(|extent| extent.start).min().unwrap_or_default();
        let end = seen.map(|extent| extent.end).max().unwrap_or_default();
        let layers = layers.unwrap_or_default();
        Entry {
            pixels: (canvas.colors.len() / pixels.color()) as u64,
            code: pixels.code(),
            layers: layers.len() as u64,
            position: layers.iter().map(|layer| u64::from(layer.position)).min().unwrap_or(u64::MAX),
            first: first as u64,
            end: end as u64,
        }
    }

    fn to_bytes(self) -> [u8; ENTRY] {
        let numbers = [self.pixels, self.code, self.layers, self.position, self.first, self.end];
        std::array::from_fn(|at| numbers[at / 8].to_le_bytes()[at % 8])
    }

    fn from_bytes(bytes: &[u8; ENTRY]) -> Entry {
        let number =
            |index: usize| u64::from_le_bytes(bytes[8 * index..].first_chunk().copied().unwrap_or_default());
        let (pixels, end) = (number(0), number(5));
        // Nobody has pixels that count outside of the picture.
        let end = end.min(pixels);
        Entry {
            pixels,
            code: number(1),
            layers: number(2),
            position: number(3),
            first: number(4).min(end),
            end,
        }
    }

    /// What of another one's picture is of another kind.
    fn differs(&self, other: &Entry) -> Option<String> {
        if self.pixels != other.pixels {
            return Some(format!("a picture of another size ({} pixels, not {})", other.pixels, self.pixels));
        }
        (self.code != other.code)
            .then(|| "pixels of another kind, or another depth of the background,".to_owned())
    }
}

#[cfg(test)]
mod tests;
