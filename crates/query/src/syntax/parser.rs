//! From words to the tree.

use crate::syntax::lexer::tokens;
use crate::syntax::limits::{BINDINGS_MAX, DEPTH_MAX, FIELDS_MAX, PARTS_MAX, TEXT_MAX, WINDOW_MAX};
use crate::syntax::problem::{Problem, Span};
use crate::syntax::token::{Kind, Sign, Token};
use crate::syntax::tree::{
    Argument, BinaryOp, Binding, Comparison, Duration, FieldUse, Level, Literal, Node, NodeId, Syntax,
    UnaryOp, Until,
};

pub(super) type Result<T> = std::result::Result<T, Problem>;

/// How tightly operators bind: an operand takes in those that bind as tightly as it asks, or more.
mod binding {
    pub(super) const OR: u8 = 1;
    pub(super) const AND: u8 = 2;
    pub(super) const NOT: u8 = 3;
    pub(super) const COMPARISON: u8 = 4;
    pub(super) const EITHER: u8 = 5;
    pub(super) const BOTH: u8 = 6;
    pub(super) const SUM: u8 = 7;
    pub(super) const PRODUCT: u8 = 8;
    pub(super) const SIGN: u8 = 9;
    pub(super) const POWER: u8 = 10;
}

impl Syntax {
    /// Reads a text: a condition to watch, or what is to be evaluated. Fails with `Invalid`, and says the column, what is wrong
    /// there, and what may stand there.
    pub fn parse(text: &str) -> forebay_core::Result<Syntax> {
        parse(text).map_err(|problem| problem.in_text(text))
    }
}

fn parse(text: &str) -> Result<Syntax> {
    if text.len() > TEXT_MAX {
        let what = format!("the text has {} bytes; at most {TEXT_MAX} are possible", text.len());
        return Err(Problem::invalid(Span::default(), what));
    }
    let tokens = tokens(text)?;
    let (nodes, spans) = (Vec::with_capacity(tokens.len()), Vec::with_capacity(tokens.len()));
    let syntax = Syntax {
        text: text.to_owned(),
        nodes,
        spans,
        fields: Vec::new(),
        bindings: Vec::new(),
        value: NodeId(0),
        hold: None,
        until: None,
    };
    Parser { text, tokens, at: 0, depth: 0, syntax }.watch()
}

pub(super) struct Parser<'t> {
    pub(super) text: &'t str,
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    syntax: Syntax,
}

impl Parser<'_> {
    /// The next word or sign.
    pub(super) fn token(&self) -> Token {
        self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn second(&self) -> Kind {
        self.tokens.get(self.at + 1).map_or(Kind::End, |token| token.kind)
    }

    pub(super) fn advance(&mut self) -> Token {
        let token = self.token();
        self.at += 1;
        token
    }

    pub(super) fn is(&self, sign: Sign) -> bool {
        self.token().kind == Kind::Sign(sign)
    }

    pub(super) fn accept(&mut self, sign: Sign) -> bool {
        let accepts = self.is(sign);
        self.at += usize::from(accepts);
        accepts
    }

    pub(super) fn expect(&mut self, sign: Sign, expected: &str) -> Result<Token> {
        if self.is(sign) { Ok(self.advance()) } else { Err(self.unexpected(expected)) }
    }

    /// Something else was expected.
    pub(super) fn unexpected(&self, expected: &str) -> Problem {
        let token = self.token();
        Problem::invalid(token.span, format!("found {}, expected {expected}", token.described(self.text)))
    }

    fn watch(mut self) -> Result<Syntax> {
        while self.token().kind == Kind::Name && self.second() == Kind::Sign(Sign::Is) {
            self.binding()?;
        }
        self.syntax.value = self.expression(0)?;
        self.syntax.hold = self.hold()?;
        if self.accept(Sign::Until) {
            let condition = self.expression(0)?;
            self.syntax.until = Some(Until { condition, hold: self.hold()? });
        }
        if self.token().kind == Kind::End {
            return Ok(self.syntax);
        }
        let may_follow = match (&self.syntax.hold, &self.syntax.until) {
            (None, None) => "an operator, 'for', 'until' or the end",
            (Some(_), None) => "'until' or the end",
            (_, Some(_)) => "an operator, 'for' or the end",
        };
        if self.is(Sign::Semicolon) {
            let what = "found ';', which ends bindings alone: write `name = ...;` for what others use, and the condition last";
            return Err(Problem::invalid(self.token().span, what));
        }
        if self.is(Sign::Is) {
            return Err(self.unexpected(&format!("{may_follow}; to compare write ==")));
        }
        Err(self.unexpected(may_follow))
    }

    fn binding(&mut self) -> Result<()> {
        let token = self.advance();
        let name = token.span.of(self.text).to_owned();
        if self.bound(&name).is_some() {
            return Err(Problem::invalid(token.span, format!("'{name}' is bound twice")));
        }
        if self.syntax.bindings.len() == BINDINGS_MAX {
            return Err(Problem::invalid(token.span, format!("more than {BINDINGS_MAX} bindings")));
        }
        self.advance();
        let value = self.expression(0)?;
        self.expect(Sign::Semicolon, "an operator or ';'")?;
        self.syntax.bindings.push(Binding { name, value });
        Ok(())
    }

    fn bound(&self, name: &str) -> Option<usize> {
        self.syntax.bindings.iter().position(|binding| binding.name == name)
    }

    fn hold(&mut self) -> Result<Option<Duration>> {
        if !self.accept(Sign::For) {
            return Ok(None);
        }
        let number = self.token();
        if !matches!(number.kind, Kind::Integer | Kind::Float) {
            return Err(self.unexpected("a number of steps, or of units of time"));
        }
        let literal = self.literal()?;
        let unit = self.token();
        match (unit.kind, unit.span.of(self.text), literal) {
            (Kind::Name, "step" | "steps", Literal::Integer(count)) => match u64::try_from(count) {
                Ok(count @ 1..=WINDOW_MAX) => {
                    self.advance();
                    Ok(Some(Duration::Steps(count)))
                }
                _ => {
                    Err(Problem::invalid(number.span, format!("something holds for 1 to {WINDOW_MAX} steps")))
                }
            },
            (Kind::Name, "step" | "steps", _) => {
                Err(Problem::invalid(number.span, "steps are counted whole"))
            }
            (Kind::Name, "time", literal) => {
                self.advance();
                let time = literal.to_f64();
                match time > 0.0 && time.is_finite() {
                    true => Ok(Some(Duration::Time(time))),
                    false => Err(Problem::invalid(number.span, "something holds for a time above 0")),
                }
            }
            _ => Err(self.unexpected("'steps' or 'time'")),
        }
    }

    /// An expression of operators that bind at least so tightly.
    pub(super) fn expression(&mut self, least: u8) -> Result<NodeId> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            let what = format!("parts stand in each other more than {DEPTH_MAX} deep");
            return Err(Problem::invalid(self.token().span, what));
        }
        let mut left = self.prefix(least)?;
        while let Kind::Sign(sign) = self.token().kind {
            if comparison(sign).is_some() && least <= binding::COMPARISON {
                left = self.chain(left)?;
                continue;
            }
            let Some((op, tightness, right)) = binary(sign) else { break };
            if tightness < least {
                break;
            }
            self.advance();
            let right = self.expression(right)?;
            left = self.add(Node::Binary(op, left, right), self.between(left, right))?;
        }
        self.depth -= 1;
        Ok(left)
    }

    fn chain(&mut self, first: NodeId) -> Result<NodeId> {
        let mut rest = Vec::new();
        while let Kind::Sign(sign) = self.token().kind {
            let Some(comparison) = comparison(sign) else { break };
            self.advance();
            rest.push((comparison, self.expression(binding::EITHER)?));
        }
        let last = rest.last().map_or(first, |(_, last)| *last);
        let span = self.between(first, last);
        self.add(Node::Chain(first, rest), span)
    }

    fn prefix(&mut self, least: u8) -> Result<NodeId> {
        let token = self.token();
        let (op, operand) = match token.kind {
            Kind::Sign(Sign::Not) if least > binding::NOT => {
                let what = "'not' binds less tightly than what stands before it: put parentheses around it";
                return Err(Problem::invalid(token.span, what));
            }
            Kind::Sign(Sign::Not) => (UnaryOp::Not, binding::NOT),
            Kind::Sign(Sign::Complement) => (UnaryOp::Not, binding::SIGN),
            Kind::Sign(Sign::Minus) => (UnaryOp::Minus, binding::SIGN),
            Kind::Sign(Sign::Plus) => (UnaryOp::Plus, binding::SIGN),
            _ => return self.postfix(),
        };
        self.advance();
        let operand = self.expression(operand)?;
        let span = token.span.to(self.syntax.span(operand));
        self.add(Node::Unary(op, operand), span)
    }

    fn postfix(&mut self) -> Result<NodeId> {
        let token = self.token();
        let mut node = match token.kind {
            Kind::Name if self.second() == Kind::Sign(Sign::Open) => self.call()?,
            Kind::Name => match self.bound(token.span.of(self.text)) {
                Some(index) => {
                    self.advance();
                    self.add(Node::Bound(index), token.span)?
                }
                None => return self.field(),
            },
            Kind::Quoted => return self.field(),
            Kind::Integer | Kind::Float | Kind::Sign(Sign::True | Sign::False | Sign::Nan | Sign::Inf) => {
                let literal = self.literal()?;
                self.add(Node::Literal(literal), token.span)?
            }
            Kind::Sign(Sign::Open) => self.parenthesis()?,
            _ => return Err(self.unexpected("a number, a field, a function or '('")),
        };
        while self.is(Sign::Dot) {
            if !matches!(self.syntax.node(node), Node::Call(..) | Node::Bound(_) | Node::Attribute(..)) {
                let what =
                    "found '.': attributes stand behind functions and bindings alone, as in argmax(U).x";
                return Err(Problem::invalid(self.token().span, what));
            }
            self.advance();
            let named = self.token();
            let name = match named.kind {
                // Nothing else may stand there.
                Kind::Sign(word) if Sign::WORDS.contains(&word) => {
                    self.advance().span.of(self.text).to_owned()
                }
                _ => self.name("the name of an attribute")?,
            };
            let span = self.syntax.span(node).to(named.span);
            node = self.add(Node::Attribute(node, name), span)?;
        }
        if self.is(Sign::OpenRegion) {
            let what = "found '[': regions stand behind the names of fields alone, as in max(U[0:32])";
            return Err(Problem::invalid(self.token().span, what));
        }
        Ok(node)
    }

    fn parenthesis(&mut self) -> Result<NodeId> {
        let open = self.advance();
        let node = self.expression(0)?;
        let close = self.expect(Sign::Close, "an operator or ')'")?;
        self.syntax.spans[node.index()] = open.span.to(close.span);
        Ok(node)
    }

    fn call(&mut self) -> Result<NodeId> {
        let named = self.advance();
        self.advance();
        let mut arguments = Vec::new();
        while !self.is(Sign::Close) {
            let has_name = self.token().kind == Kind::Name && self.second() == Kind::Sign(Sign::Is);
            let name = has_name.then(|| self.token().span.of(self.text).to_owned());
            self.at += 2 * usize::from(has_name);
            arguments.push(Argument { name, value: self.expression(0)? });
            if !self.accept(Sign::Comma) {
                break;
            }
        }
        let close = self.expect(Sign::Close, "an operator, ',' or ')'")?;
        let name = named.span.of(self.text).to_owned();
        self.add(Node::Call(name, arguments), named.span.to(close.span))
    }

    fn field(&mut self) -> Result<NodeId> {
        let first = self.token();
        let (mut stream, mut name) = (None, self.name("the name of a field")?);
        if self.accept(Sign::Dot) {
            stream = Some(name);
            name = self.name("the name of a field of this stream")?;
            if self.is(Sign::Dot) {
                let what = "found a third name: a field is named by its stream and itself; names with points stand in backticks";
                return Err(Problem::invalid(self.token().span, what));
            }
        }
        let level = if self.accept(Sign::At) { self.level()? } else { Level::One(0) };
        let region = if self.is(Sign::OpenRegion) { Some(self.region()?) } else { None };
        let span = first.span.to(self.tokens[self.at - 1].span);
        let named = FieldUse { stream, name, level, region, span };
        let known = self.syntax.fields.iter().position(|field| field.is_same(&named));
        let index = known.unwrap_or(self.syntax.fields.len());
        if index == FIELDS_MAX {
            return Err(Problem::invalid(span, format!("more than {FIELDS_MAX} fields, or parts of fields")));
        }
        if known.is_none() {
            self.syntax.fields.push(named);
        }
        self.add(Node::Field(index), span)
    }

    fn level(&mut self) -> Result<Level> {
        if self.accept(Sign::Times) {
            return Ok(Level::All);
        }
        let token = self.token();
        if token.kind != Kind::Integer {
            return Err(self.unexpected("the number of a refinement level, or '*' for all"));
        }
        match self.literal()? {
            Literal::Integer(level) if u32::try_from(level).is_ok() => Ok(Level::One(level as u32)),
            _ => Err(Problem::invalid(token.span, "no refinement level has such a number")),
        }
    }

    pub(super) fn name(&mut self, expected: &str) -> Result<String> {
        let token = self.token();
        let written = token.span.of(self.text);
        let name = match token.kind {
            Kind::Name => written.to_owned(),
            Kind::Quoted => written[1..written.len() - 1].replace("``", "`"),
            Kind::Sign(word) if Sign::WORDS.contains(&word) => {
                let what =
                    format!("'{written}' is a reserved word: as a name it stands in backticks, `{written}`");
                return Err(Problem::invalid(token.span, what));
            }
            _ => return Err(self.unexpected(expected)),
        };
        self.advance();
        Ok(name)
    }

    pub(super) fn literal(&mut self) -> Result<Literal> {
        let token = self.advance();
        let digits = || token.span.of(self.text).replace('_', "");
        Ok(match token.kind {
            Kind::Sign(Sign::True) => Literal::Condition(true),
            Kind::Sign(Sign::False) => Literal::Condition(false),
            Kind::Sign(Sign::Nan) => Literal::Float(f64::NAN),
            Kind::Sign(Sign::Inf) => Literal::Float(f64::INFINITY),
            Kind::Integer => match digits().parse() {
                Ok(integer) => Literal::Integer(integer),
                Err(_) => {
                    return Err(Problem::invalid(
                        token.span,
                        "this integer is too large: write it with an exponent, as 1e40",
                    ));
                }
            },
            _ => Literal::Float(digits().parse().unwrap_or(f64::NAN)),
        })
    }

    /// Adds a node behind all others.
    fn add(&mut self, node: Node, span: Span) -> Result<NodeId> {
        if self.syntax.nodes.len() == PARTS_MAX {
            return Err(Problem::invalid(
                span,
                format!("more than {PARTS_MAX} numbers, fields, calls and operators"),
            ));
        }
        self.syntax.nodes.push(node);
        self.syntax.spans.push(span);
        Ok(NodeId(self.syntax.nodes.len() as u32 - 1))
    }

    fn between(&self, first: NodeId, last: NodeId) -> Span {
        self.syntax.span(first).to(self.syntax.span(last))
    }
}

fn comparison(sign: Sign) -> Option<Comparison> {
    Some(match sign {
        Sign::Less => Comparison::Less,
        Sign::LessEqual => Comparison::LessEqual,
        Sign::Greater => Comparison::Greater,
        Sign::GreaterEqual => Comparison::GreaterEqual,
        Sign::Equal => Comparison::Equal,
        Sign::NotEqual => Comparison::NotEqual,
        _ => return None,
    })
}

/// An operator, how tightly it binds, and how tightly those bind that its right operand takes in.
fn binary(sign: Sign) -> Option<(BinaryOp, u8, u8)> {
    Some(match sign {
        Sign::Or => (BinaryOp::Or, binding::OR, binding::OR + 1),
        Sign::And => (BinaryOp::And, binding::AND, binding::AND + 1),
        Sign::Either => (BinaryOp::Or, binding::EITHER, binding::EITHER + 1),
        Sign::Both => (BinaryOp::And, binding::BOTH, binding::BOTH + 1),
        Sign::Plus => (BinaryOp::Plus, binding::SUM, binding::SUM + 1),
        Sign::Minus => (BinaryOp::Minus, binding::SUM, binding::SUM + 1),
        Sign::Times => (BinaryOp::Times, binding::PRODUCT, binding::PRODUCT + 1),
        Sign::Divide => (BinaryOp::Divide, binding::PRODUCT, binding::PRODUCT + 1),
        Sign::FloorDivide => (BinaryOp::FloorDivide, binding::PRODUCT, binding::PRODUCT + 1),
        Sign::Remainder => (BinaryOp::Remainder, binding::PRODUCT, binding::PRODUCT + 1),
        // From the right, and with a sign before the exponent.
        Sign::Power => (BinaryOp::Power, binding::POWER, binding::SIGN),
        _ => return None,
    })
}
