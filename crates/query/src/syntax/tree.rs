//! What a text says.

use crate::syntax::problem::{Problem, Span};
use forebay_core::contract::Slice;

/// A node among those of a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(super) u32);

impl NodeId {
    /// Its place in the list of nodes.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// A number as it is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Literal {
    /// Without point and exponent.
    Integer(i128),
    /// Any other, `nan` and `inf` among them.
    Float(f64),
    /// `true` or `false`.
    Condition(bool),
}

impl Literal {
    /// The same as a double; NaN of a condition.
    pub fn to_f64(self) -> f64 {
        match self {
            Literal::Integer(number) => number as f64,
            Literal::Float(number) => number,
            Literal::Condition(_) => f64::NAN,
        }
    }
}

/// An operator of one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names say it
pub enum UnaryOp {
    Minus,
    Plus,
    /// `~` and `not`.
    Not,
}

/// An operator of two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names say it
pub enum BinaryOp {
    /// `or` and `|`.
    Or,
    /// `and` and `&`.
    And,
    Plus,
    Minus,
    Times,
    Divide,
    FloorDivide,
    Remainder,
    Power,
}

/// How two numbers are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the names say it
pub enum Comparison {
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
}

/// An argument of a call.
#[derive(Debug, Clone, PartialEq)]
pub struct Argument {
    /// The name before its `=`.
    pub name: Option<String>,
    /// Its value.
    pub value: NodeId,
}

/// A part of what a text says. The nodes that it is made of stand before it in the list.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// A number, or a condition.
    Literal(Literal),
    /// A field, by its place among [`Syntax::fields`].
    Field(usize),
    /// A binding, by its place among [`Syntax::bindings`].
    Bound(usize),
    /// An operator and its operand.
    Unary(UnaryOp, NodeId),
    /// An operator and its operands.
    Binary(BinaryOp, NodeId, NodeId),
    /// A chain of comparisons: its first operand, then signs and operands.
    Chain(NodeId, Vec<(Comparison, NodeId)>),
    /// A call of a function, by its name.
    Call(String, Vec<Argument>),
    /// `.name` behind a call or a binding.
    Attribute(NodeId, String),
}

/// Which refinement level of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// One of them; 0 if none is said.
    One(u32),
    /// All, as their blocks are.
    All,
}

/// A place or a range in one dimension.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PlaceKind {
    /// All of the dimensions that no other place names.
    Ellipsis,
    /// One index, whose dimension is left out.
    Index(forebay_core::contract::Index),
    /// A half-open range of indexes.
    Slice(Slice),
    /// From one coordinate to another, both included.
    Coordinates(f64, f64),
}

/// A place or a range, and of which dimension.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// The name before its `=`.
    pub dim: Option<String>,
    /// Which elements.
    pub kind: PlaceKind,
}

/// A field, or a part of one, as a text names it.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldUse {
    /// Its stream; `None`: the one that the text is about.
    pub stream: Option<String>,
    /// Its name.
    pub name: String,
    /// Which level.
    pub level: Level,
    /// The part in brackets.
    pub region: Option<Vec<Place>>,
    /// Where it is named first.
    pub span: Span,
}

impl FieldUse {
    /// Whether it names the same elements as another one.
    pub(super) fn is_same(&self, other: &FieldUse) -> bool {
        let FieldUse { stream, name, level, region, span: _ } = self;
        (stream, name, level, region) == (&other.stream, &other.name, &other.level, &other.region)
    }

    /// Whether it is a bare name.
    pub fn is_bare(&self) -> bool {
        self.stream.is_none() && self.level == Level::One(0) && self.region.is_none()
    }
}

/// A name for what an expression gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Binding {
    /// The name.
    pub name: String,
    /// The expression.
    pub value: NodeId,
}

/// For how long something must hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Duration {
    /// For so many evaluations.
    Steps(u64),
    /// For so much physical time.
    Time(f64),
}

/// What ends an episode.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Until {
    /// The condition.
    pub condition: NodeId,
    /// For how long that must hold.
    pub hold: Option<Duration>,
}

/// The functions that take the name of a dimension behind their first argument.
const NAMES_DIMENSION: &[&str] = &["gradient"];

/// What a text says, as a tree.
#[derive(Debug, Clone, PartialEq)]
pub struct Syntax {
    pub(super) text: String,
    pub(super) nodes: Vec<Node>,
    pub(super) spans: Vec<Span>,
    pub(super) fields: Vec<FieldUse>,
    pub(super) bindings: Vec<Binding>,
    pub(super) value: NodeId,
    pub(super) hold: Option<Duration>,
    pub(super) until: Option<Until>,
}

impl Syntax {
    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// All nodes, each behind those that it is made of.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(index, node)| (NodeId(index as u32), node))
    }

    /// One of them.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// Where it stands in the text.
    pub fn span(&self, id: NodeId) -> Span {
        self.spans[id.index()]
    }

    /// The names that may be those of fields, each once: names of dimensions in calls are among them.
    pub fn fields(&self) -> &[FieldUse] {
        &self.fields
    }

    /// The fields of which it takes elements, each once.
    pub fn taken_fields(&self) -> impl Iterator<Item = &FieldUse> {
        let calls = self.nodes.iter().filter_map(|node| match node {
            Node::Call(name, arguments) if NAMES_DIMENSION.contains(&&name[..]) => Some(arguments),
            _ => None,
        });
        let dimensions: Vec<NodeId> =
            calls.flat_map(|arguments| arguments.iter().skip(1)).map(|argument| argument.value).collect();
        let mut is_taken = vec![false; self.fields.len()];
        for (id, node) in self.nodes() {
            if let Node::Field(index) = node
                && !(self.fields[*index].is_bare() && dimensions.contains(&id))
            {
                is_taken[*index] = true;
            }
        }
        self.fields.iter().zip(is_taken).filter_map(|(field, is_taken)| is_taken.then_some(field))
    }

    /// The same without where they stand in the text: which elements of which fields it names.
    pub fn places(&self) -> Vec<FieldUse> {
        let place = |field: &FieldUse| FieldUse { span: Span::default(), ..field.clone() };
        self.fields.iter().map(place).collect()
    }

    /// The bindings, in their order.
    pub fn bindings(&self) -> &[Binding] {
        &self.bindings
    }

    /// What is watched, or evaluated.
    pub fn value(&self) -> NodeId {
        self.value
    }

    /// For how long it must hold.
    pub fn hold(&self) -> Option<Duration> {
        self.hold
    }

    /// What ends an episode.
    pub fn until(&self) -> Option<Until> {
        self.until
    }

    /// An error at a place of the text.
    pub fn error(&self, problem: &Problem) -> forebay_core::Error {
        problem.in_text(&self.text)
    }
}
