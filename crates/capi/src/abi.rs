//! The structs of `forebay.h`, with the names and the order that they have there.
#![allow(non_camel_case_types, reason = "the names are those of the header")]

use std::ffi::c_void;

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
            pub(crate) struct_size: u64,
            $(pub(crate) $member: $kind,)*
        }

        // SAFETY: repr(C), `struct_size` first; `header_test` checks the layout; members are numbers and pointers.
        #[allow(unsafe_code, reason = "see the trait")]
        unsafe impl Sized64 for $name {
            const FIRST: usize = $first;
            const NAME: &str = stringify!($name);
            const DEFAULT: Self = $name { struct_size: size_of::<$name>() as u64, $($member: $default,)* };
        }

        #[cfg(test)]
        impl $name {
            /// The members in order, with offset and size, to compare with the header.
            pub(crate) const MEMBERS: &[(&str, usize, usize)] = &[
                ("struct_size", 0, 8),
                $((stringify!($member), std::mem::offset_of!($name, $member), size_of::<$kind>()),)*
            ];
        }
    };
}

macro_rules! numbers {
    ($($name:ident = $number:literal,)*) => {
        $(
            #[allow(dead_code, reason = "most are read as a `Choice`")]
            pub(crate) const $name: i32 = $number;
        )*

        /// All of them, to compare with the header.
        #[cfg(test)]
        pub(crate) const NUMBERS: &[(&str, i32)] = &[$((stringify!($name), $name),)*];
    };
}

// After the macros, which it uses.
mod declared;

pub(crate) use declared::*;

/// A caller's function that places blocks; NULL is `None`, any other pointer must be one.
pub(crate) type fb_place_function = Option<unsafe extern "C" fn(*mut c_void, *const fb_to_place) -> i64>;
