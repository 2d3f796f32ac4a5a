//! From the first node of a tree to the last.

use crate::check::builder::Builder;
use crate::check::functions;
use crate::check::meaning::{Elements, Logical, Meaning, Numeric};
use crate::plan::{Plan, Reported, ScalarId, ScalarOp};
use crate::schema::{Schema, did_you_mean};
use crate::syntax::{Literal, Node, NodeId, Problem, Span, Syntax};
use crate::value::{Kind, Number, Scalar};
use forebay_core::{ErrorKind, Result as CoreResult};

pub(super) type Result<T> = std::result::Result<T, Problem>;

/// What a text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// A condition is watched from step to step.
    Watch,
    /// Anything is evaluated, once.
    Once,
}

/// Checks a text against the fields that it names. Fails with `NotFound`, `TypeMismatch`, `OutOfBounds`, `Invalid` or
/// `Unsupported`, and says where.
pub fn check(syntax: &Syntax, schema: &Schema, purpose: Purpose) -> CoreResult<Plan> {
    let planned = vec![None; syntax.fields().len()];
    let checker =
        Checker { syntax, schema, purpose, builder: Builder::default(), meanings: Vec::new(), planned };
    checker.plan().map_err(|problem| syntax.error(&problem))
}

pub(super) struct Checker<'a> {
    pub(super) syntax: &'a Syntax,
    pub(super) schema: &'a Schema,
    pub(super) purpose: Purpose,
    pub(super) builder: Builder,
    /// Of the nodes so far.
    meanings: Vec<Meaning>,
    /// The fields of the tree that stand in the plan already.
    pub(super) planned: Vec<Option<usize>>,
}

impl Checker<'_> {
    fn plan(mut self) -> Result<Plan> {
        let syntax = self.syntax;
        for (id, node) in syntax.nodes() {
            let meaning = self.meaning(id, node)?;
            self.meanings.push(meaning);
        }
        let value = self.result(syntax.value())?;
        let until = syntax
            .until()
            .map(|until| Ok((self.whole_condition(until.condition)?, until.hold)))
            .transpose()?;
        if self.purpose == Purpose::Once && (syntax.hold().is_some() || until.is_some()) {
            let what = "'for' and 'until' look at several steps, and one is evaluated: subscribe to this, or leave them out";
            return Err(Problem::invalid(syntax.span(syntax.value()), what));
        }
        let reported = self.reported();
        let mut plan = self.builder.into_plan(value);
        (plan.hold, plan.until, plan.reported) = (syntax.hold(), until, reported);
        Ok(plan)
    }

    fn meaning(&mut self, id: NodeId, node: &Node) -> Result<Meaning> {
        let span = self.syntax.span(id);
        match node {
            Node::Literal(literal) => self.literal(*literal, span),
            Node::Field(index) => Ok(Meaning::Field(*index)),
            Node::Bound(index) => Ok(self.of(self.syntax.bindings()[*index].value)),
            Node::Unary(op, operand) => self.unary(*op, *operand, span),
            Node::Binary(op, left, right) => self.binary(*op, *left, *right, span),
            Node::Chain(first, rest) => self.chain(*first, rest, span),
            Node::Attribute(of, name) => self.attribute(*of, name, span),
            Node::Call(name, arguments) => match functions::find(name) {
                Some(function) => self.call(name, function, arguments, span),
                None => {
                    let like = did_you_mean(functions::like(name));
                    let what = format!("there is no function '{name}'{like}");
                    Err(Problem::new(ErrorKind::NotFound, self.name_span(name, span), what))
                }
            },
        }
    }

    /// Where the name of a call stands.
    fn name_span(&self, name: &str, call: Span) -> Span {
        // In parentheses a call begins with these.
        let at = call.of(self.syntax.text()).find(name).unwrap_or(0) + call.start as usize;
        Span::new(at, at + name.len())
    }

    /// The meaning of a node before.
    pub(super) fn of(&self, id: NodeId) -> Meaning {
        self.meanings[id.index()].clone()
    }

    fn literal(&mut self, literal: Literal, span: Span) -> Result<Meaning> {
        Ok(match literal {
            Literal::Integer(number) => {
                Meaning::Number(self.builder.constant(Number::Integer(number), span)?, Kind::WrittenInteger)
            }
            Literal::Float(number) => {
                Meaning::Number(self.builder.constant(Number::F64(number), span)?, Kind::WrittenFloat)
            }
            Literal::Condition(condition) => Meaning::Condition(
                self.builder.scalar(ScalarOp::Constant(Scalar::Condition(condition)), span)?,
            ),
        })
    }

    /// The same meaning, but of a field its elements.
    pub(super) fn used(&mut self, id: NodeId) -> Result<Meaning> {
        match self.of(id) {
            Meaning::Field(index) => self.elements(index, self.syntax.span(id)).map(Meaning::Elements),
            meaning => Ok(meaning),
        }
    }

    /// A number, or one for each element; `by` says what takes it.
    pub(super) fn numeric(&mut self, id: NodeId, by: &str) -> Result<Numeric> {
        use crate::plan::Lane;
        match self.used(id)? {
            Meaning::Number(id, kind) => Ok(Numeric::One(id, kind)),
            Meaning::Elements(elements) if elements.lane != Lane::Mask => Ok(Numeric::Each(elements)),
            other => Err(self.mismatch(id, &format!("{by} takes numbers; this is {}", described(&other)))),
        }
    }

    /// A condition, or one for each element; `by` says what takes it.
    pub(super) fn logical(&mut self, id: NodeId, by: &str) -> Result<Logical> {
        use crate::plan::Lane;
        match self.used(id)? {
            Meaning::Condition(id) => Ok(Logical::One(id)),
            Meaning::Elements(elements) if elements.lane == Lane::Mask => Ok(Logical::Each(elements)),
            other => {
                let what = format!(
                    "{by} takes conditions; this is {}: compare it, or put parentheses around each comparison",
                    described(&other)
                );
                Err(self.mismatch(id, &what))
            }
        }
    }

    /// The elements that an aggregate is of; `by` says which one.
    pub(super) fn elements_for(&mut self, id: NodeId, by: &str) -> Result<Elements> {
        match self.used(id)? {
            Meaning::Elements(elements) => Ok(elements),
            other => Err(self.mismatch(id, &format!("{by} is of a field; this is {}", described(&other)))),
        }
    }

    /// What is evaluated.
    fn result(&mut self, id: NodeId) -> Result<ScalarId> {
        if self.purpose == Purpose::Watch {
            return self.whole_condition(id);
        }
        match self.used(id)? {
            Meaning::Number(value, _) | Meaning::Condition(value) | Meaning::Place(value, _) => Ok(value),
            Meaning::Position(_) => {
                Err(self.mismatch(id, "a coordinate of which dimension? Write argmax(...).at.x"))
            }
            Meaning::Elements(Elements { lane: crate::plan::Lane::Mask, .. }) => Err(self
                .mismatch(id, "this is a condition for each element: say any(...), all(...) or count(...)")),
            _ => Err(self
                .mismatch(id, "this has a value for each element: say which aggregate of them, as max(...)")),
        }
    }

    fn whole_condition(&mut self, id: NodeId) -> Result<ScalarId> {
        use crate::plan::Lane;
        match self.used(id)? {
            Meaning::Condition(value) => Ok(value),
            Meaning::Elements(Elements { lane: Lane::Mask, .. }) => {
                Err(self.mismatch(id, "this is a condition for each element: say any(...) or all(...)"))
            }
            other => {
                Err(self
                    .mismatch(id, &format!("what is watched is a condition; this is {}", described(&other))))
            }
        }
    }

    pub(super) fn mismatch(&self, id: NodeId, what: &str) -> Problem {
        Problem::new(ErrorKind::TypeMismatch, self.syntax.span(id), what)
    }

    /// What events tell of: bindings by their names, other aggregates by their texts.
    fn reported(&self) -> Vec<Reported> {
        let aggregate_of = |value: ScalarId| match self.builder.scalars[value] {
            ScalarOp::Aggregate(aggregate, _) => Some(aggregate),
            _ => None,
        };
        let scalar_of = |id: NodeId| match self.meanings[id.index()] {
            Meaning::Number(value, _) | Meaning::Condition(value) | Meaning::Place(value, _) => Some(value),
            _ => None,
        };
        let mut reported: Vec<Reported> = Vec::new();
        let mut add = |label: String, value: ScalarId| {
            if !reported.iter().any(|known| known.value == value) {
                reported.push(Reported { label, value, aggregate: aggregate_of(value) });
            }
        };
        for binding in self.syntax.bindings() {
            if let Some(value) = scalar_of(binding.value) {
                add(binding.name.clone(), value);
            }
        }
        for (id, node) in self.syntax.nodes() {
            let value = scalar_of(id)
                .filter(|value| matches!(node, Node::Call(..)) && aggregate_of(*value).is_some());
            if let Some(value) = value {
                add(self.syntax.printed(id), value);
            }
        }
        reported
    }
}

/// What something is, as messages say it.
pub(super) fn described(meaning: &Meaning) -> &'static str {
    use crate::plan::Lane;
    match meaning {
        Meaning::Number(..) => "a number",
        Meaning::Condition(_) => "a condition",
        Meaning::Elements(Elements { lane: Lane::Mask, .. }) => "a condition for each element",
        Meaning::Elements(_) | Meaning::Field(_) => "a field",
        Meaning::Place(..) => "a place: take one of its dimensions, as argmax(...).x",
        Meaning::Position(_) => "a place: take one of its dimensions, as argmax(...).at.x",
    }
}
