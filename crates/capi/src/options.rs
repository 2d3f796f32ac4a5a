//! Options: from C's structs to the client's.
//!
//! Generated from interface/forebay.toml by scripts/generate_faces.py: change it there.
#![allow(unsafe_code, reason = "the structs are full of C's pointers")]

use crate::abi::{fb_admin_options, fb_consumer_options, fb_field, fb_producer_options, fb_space_options};
use crate::{arguments, compound};
use forebay_client::core::contract::Field;
use forebay_client::{Choice, ConsumerOptions, GroupOptions, ProducerOptions, Result, SpaceOptions};

/// How to open a producer, with the name of its stream.
///
/// # Safety
/// The header's terms.
pub(crate) unsafe fn producer_options(given: &fb_producer_options, stream: &str) -> Result<ProducerOptions> {
    // SAFETY: the caller vouches for it.
    unsafe {
        arguments::unused(given.reserved, "options->reserved")?;
        Ok(ProducerOptions {
            group: arguments::group(given.group, given.transport, given.timeout, given.name)?,
            stream: stream.to_owned(),
            rank: given.rank,
            size: given.size,
            policy: Choice::of_number(given.policy, "options->policy")?,
            keep: given.keep,
            on_loss: Choice::of_number(given.on_loss, "options->on_loss")?,
            placement: compound::placement(given)?,
            continues: compound::continues(given)?,
            queue_bytes: given.queue_bytes,
            replicas: given.replicas,
            durability: Choice::of_number(given.durability, "options->durability")?,
            wait_for_readers: given.wait_for_readers,
            job: arguments::optional_text(given.job, "options->job")?.map(str::to_owned),
            first: given.first,
            stride: given.stride,
        })
    }
}

/// How to open a consumer, with the name of its stream.
///
/// # Safety
/// The header's terms.
pub(crate) unsafe fn consumer_options(given: &fb_consumer_options, stream: &str) -> Result<ConsumerOptions> {
    // SAFETY: the caller vouches for it.
    unsafe {
        arguments::unused(given.reserved, "options->reserved")?;
        arguments::unused(given.reserved2, "options->reserved2")?;
        arguments::unused(given.reserved3, "options->reserved3")?;
        Ok(ConsumerOptions {
            group: arguments::group(given.group, given.transport, given.timeout, given.name)?,
            stream: stream.to_owned(),
            needs: compound::needs(given)?,
            window: arguments::within(given.window, 1..=1024, "options->window")?,
            follow: arguments::truth(given.follow, "options->follow")?,
            start: compound::start(given)?,
            pin_bytes: given.pin_bytes,
            take: Choice::of_number(given.take, "options->take")?,
            rank: given.rank,
            size: arguments::within(given.size, 1..=65536, "options->size")?,
            on_loss: Choice::of_number(given.on_loss, "options->on_loss")?,
            assign: arguments::choice_by_name(given.assign, "options->assign")?,
            share: Choice::of_number(given.share, "options->share")?,
        })
    }
}

/// How to open a space.
///
/// # Safety
/// The header's terms.
pub(crate) unsafe fn space_options(given: &fb_space_options) -> Result<SpaceOptions> {
    // SAFETY: the caller vouches for it.
    unsafe {
        arguments::unused(given.reserved, "options->reserved")?;
        Ok(SpaceOptions {
            group: arguments::group(given.group, given.transport, given.timeout, given.name)?,
            replicas: arguments::within(given.replicas, 1..=8, "options->replicas")?,
        })
    }
}

/// What is said of a field beside its name, type and shape.
///
/// # Safety
/// The header's terms.
pub(crate) unsafe fn field_options(given: &fb_field, ndim: usize, field: &mut Field) -> Result<()> {
    // SAFETY: the caller vouches for it.
    unsafe {
        arguments::unused(given.reserved, "field->reserved")?;
        arguments::unused(given.reserved2, "field->reserved2")?;
        arguments::unused(given.reserved3, "field->reserved3")?;
        field.association = Choice::of_number(given.association, "field->association")?;
        field.every = given.every;
        field.dims = arguments::labels(given.dims, ndim, "field->dims")?;
        field.spacing = arguments::optional_numbers(given.spacing, ndim).collect();
        field.origin = arguments::optional_numbers(given.origin, ndim).collect();
        field.units = arguments::optional_text(given.units, "field->units")?.unwrap_or_default().to_owned();
        field.periodic = arguments::flags(given.periodic, ndim, "field->periodic")?;
        field.refinement = arguments::optional_numbers(given.refinement, ndim).collect();
        field.is_static = arguments::truth(given.is_static, "field->is_static")?;
    }
    Ok(())
}

/// How to look after a group.
///
/// # Safety
/// The header's terms.
pub(crate) unsafe fn admin_options(given: &fb_admin_options) -> Result<GroupOptions> {
    // SAFETY: the caller vouches for it.
    unsafe { arguments::own_group(given.group, given.transport, given.timeout, given.name) }
}
