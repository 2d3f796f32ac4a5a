//! Which server holds a block, as a caller of the C interface says it.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay.h")]

use crate::abi::{
    FB_PLACEMENT_BY_BLOCK, FB_PLACEMENT_FUNCTION, FB_PLACEMENT_NEAREST, Sized64, fb_producer_options,
    fb_to_place,
};
use forebay_client::{BlockToPlace, Error, Placement, Result, ServerId};
use std::ffi::{CString, c_void};
use std::sync::Arc;

/// `fb_place_function`.
type Function = unsafe extern "C" fn(*mut c_void, *const fb_to_place) -> i64;

/// A caller's function and what it is called with.
struct Callback {
    function: Function,
    context: *mut c_void,
}

// SAFETY: the header says that the function is called in the threads that put; what its context points at
// is the caller's to share among them.
unsafe impl Send for Callback {}
// SAFETY: as above.
unsafe impl Sync for Callback {}

impl Callback {
    fn place(&self, block: &BlockToPlace<'_>) -> Result<ServerId> {
        let text = |_| Error::invalid("a field's name has a NUL");
        let field = CString::new(block.field).map_err(text)?;
        let servers: Vec<u32> = block.servers.iter().map(|server| server.0).collect();
        let told = fb_to_place {
            field: field.as_ptr(),
            number: block.key.number,
            rank: block.key.rank,
            ndim: block.extent.ndim() as u32,
            offset: block.extent.offset().map_or(std::ptr::null(), <[u64]>::as_ptr),
            shape: block.extent.shape().as_ptr(),
            servers: servers.as_ptr(),
            servers_count: servers.len() as u64,
            ..fb_to_place::DEFAULT
        };
        // SAFETY: the header's terms: the function may be called with this context in any thread that puts.
        let server = unsafe { (self.function)(self.context, &raw const told) };
        u32::try_from(server).map(ServerId).map_err(|_| {
            Error::invalid(format!(
                "options->place failed for {} of field '{}': {server}",
                block.key, block.field
            ))
        })
    }
}

/// The placement that the options of a producer say.
pub(crate) fn placement(given: &fb_producer_options) -> Result<Placement> {
    match given.placement {
        FB_PLACEMENT_NEAREST => Ok(Placement::Nearest),
        FB_PLACEMENT_BY_BLOCK => Ok(Placement::ByBlock),
        FB_PLACEMENT_FUNCTION => {
            let null =
                || Error::invalid("options->place is NULL: with FB_PLACEMENT_FUNCTION give a function");
            let function = given.place.ok_or_else(null)?;
            let callback = Callback { function, context: given.place_context };
            Ok(Placement::Function(Arc::new(move |block| callback.place(block))))
        }
        other => Err(Error::invalid(format!(
            "options->placement is {other}: use one of FB_PLACEMENT_... (0 to 2)"
        ))),
    }
}
