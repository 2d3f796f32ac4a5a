use super::*;
use crate::simulation::{Counts, Where, simulate};
use std::sync::Arc;

/// A picture of a disc before nothing, somewhere else for each rank: some are hidden, some are not, and their depths are often equal.
struct Drawn {
    colors: Vec<u8>,
    depths: Vec<u8>,
}

const WIDTH: usize = 61;
const HEIGHT: usize = 47;
const PIXELS: usize = WIDTH * HEIGHT;

fn is_inside(seed: usize, pixel: usize) -> bool {
    let (x, y) = ((pixel % WIDTH) as f64, (pixel / WIDTH) as f64);
    let (at, to) = ((seed * 17 % WIDTH) as f64, (seed * 29 % HEIGHT) as f64);
    (x - at).hypot(y - to) < 5.0 + (seed * 7 % 20) as f64
}

fn opaque_in(seed: usize, scale: usize) -> Drawn {
    let mut drawn = Drawn { colors: Vec::new(), depths: Vec::new() };
    let width = WIDTH * scale;
    let small = |pixel: usize| (pixel / width / scale) * WIDTH + pixel % width / scale;
    for pixel in (0..PIXELS * scale * scale).map(small) {
        let seen = is_inside(seed, pixel);
        let depth = if seen { ((seed * 13 + pixel / 7) % 8) as f32 / 8.0 } else { 1.0 };
        drawn.colors.extend(if seen {
            [seed as u8, pixel as u8, (pixel >> 8) as u8, 255]
        } else {
            [9, 9, 9, 0]
        });
        drawn.depths.extend(depth.to_ne_bytes());
    }
    drawn
}

/// The same as one rank would draw it.
fn nearest_of_all(size: u32, scale: usize) -> Drawn {
    let mut whole = opaque_in(0, scale);
    for next in (1..size).map(|rank| opaque_in(rank as usize, scale)) {
        for at in (0..whole.colors.len()).step_by(4) {
            let depth = |drawn: &Drawn| f32::from_ne_bytes(*drawn.depths[at..].first_chunk().unwrap());
            if depth(&next) < depth(&whole) {
                whole.colors[at..at + 4].copy_from_slice(&next.colors[at..at + 4]);
                whole.depths[at..at + 4].copy_from_slice(&next.depths[at..at + 4]);
            }
        }
    }
    whole
}

async fn nearest(comm: Arc<Comm>, root: Option<u32>, with_depths: bool, scale: usize) -> Result<Drawn> {
    let mut drawn = opaque_in(comm.rank() as usize, scale);
    let task = comm.compositing(root);
    let pixels = Pixels::Nearest(1.0);
    let result = if with_depths { pixels } else { Pixels::Over8 };
    let canvas = Canvas { colors: &mut drawn.colors, depths: &mut drawn.depths };
    comm.composite_of(&task, (root, pixels, result), canvas, None).await?;
    Ok(drawn)
}

#[test]
fn the_nearest_is_seen_whatever_the_number_of_ranks() {
    for size in (1..=18).chain([23, 32, 45, 77]) {
        let whole = nearest_of_all(size, 1);
        for (root, with_depths) in [(Some(0), false), (Some(size - 1), true), (None, true)] {
            let (all, _) = simulate(size, Where::Apart, |comm| nearest(comm, root, with_depths, 1));
            for (rank, drawn) in (0..).zip(all).filter(|(rank, _)| root.is_none_or(|root| root == *rank)) {
                assert!(drawn.colors == whole.colors, "{size} ranks, at rank {rank}");
                assert!(!with_depths || drawn.depths == whole.depths, "{size} ranks, at rank {rank}");
            }
        }
    }
}

/// The layer of this number, as real numbers.
fn layer(number: usize) -> Vec<f32> {
    let pixel = |pixel: usize| {
        let alpha = if is_inside(number, pixel) { ((number * 37 + pixel) % 100) as f32 / 99.0 } else { 0.0 };
        [alpha * (number % 7) as f32 / 6.0, alpha * (pixel % 11) as f32 / 10.0, alpha * 0.3, alpha]
    };
    (0..PIXELS).flat_map(pixel).collect()
}

fn in_memory(numbers: &[f32], channel: Channel) -> Vec<u8> {
    match channel {
        Channel::UInt8 => numbers.iter().map(|number| (255.0 * number).round() as u8).collect(),
        Channel::Float32 => numbers.iter().flat_map(|number| number.to_ne_bytes()).collect(),
    }
}

fn from_memory(bytes: &[u8], channel: Channel) -> Vec<f32> {
    match channel {
        Channel::UInt8 => bytes.iter().map(|byte| f32::from(*byte) / 255.0).collect(),
        Channel::Float32 => bytes.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect(),
    }
}

fn over_all(layers: impl Iterator<Item = Vec<f32>>) -> Vec<f32> {
    let mut whole = vec![0.0f32; 4 * PIXELS];
    for layer in layers {
        for (whole, layer) in whole.as_chunks_mut::<4>().0.iter_mut().zip(layer.as_chunks::<4>().0) {
            let through = 1.0 - whole[3];
            (0..4).for_each(|channel| whole[channel] += through * layer[channel]);
        }
    }
    whole
}

fn differ(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(one, other)| (one - other).abs()).fold(0.0, f32::max)
}

/// Of so many layers each rank has those which come to its turn; they are far from its number.
async fn over(comm: Arc<Comm>, root: Option<u32>, layers: usize, channel: Channel) -> Result<Vec<u8>> {
    let (rank, size) = (comm.rank() as usize, comm.size() as usize);
    let own: Vec<(u32, Vec<u8>)> = (0..layers)
        .filter(|number| (number * 5 + 3) % size == rank)
        .map(|number| (number as u32 * 10, in_memory(&layer(number), channel)))
        .collect();
    let own: Vec<Layer<'_>> =
        own.iter().map(|(position, colors)| Layer { position: *position, colors }).collect();
    let pixels = if channel == Channel::UInt8 { Pixels::Over8 } else { Pixels::Over32 };
    let mut into = vec![0; PIXELS * pixels.color()];
    let task = comm.compositing(root);
    let canvas = Canvas { colors: &mut into, depths: &mut [] };
    comm.composite_of(&task, (root, pixels, pixels), canvas, Some(&own)).await?;
    Ok(into)
}

#[test]
fn layers_are_seen_through_each_other_in_their_order() {
    for size in (1..=9).chain([11, 16, 29]) {
        // None, less than there are ranks, one each, several.
        for layers in [0, size / 2, size, 3 * size].map(|layers| layers as usize) {
            let whole = over_all((0..layers).map(layer));
            for channel in [Channel::UInt8, Channel::Float32] {
                let root = (size % 3 != 0).then_some(size / 2);
                let (all, _) = simulate(size, Where::Apart, |comm| over(comm, root, layers, channel));
                for (rank, seen) in (0..).zip(all).filter(|(rank, _)| root.is_none_or(|root| root == *rank)) {
                    let far = differ(&from_memory(&seen, channel), &whole);
                    let may =
                        if channel == Channel::UInt8 { 2.01 / 255.0 + 0.002 * layers as f32 } else { 1e-5 };
                    assert!(far <= may, "{layers} layers of {size} ranks, at rank {rank}: {far}");
                }
            }
        }
    }
}

/// Binary swap sends at least half of what counts, then a quarter ...: all but an n-th, and that goes to the root. More ranks send more in
/// either way, where they have different pixels: what two have together is sent on.
#[test]
fn no_more_is_sent_than_binary_swap_needs() {
    // Large enough that not heads count but pixels.
    const SCALE: usize = 4;
    for size in [2, 3, 4, 7, 8, 16] {
        let (_, Counts { bytes, messages, .. }) =
            simulate(size, Where::Apart, |comm| nearest(comm, Some(0), false, SCALE));
        let (_, agreeing) = simulate(size, Where::Apart, |comm| async move {
            let mut all = vec![0; ENTRY * comm.size() as usize];
            comm.allgather_into_of(
                &comm.compositing(Some(0)),
                &[0; ENTRY],
                (&mut all, equal_blocks(comm.size(), ENTRY, ENTRY * comm.size() as usize)?),
            )
            .await
        });
        let active = |drawn: &Drawn| {
            drawn.depths.as_chunks().0.iter().filter(|depth| f32::from_ne_bytes(**depth) < 1.0).count()
        };
        let of_all: usize = (0..size).map(|rank| active(&opaque_in(rank as usize, SCALE))).sum();
        let last = f64::from(size - 1) / f64::from(size);
        let bound = last * (8 * of_all + 4 * active(&nearest_of_all(size, SCALE))) as f64;
        let sent = (bytes - agreeing.bytes) as f64;
        assert!(sent <= 1.3 * bound, "{size} ranks: {sent} bytes, {bound} needed, {messages} messages");
    }
}

#[test]
fn any_size_is_taken_in_bands() {
    assert_eq!(bands_of(&(0..0), 8), []);
    assert_eq!(bands_of(&(5..6), 8), vec![5..6; 1]);
    let bands = bands_of(&(1000..16_384 * 16_384), 8);
    assert_eq!(bands.len(), 1024);
    assert!(bands.iter().all(|band| (band.end - band.start) as usize * 8 <= BAND));
    assert!(bands.windows(2).all(|pair| pair[0].end == pair[1].start));
}
