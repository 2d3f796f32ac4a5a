//! How large a text may be: checked before anything is built of it, so that no text makes a server slow.

/// Bytes of a text.
pub const TEXT_MAX: usize = 64 << 10;
/// How deep parts may stand in each other: in parentheses, behind signs, as powers of powers.
pub const DEPTH_MAX: usize = 256;
/// Numbers, fields, calls and operators.
pub const PARTS_MAX: usize = 4096;
/// Bindings.
pub const BINDINGS_MAX: usize = 64;
/// Different fields, or parts of fields.
pub const FIELDS_MAX: usize = 64;
/// Evaluations that a function of time looks back over, or that something must hold for.
pub const WINDOW_MAX: u64 = 4096;
