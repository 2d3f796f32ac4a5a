//! `fb_comm_...`: communicators, messages, and operations that are put aside. Collectives: [`crate::collectives`].
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay_comm.h")]
#![allow(non_camel_case_types, reason = "the names are those of the header")]

use crate::arguments;
use crate::boundary::{Handle, call};
use forebay_client::comm::{Comm, Done, Function, Memory, Reduction, Request, Status};
use forebay_client::{Error, ErrorKind, Result, open_comm};
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};

/// What a communicator's handle points at.
pub(crate) struct Opened {
    pub(crate) comm: Arc<Comm>,
    functions: Mutex<Vec<Arc<Function>>>,
}

/// A communicator.
pub(crate) type fb_comm = Handle<Opened>;

/// What a request's handle points at: the operation, which goes before the memory that it uses.
pub(crate) struct Going {
    request: Request,
    comm: Arc<Comm>,
    _own: Vec<Vec<u8>>,
}

/// An operation that goes on.
pub(crate) type fb_comm_request = Handle<Going>;

/// A function of C's.
pub(crate) type fb_comm_function =
    unsafe extern "C" fn(*const c_void, *mut c_void, u64, *mut c_void) -> c_int;

/// Which message was received.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct fb_comm_status {
    source: u32,
    reserved: u32,
    tag: u64,
    bytes: u64,
}

/// In the place of a source or a tag.
const ANY: i64 = -1;
/// The first operation that is a function.
const FUNCTIONS: i32 = 1000;
const FUNCTIONS_MAX: usize = 1000;

/// A pointer that a user passes to his function.
struct User(*mut c_void);

// SAFETY: what it points at is the user's, who says so of his function.
unsafe impl Send for User {}
// SAFETY: as above.
unsafe impl Sync for User {}

impl User {
    fn get(&self) -> *mut c_void {
        self.0
    }
}

impl Opened {
    fn new(comm: Comm) -> Opened {
        Opened { comm: Arc::new(comm), functions: Mutex::default() }
    }

    /// What an operation does with elements of a dtype.
    pub(crate) fn reduction(&self, dtype: i32, op: i32) -> Result<Reduction> {
        if let Some(place) = op.checked_sub(FUNCTIONS).and_then(|place| usize::try_from(place).ok()) {
            let functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
            let function = functions
                .get(place)
                .ok_or_else(|| Error::invalid(format!("op={op}: there is no such function")))?;
            return Reduction::by(crate::elements::size_of(dtype)?, function.clone());
        }
        Reduction::new(crate::elements::datatype(dtype)?, crate::elements::operation(op)?)
    }
}

impl Going {
    pub(crate) fn new(comm: &Arc<Comm>, request: Request, own: Vec<Vec<u8>>) -> Going {
        Going { request, comm: comm.clone(), _own: own }
    }

    /// Waits until it is over.
    pub(crate) fn wait(&self) -> Result<Done> {
        self.request.wait(&self.comm)
    }
}

/// Bytes that a caller passes.
///
/// # Safety
/// They are NULL, or so many that may be read, and stay as they are for `'a`.
pub(crate) unsafe fn bytes<'a>(given: *const c_void, count: u64, what: &str) -> Result<&'a [u8]> {
    match (length(given, count, what)?, given.is_null()) {
        (0, _) | (_, true) => Ok(&[]),
        // SAFETY: the caller vouches for it.
        (count, false) => Ok(unsafe { std::slice::from_raw_parts(given.cast(), count) }),
    }
}

/// The same, to be written.
///
/// # Safety
/// As for [`bytes`], and they may be written, by nobody else.
pub(crate) unsafe fn bytes_mut<'a>(given: *mut c_void, count: u64, what: &str) -> Result<&'a mut [u8]> {
    match (length(given, count, what)?, given.is_null()) {
        (0, _) | (_, true) => Ok(&mut []),
        // SAFETY: the caller vouches for it.
        (count, false) => Ok(unsafe { std::slice::from_raw_parts_mut(given.cast(), count) }),
    }
}

/// The same, for an operation that goes on.
///
/// # Safety
/// As for [`bytes`], or [`bytes_mut`] if it is written to, until that operation is over.
pub(crate) unsafe fn memory(given: *const c_void, count: u64, what: &str) -> Result<Memory> {
    let count = length(given, count, what)?;
    // SAFETY: the caller vouches for it.
    Ok(unsafe { Memory::new(given.cast_mut().cast(), count) })
}

fn length(given: *const c_void, count: u64, what: &str) -> Result<usize> {
    if given.is_null() && count > 0 {
        return Err(Error::invalid(format!("{what} is NULL, and {count} bytes of it are asked for")));
    }
    isize::try_from(count)
        .map(isize::cast_unsigned)
        .map_err(|_| Error::invalid(format!("{what}: {count} bytes are more than there can be")))
}

fn wanted(source: i64, tag: i64) -> Result<(Option<u32>, Option<u64>)> {
    let source = (source != ANY).then(|| {
        u32::try_from(source).map_err(|_| Error::invalid(format!("source={source}: give a rank, or FB_ANY")))
    });
    let tag = (tag != ANY).then(|| {
        u64::try_from(tag).map_err(|_| Error::invalid(format!("tag={tag}: give 0 or more, or FB_ANY")))
    });
    Ok((source.transpose()?, tag.transpose()?))
}

/// # Safety
/// It is NULL or may be written.
unsafe fn tell(found: Option<Status>, status: *mut fb_comm_status) {
    if let (Some(Status { source, tag, bytes }), false) = (found, status.is_null()) {
        // SAFETY: the caller vouches for it.
        unsafe { status.write(fb_comm_status { source, reserved: 0, tag, bytes }) };
    }
}

/// Gives an operation that has begun.
///
/// # Safety
/// The place may be written.
pub(crate) unsafe fn give(going: Going, request: *mut *mut fb_comm_request) {
    // SAFETY: the caller vouches for it.
    unsafe { Handle::give(going, request) };
}

/// Opens a communicator by its name.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_open(
    name: *const c_char,
    rank: u32,
    size: u32,
    group: *const c_char,
    timeout: f64,
    comm: *mut *mut fb_comm,
) -> c_int {
    call("fb_comm_open", || {
        let place = arguments::place(comm, "comm")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            let options = arguments::group(group, std::ptr::null(), timeout, std::ptr::null())?;
            Handle::give(
                Opened::new(open_comm(&options, arguments::text(name, "name")?, rank, size)?),
                place,
            );
        }
        Ok(())
    })
}

/// Which rank this process is.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_rank(comm: *const fb_comm, rank: *mut u32) -> c_int {
    call("fb_comm_rank", || {
        // SAFETY: the header's terms.
        unsafe { arguments::place(rank, "rank")?.write(Handle::get(comm, "comm")?.comm.rank()) };
        Ok(())
    })
}

/// How many ranks there are.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_size(comm: *const fb_comm, size: *mut u32) -> c_int {
    call("fb_comm_size", || {
        // SAFETY: the header's terms.
        unsafe { arguments::place(size, "size")?.write(Handle::get(comm, "comm")?.comm.size()) };
        Ok(())
    })
}

/// How long one operation may wait.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_set_timeout(comm: *mut fb_comm, timeout: f64) -> c_int {
    call("fb_comm_set_timeout", || {
        // SAFETY: the header's terms.
        unsafe { Handle::get(comm, "comm")? }.comm.set_timeout(arguments::seconds(timeout, "timeout")?);
        Ok(())
    })
}

/// Splits it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_split(
    comm: *mut fb_comm,
    color: i64,
    key: i64,
    part: *mut *mut fb_comm,
) -> c_int {
    call("fb_comm_split", || {
        let place = arguments::place(part, "part")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            let color = match color {
                ..0 => None,
                color => Some(
                    u32::try_from(color)
                        .map_err(|_| Error::invalid(format!("color={color}: colors are below 2^32")))?,
                ),
            };
            if let Some(part) = Handle::get(comm, "comm")?.comm.split(color, key)? {
                Handle::give(Opened::new(part), place);
            }
        }
        Ok(())
    })
}

/// Ends it on all ranks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_revoke(comm: *mut fb_comm, why: *const c_char) -> c_int {
    call("fb_comm_revoke", || {
        // SAFETY: the header's terms.
        unsafe { Handle::get(comm, "comm")?.comm.revoke(arguments::text(why, "why")?) }
    })
}

/// The same ranks once more.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_dup(comm: *mut fb_comm, copy: *mut *mut fb_comm) -> c_int {
    call("fb_comm_dup", || {
        let place = arguments::place(copy, "copy")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            Handle::give(Opened::new(Handle::get(comm, "comm")?.comm.dup()?), place);
        }
        Ok(())
    })
}

/// Makes an operation of a function.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_function_op(
    comm: *mut fb_comm,
    function: Option<fb_comm_function>,
    user: *mut c_void,
    op: *mut i32,
) -> c_int {
    call("fb_comm_function_op", || {
        let place = arguments::place(op, "op")?;
        let function = function.ok_or_else(|| Error::invalid("function is NULL"))?;
        // SAFETY: the header's terms.
        unsafe {
            let opened = Handle::get(comm, "comm")?;
            let mut functions = opened.functions.lock().unwrap_or_else(PoisonError::into_inner);
            if functions.len() >= FUNCTIONS_MAX {
                let text = format!("a communicator has {FUNCTIONS_MAX} functions at most: make each once");
                return Err(Error::new(ErrorKind::Full, text));
            }
            place.write(FUNCTIONS + functions.len() as i32);
            functions.push(called(function, User(user)));
        }
        Ok(())
    })
}

fn called(function: fb_comm_function, user: User) -> Arc<Function> {
    Arc::new(move |element, lower, higher| {
        let count = (lower.len() / element) as u64;
        // SAFETY: both have so many elements; what the function does with them is its author's.
        let code = unsafe { function(lower.as_ptr().cast(), higher.as_mut_ptr().cast(), count, user.get()) };
        if code == 0 {
            Ok(())
        } else {
            Err(Error::invalid(format!("the function of a reduction returned {code}")))
        }
    })
}

/// Closes it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_close(comm: *mut fb_comm) -> c_int {
    call("fb_comm_close", || {
        // SAFETY: the header's terms.
        drop(unsafe { Handle::take(comm) });
        Ok(())
    })
}

// ---- messages ---------------------------------------------------------------------------------------------

/// Sends bytes.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_send(
    comm: *mut fb_comm,
    dest: u32,
    tag: u64,
    given: *const c_void,
    count: u64,
) -> c_int {
    call("fb_comm_send", || {
        // SAFETY: the header's terms.
        unsafe { Handle::get(comm, "comm")?.comm.send(dest, tag, bytes(given, count, "bytes")?) }
    })
}

/// Receives a message.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_recv(
    comm: *mut fb_comm,
    source: i64,
    tag: i64,
    given: *mut c_void,
    room: u64,
    status: *mut fb_comm_status,
) -> c_int {
    call("fb_comm_recv", || {
        let (source, tag) = wanted(source, tag)?;
        // SAFETY: the header's terms.
        unsafe {
            let found =
                Handle::get(comm, "comm")?.comm.recv_into(source, tag, bytes_mut(given, room, "bytes")?)?;
            tell(Some(found), status);
        }
        Ok(())
    })
}

/// Sends and receives at once.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_sendrecv(
    comm: *mut fb_comm,
    dest: u32,
    send_tag: u64,
    sent: *const c_void,
    count: u64,
    source: i64,
    recv_tag: i64,
    received: *mut c_void,
    room: u64,
    status: *mut fb_comm_status,
) -> c_int {
    call("fb_comm_sendrecv", || {
        let (source, tag) = wanted(source, recv_tag)?;
        // SAFETY: the header's terms.
        unsafe {
            let comm = &Handle::get(comm, "comm")?.comm;
            let receiving = comm.irecv(source, tag, Some(memory(received, room, "received")?))?;
            comm.send(dest, send_tag, bytes(sent, count, "sent")?)?;
            tell(receiving.wait(comm)?.status, status);
        }
        Ok(())
    })
}

/// Waits for a message, and leaves it where it is.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_probe(
    comm: *mut fb_comm,
    source: i64,
    tag: i64,
    status: *mut fb_comm_status,
) -> c_int {
    call("fb_comm_probe", || {
        let (source, tag) = wanted(source, tag)?;
        // SAFETY: the header's terms.
        unsafe { tell(Some(Handle::get(comm, "comm")?.comm.probe(source, tag)?), status) };
        Ok(())
    })
}

/// Whether there is a message.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_iprobe(
    comm: *mut fb_comm,
    source: i64,
    tag: i64,
    there: *mut c_int,
    status: *mut fb_comm_status,
) -> c_int {
    call("fb_comm_iprobe", || {
        let (source, tag) = wanted(source, tag)?;
        let place = arguments::place(there, "there")?;
        // SAFETY: the header's terms.
        unsafe {
            let found = Handle::get(comm, "comm")?.comm.iprobe(source, tag)?;
            place.write(c_int::from(found.is_some()));
            tell(found, status);
        }
        Ok(())
    })
}

/// Sends, put aside.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_isend(
    comm: *mut fb_comm,
    dest: u32,
    tag: u64,
    given: *const c_void,
    count: u64,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_isend", || {
        let place = arguments::place(request, "request")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            let comm = &Handle::get(comm, "comm")?.comm;
            let sending = comm.isend(dest, tag, memory(given, count, "bytes")?)?;
            give(Going::new(comm, sending, Vec::new()), place);
        }
        Ok(())
    })
}

/// Receives, put aside.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_irecv(
    comm: *mut fb_comm,
    source: i64,
    tag: i64,
    given: *mut c_void,
    room: u64,
    request: *mut *mut fb_comm_request,
) -> c_int {
    call("fb_comm_irecv", || {
        let (source, tag) = wanted(source, tag)?;
        let place = arguments::place(request, "request")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            let comm = &Handle::get(comm, "comm")?.comm;
            let receiving = comm.irecv(source, tag, Some(memory(given, room, "bytes")?))?;
            give(Going::new(comm, receiving, Vec::new()), place);
        }
        Ok(())
    })
}

// ---- requests ---------------------------------------------------------------------------------------------

/// Takes a request out of its place.
///
/// # Safety
/// The place may be read and written, and what stands there is NULL or a request.
unsafe fn taken(request: *mut *mut fb_comm_request) -> Option<Going> {
    // SAFETY: the caller vouches for it.
    unsafe { Handle::take(request.replace(std::ptr::null_mut())) }
}

/// Waits until an operation is over.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_wait(
    request: *mut *mut fb_comm_request,
    status: *mut fb_comm_status,
) -> c_int {
    call("fb_comm_wait", || {
        let place = arguments::place(request, "request")?;
        // SAFETY: the header's terms.
        unsafe {
            if !place.read().is_null() {
                Handle::get(place.read(), "request")?;
            }
            if let Some(going) = taken(place) {
                tell(going.wait()?.status, status);
            }
        }
        Ok(())
    })
}

/// Whether an operation is over.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_test(
    request: *mut *mut fb_comm_request,
    done: *mut c_int,
    status: *mut fb_comm_status,
) -> c_int {
    call("fb_comm_test", || {
        let (place, out) = (arguments::place(request, "request")?, arguments::place(done, "done")?);
        // SAFETY: the header's terms.
        unsafe {
            out.write(1);
            if place.read().is_null() {
                return Ok(());
            }
            match Handle::get(place.read(), "request")?.request.test() {
                Ok(None) => out.write(0),
                ended => {
                    drop(taken(place));
                    tell(ended?.and_then(|done| done.status), status);
                }
            }
        }
        Ok(())
    })
}

/// Waits until one of several operations is over.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_wait_any(
    requests: *mut *mut fb_comm_request,
    count: u64,
    index: *mut u64,
    status: *mut fb_comm_status,
) -> c_int {
    call("fb_comm_wait_any", || {
        let out = arguments::place(index, "index")?;
        // SAFETY: the header's terms.
        unsafe {
            out.write(count);
            let (mut places, mut going) = (Vec::new(), Vec::new());
            for place in 0..count as usize {
                let request = arguments::place(requests, "requests")?.add(place).read();
                if !request.is_null() {
                    places.push(place);
                    going.push(Handle::get(request, "requests")?);
                }
            }
            let Some(first) = going.first() else {
                return Err(Error::new(ErrorKind::Ended, "all of these requests are over"));
            };
            let operations: Vec<&Request> = going.iter().map(|going| &going.request).collect();
            let (which, done) = Request::wait_any(&operations, &first.comm)?;
            out.write(places[which] as u64);
            drop(taken(requests.add(places[which])));
            tell(done?.status, status);
        }
        Ok(())
    })
}

/// Waits until all of several operations are over.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_wait_all(requests: *mut *mut fb_comm_request, count: u64) -> c_int {
    call("fb_comm_wait_all", || {
        let mut first = Ok(());
        for place in 0..count as usize {
            // SAFETY: the header's terms.
            let going = unsafe { taken(arguments::place(requests, "requests")?.add(place)) };
            let ended = going.map_or(Ok(()), |going| going.wait().map(drop));
            first = first.and(ended);
        }
        first
    })
}

/// Gives an operation up.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_comm_cancel(request: *mut *mut fb_comm_request) -> c_int {
    call("fb_comm_cancel", || {
        // SAFETY: the header's terms.
        drop(unsafe { taken(arguments::place(request, "request")?) });
        Ok(())
    })
}
