//! Pictures of all ranks are put together into one.
//!
//! Each rank divides its picture among all, in rounds, and puts together what it gets of its part (`rounds`); then the parts go to who gets
//! the whole. Only pixels that count are sent (`message`), and only the part of the picture is divided in which any rank has one. As much
//! of it is taken at once as fits into few megabytes, so that pictures of any size need no more memory than themselves.

mod message;
mod pixels;
mod rounds;
pub(crate) mod visibility;

use crate::collectives::{beside, equal_blocks, finish};
use crate::comm::Comm;
use crate::kind::{Kind, What};
use crate::sending::Send;
use crate::task::Task;
use forebay_core::{Error, ErrorKind, Result};
use message::{Planes, begin, pack, unpack};
use pixels::{Pixels, Side};
use rounds::{Part, Round, Rounds, part};
use std::ops::Range;

/// How many bytes of a picture are put together at once.
const BAND: usize = 8 << 20;
/// All of the picture of a rank beyond those that take part in the rounds.
const FOLD: u64 = 1 << 16;
/// A part of a picture, for who puts it together.
const ROUND: u64 = 1 << 17;
/// A part that is put together.
const SHARE: u64 = 1 << 18;
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

/// The memory in which a rank's picture is put together.
struct Canvas<'a> {
    colors: &'a mut [u8],
    depths: &'a mut [u8],
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

    /// This rank's share of a band is put together, in rounds.
    async fn blend_rounds(&self, task: &Task, plan: &Plan, canvas: &mut Canvas<'_>) -> Result<()> {
        let mut range = 0..canvas.pixels(plan.pixels);
        let (seat, from) = match plan.rounds.part_of(plan.place) {
            Part::Gives(to) => {
                let mut message = Vec::new();
                canvas.pack(&mut message, (plan.pixels, plan.pixels), &range);
                return self.put(task, plan.ranks[to as usize], FOLD, &message).await;
            }
            Part::Takes(seat, from) => (seat, from),
        };
        if let Some(from) = from {
            let rank = plan.ranks[from as usize];
            let message = self.get(task, rank, FOLD).await?;
            self.blend_message(task, plan, (rank, &message), (canvas, &range), Side::Behind)?;
        }
        for round in plan.rounds.rounds_of(seat) {
            self.blend_round(task, plan, canvas, (&round, &range)).await?;
            range = part(&range, round.mine, round.group.len());
        }
        Ok(())
    }

    async fn blend_round(
        &self,
        task: &Task,
        plan: &Plan,
        canvas: &mut Canvas<'_>,
        (round, range): (&Round, &Range<u32>),
    ) -> Result<()> {
        let size = round.group.len();
        let others: Vec<usize> = (1..size).map(|distance| (round.mine + distance) % size).collect();
        let mut messages = vec![Vec::new(); others.len()];
        for (message, member) in messages.iter_mut().zip(&others) {
            canvas.pack(message, (plan.pixels, plan.pixels), &part(range, *member, size));
        }
        let rank_of = |member: usize| plan.ranks[round.group[member] as usize];
        let mut sends: Vec<Send<'_>> = messages
            .iter()
            .zip(&others)
            .map(|(message, member)| self.put(task, rank_of(*member), ROUND, message))
            .collect();
        let own = part(range, round.mine, size);
        // Neighbours first, so that between what is there and what comes there is never anything else.
        let before = (0..round.mine).rev().map(|member| (member, Side::Before));
        let behind = (round.mine + 1..size).map(|member| (member, Side::Behind));
        for (member, side) in before.chain(behind) {
            let message = beside(&mut sends, self.get(task, rank_of(member), ROUND)).await?;
            self.blend_message(task, plan, (rank_of(member), &message), (canvas, &own), side)?;
        }
        finish(sends).await
    }

    /// Puts what has come together with what stands there.
    fn blend_message(
        &self,
        task: &Task,
        plan: &Plan,
        (rank, message): (u32, &[u8]),
        (canvas, range): (&mut Canvas<'_>, &Range<u32>),
        side: Side,
    ) -> Result<()> {
        let layers = unpack(message, plan.pixels, range.end - range.start).filter(|layers| layers.len() == 1);
        let layers = layers.ok_or_else(|| self.no_picture(task, rank))?;
        layers.iter().for_each(|layer| layer.blend(plan.pixels, canvas.part(plan.pixels, range), side));
        Ok(())
    }

    /// This rank's share of a band is put together from all layers.
    async fn blend_layers(
        &self,
        task: &Task,
        plan: &Plan,
        canvas: &mut Canvas<'_>,
        layers: &[Layer<'_>],
    ) -> Result<()> {
        let (pixels, whole) = (plan.pixels, 0..canvas.pixels(plan.pixels));
        let of = |rank: u32| part(&whole, rank as usize, self.size as usize);
        let message_for = |rank: u32| {
            let mut message = Vec::new();
            begin(&mut message, layers.len());
            for layer in layers {
                let planes = Planes { colors: layer.colors, depths: &[] }.part(pixels, &of(rank));
                pack(&mut message, (pixels, pixels), layer.position, planes);
            }
            message
        };
        let others: Vec<u32> = self.others().collect();
        let messages: Vec<Vec<u8>> = others.iter().map(|rank| message_for(*rank)).collect();
        let mut sends: Vec<Send<'_>> = others
            .iter()
            .zip(&messages)
            .map(|(rank, message)| self.put(task, *rank, ROUND, message))
            .collect();
        let mut came = vec![(self.rank, message_for(self.rank))];
        for rank in &others {
            came.push((*rank, beside(&mut sends, self.get(task, *rank, ROUND)).await?));
        }
        finish(sends).await?;
        let own = of(self.rank);
        let mut all = Vec::new();
        for (rank, message) in &came {
            let layers =
                unpack(message, pixels, own.end - own.start).ok_or_else(|| self.no_picture(task, *rank))?;
            all.extend(layers.into_iter().map(|layer| (*rank, layer)));
        }
        all.sort_by_key(|(rank, layer)| (layer.position, *rank));
        let twice = all.windows(2).find(|pair| pair[0].1.position == pair[1].1.position);
        if let Some([(first, layer), (second, _)]) = twice {
            return Err(self.same_position(task, layer.position, (*first, *second)));
        }
        for (_, layer) in &all {
            layer.blend(pixels, canvas.part(pixels, &own), Side::Behind);
        }
        Ok(())
    }

    /// Who gets the whole gets the shares of all.
    async fn give_shares(&self, task: &Task, plan: &Plan, canvas: &mut Canvas<'_>) -> Result<()> {
        let shares = plan.rounds.shares(&(0..canvas.pixels(plan.pixels)));
        let mut message = Vec::new();
        let mut sends = Vec::new();
        if let Some(own) = &shares[plan.place as usize] {
            let mut others =
                self.others().filter(|rank| plan.root.is_none_or(|root| root == *rank)).peekable();
            if others.peek().is_some() {
                canvas.pack(&mut message, (plan.pixels, plan.result), own);
                sends.extend(others.map(|rank| self.put(task, rank, SHARE, &message)));
            }
        }
        if plan.root.is_none_or(|root| root == self.rank) {
            for (rank, share) in plan.ranks.iter().zip(&shares) {
                let Some(share) = share.as_ref().filter(|_| *rank != self.rank) else { continue };
                let message = beside(&mut sends, self.get(task, *rank, SHARE)).await?;
                let layers = unpack(&message, plan.result, share.end - share.start);
                for layer in layers.ok_or_else(|| self.no_picture(task, *rank))? {
                    let (colors, depths) = canvas.part(plan.pixels, share);
                    let depths = if plan.result.depth() > 0 { depths } else { &mut [] };
                    layer.write(plan.result, (colors, depths));
                }
            }
        }
        finish(sends).await
    }

    /// What a rank sends is no part of a picture: all are told, since this one does not go on.
    fn no_picture(&self, task: &Task, rank: u32) -> Error {
        let why = format_args!("what rank {rank} sends is no part of a picture of this size");
        let error = task.failed(ErrorKind::Protocol, Some(0), why);
        self.hub.spread_failure(task, &error.text);
        error
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

impl Canvas<'_> {
    fn pixels(&self, pixels: Pixels) -> u32 {
        (self.colors.len() / pixels.color()) as u32
    }

    fn planes(&self) -> Planes<'_> {
        Planes { colors: self.colors, depths: self.depths }
    }

    /// A message of a part of it.
    fn pack(&self, message: &mut Vec<u8>, (pixels, carried): (Pixels, Pixels), range: &Range<u32>) {
        begin(message, 1);
        pack(message, (pixels, carried), 0, self.planes().part(pixels, range));
    }

    fn part(&mut self, pixels: Pixels, range: &Range<u32>) -> (&mut [u8], &mut [u8]) {
        let of = |each: usize| range.start as usize * each..range.end as usize * each;
        (&mut self.colors[of(pixels.color())], &mut self.depths[of(pixels.depth())])
    }
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
