//! Collectives that are waited for: `fb_comm_barrier` and the others. The same put aside: [`aside`]; how both begin: [`begin`].
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay_comm.h")]

mod aside;
mod begin;

use crate::boundary::{Handle, call};
use crate::comm::{Opened, bytes, bytes_mut, fb_comm};
use begin::{bytes_of, unless_in_place};
use forebay_client::Result;
use std::ffi::{c_int, c_void};

/// A communicator.
///
/// # Safety
/// As for [`Handle::get`].
unsafe fn opened<'a>(comm: *mut fb_comm) -> Result<&'a Opened> {
    // SAFETY: the caller vouches for it.
    unsafe { Handle::get(comm, "comm") }
}

/// Returns when every rank has called it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_barrier(comm: *mut fb_comm) -> c_int {
    call("fb_comm_barrier", || {
        // SAFETY: the header's terms.
        unsafe { opened(comm)?.comm.barrier() }
    })
}

/// Fills every rank's memory with the root's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_bcast(
    comm: *mut fb_comm,
    given: *mut c_void,
    count: u64,
    root: u32,
) -> c_int {
    call("fb_comm_bcast", || {
        // SAFETY: the header's terms.
        unsafe { opened(comm)?.comm.bcast(root, bytes_mut(given, count, "bytes")?) }
    })
}

/// Combines elements, for the root.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_reduce(
    comm: *mut fb_comm,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
    root: u32,
) -> c_int {
    call("fb_comm_reduce", || {
        // SAFETY: the header's terms.
        unsafe {
            let opened = opened(comm)?;
            let (reduction, count) = (opened.reduction(dtype, op)?, bytes_of(count, dtype)?);
            if opened.comm.rank() != root {
                let from = bytes(sent, count, "sent")?;
                return opened.comm.reduce(root, Some(from), &mut [], &reduction);
            }
            let from = unless_in_place(sent, received, count)?;
            opened.comm.reduce(root, from, bytes_mut(received, count, "received")?, &reduction)
        }
    })
}

/// Combines elements, for all ranks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_allreduce(
    comm: *mut fb_comm,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
) -> c_int {
    call("fb_comm_allreduce", || {
        // SAFETY: the header's terms.
        unsafe {
            let opened = opened(comm)?;
            let (reduction, count) = (opened.reduction(dtype, op)?, bytes_of(count, dtype)?);
            let from = unless_in_place(sent, received, count)?;
            opened.comm.allreduce(from, bytes_mut(received, count, "received")?, &reduction)
        }
    })
}

/// Combines the elements of all ranks up to this one.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_scan(
    comm: *mut fb_comm,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
) -> c_int {
    call("fb_comm_scan", || {
        // SAFETY: the header's terms.
        unsafe {
            let opened = opened(comm)?;
            begin::scan(opened, sent, received, count, dtype, op)?.wait().map(drop)
        }
    })
}

/// Combines the elements of all ranks below this one.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_exscan(
    comm: *mut fb_comm,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
) -> c_int {
    call("fb_comm_exscan", || {
        // SAFETY: the header's terms.
        unsafe {
            let opened = opened(comm)?;
            begin::exscan(opened, sent, received, count, dtype, op)?.wait().map(drop)
        }
    })
}

/// Combines elements, and gives each rank its block.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_reduce_scatter(
    comm: *mut fb_comm,
    sent: *const c_void,
    received: *mut c_void,
    counts: *const u64,
    dtype: i32,
    op: i32,
) -> c_int {
    call("fb_comm_reduce_scatter", || {
        // SAFETY: the header's terms.
        unsafe {
            let opened = opened(comm)?;
            begin::reduce_scatter(opened, sent, received, counts, dtype, op)?.wait().map(drop)
        }
    })
}

/// Gives the root as many bytes of every rank.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_gather(
    comm: *mut fb_comm,
    sent: *const c_void,
    count: u64,
    received: *mut c_void,
    root: u32,
) -> c_int {
    call("fb_comm_gather", || {
        // SAFETY: the header's terms.
        unsafe {
            let opened = opened(comm)?;
            begin::gather(opened, sent, count, received, None, root)?.wait().map(drop)
        }
    })
}

/// Gives the root different numbers of bytes of every rank.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_gatherv(
    comm: *mut fb_comm,
    sent: *const c_void,
    count: u64,
    received: *mut c_void,
    counts: *const u64,
    root: u32,
) -> c_int {
    call("fb_comm_gatherv", || {
        // SAFETY: the header's terms.
        unsafe {
            let opened = opened(comm)?;
            begin::gather(opened, sent, count, received, Some(counts), root)?.wait().map(drop)
        }
    })
}

/// Gives each rank as many bytes of the root's.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_scatter(
    comm: *mut fb_comm,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    root: u32,
) -> c_int {
    call("fb_comm_scatter", || {
        // SAFETY: the header's terms.
        unsafe {
            let opened = opened(comm)?;
            begin::scatter(opened, sent, None, received, count, root)?.wait().map(drop)
        }
    })
}

/// Gives each rank different numbers of the root's bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_scatterv(
    comm: *mut fb_comm,
    sent: *const c_void,
    counts: *const u64,
    received: *mut c_void,
    count: u64,
    root: u32,
) -> c_int {
    call("fb_comm_scatterv", || {
        // SAFETY: the header's terms.
        unsafe {
            let opened = opened(comm)?;
            begin::scatter(opened, sent, Some(counts), received, count, root)?.wait().map(drop)
        }
    })
}

/// Gives every rank as many bytes of every rank.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_allgather(
    comm: *mut fb_comm,
    sent: *const c_void,
    count: u64,
    received: *mut c_void,
) -> c_int {
    call("fb_comm_allgather", || {
        // SAFETY: the header's terms.
        unsafe {
            let opened = opened(comm)?;
            begin::allgather(opened, sent, count, received, None)?.wait().map(drop)
        }
    })
}

/// Gives every rank different numbers of bytes of every rank.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_allgatherv(
    comm: *mut fb_comm,
    sent: *const c_void,
    count: u64,
    received: *mut c_void,
    counts: *const u64,
) -> c_int {
    call("fb_comm_allgatherv", || {
        // SAFETY: the header's terms.
        unsafe {
            let opened = opened(comm)?;
            begin::allgather(opened, sent, count, received, Some(counts))?.wait().map(drop)
        }
    })
}

/// Gives each rank its block of every rank's memory.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_alltoall(
    comm: *mut fb_comm,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
) -> c_int {
    call("fb_comm_alltoall", || {
        // SAFETY: the header's terms.
        unsafe {
            let opened = opened(comm)?;
            begin::alltoall(opened, sent, received, count)?.wait().map(drop)
        }
    })
}

/// The same of different numbers of bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_alltoallv(
    comm: *mut fb_comm,
    sent: *const c_void,
    sent_counts: *const u64,
    received: *mut c_void,
    received_counts: *const u64,
) -> c_int {
    call("fb_comm_alltoallv", || {
        // SAFETY: the header's terms.
        unsafe {
            let opened = opened(comm)?;
            begin::alltoallv(opened, sent, sent_counts, received, received_counts)?.wait().map(drop)
        }
    })
}
