//! `fb_producer_...` and what stands between `fb_producer_begin` and `fb_producer_end`.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay.h")]
#![allow(non_camel_case_types, reason = "the names are those of the header")]

use crate::abi::{fb_block, fb_field, fb_producer_options};
use crate::arguments;
use crate::boundary::{Handle, call};
use crate::boxes::{self, BlockArguments};
use crate::options::producer_options;
use forebay_client::core::dtype::Dtype;
use forebay_client::store::strided::Source;
use forebay_client::{Block, Choice, Error, ErrorKind, Outcome, Producer, Result};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a producer's handle points at.
pub(crate) struct Inner {
    pub(crate) producer: Arc<Producer>,
    /// A pipeline's handle begins and ends its steps, and closes it.
    driven: bool,
    state: Mutex<HandleState>,
}

/// One rank of a simulation.
pub(crate) type fb_producer = Handle<Inner>;

#[derive(Default)]
struct HandleState {
    dtypes: HashMap<String, Dtype>,
    /// What `fb_alloc` gave, by address.
    allocations: HashMap<usize, u64>,
}

impl Inner {
    /// The rank of a pipeline's handle.
    pub(crate) fn driven(producer: Arc<Producer>) -> Inner {
        Inner { producer, driven: true, state: Mutex::default() }
    }

    /// The step was ended: what was not committed was given back.
    pub(crate) fn forget_allocations(&self) {
        self.state().allocations.clear();
    }

    /// Fails for the rank of a pipeline's handle.
    fn check_own(&self, instead: &str) -> Result<()> {
        match self.driven {
            false => Ok(()),
            true => Err(Error::invalid(format!("producer belongs to a pipeline's handle: use {instead}"))),
        }
    }

    /// A field was declared, of this type.
    pub(crate) fn note_declared(&self, name: &str, dtype: Dtype) {
        self.state().dtypes.insert(name.to_owned(), dtype);
    }

    fn state(&self) -> MutexGuard<'_, HandleState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the dtype of a block. An unknown field is left to the client, which knows what to say.
    fn check(&self, given: &BlockArguments<'_>) -> Result<()> {
        match self.state().dtypes.get(given.field) {
            Some(dtype) => given.check_dtype(*dtype),
            None => Ok(()),
        }
    }

    fn take(&self, data: *mut c_void) -> Result<u64> {
        self.state().allocations.remove(&data.addr()).ok_or_else(|| {
            Error::invalid("data is not from fb_alloc in this step, or was committed or given back already")
        })
    }
}

fn block<'a>(given: &'a BlockArguments<'_>) -> Block<'a> {
    Block { field: given.field, number: given.number, level: given.level, extent: given.extent.clone() }
}

/// Joins a stream as one rank.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_producer_open(
    options: *const fb_producer_options,
    producer: *mut *mut fb_producer,
) -> c_int {
    call("fb_producer_open", || {
        let place = arguments::place(producer, "producer")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            let given = arguments::read(options, "options")?;
            let stream = arguments::text(given.stream, "options->stream")?;
            let producer = Arc::new(Producer::open(&producer_options(&given, stream)?)?);
            Handle::give(Inner { producer, driven: false, state: Mutex::default() }, place);
        }
        Ok(())
    })
}

/// The number of the run that was joined.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_producer_run(producer: *const fb_producer, run: *mut u64) -> c_int {
    call("fb_producer_run", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(producer, "producer")?;
            arguments::place(run, "run")?.write(inner.producer.run());
        }
        Ok(())
    })
}

/// Which transport was chosen.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_producer_transport(
    producer: *const fb_producer,
    name: *mut *const c_char,
) -> c_int {
    call("fb_producer_transport", || {
        use forebay_client::transport::Kind;
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(producer, "producer")?;
            let chosen = match inner.producer.transport() {
                Kind::Shm => c"shm",
                Kind::Tcp => c"tcp",
                _ => c"other",
            };
            arguments::place(name, "name")?.write(chosen.as_ptr());
        }
        Ok(())
    })
}

/// Whether staging was given up, why, and how many steps were skipped so far.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_producer_lost(producer: *const fb_producer, skipped: *mut u64) -> c_int {
    call("fb_producer_lost", || {
        // SAFETY: the header's terms.
        unsafe {
            let producer = &Handle::get(producer, "producer")?.producer;
            let lost = producer.lost();
            if !skipped.is_null() {
                skipped.write(producer.skipped());
            }
            lost.map_or(Ok(()), |(error, _)| Err(error))
        }
    })
}

/// Adds a field to the output contract, or changes its shape.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_array(producer: *mut fb_producer, field: *const fb_field) -> c_int {
    call("fb_array", || {
        // SAFETY: the header's terms.
        let (inner, field) = unsafe {
            let inner = Handle::get(producer, "producer")?;
            (inner, boxes::field(&arguments::read(field, "field")?)?)
        };
        let (name, dtype) = (field.name.clone(), field.dtype);
        inner.producer.array(field)?;
        inner.state().dtypes.insert(name, dtype);
        Ok(())
    })
}

/// Declares a particle species.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_particles(
    producer: *mut fb_producer,
    species: *const c_char,
    fields: *const fb_field,
    fields_count: u32,
    fields_stride: u32,
) -> c_int {
    call("fb_particles", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(producer, "producer")?;
            let species = arguments::text(species, "species")?;
            let fields = arguments::each(fields, fields_count, fields_stride, "fields", |field, what| {
                boxes::field(field).map_err(|error| error.during(what))
            })?;
            let dtypes: Vec<(String, Dtype)> =
                fields.iter().map(|field| (format!("{species}/{}", field.name), field.dtype)).collect();
            inner.producer.particles(species, fields)?;
            inner.state().dtypes.extend(dtypes);
        }
        Ok(())
    })
}

/// Declares a buffer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_buffer(
    producer: *mut fb_producer,
    name: *const c_char,
    every: u32,
) -> c_int {
    call("fb_buffer", || {
        // SAFETY: the header's terms.
        let (inner, name) = unsafe { (Handle::get(producer, "producer")?, arguments::text(name, "name")?) };
        inner.producer.buffer(name, every)?;
        inner.state().dtypes.insert(name.to_owned(), Dtype::U8);
        Ok(())
    })
}

/// Begins a step.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_producer_begin(
    producer: *mut fb_producer,
    number: u64,
    time: f64,
) -> c_int {
    call("fb_producer_begin", || {
        // SAFETY: the header's terms.
        let inner = unsafe { Handle::get(producer, "producer") }?;
        inner.check_own("fb_pipeline_activate")?;
        inner.producer.begin(number, time)
    })
}

/// Whether something wants a field at the current step.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_demanded(
    producer: *mut fb_producer,
    field: *const c_char,
    demanded: *mut c_int,
) -> c_int {
    call("fb_demanded", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(producer, "producer")?;
            let place = arguments::place(demanded, "demanded")?;
            place.write(c_int::from(inner.producer.demanded(arguments::text(field, "field")?)?));
        }
        Ok(())
    })
}

/// Stages one block by one copy.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_put(producer: *mut fb_producer, block: *const fb_block) -> c_int {
    // SAFETY: the header's terms.
    call("fb_put", || unsafe { put(producer, block, Producer::put) })
}

/// Stages one block without waiting for the server's answer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_put_async(producer: *mut fb_producer, block: *const fb_block) -> c_int {
    // SAFETY: the header's terms.
    call("fb_put_async", || unsafe { put(producer, block, Producer::put_async) })
}

/// Puts a block.
///
/// # Safety
/// The header's terms.
pub(crate) unsafe fn put(
    producer: *mut fb_producer,
    block: *const fb_block,
    stage: impl FnOnce(&Producer, &Block<'_>, &Source<'_>) -> Result<Outcome>,
) -> Result<()> {
    // SAFETY: the header's terms.
    unsafe {
        let inner = Handle::get(producer, "producer")?;
        let described = arguments::read(block, "block")?;
        let given = BlockArguments::read(&described)?;
        inner.check(&given)?;
        let outcome = stage(&inner.producer, &self::block(&given), &given.source()?)?;
        if !described.outcome.is_null() {
            described.outcome.write(outcome.named().number);
        }
    }
    Ok(())
}

/// Waits for the answers to what was put without waiting.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_wait(producer: *mut fb_producer, dropped: *mut u64) -> c_int {
    call("fb_wait", || {
        // SAFETY: the header's terms.
        unsafe {
            let found_no_room = Handle::get(producer, "producer")?.producer.wait()?;
            if !dropped.is_null() {
                dropped.write(found_no_room);
            }
        }
        Ok(())
    })
}

/// Gives memory of a staged block to compute into.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_alloc(
    producer: *mut fb_producer,
    block: *const fb_block,
    data: *mut *mut c_void,
) -> c_int {
    call("fb_alloc", || {
        let place = arguments::place(data, "data")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            let inner = Handle::get(producer, "producer")?;
            let given = BlockArguments::read(&arguments::read(block, "block")?)?;
            inner.check(&given)?;
            if let Some(allocation) = inner.producer.alloc(&self::block(&given))? {
                let address = allocation.address()?;
                inner.state().allocations.insert(address.addr(), allocation.id);
                place.write(address.cast());
            }
        }
        Ok(())
    })
}

/// Publishes what `fb_alloc` gave.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_commit(producer: *mut fb_producer, data: *mut c_void) -> c_int {
    call("fb_commit", || {
        // SAFETY: the header's terms.
        let inner = unsafe { Handle::get(producer, "producer") }?;
        if data.is_null() { Ok(()) } else { inner.producer.commit(inner.take(data)?) }
    })
}

/// Gives back what `fb_alloc` gave, unpublished.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_abort(producer: *mut fb_producer, data: *mut c_void) -> c_int {
    call("fb_abort", || {
        // SAFETY: the header's terms.
        let inner = unsafe { Handle::get(producer, "producer") }?;
        if data.is_null() { Ok(()) } else { inner.producer.abort(inner.take(data)?) }
    })
}

/// Ends the step of this rank.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_producer_end(producer: *mut fb_producer) -> c_int {
    call("fb_producer_end", || {
        // SAFETY: the header's terms.
        let inner = unsafe { Handle::get(producer, "producer") }?;
        inner.check_own("fb_pipeline_execute or fb_pipeline_deactivate")?;
        let ended = inner.producer.end();
        // What was not committed was given back, unless there was no step to end.
        if !matches!(&ended, Err(error) if error.kind == ErrorKind::StepOrder) {
            inner.forget_allocations();
        }
        ended
    })
}

/// Waits until the home server holds all that was put.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_flush(producer: *mut fb_producer) -> c_int {
    call("fb_flush", || {
        // SAFETY: the header's terms.
        let inner = unsafe { Handle::get(producer, "producer") }?;
        inner.producer.flush()
    })
}

/// Ends the stream for this rank and frees the handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_producer_close(producer: *mut fb_producer) -> c_int {
    call("fb_producer_close", || {
        // SAFETY: the header's terms. One of a forked child is told by what follows.
        if let Ok(inner) = unsafe { Handle::get(producer, "producer") } {
            inner.check_own("fb_pipeline_close")?;
        }
        // SAFETY: as above.
        let inner = unsafe { Handle::take(producer) };
        inner.map_or(Ok(()), |inner| inner.producer.close())
    })
}

/// Gives up the rank without closing the stream, and frees the handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_producer_abandon(producer: *mut fb_producer) -> c_int {
    call("fb_producer_abandon", || {
        // SAFETY: the header's terms. One of a forked child is told by what follows.
        if let Ok(inner) = unsafe { Handle::get(producer, "producer") } {
            inner.check_own("fb_pipeline_abandon")?;
        }
        // SAFETY: as above.
        if let Some(inner) = unsafe { Handle::take(producer) } {
            inner.producer.abandon();
        }
        Ok(())
    })
}
