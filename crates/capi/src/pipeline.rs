//! `fb_pipeline_...`: a rank that drives a pipeline itself.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay.h")]
#![allow(non_camel_case_types, reason = "the names are those of the header")]

use crate::abi::{fb_block, fb_producer_options};
use crate::arguments;
use crate::boundary::{Handle, call};
use crate::options::producer_options;
use crate::producer::{Inner as Rank, fb_producer, put};
use forebay_client::core::steps::Policy;
use forebay_client::{
    Admin, DriveOutcome, Error, PipelineHandle, PipelineRequest, Producer, Result, ServerId,
};
use std::ffi::{c_char, c_int};
use std::sync::Arc;

/// What a pipeline's handle points at.
pub(crate) struct Inner {
    handle: PipelineHandle,
    /// The rank's handle, which goes with this one.
    rank: *mut fb_producer,
}

/// One rank that drives a pipeline.
pub(crate) type fb_pipeline = Handle<Inner>;

/// What was asked for and is waited for later.
pub(crate) type fb_request = Handle<PipelineRequest>;

/// Writes what came of something, where the caller wants it.
///
/// # Safety
/// The places are NULL or may be written.
unsafe fn tell(driven: &DriveOutcome, workers: *mut u32, ran: *mut c_int) {
    // SAFETY: the caller vouches for it.
    unsafe {
        match driven {
            DriveOutcome::Activated(servers) if !workers.is_null() => workers.write(servers.len() as u32),
            DriveOutcome::Executed { ran: has_run, .. } if !ran.is_null() => ran.write(c_int::from(*has_run)),
            _ => {}
        }
    }
}

/// Opens a handle of a pipeline.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_pipeline_open(
    options: *const fb_producer_options,
    name: *const c_char,
    server: i64,
    pipeline: *mut *mut fb_pipeline,
) -> c_int {
    call("fb_pipeline_open", || {
        let place = arguments::place(pipeline, "pipeline")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            let given = arguments::read(options, "options")?;
            let name = arguments::text(name, "name")?;
            let server = match server {
                -1 => None,
                number => Some(u32::try_from(number).map(ServerId).map_err(|_| {
                    Error::invalid(format!("server is {number}: give a server's number, or -1 for all"))
                })?),
            };
            let stream = arguments::optional_text(given.stream, "options->stream")?.unwrap_or_default();
            let mut options = producer_options(&given, stream)?;
            options.policy = Policy::Block;
            if options.stream.is_empty() {
                options.stream = Admin::open(&options.group)?.find_pipeline(name)?.stream;
            }
            let producer = Arc::new(Producer::open(&options)?);
            let handle = PipelineHandle::open(producer.clone(), name, server)?;
            let mut rank = std::ptr::null_mut();
            Handle::give(Rank::driven(producer), &raw mut rank);
            Handle::give(Inner { handle, rank }, place);
        }
        Ok(())
    })
}

/// The rank of the pipeline's stream.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_pipeline_producer(
    pipeline: *const fb_pipeline,
    producer: *mut *mut fb_producer,
) -> c_int {
    call("fb_pipeline_producer", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(pipeline, "pipeline")?;
            arguments::place(producer, "producer")?.write(inner.rank);
        }
        Ok(())
    })
}

/// Begins a step, and fixes who runs it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_pipeline_activate(
    pipeline: *mut fb_pipeline,
    step: u64,
    time: f64,
    workers: *mut u32,
) -> c_int {
    call("fb_pipeline_activate", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(pipeline, "pipeline")?;
            let servers = inner.handle.activate(step, time)?;
            tell(&DriveOutcome::Activated(servers), workers, std::ptr::null_mut());
        }
        Ok(())
    })
}

/// Begins a step, and leaves the rest to a wait.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_pipeline_activate_async(
    pipeline: *mut fb_pipeline,
    step: u64,
    time: f64,
    request: *mut *mut fb_request,
) -> c_int {
    call("fb_pipeline_activate_async", || {
        let place = arguments::place(request, "request")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            let inner = Handle::get(pipeline, "pipeline")?;
            Handle::give(inner.handle.activate_async(step, time)?, place);
        }
        Ok(())
    })
}

/// Stages one block by one copy.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_pipeline_stage(
    pipeline: *mut fb_pipeline,
    block: *const fb_block,
) -> c_int {
    // SAFETY: the header's terms.
    call("fb_pipeline_stage", || unsafe {
        put(Handle::get(pipeline, "pipeline")?.rank, block, Producer::put)
    })
}

/// Stages one block without waiting for the server's answer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_pipeline_stage_async(
    pipeline: *mut fb_pipeline,
    block: *const fb_block,
) -> c_int {
    // SAFETY: the header's terms.
    call("fb_pipeline_stage_async", || unsafe {
        put(Handle::get(pipeline, "pipeline")?.rank, block, Producer::put_async)
    })
}

/// Runs the pipeline on a step, and waits until it has.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_pipeline_execute(
    pipeline: *mut fb_pipeline,
    step: u64,
    timeout: f64,
    ran: *mut c_int,
) -> c_int {
    call("fb_pipeline_execute", || {
        // SAFETY: the header's terms.
        unsafe {
            let inner = Handle::get(pipeline, "pipeline")?;
            let patience = arguments::own_seconds(timeout)?;
            let request = inner.execute(step)?;
            tell(&request.wait(patience)?, std::ptr::null_mut(), ran);
        }
        Ok(())
    })
}

/// Has the pipeline run on a step.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_pipeline_execute_async(
    pipeline: *mut fb_pipeline,
    step: u64,
    request: *mut *mut fb_request,
) -> c_int {
    call("fb_pipeline_execute_async", || {
        let place = arguments::place(request, "request")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            Handle::give(Handle::get(pipeline, "pipeline")?.execute(step)?, place);
        }
        Ok(())
    })
}

/// Has finished with a step.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_pipeline_deactivate(pipeline: *mut fb_pipeline, step: u64) -> c_int {
    call("fb_pipeline_deactivate", || {
        // SAFETY: the header's terms.
        let inner = unsafe { Handle::get(pipeline, "pipeline") }?;
        let deactivated = inner.handle.deactivate(step);
        inner.forget_allocations()?;
        deactivated
    })
}

/// Waits for what was asked for.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_request_wait(
    request: *mut fb_request,
    timeout: f64,
    workers: *mut u32,
    ran: *mut c_int,
) -> c_int {
    call("fb_request_wait", || {
        // SAFETY: the header's terms.
        unsafe {
            let request = Handle::get(request, "request")?;
            tell(&request.wait(arguments::own_seconds(timeout)?)?, workers, ran);
        }
        Ok(())
    })
}

/// Frees a request: what was asked for goes on.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_request_free(request: *mut fb_request) -> c_int {
    call("fb_request_free", || {
        // SAFETY: the header's terms.
        drop(unsafe { Handle::take(request) });
        Ok(())
    })
}

/// Tells which steps are active.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_pipeline_active(
    pipeline: *const fb_pipeline,
    steps: *mut u64,
    steps_count: *mut u32,
) -> c_int {
    call("fb_pipeline_active", || {
        // SAFETY: the header's terms: there is room for as many as can be active.
        unsafe {
            let active = Handle::get(pipeline, "pipeline")?.handle.active();
            let (steps, count) =
                (arguments::place(steps, "steps")?, arguments::place(steps_count, "steps_count")?);
            for (index, step) in active.iter().enumerate() {
                steps.add(index).write(*step);
            }
            count.write(active.len() as u32);
        }
        Ok(())
    })
}

/// Ends the stream for this rank and frees the handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_pipeline_close(pipeline: *mut fb_pipeline) -> c_int {
    call("fb_pipeline_close", || {
        // SAFETY: the header's terms; the rank's handle was made with this one.
        unsafe {
            let Some(inner) = Handle::take(pipeline) else { return Ok(()) };
            let closed = inner.handle.close();
            drop(Handle::take(inner.rank));
            closed
        }
    })
}

/// Gives up the rank without closing the stream, and frees the handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_pipeline_abandon(pipeline: *mut fb_pipeline) -> c_int {
    call("fb_pipeline_abandon", || {
        // SAFETY: the header's terms; the rank's handle was made with this one.
        unsafe {
            let Some(inner) = Handle::take(pipeline) else { return Ok(()) };
            inner.handle.abandon();
            drop(Handle::take(inner.rank));
        }
        Ok(())
    })
}

impl Inner {
    /// Ends the step of this rank and has it run.
    fn execute(&self, step: u64) -> Result<PipelineRequest> {
        let request = self.handle.execute_async(step);
        self.forget_allocations()?;
        request
    }

    /// If no step is open any more, what was allocated in it and not committed was given back.
    fn forget_allocations(&self) -> Result<()> {
        // SAFETY: it was made with this handle, and goes with it.
        let rank = unsafe { Handle::get(self.rank, "producer") }?;
        if !self.handle.is_staging() {
            rank.forget_allocations();
        }
        Ok(())
    }
}
