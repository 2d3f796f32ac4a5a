//! Options that are several members in C.
#![allow(unsafe_code, reason = "what is needed is a list of C's structs")]

use crate::abi::{
    FB_START_CURSOR, FB_START_HELD, FB_START_LATEST, FB_START_NEXT, FB_START_OLDEST, FB_START_RESUME,
    FB_START_RUN, fb_consumer_options, fb_need, fb_producer_options,
};
use crate::arguments;
pub(crate) use crate::placement::placement;
use forebay_client::core::contract::{Index, Need, Needs, Period, Slice, Slices, Terms};
use forebay_client::core::dtype::Dtype;
use forebay_client::core::steps::Start;
use forebay_client::{Choice, Error, Result};

/// The run that goes on, and its last step that is still true.
pub(crate) fn continues(given: &fb_producer_options) -> Result<Option<(u64, u64)>> {
    match (given.continues_run, given.continues_step) {
        (0, 0) => Ok(None),
        (0, step) => Err(Error::invalid(format!(
            "options->continues_step is {step}, and continues_run is 0: runs are counted from 1"
        ))),
        (run, step) => Ok(Some((run, step))),
    }
}

/// With which step to begin.
pub(crate) fn start(given: &fb_consumer_options) -> Result<Start> {
    match given.start {
        FB_START_NEXT => Ok(Start::Next),
        FB_START_OLDEST => Ok(Start::Oldest),
        FB_START_LATEST => Ok(Start::Latest),
        FB_START_RUN => Ok(Start::Run),
        FB_START_HELD => Ok(Start::HELD),
        FB_START_RESUME => Ok(Start::Resume),
        FB_START_CURSOR if given.start_run == 0 => {
            Err(Error::invalid("options->start_run is 0: runs are counted from 1"))
        }
        FB_START_CURSOR => Ok(Start::Cursor(given.start_run, given.start_step)),
        other => Err(Error::invalid(format!(
            "options->start is {other}: use FB_START_NEXT (0), FB_START_OLDEST (1), FB_START_CURSOR (2), FB_START_LATEST (3), \
             FB_START_RUN (4), FB_START_HELD (5) or FB_START_RESUME (6)"
        ))),
    }
}

/// The part of a field that is needed, if not all of it.
///
/// # Safety
/// The header's terms: so many numbers each, or NULL.
unsafe fn part(need: &fb_need, what: &str) -> Result<Option<Slices>> {
    if need.ndim == 0 {
        return Ok(None);
    }
    let ndim = arguments::dimensions(need.ndim, &format!("{what}.ndim"))?;
    let (offset, shape) = (format!("{what}.offset"), format!("{what}.shape"));
    // SAFETY: the caller vouches for them.
    let (offset, shape, stride) = unsafe {
        (
            arguments::numbers(need.offset, ndim, &offset)?,
            arguments::numbers(need.shape, ndim, &shape)?,
            arguments::optional_numbers(need.stride, ndim).chain(std::iter::repeat_n(1, ndim)),
        )
    };
    let slice = |((first, count), step): ((u64, u64), u64)| {
        let extent = count.checked_sub(1).and_then(|gaps| gaps.checked_mul(step)?.checked_add(1));
        let stop = extent.and_then(|extent| first.checked_add(extent)).ok_or_else(|| {
            let text =
                format!("{what}: {count} elements from {first} on, every {step}, are none or too many");
            Error::out_of_bounds(text)
        })?;
        Ok(Slice { start: Some(Index::FromStart(first)), stop: Some(Index::FromStart(stop)), step })
    };
    let slices = offset.zip(shape).zip(stride).map(slice).collect::<Result<Vec<Slice>>>()?;
    Slices::new(slices, Vec::new()).map(Some).map_err(|error| error.during(what))
}

/// What is needed: some fields, or all of them every so often.
///
/// # Safety
/// The header's terms: so many structs, so far apart.
pub(crate) unsafe fn needs(given: &fb_consumer_options) -> Result<Needs> {
    let (count, stride) = (given.fields_count, given.fields_stride);
    // SAFETY: the caller vouches for it.
    unsafe { needs_of(given.fields, count, stride, given.every, "options->") }
}

/// What a reader needs from now on: the first struct says how far apart they are.
///
/// # Safety
/// The header's terms: so many structs of one size.
pub(crate) unsafe fn changed_needs(fields: *const fb_need, count: u32, every: u32) -> Result<Needs> {
    // SAFETY: the caller vouches for it: each begins with its size.
    let size = if fields.is_null() || count == 0 { 0 } else { unsafe { (*fields).struct_size } };
    let stride = u32::try_from(size).unwrap_or(0);
    // SAFETY: the same.
    unsafe { needs_of(fields, count, stride, every, "") }
}

/// What is needed: some fields, or all of them every so often.
///
/// # Safety
/// The header's terms: so many structs, so far apart.
unsafe fn needs_of(
    fields: *const fb_need,
    count: u32,
    stride: u32,
    every: u32,
    within: &str,
) -> Result<Needs> {
    if count == 0 {
        let every = arguments::within(every, 1..=u32::MAX, &format!("{within}every"))?;
        return Ok(Needs::all(every));
    }
    // SAFETY: the caller vouches for it.
    let needs = unsafe {
        arguments::each(fields, count, stride, &format!("{within}fields"), |need, what| {
            let period = Period { every: need.every, first: Some(need.first).filter(|first| *first > 0) };
            let part = part(need, what)?;
            let statistics = Choice::of_number(need.stats, &format!("{what}.stats"))?;
            arguments::unused(need.reserved, &format!("{what}.reserved"))?;
            Ok(Need {
                field: arguments::text(need.field, &format!("{what}.field"))?.to_owned(),
                terms: Terms { period, part, statistics },
                dtype: (need.dtype != 0).then(|| Dtype::from_code(need.dtype)).transpose()?,
                optional: need.optional != 0,
            })
        })?
    };
    Ok(Needs::Fields(needs))
}
