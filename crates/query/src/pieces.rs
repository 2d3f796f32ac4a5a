//! Where the elements are that a question is about: in which blocks, and which others go with them.
//!
//! - [`needed`]: which elements of a field are needed for those of a part, its neighbours among them;
//! - [`piece`]: elements of one block, and where the bytes are of all that is computed with them;
//! - [`find`]: the pieces of an aggregate, of the blocks of a step.

mod find;
mod needed;
mod piece;

pub use find::{FieldBlocks, Pieces, pieces};
pub use piece::{Copied, Held, Piece, Source};
