//! For tests of what takes messages: values of all of them, honest and not.
//!
//! - [`inventor`]: values of any type that can be decoded, made at random;
//! - [`seeds`]: valid messages with blocks in them, which chance alone seldom makes;
//! - [`names_of`]: the kinds of a message;
//! - [`plain`]: messages as bytes; [`spoil`](mod@spoil): changing those;
//! - [`for_each_message!`](crate::for_each_message): the types of all messages.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "these values are made for tests, which fail by panicking"
)]

pub mod inventor;
mod names;
pub mod plain;
pub mod seeds;
pub mod spoil;

pub use inventor::Inventor;
pub use names::names_of;
pub use plain::Plain;
pub use spoil::spoil;

/// Every type that travels in a frame by itself: `for_each_message!(with)` is `with!(Type, ...)`.
#[macro_export]
macro_rules! for_each_message {
    ($with:ident) => {
        $with! {
            $crate::connection::Hello,
            ::forebay_core::Result<$crate::connection::Welcome>,
            $crate::connection::CloseReason,
            $crate::client::producer::Request,
            ::forebay_core::Result<$crate::client::producer::Reply>,
            $crate::client::producer::Event,
            $crate::client::placement::Request,
            ::forebay_core::Result<$crate::client::placement::Reply>,
            $crate::client::placement::Event,
            $crate::client::writing::Request,
            ::forebay_core::Result<$crate::client::writing::Reply>,
            $crate::client::consumer::Request,
            ::forebay_core::Result<$crate::client::consumer::Reply>,
            $crate::client::consumer::Event,
            $crate::client::reading::Request,
            ::forebay_core::Result<$crate::client::reading::Reply>,
            $crate::client::space::Request,
            ::forebay_core::Result<$crate::client::space::Reply>,
            $crate::client::meeting::Request,
            ::forebay_core::Result<$crate::client::meeting::Reply>,
            $crate::client::worker::Request,
            ::forebay_core::Result<$crate::client::worker::Reply>,
            $crate::client::worker::Event,
            $crate::client::admin::Request,
            ::forebay_core::Result<$crate::client::admin::Reply>,
            $crate::peer::cluster::Message,
            $crate::peer::streams::Message,
            $crate::peer::replication::Message,
            $crate::peer::directory::Message,
            $crate::peer::space::Message,
            $crate::peer::pipelines::Message,
            $crate::peer::evaluation::Message,
            $crate::peer::subscriptions::Message,
            $crate::comm::CommMessage
        }
    };
}
