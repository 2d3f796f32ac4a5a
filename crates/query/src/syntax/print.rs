//! From the tree to a text: the same for all that mean the same tree, with as few parentheses as it needs.

use crate::syntax::lexer::{begins_name, continues_name};
use crate::syntax::token::Sign;
use crate::syntax::tree::{
    BinaryOp, Comparison, Duration, FieldUse, Level, Literal, Node, NodeId, Place, PlaceKind, Syntax, UnaryOp,
};
use std::borrow::Cow;
use std::fmt::{self, Write};

/// What is still to be written.
enum Task<'s> {
    /// A node, as an operand that takes in operators that bind at least so tightly.
    Node(NodeId, u8),
    Text(Cow<'s, str>),
}

impl<'s> Task<'s> {
    fn text(text: &'s str) -> Task<'s> {
        Task::Text(Cow::Borrowed(text))
    }
}

/// How tightly a number, a call or a field binds.
const ATOM: u8 = 11;

impl Syntax {
    /// A part of it as a text, the same whatever blanks and parentheses were written.
    pub fn printed(&self, node: NodeId) -> String {
        let mut text = String::new();
        let mut tasks = vec![Task::Node(node, 0)];
        while let Some(task) = tasks.pop() {
            match task {
                Task::Text(part) => {
                    // Behind `@*` a power would be read as another sign.
                    if text.ends_with('*') && part.starts_with('*') {
                        text.push(' ');
                    }
                    text.push_str(&part);
                }
                Task::Node(id, least) => {
                    let node = self.node(id);
                    let needs = tightness(node) < least;
                    if needs {
                        tasks.push(Task::text(")"));
                        text.push('(');
                    }
                    let first = tasks.len();
                    self.write(node, &mut text, &mut tasks);
                    // They are taken from the end.
                    tasks[first..].reverse();
                }
            }
        }
        text
    }

    fn write<'s>(&'s self, node: &'s Node, text: &mut String, tasks: &mut Vec<Task<'s>>) {
        let own = tightness(node);
        match node {
            Node::Literal(literal) => write_literal(text, *literal),
            Node::Field(index) => {
                let _ = write!(text, "{}", self.fields[*index]);
            }
            Node::Bound(index) => text.push_str(&self.bindings[*index].name),
            Node::Unary(op, operand) => {
                text.push_str(unary_text(*op));
                tasks.push(Task::Node(*operand, own));
            }
            Node::Binary(op, left, right) => {
                let (left_least, right_least) = match op {
                    BinaryOp::Power => (ATOM, own - 1),
                    _ => (own, own + 1),
                };
                tasks.push(Task::Node(*left, left_least));
                tasks.push(Task::text(binary_text(*op)));
                tasks.push(Task::Node(*right, right_least));
            }
            Node::Chain(first, rest) => {
                tasks.push(Task::Node(*first, own + 1));
                for (comparison, operand) in rest {
                    tasks.push(Task::text(comparison_text(*comparison)));
                    tasks.push(Task::Node(*operand, own + 1));
                }
            }
            Node::Call(name, arguments) => {
                let _ = write!(text, "{name}(");
                for (index, argument) in arguments.iter().enumerate() {
                    let comma = if index > 0 { ", " } else { "" };
                    let name = argument.name.as_ref().map(|name| format!("{name}=")).unwrap_or_default();
                    tasks.push(Task::Text(format!("{comma}{name}").into()));
                    tasks.push(Task::Node(argument.value, 0));
                }
                tasks.push(Task::text(")"));
            }
            Node::Attribute(of, name) => {
                tasks.push(Task::Node(*of, ATOM));
                let is_reserved = Sign::WORDS.into_iter().any(|word| word.text() == name);
                let name = if is_reserved { Cow::Borrowed(&name[..]) } else { quoted(name) };
                tasks.push(Task::Text(format!(".{name}").into()));
            }
        }
    }
}

impl fmt::Display for Syntax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for binding in &self.bindings {
            write!(f, "{} = {}; ", binding.name, self.printed(binding.value))?;
        }
        f.write_str(&self.printed(self.value))?;
        write_hold(f, self.hold)?;
        if let Some(until) = self.until {
            write!(f, " until {}", self.printed(until.condition))?;
            write_hold(f, until.hold)?;
        }
        Ok(())
    }
}

fn write_hold(f: &mut fmt::Formatter<'_>, hold: Option<Duration>) -> fmt::Result {
    match hold {
        Some(Duration::Steps(1)) => f.write_str(" for 1 step"),
        Some(Duration::Steps(count)) => write!(f, " for {count} steps"),
        Some(Duration::Time(time)) => write!(f, " for {time:?} time"),
        None => Ok(()),
    }
}

impl fmt::Display for FieldUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(stream) = &self.stream {
            write!(f, "{}.", quoted(stream))?;
        }
        f.write_str(&quoted(&self.name))?;
        match self.level {
            Level::One(0) => {}
            Level::One(level) => write!(f, "@{level}")?,
            Level::All => f.write_str("@*")?,
        }
        let Some(region) = &self.region else { return Ok(()) };
        let places: Vec<_> = region.iter().map(Place::to_string).collect();
        write!(f, "[{}]", places.join(", "))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(dim) = &self.dim {
            write!(f, "{}=", quoted(dim))?;
        }
        match self.kind {
            PlaceKind::Ellipsis => f.write_str("..."),
            PlaceKind::Index(index) => write!(f, "{index}"),
            PlaceKind::Slice(slice) => write!(f, "{slice}"),
            PlaceKind::Coordinates(low, high) => write!(f, "{low:?}..{high:?}"),
        }
    }
}

/// A name as it stands in a text: in backticks where it could be something else.
pub(crate) fn quoted(name: &str) -> Cow<'_, str> {
    let is_reserved = Sign::WORDS.into_iter().any(|word| word.text() == name);
    if name.starts_with(begins_name) && name.chars().all(continues_name) && !is_reserved {
        return Cow::Borrowed(name);
    }
    Cow::Owned(format!("`{}`", name.replace('`', "``")))
}

fn write_literal(text: &mut String, literal: Literal) {
    let _ = match literal {
        Literal::Integer(number) => write!(text, "{number}"),
        Literal::Float(number) if number.is_nan() => write!(text, "nan"),
        Literal::Float(number) if number.is_infinite() => write!(text, "inf"),
        Literal::Float(number) => write!(text, "{number:?}"),
        Literal::Condition(condition) => write!(text, "{condition}"),
    };
}

/// How tightly the operator of a node binds, as the parser has it.
fn tightness(node: &Node) -> u8 {
    match node {
        Node::Binary(op, ..) => match op {
            BinaryOp::Or => 1,
            BinaryOp::And => 2,
            BinaryOp::Plus | BinaryOp::Minus => 7,
            BinaryOp::Times | BinaryOp::Divide | BinaryOp::FloorDivide | BinaryOp::Remainder => 8,
            BinaryOp::Power => 10,
        },
        Node::Unary(UnaryOp::Not, _) => 3,
        Node::Unary(..) => 9,
        Node::Chain(..) => 4,
        _ => ATOM,
    }
}

fn unary_text(op: UnaryOp) -> &'static str {
    match op {
        UnaryOp::Minus => "-",
        UnaryOp::Plus => "+",
        UnaryOp::Not => "not ",
    }
}

fn binary_text(op: BinaryOp) -> &'static str {
    match op {
        BinaryOp::Or => " or ",
        BinaryOp::And => " and ",
        BinaryOp::Plus => " + ",
        BinaryOp::Minus => " - ",
        BinaryOp::Times => " * ",
        BinaryOp::Divide => " / ",
        BinaryOp::FloorDivide => " // ",
        BinaryOp::Remainder => " % ",
        BinaryOp::Power => "**",
    }
}

fn comparison_text(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::Less => " < ",
        Comparison::LessEqual => " <= ",
        Comparison::Greater => " > ",
        Comparison::GreaterEqual => " >= ",
        Comparison::Equal => " == ",
        Comparison::NotEqual => " != ",
    }
}
