//! The structs and numbers of `forebay.h`.
//!
//! Generated from interface/forebay.toml by scripts/generate_faces.py: change it there.

use super::{Sized64, fb_place_function};
use std::ffi::{c_char, c_void};
use std::mem::size_of;

numbers! {
    FB_BOOL = 1,
    FB_I8 = 2,
    FB_U8 = 3,
    FB_I16 = 4,
    FB_U16 = 5,
    FB_I32 = 6,
    FB_U32 = 7,
    FB_I64 = 8,
    FB_U64 = 9,
    FB_F16 = 10,
    FB_BF16 = 11,
    FB_F32 = 12,
    FB_F64 = 13,
    FB_C64 = 14,
    FB_C128 = 15,
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
    FB_DURABILITY_LOCAL = 0,
    FB_DURABILITY_REPLICATED = 1,
    FB_PLACEMENT_NEAREST = 0,
    FB_PLACEMENT_BY_BLOCK = 1,
    FB_PLACEMENT_FUNCTION = 2,
    FB_START_NEXT = 0,
    FB_START_OLDEST = 1,
    FB_START_CURSOR = 2,
    FB_START_LATEST = 3,
    FB_START_RUN = 4,
    FB_START_HELD = 5,
    FB_START_RESUME = 6,
    FB_TAKE_ALL = 0,
    FB_TAKE_LATEST = 1,
    FB_SHARE_NONE = 0,
    FB_SHARE_ON_DEMAND = 1,
    FB_SHARE_ROUND_ROBIN = 2,
    FB_ON_RANK_LOSS_FAIL = 0,
    FB_ON_RANK_LOSS_GO_ON = 1,
    FB_STATS_NONE = 0,
    FB_STATS_ALONG = 1,
    FB_STATS_ALONE = 2,
    FB_HOLES_REFUSED = 0,
    FB_HOLES_LEFT = 1,
    FB_OUTCOME_STAGED = 0,
    FB_OUTCOME_UNDEMANDED = 1,
    FB_OUTCOME_DROPPED = 2,
    FB_ON_EACH = 0,
    FB_ON_RISE = 1,
    FB_ON_FALL = 2,
    FB_ON_BOTH = 3,
    FB_MISSING_SKIP = 0,
    FB_MISSING_RESET = 1,
    FB_BEGIN_RESUME = 0,
    FB_BEGIN_NEXT = 1,
    FB_BEGIN_FIRST = 2,
    FB_BEGIN_AFTER = 3,
    FB_TURN_UNKNOWN = 0,
    FB_TURN_ROSE = 1,
    FB_TURN_HOLDS = 2,
    FB_TURN_FELL = 3,
    FB_VALUE_UNKNOWN = 0,
    FB_VALUE_NUMBER = 1,
    FB_VALUE_CONDITION = 2,
    FB_VALUE_PLACE = 3,
    FB_CHANGE_PAUSE = 0,
    FB_CHANGE_RESUME = 1,
    FB_CHANGE_REMOVE = 2,
}

sized!(
    /// A block that is to be placed, as a function of the caller's sees it.
    fb_to_place, 64, {
        field: *const c_char = std::ptr::null(),
        number: u64 = 0,
        rank: u32 = 0,
        ndim: u32 = 0,
        offset: *const u64 = std::ptr::null(),
        shape: *const u64 = std::ptr::null(),
        servers: *const u32 = std::ptr::null(),
        servers_count: u64 = 0,
    }
);

sized!(
    /// A field of the output contract.
    fb_field, 80, {
        name: *const c_char = std::ptr::null(),
        dtype: i32 = 0,
        ndim: u32 = 0,
        shape: *const u64 = std::ptr::null(),
        association: i32 = 0,
        every: u32 = 1,
        dims: *const *const c_char = std::ptr::null(),
        spacing: *const f64 = std::ptr::null(),
        origin: *const f64 = std::ptr::null(),
        units: *const c_char = std::ptr::null(),
        reserved: i32 = 0,
        reserved2: i32 = 0,
        periodic: *const i32 = std::ptr::null(),
        refinement: *const u32 = std::ptr::null(),
        is_static: i32 = 0,
        reserved3: i32 = 0,
    }
);

sized!(
    /// What is said of a stream or of one of its fields beside the data.
    fb_attribute, 48, {
        field: *const c_char = std::ptr::null(),
        key: *const c_char = std::ptr::null(),
        dtype: i32 = 0,
        list: i32 = 0,
        count: u64 = 1,
        values: *const c_void = std::ptr::null(),
    }
);

sized!(
    /// What is put: a box of the global array, or a local array without a place in one. `offset` and `shape` are
    /// the interior's; the array in memory has shape + ghost_low + ghost_high elements in each dimension, and
    /// `data` points at its first element, ghosts included. To put only the interior of a larger array: no
    /// ghosts, `data` at the interior's first element, and `strides` of the array as it lies in memory.
    fb_block, 96, {
        field: *const c_char = std::ptr::null(),
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
        field: *const c_char = std::ptr::null(),
        dtype: i32 = 0,
        every: u32 = 1,
        first: u64 = 0,
        ndim: u32 = 0,
        optional: i32 = 0,
        offset: *const u64 = std::ptr::null(),
        shape: *const u64 = std::ptr::null(),
        stride: *const u64 = std::ptr::null(),
        stats: i32 = 0,
        reserved: i32 = 0,
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
        attempt: u32 = 0,
        reserved: i32 = 0,
    }
);

sized!(
    /// What is told of a field of a step. Texts are valid until the step is released.
    fb_field_info, 312, {
        name: *const c_char = std::ptr::null(),
        dtype: i32 = 0,
        association: i32 = 0,
        ndim: u32 = 0,
        every: u32 = 1,
        placed: i32 = 0,
        has_dims: i32 = 0,
        has_spacing: i32 = 0,
        has_origin: i32 = 0,
        shape: [u64; 8] = [0; 8],
        dims: [*const c_char; 8] = [std::ptr::null(); 8],
        spacing: [f64; 8] = [0.0; 8],
        origin: [f64; 8] = [0.0; 8],
        units: *const c_char = std::ptr::null(),
        periodic: [u64; 8] = [0; 8],
        refinement: [u64; 8] = [0; 8],
        is_static: i32 = 0,
        reserved: i32 = 0,
    }
);

sized!(
    /// A part of a field, and where it goes.
    fb_selection, 64, {
        field: *const c_char = std::ptr::null(),
        dtype: i32 = 0,
        ndim: u32 = 0,
        offset: *const u64 = std::ptr::null(),
        shape: *const u64 = std::ptr::null(),
        every: *const u64 = std::ptr::null(),
        data: *mut c_void = std::ptr::null_mut(),
        strides: *const i64 = std::ptr::null(),
        holes: i32 = 0,
        reserved: i32 = 0,
    }
);

sized!(
    /// One block of a step, shown where it lies: its array is dense row-major, of shape + ghost_low + ghost_high.
    fb_view, 320, {
        number: u64 = 0,
        rank: u32 = 0,
        level: u32 = 0,
        dtype: i32 = 0,
        ndim: u32 = 0,
        server: u32 = 0,
        placed: i32 = 0,
        has_stats: i32 = 0,
        reserved: i32 = 0,
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
        nan: u64 = 0,
        step: [u64; 8] = [0; 8],
        variance: f64 = 0.0,
        min_bits: u64 = 0,
        max_bits: u64 = 0,
        tiles: u64 = 0,
        tile_bounds: *const c_void = std::ptr::null(),
    }
);

sized!(
    /// Statistics of a whole field at a step: of all its blocks of level 0, without their ghosts.
    fb_stats, 72, {
        min: f64 = 0.0,
        max: f64 = 0.0,
        sum: f64 = 0.0,
        variance: f64 = 0.0,
        count: u64 = 0,
        nan: u64 = 0,
        min_bits: u64 = 0,
        max_bits: u64 = 0,
    }
);

sized!(
    /// A pipeline that is to be created.
    fb_pipeline_options, 56, {
        name: *const c_char = std::ptr::null(),
        code: *const c_char = std::ptr::null(),
        stream: *const c_char = std::ptr::null(),
        config: *const c_char = std::ptr::null(),
        python: *const c_char = std::ptr::null(),
        driven: i32 = 0,
        reserved: i32 = 0,
        on: *const c_char = std::ptr::null(),
    }
);

sized!(
    /// How to make a subscription.
    fb_subscription_options, 112, {
        group: *const c_char = std::ptr::null(),
        timeout: f64 = 30.0,
        transport: *const c_char = std::ptr::null(),
        name: *const c_char = std::ptr::null(),
        stream: *const c_char = std::ptr::null(),
        every: u32 = 1,
        on: i32 = 0,
        limit: u64 = 0,
        expires: f64 = 0.0,
        missing: i32 = 0,
        keep: i32 = 0,
        keep_around: i32 = 0,
        keep_before: u32 = 0,
        keep_after: u32 = 0,
        hold: u32 = 30,
        begin: i32 = 0,
        window: u32 = 4,
        after: u64 = 0,
        space: i32 = 0,
        reserved: i32 = 0,
    }
);

sized!(
    /// What an expression gives, or one of the values of an event.
    fb_value, 144, {
        label: *const c_char = std::ptr::null(),
        kind: i32 = 0,
        is_integer: i32 = 0,
        number: f64 = 0.0,
        integer: i64 = 0,
        nan: u64 = 0,
        has_place: i32 = 0,
        ndim: u32 = 0,
        level: u32 = 0,
        in_block: i32 = 0,
        rank: u32 = 0,
        reserved: i32 = 0,
        block: u64 = 0,
        index: [u64; 8] = [0; 8],
    }
);

sized!(
    /// What is told of an event.
    fb_event_info, 96, {
        turn: i32 = 0,
        values_count: u32 = 0,
        number: u64 = 0,
        run: u64 = 0,
        step: u64 = 0,
        time: f64 = 0.0,
        episode: u64 = 0,
        first: u64 = 0,
        missing: u64 = 0,
        missed: u64 = 0,
        has_step: i32 = 0,
        reserved: i32 = 0,
        why: *const c_char = std::ptr::null(),
    }
);

sized!(
    /// How to open a producer.
    fb_producer_options, 112, {
        group: *const c_char = std::ptr::null(),
        stream: *const c_char = std::ptr::null(),
        rank: u32 = 0,
        size: u32 = 1,
        policy: i32 = 0,
        keep: u32 = 0,
        timeout: f64 = 30.0,
        transport: *const c_char = std::ptr::null(),
        on_loss: i32 = 0,
        placement: i32 = 0,
        place: fb_place_function = None,
        place_context: *mut c_void = std::ptr::null_mut(),
        continues_run: u64 = 0,
        continues_step: u64 = 0,
        queue_bytes: u64 = 1073741824,
        replicas: u32 = 1,
        durability: i32 = 0,
        wait_for_readers: u32 = 0,
        reserved: i32 = 0,
        job: *const c_char = std::ptr::null(),
        name: *const c_char = std::ptr::null(),
        first: u64 = 0,
        stride: u64 = 1,
    }
);

sized!(
    /// How to open a consumer.
    fb_consumer_options, 96, {
        group: *const c_char = std::ptr::null(),
        stream: *const c_char = std::ptr::null(),
        fields_count: u32 = 0,
        fields_stride: u32 = size_of::<fb_need>() as u32,
        fields: *const fb_need = std::ptr::null(),
        timeout: f64 = 30.0,
        transport: *const c_char = std::ptr::null(),
        every: u32 = 1,
        window: u32 = 4,
        follow: i32 = 0,
        start: i32 = 0,
        start_run: u64 = 0,
        start_step: u64 = 0,
        pin_bytes: u64 = 1073741824,
        take: i32 = 0,
        reserved: i32 = 0,
        name: *const c_char = std::ptr::null(),
        rank: u32 = 0,
        size: u32 = 1,
        on_loss: i32 = 0,
        reserved2: i32 = 0,
        assign: *const c_char = std::ptr::null(),
        share: i32 = 0,
        reserved3: i32 = 0,
    }
);

sized!(
    /// How to open a space.
    fb_space_options, 40, {
        group: *const c_char = std::ptr::null(),
        timeout: f64 = 30.0,
        transport: *const c_char = std::ptr::null(),
        replicas: u32 = 1,
        reserved: i32 = 0,
        name: *const c_char = std::ptr::null(),
    }
);

sized!(
    /// How to look after a group.
    fb_admin_options, 32, {
        group: *const c_char = std::ptr::null(),
        timeout: f64 = -1.0,
        transport: *const c_char = std::ptr::null(),
        name: *const c_char = std::ptr::null(),
    }
);
