//! What the statistics of blocks say before anybody looks at elements.
//!
//! A block, or a tile of it, is decided if a condition holds for all its elements or for none, and if its extreme is known or beaten by
//! others'. Of what is not decided the elements are read.
//!
//! - [`verdict`]: what bounds say of some elements, for a question;
//! - [`block`]: what the statistics of a block say of a piece, and of several pieces;
//! - [`tiles`]: which parts of a piece have to be read, and for which questions.

mod block;
mod tiles;
mod verdict;

pub use block::known_pieces;
pub use tiles::{Unread, decide};
