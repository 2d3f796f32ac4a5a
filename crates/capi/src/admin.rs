//! `fb_admin_...`: looking after a group.
#![allow(unsafe_code, reason = "this is the C interface; what it relies on stands in forebay.h")]
#![allow(non_camel_case_types, reason = "the names are those of the header")]

use crate::abi::{fb_admin_options, fb_pipeline_options};
use crate::boundary::{Handle, call};
use crate::general::give;
use crate::options::admin_options;
use crate::{arguments, command};
use forebay_client::{Admin, Error, GroupOptions, Result, ServerId};
use serde_json::Value;
use std::ffi::{c_char, c_int};

/// How to find a group: each call connects for itself.
pub(crate) type fb_admin = Handle<GroupOptions>;

/// The group that a handle is for, as it is now.
///
/// # Safety
/// The header's terms.
unsafe fn group(admin: *const fb_admin) -> Result<Admin> {
    // SAFETY: the caller vouches for it.
    Admin::open(unsafe { Handle::get(admin, "admin") }?)
}

/// Finds a group.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_admin_open(
    options: *const fb_admin_options,
    admin: *mut *mut fb_admin,
) -> c_int {
    call("fb_admin_open", || {
        let place = arguments::place(admin, "admin")?;
        // SAFETY: the header's terms.
        unsafe {
            place.write(std::ptr::null_mut());
            let options = admin_options(&arguments::read(options, "options")?)?;
            Admin::open(&options)?;
            Handle::give(options, place);
        }
        Ok(())
    })
}

/// The group's status, as JSON.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_admin_status(admin: *mut fb_admin, json: *mut *mut c_char) -> c_int {
    call("fb_admin_status", || {
        // SAFETY: the header's terms.
        unsafe { give(json, || Ok(group(admin)?.status()?.to_json().to_string())) }
    })
}

/// What is needed of a stream, as JSON.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_admin_contracts(
    admin: *mut fb_admin,
    stream: *const c_char,
    json: *mut *mut c_char,
) -> c_int {
    call("fb_admin_contracts", || {
        // SAFETY: the header's terms.
        unsafe {
            let stream = arguments::text(stream, "stream")?;
            give(json, || Ok(group(admin)?.contracts(stream)?.to_json().to_string()))
        }
    })
}

/// Starts more servers.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_admin_add_servers(
    admin: *mut fb_admin,
    count: u32,
    servers: *mut u32,
) -> c_int {
    call("fb_admin_add_servers", || {
        // SAFETY: the header's terms: there is room for so many.
        unsafe {
            let options = Handle::get(admin, "admin")?;
            let told = command::run(options, &["add", &count.to_string()])?;
            let added = told["added"].as_array().into_iter().flatten().filter_map(Value::as_u64);
            for (index, server) in added.enumerate().take(count as usize) {
                if !servers.is_null() {
                    servers.add(index).write(u32::try_from(server).unwrap_or(u32::MAX));
                }
            }
        }
        Ok(())
    })
}

/// Has a server leave the group.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_admin_remove_server(
    admin: *mut fb_admin,
    server: u32,
    discard: c_int,
) -> c_int {
    call("fb_admin_remove_server", || {
        let discard = arguments::truth(discard, "discard")?;
        // SAFETY: the header's terms.
        unsafe { group(admin) }?.remove_server(ServerId(server), discard).map(drop)
    })
}

/// Has the group go on without the servers that do not answer.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_admin_heal(
    admin: *mut fb_admin,
    force: c_int,
    room: u32,
    answering: *mut u32,
    answering_count: *mut u32,
    silent: *mut u32,
    silent_count: *mut u32,
) -> c_int {
    call("fb_admin_heal", || {
        let force = arguments::truth(force, "force")?;
        // SAFETY: the header's terms.
        unsafe {
            let answers = arguments::place(answering_count, "answering_count")?;
            let none = arguments::place(silent_count, "silent_count")?;
            let (kept, given_up) = group(admin)?.heal(force)?;
            list(&kept, room, answering, answers);
            list(&given_up, room, silent, none);
        }
        Ok(())
    })
}

/// Writes the numbers of as many servers as there is room for, and how many there are.
///
/// # Safety
/// `place` is NULL or has that room; `count` may be written.
unsafe fn list(servers: &[ServerId], room: u32, place: *mut u32, count: *mut u32) {
    // SAFETY: the caller vouches for it.
    unsafe {
        for (index, server) in servers.iter().enumerate().take(room as usize) {
            if !place.is_null() {
                place.add(index).write(server.0);
            }
        }
        count.write(servers.len() as u32);
    }
}

/// Creates a pipeline.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_admin_create_pipeline(
    admin: *mut fb_admin,
    options: *const fb_pipeline_options,
) -> c_int {
    call("fb_admin_create_pipeline", || {
        // SAFETY: the header's terms.
        unsafe {
            let group = Handle::get(admin, "admin")?;
            let given = arguments::read(options, "options")?;
            let name = arguments::text(given.name, "options->name")?;
            let code = arguments::text(given.code, "options->code")?;
            let mut words = vec!["pipeline", "create"];
            for (option, text) in [
                ("--stream", given.stream),
                ("--config", given.config),
                ("--python", given.python),
                ("--on", given.on),
            ] {
                if let Some(text) = arguments::optional_text(text, option)? {
                    words.extend([option, text]);
                }
            }
            if arguments::truth(given.driven, "options->driven")? {
                words.push("--driven");
            }
            if name.starts_with('-') || code.starts_with('-') {
                return Err(Error::invalid(format!("'{name}' or '{code}' begins with '-'")));
            }
            words.extend([name, code]);
            command::run(group, &words).map(drop)
        }
    })
}

/// Ends a pipeline.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_admin_destroy_pipeline(
    admin: *mut fb_admin,
    name: *const c_char,
) -> c_int {
    call("fb_admin_destroy_pipeline", || {
        // SAFETY: the header's terms.
        unsafe { group(admin)?.destroy_pipeline(arguments::text(name, "name")?) }
    })
}

/// Ends every server of a group.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_admin_shutdown(admin: *mut fb_admin) -> c_int {
    call("fb_admin_shutdown", || {
        // SAFETY: the header's terms.
        unsafe { group(admin) }?.shutdown().map(drop)
    })
}

/// Frees the handle.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fb_admin_close(admin: *mut fb_admin) -> c_int {
    call("fb_admin_close", || {
        // SAFETY: the header's terms.
        drop(unsafe { Handle::take(admin) });
        Ok(())
    })
}
