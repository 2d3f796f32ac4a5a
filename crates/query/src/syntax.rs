//! From a text to a tree.
//!
//! - [`limits`]: how large a text may be;
//! - [`problem`]: what is wrong with a text, and where;
//! - [`token`], [`lexer`]: its words;
//! - [`tree`]: what it says;
//! - [`region`], [`parser`]: from words to the tree;
//! - [`print`]: from the tree to a text.
//!
//! The parser is one of operator precedence: V. R. Pratt, "Top down operator precedence" (POPL 1973). Nodes lie in one list, each
//! behind those that it is made of, so that nothing that walks them recurses.

mod lexer;
mod limits;
mod parser;
mod print;
mod problem;
mod region;
#[cfg(test)]
mod tests;
mod token;
mod tree;

pub use limits::{BINDINGS_MAX, DEPTH_MAX, FIELDS_MAX, PARTS_MAX, TEXT_MAX, WINDOW_MAX};
pub(crate) use print::quoted;
pub(crate) use problem::nearest;
pub use problem::{Problem, Span};
pub use tree::{
    Argument, BinaryOp, Binding, Comparison, Duration, FieldUse, Level, Literal, Node, NodeId, Place,
    PlaceKind, Syntax, UnaryOp, Until,
};
