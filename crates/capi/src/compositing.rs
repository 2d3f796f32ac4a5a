//! Pictures of all ranks are put together: `fb_comm_composite_nearest`, `fb_comm_composite_over`, and the order of boxes.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay_comm.h")]

use crate::arguments;
use crate::boundary::{Handle, call};
use crate::comm::{bytes, bytes_mut, fb_comm};
use forebay_client::comm::{Bounds, Channel, Layer, View, front_to_back};
use forebay_client::core::dtype::Dtype;
use forebay_client::{Error, Result};
use std::ffi::{c_int, c_void};

/// In the place of a root: every rank.
const ALL: i64 = -1;
/// How many boxes are put in order: each is compared with each other one.
const BOXES_MAX: u64 = 1 << 16;

fn root_of(root: i64) -> Result<Option<u32>> {
    match root {
        ALL => Ok(None),
        rank => u32::try_from(rank)
            .map(Some)
            .map_err(|_| Error::invalid(format!("root is {rank}: it is a rank, or FB_ALL_RANKS"))),
    }
}

fn times(pixels: u64, bytes: u64) -> Result<u64> {
    pixels
        .checked_mul(bytes)
        .ok_or_else(|| Error::invalid(format!("a picture of {pixels} pixels is too large")))
}

/// Puts pictures with depth together.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_composite_nearest(
    comm: *mut fb_comm,
    colors: *mut c_void,
    depths: *mut c_void,
    pixels: u64,
    far: f64,
    with_depths: i32,
    root: i64,
) -> c_int {
    call("fb_comm_composite_nearest", || {
        let (root, with_depths) = (root_of(root)?, arguments::truth(with_depths, "with_depths")?);
        let count = times(pixels, 4)?;
        // SAFETY: the header's terms.
        unsafe {
            let planes = (bytes_mut(colors, count, "colors")?, bytes_mut(depths, count, "depths")?);
            Handle::get(comm, "comm")?.comm.composite_nearest(root, planes, far as f32, with_depths)
        }
    })
}

/// Puts layers together that one sees through.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_composite_over(
    comm: *mut fb_comm,
    layers: *const *const c_void,
    positions: *const u32,
    count: u32,
    pixels: u64,
    dtype: i32,
    into: *mut c_void,
    root: i64,
) -> c_int {
    call("fb_comm_composite_over", || {
        let root = root_of(root)?;
        let channel = match dtype {
            dtype if dtype == Dtype::U8 as i32 => Channel::UInt8,
            dtype if dtype == Dtype::F32 as i32 => Channel::Float32,
            _ => return Err(Error::invalid(format!("dtype is {dtype}: channels are FB_U8 or FB_F32"))),
        };
        let size = times(pixels, if channel == Channel::UInt8 { 4 } else { 16 })?;
        // SAFETY: the header's terms.
        unsafe {
            let comm = Handle::get(comm, "comm")?;
            let given = arguments::numbers(layers, count as usize, "layers")?
                .zip(arguments::numbers(positions, count as usize, "positions")?)
                .map(|(colors, position)| Ok(Layer { position, colors: bytes(colors, size, "a layer")? }))
                .collect::<Result<Vec<Layer<'_>>>>()?;
            let into = if into.is_null() { None } else { Some(bytes_mut(into, size, "into")?) };
            comm.comm.composite_over(root, (pixels as usize, channel), &given, into)
        }
    })
}

/// The order of boxes from front to back.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_front_to_back(
    boxes: *const f64,
    count: u64,
    eye: *const f64,
    direction: *const f64,
    order: *mut u64,
) -> c_int {
    call("fb_front_to_back", || {
        if count > BOXES_MAX {
            return Err(Error::invalid(format!("{count} boxes are more than {BOXES_MAX}")));
        }
        if eye.is_null() == direction.is_null() {
            return Err(Error::invalid("give either eye or direction, the other one is NULL"));
        }
        let place = arguments::place(order, "order")?;
        // SAFETY: the header's terms.
        unsafe {
            let mut numbers = arguments::numbers(boxes, count as usize * 6, "boxes")?;
            let mut three = || std::array::from_fn(|_| numbers.next().unwrap_or_default());
            let boxes: Vec<Bounds> = (0..count).map(|_| Bounds { low: three(), high: three() }).collect();
            let point = |given: *const f64| std::array::from_fn(|axis| given.add(axis).read_unaligned());
            let view = if eye.is_null() { View::Along(point(direction)) } else { View::From(point(eye)) };
            for (at, index) in front_to_back(&boxes, view)?.into_iter().enumerate() {
                place.add(at).write_unaligned(index as u64);
            }
        }
        Ok(())
    })
}
