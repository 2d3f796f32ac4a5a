//! Collectives that are put aside: `fb_comm_ibarrier` and the others.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay_comm.h")]

use super::{begin, opened};
use crate::arguments;
use crate::boundary::call;
use crate::comm::{Going, Opened, fb_comm, fb_comm_request, give};
use forebay_client::Result;
use std::ffi::{c_int, c_void};

/// Begins an operation, and gives it.
///
/// # Safety
/// What `begin` relies on holds until the operation is over.
unsafe fn aside(
    comm: *mut fb_comm,
    request: *mut *mut fb_comm_request,
    begin: impl FnOnce(&Opened) -> Result<Going>,
) -> Result<()> {
    let place = arguments::place(request, "request")?;
    // SAFETY: the header's terms.
    unsafe {
        place.write(std::ptr::null_mut());
        give(begin(opened(comm)?)?, place);
    }
    Ok(())
}

/// As `fb_comm_barrier`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_ibarrier(
    comm: *mut fb_comm,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_ibarrier", || {
        // SAFETY: the header's terms.
        unsafe { aside(comm, request, |opened| Ok(begin::barrier(opened))) }
    })
}

/// As `fb_comm_bcast`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_ibcast(
    comm: *mut fb_comm,
    given: *mut c_void,
    count: u64,
    root: u32,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_ibcast", || {
        // SAFETY: the header's terms.
        unsafe { aside(comm, request, |opened| begin::bcast(opened, given, count, root)) }
    })
}

/// As `fb_comm_reduce`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_ireduce(
    comm: *mut fb_comm,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
    root: u32,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_ireduce", || {
        // SAFETY: the header's terms.
        unsafe {
            aside(comm, request, |opened| begin::reduce(opened, sent, received, count, dtype, op, root))
        }
    })
}

/// As `fb_comm_allreduce`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_iallreduce(
    comm: *mut fb_comm,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_iallreduce", || {
        // SAFETY: the header's terms.
        unsafe { aside(comm, request, |opened| begin::allreduce(opened, sent, received, count, dtype, op)) }
    })
}

/// As `fb_comm_scan`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_iscan(
    comm: *mut fb_comm,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_iscan", || {
        // SAFETY: the header's terms.
        unsafe { aside(comm, request, |opened| begin::scan(opened, sent, received, count, dtype, op)) }
    })
}

/// As `fb_comm_exscan`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_iexscan(
    comm: *mut fb_comm,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_iexscan", || {
        // SAFETY: the header's terms.
        unsafe { aside(comm, request, |opened| begin::exscan(opened, sent, received, count, dtype, op)) }
    })
}

/// As `fb_comm_reduce_scatter`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_ireduce_scatter(
    comm: *mut fb_comm,
    sent: *const c_void,
    received: *mut c_void,
    counts: *const u64,
    dtype: i32,
    op: i32,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_ireduce_scatter", || {
        // SAFETY: the header's terms.
        unsafe {
            aside(comm, request, |opened| begin::reduce_scatter(opened, sent, received, counts, dtype, op))
        }
    })
}

/// As `fb_comm_gather`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_igather(
    comm: *mut fb_comm,
    sent: *const c_void,
    count: u64,
    received: *mut c_void,
    root: u32,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_igather", || {
        // SAFETY: the header's terms.
        unsafe { aside(comm, request, |opened| begin::gather(opened, sent, count, received, None, root)) }
    })
}

/// As `fb_comm_gatherv`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_igatherv(
    comm: *mut fb_comm,
    sent: *const c_void,
    count: u64,
    received: *mut c_void,
    counts: *const u64,
    root: u32,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_igatherv", || {
        // SAFETY: the header's terms.
        unsafe {
            aside(comm, request, |opened| begin::gather(opened, sent, count, received, Some(counts), root))
        }
    })
}

/// As `fb_comm_scatter`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_iscatter(
    comm: *mut fb_comm,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    root: u32,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_iscatter", || {
        // SAFETY: the header's terms.
        unsafe { aside(comm, request, |opened| begin::scatter(opened, sent, None, received, count, root)) }
    })
}

/// As `fb_comm_scatterv`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_iscatterv(
    comm: *mut fb_comm,
    sent: *const c_void,
    counts: *const u64,
    received: *mut c_void,
    count: u64,
    root: u32,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_iscatterv", || {
        // SAFETY: the header's terms.
        unsafe {
            aside(comm, request, |opened| begin::scatter(opened, sent, Some(counts), received, count, root))
        }
    })
}

/// As `fb_comm_allgather`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_iallgather(
    comm: *mut fb_comm,
    sent: *const c_void,
    count: u64,
    received: *mut c_void,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_iallgather", || {
        // SAFETY: the header's terms.
        unsafe { aside(comm, request, |opened| begin::allgather(opened, sent, count, received, None)) }
    })
}

/// As `fb_comm_allgatherv`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_iallgatherv(
    comm: *mut fb_comm,
    sent: *const c_void,
    count: u64,
    received: *mut c_void,
    counts: *const u64,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_iallgatherv", || {
        // SAFETY: the header's terms.
        unsafe {
            aside(comm, request, |opened| begin::allgather(opened, sent, count, received, Some(counts)))
        }
    })
}

/// As `fb_comm_alltoall`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_ialltoall(
    comm: *mut fb_comm,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_ialltoall", || {
        // SAFETY: the header's terms.
        unsafe { aside(comm, request, |opened| begin::alltoall(opened, sent, received, count)) }
    })
}

/// As `fb_comm_alltoallv`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_ialltoallv(
    comm: *mut fb_comm,
    sent: *const c_void,
    sent_counts: *const u64,
    received: *mut c_void,
    received_counts: *const u64,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_ialltoallv", || {
        // SAFETY: the header's terms.
        unsafe {
            aside(comm, request, |opened| {
                begin::alltoallv(opened, sent, sent_counts, received, received_counts)
            })
        }
    })
}
