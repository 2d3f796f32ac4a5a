//! How collectives begin on what C passes, whether they are waited for or put aside.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay_comm.h")]

use crate::comm::{Going, Opened, bytes, bytes_mut, memory};
use crate::elements::size_of;
use forebay_client::comm::Memory;
use forebay_client::{Error, Result};
use std::ffi::c_void;

/// How many bytes so many elements have.
pub(super) fn bytes_of(count: u64, dtype: i32) -> Result<u64> {
    let element = size_of(dtype)? as u64;
    count
        .checked_mul(element)
        .ok_or_else(|| Error::invalid(format!("{count} elements of {element} bytes are too many")))
}

/// Lengths of the blocks of all ranks.
///
/// # Safety
/// `counts` is NULL or has one for each of so many ranks.
unsafe fn lengths(counts: *const u64, size: u32, what: &str) -> Result<Vec<usize>> {
    if counts.is_null() {
        return Err(Error::invalid(format!("{what} is NULL")));
    }
    // SAFETY: the caller vouches for it.
    let counts = unsafe { std::slice::from_raw_parts(counts, size as usize) };
    let length = |count: &u64| isize::try_from(*count).map(isize::cast_unsigned);
    let lengths: std::result::Result<Vec<usize>, _> = counts.iter().map(length).collect();
    lengths.map_err(|_| Error::invalid(format!("{what} are more bytes than there can be")))
}

fn sum(lengths: &[usize]) -> Result<u64> {
    let sum = lengths.iter().try_fold(0u64, |sum, length| sum.checked_add(*length as u64));
    sum.ok_or_else(|| Error::invalid("the blocks of all ranks are more bytes than there can be"))
}

/// Memory that nobody looks at.
fn nothing() -> Result<Memory> {
    // SAFETY: there are no bytes.
    unsafe { memory(std::ptr::null(), 0, "nothing") }
}

/// A copy of bytes, and the memory of it for an operation that keeps the copy.
fn copied(bytes: &[u8]) -> Result<(Memory, Vec<u8>)> {
    let mut copy = bytes.to_vec();
    // SAFETY: the operation that uses it goes before the copy.
    let memory = unsafe { memory(copy.as_mut_ptr().cast(), copy.len() as u64, "copy") }?;
    Ok((memory, copy))
}

/// What a rank sends: a copy, if it stands where it is received as well.
///
/// # Safety
/// As for [`memory`].
unsafe fn sent_apart(
    sent: *const c_void,
    count: u64,
    received: *const c_void,
    room: u64,
) -> Result<(Memory, Vec<Vec<u8>>)> {
    let (from, to) = (sent.addr() as u64, received.addr() as u64);
    let overlaps = count > 0 && from < to.saturating_add(room) && to < from.saturating_add(count);
    // SAFETY: the caller vouches for it.
    unsafe {
        if !overlaps {
            return Ok((memory(sent, count, "sent")?, Vec::new()));
        }
        let (memory, copy) = copied(bytes(sent, count, "sent")?)?;
        Ok((memory, vec![copy]))
    }
}

/// Has `received` begin with what is sent.
///
/// # Safety
/// Both are so many bytes, the same ones or none in common.
unsafe fn carry(sent: *const c_void, received: *mut c_void, count: u64) -> Result<()> {
    // SAFETY: the caller vouches for it.
    unsafe {
        if std::ptr::eq(sent, received) {
            return Ok(());
        }
        let (from, to) = (bytes(sent, count, "sent")?, bytes_mut(received, count, "received")?);
        to.copy_from_slice(from);
    }
    Ok(())
}

/// What is sent, unless it stands where the result will be.
///
/// # Safety
/// As for [`bytes`].
pub(super) unsafe fn unless_in_place<'a>(
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
) -> Result<Option<&'a [u8]>> {
    if std::ptr::eq(sent, received) {
        return Ok(None);
    }
    // SAFETY: the caller vouches for it.
    unsafe { bytes(sent, count, "sent") }.map(Some)
}

/// The same, for an operation that goes on.
///
/// # Safety
/// As for [`memory`].
unsafe fn memory_unless_in_place(
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
) -> Result<Option<Memory>> {
    if std::ptr::eq(sent, received) {
        return Ok(None);
    }
    // SAFETY: the caller vouches for it.
    unsafe { memory(sent, count, "sent") }.map(Some)
}

/// Lengths of blocks: those that are given, or all as long.
///
/// # Safety
/// As for [`lengths`].
unsafe fn blocks(counts: Option<*const u64>, count: u64, size: u32) -> Result<Vec<usize>> {
    match counts {
        // SAFETY: the caller vouches for it.
        Some(counts) => unsafe { lengths(counts, size, "counts") },
        None => {
            let count = isize::try_from(count).map(isize::cast_unsigned);
            let count = count.map_err(|_| Error::invalid("count is more bytes than there can be"))?;
            Ok(vec![count; size as usize])
        }
    }
}

/// # Safety
/// The header's terms, until the operation is over.
pub(super) unsafe fn gather(
    opened: &Opened,
    sent: *const c_void,
    count: u64,
    received: *mut c_void,
    counts: Option<*const u64>,
    root: u32,
) -> Result<Going> {
    // SAFETY: the caller vouches for it.
    unsafe {
        if opened.comm.rank() != root {
            let request = opened.comm.igather_into(root, memory(sent, count, "sent")?, nothing()?, &[])?;
            return Ok(Going::new(&opened.comm, request, Vec::new()));
        }
        let lengths = blocks(counts, count, opened.comm.size())?;
        let all = sum(&lengths)?;
        let (from, own) = sent_apart(sent, count, received, all)?;
        let request = opened.comm.igather_into(root, from, memory(received, all, "received")?, &lengths)?;
        Ok(Going::new(&opened.comm, request, own))
    }
}

/// # Safety
/// The header's terms, until the operation is over.
pub(super) unsafe fn scatter(
    opened: &Opened,
    sent: *const c_void,
    counts: Option<*const u64>,
    received: *mut c_void,
    count: u64,
    root: u32,
) -> Result<Going> {
    // SAFETY: the caller vouches for it.
    unsafe {
        if opened.comm.rank() != root {
            let request =
                opened.comm.iscatter(root, nothing()?, &[], memory(received, count, "received")?)?;
            return Ok(Going::new(&opened.comm, request, Vec::new()));
        }
        let lengths = blocks(counts, count, opened.comm.size())?;
        let all = sum(&lengths)?;
        let (from, to) = (sent.addr() as u64, received.addr() as u64);
        let stays = count > 0 && from <= to && to < from.saturating_add(all);
        let (into, own) = match stays {
            // The root's own stays where it is; what is written to this copy nobody reads.
            true => copied(bytes(received, count, "received")?).map(|(memory, copy)| (memory, vec![copy]))?,
            false => (memory(received, count, "received")?, Vec::new()),
        };
        let request = opened.comm.iscatter(root, memory(sent, all, "sent")?, &lengths, into)?;
        Ok(Going::new(&opened.comm, request, own))
    }
}

/// # Safety
/// The header's terms, until the operation is over.
pub(super) unsafe fn allgather(
    opened: &Opened,
    sent: *const c_void,
    count: u64,
    received: *mut c_void,
    counts: Option<*const u64>,
) -> Result<Going> {
    // SAFETY: the caller vouches for it.
    unsafe {
        let lengths = blocks(counts, count, opened.comm.size())?;
        let all = sum(&lengths)?;
        let (from, own) = sent_apart(sent, count, received, all)?;
        let request = opened.comm.iallgather_into(from, memory(received, all, "received")?, &lengths)?;
        Ok(Going::new(&opened.comm, request, own))
    }
}

/// Returns when all ranks have come.
pub(super) fn barrier(opened: &Opened) -> Going {
    Going::new(&opened.comm, opened.comm.ibarrier(), Vec::new())
}

/// # Safety
/// The header's terms, until the operation is over.
pub(super) unsafe fn bcast(opened: &Opened, given: *mut c_void, count: u64, root: u32) -> Result<Going> {
    // SAFETY: the caller vouches for it.
    unsafe {
        let request = opened.comm.ibcast(root, memory(given, count, "bytes")?)?;
        Ok(Going::new(&opened.comm, request, Vec::new()))
    }
}

/// # Safety
/// The header's terms, until the operation is over.
pub(super) unsafe fn reduce(
    opened: &Opened,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
    root: u32,
) -> Result<Going> {
    // SAFETY: the caller vouches for it.
    unsafe {
        let (reduction, count) = (opened.reduction(dtype, op)?, bytes_of(count, dtype)?);
        let (from, into) = if opened.comm.rank() == root {
            (memory_unless_in_place(sent, received, count)?, memory(received, count, "received")?)
        } else {
            (Some(memory(sent, count, "sent")?), memory(std::ptr::null(), 0, "received")?)
        };
        let request = opened.comm.ireduce(root, from, into, &reduction)?;
        Ok(Going::new(&opened.comm, request, Vec::new()))
    }
}

/// # Safety
/// The header's terms, until the operation is over.
pub(super) unsafe fn allreduce(
    opened: &Opened,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
) -> Result<Going> {
    // SAFETY: the caller vouches for it.
    unsafe {
        let (reduction, count) = (opened.reduction(dtype, op)?, bytes_of(count, dtype)?);
        let from = memory_unless_in_place(sent, received, count)?;
        let into = memory(received, count, "received")?;
        let request = opened.comm.iallreduce(from, into, &reduction)?;
        Ok(Going::new(&opened.comm, request, Vec::new()))
    }
}

/// # Safety
/// The header's terms, until the operation is over.
pub(super) unsafe fn scan(
    opened: &Opened,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
) -> Result<Going> {
    // SAFETY: the caller vouches for it.
    unsafe {
        let (reduction, count) = (opened.reduction(dtype, op)?, bytes_of(count, dtype)?);
        carry(sent, received, count)?;
        let request = opened.comm.iscan(false, memory(received, count, "received")?, &reduction)?;
        Ok(Going::new(&opened.comm, request, Vec::new()))
    }
}

/// # Safety
/// The header's terms, until the operation is over.
pub(super) unsafe fn exscan(
    opened: &Opened,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
    dtype: i32,
    op: i32,
) -> Result<Going> {
    // SAFETY: the caller vouches for it.
    unsafe {
        let (reduction, count) = (opened.reduction(dtype, op)?, bytes_of(count, dtype)?);
        if opened.comm.rank() == 0 {
            let (memory, copy) = copied(bytes(sent, count, "sent")?)?;
            let request = opened.comm.iscan(true, memory, &reduction)?;
            return Ok(Going::new(&opened.comm, request, vec![copy]));
        }
        carry(sent, received, count)?;
        let request = opened.comm.iscan(true, memory(received, count, "received")?, &reduction)?;
        Ok(Going::new(&opened.comm, request, Vec::new()))
    }
}

/// # Safety
/// The header's terms, until the operation is over.
pub(super) unsafe fn reduce_scatter(
    opened: &Opened,
    sent: *const c_void,
    received: *mut c_void,
    counts: *const u64,
    dtype: i32,
    op: i32,
) -> Result<Going> {
    // SAFETY: the caller vouches for it.
    unsafe {
        let reduction = opened.reduction(dtype, op)?;
        let element = size_of(dtype)?;
        let lengths = lengths(counts, opened.comm.size(), "counts")?;
        let lengths: Option<Vec<usize>> =
            lengths.into_iter().map(|count| count.checked_mul(element)).collect();
        let lengths = lengths.ok_or_else(|| Error::invalid("counts are too many elements"))?;
        let mine = lengths[opened.comm.rank() as usize] as u64;
        let (from, own) = sent_apart(sent, sum(&lengths)?, received, mine)?;
        let into = memory(received, mine, "received")?;
        let request = opened.comm.ireduce_scatter(from, &lengths, into, &reduction)?;
        Ok(Going::new(&opened.comm, request, own))
    }
}

/// # Safety
/// The header's terms, until the operation is over.
pub(super) unsafe fn alltoall(
    opened: &Opened,
    sent: *const c_void,
    received: *mut c_void,
    count: u64,
) -> Result<Going> {
    // SAFETY: the caller vouches for it.
    unsafe {
        let all = count.checked_mul(u64::from(opened.comm.size()));
        let all = all.ok_or_else(|| Error::invalid(format!("{count} bytes for each rank are too many")))?;
        let (from, own) = sent_apart(sent, all, received, all)?;
        let request = opened.comm.ialltoall(from, memory(received, all, "received")?)?;
        Ok(Going::new(&opened.comm, request, own))
    }
}

/// # Safety
/// The header's terms, until the operation is over.
pub(super) unsafe fn alltoallv(
    opened: &Opened,
    sent: *const c_void,
    sent_counts: *const u64,
    received: *mut c_void,
    received_counts: *const u64,
) -> Result<Going> {
    // SAFETY: the caller vouches for it.
    unsafe {
        let size = opened.comm.size();
        let (given, taken) =
            (lengths(sent_counts, size, "sent_counts")?, lengths(received_counts, size, "received_counts")?);
        let (from, own) = sent_apart(sent, sum(&given)?, received, sum(&taken)?)?;
        let into = memory(received, sum(&taken)?, "received")?;
        let request = opened.comm.ialltoallv((from, &given), (into, &taken))?;
        Ok(Going::new(&opened.comm, request, own))
    }
}
