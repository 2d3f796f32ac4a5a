//! Pictures put together by real endpoints, and what is told when they cannot be.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use common::{Over, comms, group, on_all};
use forebay_comm::{Channel, Comm, Layer};
use forebay_core::{ErrorKind, Result};
use std::time::Duration;

const PIXELS: usize = 1 << 20;

/// Each rank has another half of the picture, at a depth of its own.
fn picture(rank: u32, pixels: usize) -> (Vec<u8>, Vec<u8>) {
    let is_seen = |pixel: usize| (pixel / 1000 + rank as usize).is_multiple_of(2);
    let colors =
        (0..pixels).flat_map(|pixel| [rank as u8 + 1, pixel as u8, (pixel >> 8) as u8, 255]).collect();
    let depth = |pixel| if is_seen(pixel) { 0.9 - 0.1 * rank as f32 } else { 1.0 };
    (colors, (0..pixels).flat_map(|pixel| f32::to_ne_bytes(depth(pixel))).collect())
}

fn nearest(comm: &Comm, root: Option<u32>, pixels: usize) -> Result<(Vec<u8>, Vec<u8>)> {
    let (mut colors, mut depths) = picture(comm.rank(), pixels);
    comm.composite_nearest(root, (&mut colors, &mut depths), 1.0, true)?;
    Ok((colors, depths))
}

#[test]
fn a_large_picture_is_put_together_through_memory_and_sockets() {
    for over in [Over::Shm, Over::Tcp] {
        for size in [1, 2, 3, 5] {
            let (endpoints, members) = group(size, over);
            let all = comms(&endpoints, &members, 1);
            for root in [None, Some(size as u32 - 1)] {
                for (rank, result) in on_all(&all, |comm| nearest(comm, root, PIXELS)).into_iter().enumerate()
                {
                    let (colors, depths) = result.unwrap();
                    if root.is_some_and(|root| root as usize != rank) {
                        continue;
                    }
                    for pixel in (0..PIXELS).step_by(997) {
                        // The highest rank of those that have it is the nearest; where none has, the background stays.
                        let seen = (0..size).rev().find(|rank| (pixel / 1000 + rank).is_multiple_of(2));
                        assert_eq!(colors[4 * pixel] as usize, seen.unwrap_or(rank) + 1);
                        let depth = f32::from_ne_bytes(*depths[4 * pixel..].first_chunk().unwrap());
                        assert_eq!(depth, seen.map_or(1.0, |seen| 0.9 - 0.1 * seen as f32));
                    }
                }
            }
        }
    }
}

fn over(comm: &Comm, root: Option<u32>, positions: &[u32], pixels: usize) -> Result<Vec<u8>> {
    let half = [60, 0, 0, 128].repeat(pixels);
    let layers: Vec<Layer<'_>> =
        positions.iter().map(|position| Layer { position: *position, colors: &half }).collect();
    let mut into = vec![7; 4 * pixels];
    let wanted = root.is_none_or(|root| root == comm.rank());
    comm.composite_over(root, (pixels, Channel::UInt8), &layers, wanted.then_some(&mut into[..]))?;
    Ok(into)
}

#[test]
fn layers_are_given_by_some_ranks_or_none() {
    let (endpoints, members) = group(3, Over::Shm);
    let all = comms(&endpoints, &members, 1);
    // 60, and what is left of 60 behind it.
    for (positions, red) in [
        ([vec![5], vec![], vec![2]], 90),
        ([vec![], vec![], vec![]], 0),
        ([vec![9, 1], vec![3], vec![]], 105),
    ] {
        let seen = on_all(&all, |comm| over(comm, None, &positions[comm.rank() as usize], 1000).unwrap());
        for seen in seen {
            assert!(
                seen.as_chunks::<4>().0.iter().all(|pixel| pixel[0].abs_diff(red) <= 1),
                "{:?}",
                &seen[..4]
            );
        }
    }
}

#[test]
fn ranks_that_do_not_agree_are_told() {
    type Call = fn(&Comm) -> Result<()>;
    let calls: [(&str, Call); 6] = [
        ("a picture of another size (", |comm| nearest(comm, Some(0), 100 + comm.rank() as usize).map(drop)),
        ("pixels of another kind", |comm| match comm.rank() {
            0 => nearest(comm, Some(0), 100).map(drop),
            _ => over(comm, Some(0), &[comm.rank()], 100).map(drop),
        }),
        ("two layers have position 4", |comm| over(comm, Some(0), &[4], 100).map(drop)),
        ("two layers have position 4", |comm| over(comm, Some(0), &[4, 10 + comm.rank()], 100).map(drop)),
        ("composite with root", |comm| nearest(comm, Some(comm.rank() % 2), 100).map(drop)),
        ("is in barrier there", |comm| match comm.rank() {
            1 => comm.barrier(),
            _ => nearest(comm, None, 100).map(drop),
        }),
    ];
    for (text, call) in calls {
        let (endpoints, members) = group(3, Over::Shm);
        let all = comms(&endpoints, &members, 1);
        all.iter().for_each(|comm| comm.set_timeout(Duration::from_secs(5)));
        let told: Vec<_> = on_all(&all, call).into_iter().filter_map(Result::err).collect();
        assert!(!told.is_empty(), "{text}");
        assert!(told.iter().any(|error| error.text.contains(text)), "{text}: {told:?}");
    }
}

#[test]
fn pictures_that_are_none_are_refused() {
    let (endpoints, members) = group(1, Over::Shm);
    let comm = &comms(&endpoints, &members, 1)[0];
    let refused = |result: Result<()>, text: &str| {
        let error = result.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.text.contains(text), "{}", error.text);
    };
    let (mut colors, mut depths) = ([0; 8], [0; 4]);
    refused(comm.composite_nearest(Some(0), (&mut colors, &mut depths), 1.0, false), "not 8 and 4 in all");
    refused(comm.composite_nearest(Some(1), (&mut colors, &mut []), 1.0, false), "ranks 0 to 0, not 1");
    refused(comm.composite_nearest(None, (&mut colors, &mut depths), f32::NAN, false), "far=NaN");
    let layer = [Layer { position: 0, colors: &[0; 8] }];
    refused(comm.composite_over(Some(0), (2, Channel::UInt8), &layer, None), "gives no memory for it");
    refused(
        comm.composite_over(Some(0), (3, Channel::UInt8), &layer, Some(&mut [0; 12])),
        "has 12 bytes, not 8",
    );
    refused(comm.composite_over(Some(0), (usize::MAX, Channel::Float32), &[], Some(&mut [])), "too large");
    comm.composite_nearest(Some(0), (&mut [], &mut []), 1.0, false).unwrap();
    comm.composite_over(Some(0), (0, Channel::Float32), &[], Some(&mut [])).unwrap();
}
