//! The structs of `forebay.h`, with the names and the order that they have there.
#![allow(non_camel_case_types, reason = "the names are those of the header")]

use std::ffi::{c_char, c_void};
use std::mem::size_of;

/// A struct that begins with its own size, so that it can grow.
///
/// # Safety
/// The struct is `repr(C)`, begins with a `u64` that holds its size, has no padding, and any bytes make
/// a valid value of it.
#[allow(unsafe_code, reason = "the promise is about layout, which the compiler cannot check; a test does")]
pub(crate) unsafe trait Sized64: Copy {
    /// The struct's size in the first release that had it: no caller can have less.
    const FIRST: usize;
    /// Its name in the header, and that of the macro that initialises it.
    const NAME: &str;
    /// What its members are where the caller's is too short to have them.
    const DEFAULT: Self;
}

macro_rules! sized {
    ($(#[$doc:meta])* $name:ident, $first:literal, { $($member:ident: $kind:ty = $default:expr,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy)]
        pub(crate) struct $name {
            pub(crate) size: u64,
            $(pub(crate) $member: $kind,)*
        }

        // SAFETY: repr(C), `size` first; `header_test` checks the layout; members are numbers and pointers.
        #[allow(unsafe_code, reason = "see the trait")]
        unsafe impl Sized64 for $name {
            const FIRST: usize = $first;
            const NAME: &str = stringify!($name);
            const DEFAULT: Self = $name { size: size_of::<$name>() as u64, $($member: $default,)* };
        }

        #[cfg(test)]
        impl $name {
            /// The members in order, with offset and size, to compare with the header.
            pub(crate) const MEMBERS: &[(&str, usize, usize)] = &[
                ("size", 0, 8),
                $((stringify!($member), std::mem::offset_of!($name, $member), size_of::<$kind>()),)*
            ];
        }
    };
}

macro_rules! numbers {
    ($($name:ident = $number:literal,)*) => {
        $(pub(crate) const $name: i32 = $number;)*

        /// All of them, to compare with the header.
        #[cfg(test)]
        pub(crate) const NUMBERS: &[(&str, i32)] = &[$((stringify!($name), $name),)*];
    };
}

numbers! {
    FB_TEXT = 16,
    FB_MEMORY_HOST = 0,
    FB_ASSOCIATION_CELL = 0,
    FB_ASSOCIATION_VERTEX = 1,
    FB_POLICY_DROP_OLDEST = 0,
    FB_POLICY_BLOCK = 1,
    FB_POLICY_LATEST = 2,
    FB_POLICY_SPILL = 3,
    FB_ON_LOSS_SKIP = 0,
    FB_ON_LOSS_FAIL = 1,
    FB_PLACEMENT_NEAREST = 0,
    FB_PLACEMENT_BY_BLOCK = 1,
    FB_PLACEMENT_FUNCTION = 2,
    FB_DURABILITY_LOCAL = 0,
    FB_DURABILITY_REPLICATED = 1,
    FB_START_NEXT = 0,
    FB_START_OLDEST = 1,
    FB_START_CURSOR = 2,
    FB_OUTCOME_STAGED = 0,
    FB_OUTCOME_UNDEMANDED = 1,
    FB_OUTCOME_DROPPED = 2,
}

const NULL: *const c_char = std::ptr::null();

/// A caller's function that places blocks; NULL is `None`, any other pointer must be one.
pub(crate) type fb_place_function = Option<unsafe extern "C" fn(*mut c_void, *const fb_to_place) -> i64>;

sized!(
    /// How to open a producer.
    fb_producer_options, 120, {
        group: *const c_char = NULL,
        stream: *const c_char = NULL,
        rank: u32 = 0,
        ranks: u32 = 1,
        policy: i32 = 0,
        keep: u32 = 0,
        timeout: f64 = 30.0,
        transport: *const c_char = NULL,
        has_continues: i32 = 0,
        on_loss: i32 = 0,
        continues_run: u64 = 0,
        continues_step: u64 = 0,
        queue_bytes: u64 = 0,
        placement: i32 = 0,
        reserved: i32 = 0,
        place: fb_place_function = None,
        place_context: *mut c_void = std::ptr::null_mut(),
        replicas: u32 = 1,
        durability: i32 = 0,
    }
);

sized!(
    /// A block that is to be placed, as a caller's function sees it.
    fb_to_place, 56, {
        field: *const c_char = NULL,
        number: u64 = 0,
        rank: u32 = 0,
        ndim: u32 = 0,
        offset: *const u64 = std::ptr::null(),
        shape: *const u64 = std::ptr::null(),
        servers: u64 = 0,
    }
);

sized!(
    /// A field of the output contract.
    fb_field, 80, {
        name: *const c_char = NULL,
        dtype: i32 = 0,
        association: i32 = 0,
        ndim: u32 = 0,
        every: u32 = 1,
        shape: *const u64 = std::ptr::null(),
        dims: *const *const c_char = std::ptr::null(),
        spacing: *const f64 = std::ptr::null(),
        origin: *const f64 = std::ptr::null(),
        units: *const c_char = NULL,
        stats: i32 = 0,
        reserved: i32 = 0,
    }
);

sized!(
    /// What is said of a stream or of a field beside the data.
    fb_attribute, 48, {
        field: *const c_char = NULL,
        key: *const c_char = NULL,
        dtype: i32 = 0,
        list: i32 = 0,
        count: u64 = 1,
        values: *const c_void = std::ptr::null(),
    }
);

sized!(
    /// What is put: a box of the global array, or a local array without a place in one.
    fb_block, 96, {
        field: *const c_char = NULL,
        number: u64 = 0,
        data: *const c_void = std::ptr::null(),
        memory: i32 = 0,
        dtype: i32 = 0,
        ndim: u32 = 0,
        level: u32 = 0,
        offset: *const u64 = std::ptr::null(),
        shape: *const u64 = std::ptr::null(),
        ghost_low: *const u64 = std::ptr::null(),
        ghost_high: *const u64 = std::ptr::null(),
        strides: *const i64 = std::ptr::null(),
        outcome: *mut i32 = std::ptr::null_mut(),
    }
);

sized!(
    /// One field that a consumer needs.
    fb_need, 24, {
        field: *const c_char = NULL,
        dtype: i32 = 0,
        every: u32 = 1,
    }
);

sized!(
    /// How to open a consumer.
    fb_consumer_options, 72, {
        group: *const c_char = NULL,
        stream: *const c_char = NULL,
        needs_count: u32 = 0,
        needs_stride: u32 = size_of::<fb_need>() as u32,
        needs: *const fb_need = std::ptr::null(),
        timeout: f64 = 30.0,
        transport: *const c_char = NULL,
        every: u32 = 1,
        window: u32 = 4,
        start: i32 = 0,
        follow: i32 = 0,
        start_run: u64 = 0,
        start_step: u64 = 0,
    }
);

sized!(
    /// What is told of a step.
    fb_step_info, 48, {
        run: u64 = 0,
        number: u64 = 0,
        time: f64 = 0.0,
        missed: u64 = 0,
        rewound: i32 = 0,
        torn: i32 = 0,
    }
);

sized!(
    /// A part of a field, and where it goes.
    fb_selection, 64, {
        field: *const c_char = NULL,
        dtype: i32 = 0,
        ndim: u32 = 0,
        offset: *const u64 = std::ptr::null(),
        shape: *const u64 = std::ptr::null(),
        every: *const u64 = std::ptr::null(),
        data: *mut c_void = std::ptr::null_mut(),
        strides: *const i64 = std::ptr::null(),
    }
);

sized!(
    /// One block of a step, to look at where it lies.
    fb_view, 312, {
        number: u64 = 0,
        rank: u32 = 0,
        level: u32 = 0,
        dtype: i32 = 0,
        ndim: u32 = 0,
        placed: i32 = 0,
        has_stats: i32 = 0,
        offset: [u64; 8] = [0; 8],
        shape: [u64; 8] = [0; 8],
        ghost_low: [u64; 8] = [0; 8],
        ghost_high: [u64; 8] = [0; 8],
        data: *const c_void = std::ptr::null(),
        bytes: u64 = 0,
        min: f64 = 0.0,
        max: f64 = 0.0,
        sum: f64 = 0.0,
        count: u64 = 0,
        non_finite: u64 = 0,
    }
);

sized!(
    /// How to open a space.
    fb_space_options, 40, {
        group: *const c_char = NULL,
        timeout: f64 = 30.0,
        transport: *const c_char = NULL,
        replicas: u64 = 1,
    }
);
