//! What operators mean, and functions of one or two numbers.

use crate::check::checker::{Checker, Result};
use crate::check::meaning::{Elements, Logical, Meaning, Numeric};
use crate::plan::{Lane, Op, ScalarOp};
use crate::syntax::{BinaryOp, Comparison, NodeId, Problem, Span, UnaryOp};
use crate::value::arithmetic::{Binary, Test, Unary};
use crate::value::{Kind, Number, Scalar};
use forebay_core::ErrorKind;

impl Checker<'_> {
    pub(super) fn unary(&mut self, op: UnaryOp, operand: NodeId, span: Span) -> Result<Meaning> {
        match op {
            UnaryOp::Not => {
                let logical = self.logical(operand, "'not'")?;
                self.negated(logical, span).map(Meaning::from)
            }
            UnaryOp::Plus => self.numeric(operand, "'+'").map(Meaning::from),
            UnaryOp::Minus => {
                let number = self.numeric(operand, "'-'")?;
                self.function(Unary::Minus, number, span).map(Meaning::from)
            }
        }
    }

    fn negated(&mut self, logical: Logical, span: Span) -> Result<Logical> {
        Ok(match logical {
            Logical::One(id) => Logical::One(self.builder.scalar(ScalarOp::Not(id), span)?),
            Logical::Each(of) => {
                Logical::Each(self.each(Op::Not(of.register), Lane::Mask, of.domain, span)?)
            }
        })
    }

    pub(super) fn binary(
        &mut self,
        op: BinaryOp,
        left: NodeId,
        right: NodeId,
        span: Span,
    ) -> Result<Meaning> {
        let (op, by) = match op {
            BinaryOp::Or | BinaryOp::And => {
                let by = if op == BinaryOp::Or { "'or'" } else { "'and'" };
                let (left, right) = (self.logical(left, by)?, self.logical(right, by)?);
                return self.joined(op, left, right, span).map(Meaning::from);
            }
            BinaryOp::Plus => (Binary::Plus, "'+'"),
            BinaryOp::Minus => (Binary::Minus, "'-'"),
            BinaryOp::Times => (Binary::Times, "'*'"),
            BinaryOp::Divide => (Binary::Divide, "'/'"),
            BinaryOp::FloorDivide => (Binary::FloorDivide, "'//'"),
            BinaryOp::Remainder => (Binary::Remainder, "'%'"),
            BinaryOp::Power => (Binary::Power, "'**'"),
        };
        let (left, right) = (self.numeric(left, by)?, self.numeric(right, by)?);
        self.arithmetic(op, left, right, span).map(Meaning::from)
    }

    fn joined(&mut self, op: BinaryOp, left: Logical, right: Logical, span: Span) -> Result<Logical> {
        if let (Logical::One(a), Logical::One(b)) = (left, right) {
            let op = if op == BinaryOp::Or { ScalarOp::Or(a, b) } else { ScalarOp::And(a, b) };
            return Ok(Logical::One(self.builder.scalar(op, span)?));
        }
        let domain = self.common_domain(&[of_logical(left), of_logical(right)], span)?;
        let (a, b) = (self.mask(left, domain, span)?.register, self.mask(right, domain, span)?.register);
        let op = if op == BinaryOp::Or { Op::Or(a, b) } else { Op::And(a, b) };
        Ok(Logical::Each(self.each(op, Lane::Mask, domain, span)?))
    }

    /// A condition for each element, also if it is the same for all.
    pub(super) fn mask(&mut self, logical: Logical, domain: usize, span: Span) -> Result<Elements> {
        match logical {
            Logical::Each(elements) => Ok(elements),
            Logical::One(id) => self.each(Op::Input(id as u16), Lane::Mask, domain, span),
        }
    }

    pub(super) fn chain(
        &mut self,
        first: NodeId,
        rest: &[(Comparison, NodeId)],
        span: Span,
    ) -> Result<Meaning> {
        let by = "a comparison";
        let mut left = self.numeric(first, by)?;
        let mut all: Option<Logical> = None;
        for (comparison, right) in rest {
            let right = self.numeric(*right, by)?;
            let holds = self.comparison(*comparison, left, right, span)?;
            all = Some(match all {
                Some(before) => self.joined(BinaryOp::And, before, holds, span)?,
                None => holds,
            });
            left = right;
        }
        match all {
            Some(all) => Ok(all.into()),
            None => Ok(left.into()),
        }
    }

    fn comparison(&mut self, comparison: Comparison, a: Numeric, b: Numeric, span: Span) -> Result<Logical> {
        let kind = a.kind().meets(b.kind());
        match (a, b) {
            (Numeric::One(first, of_first), Numeric::One(second, of_second)) => {
                let first = self.builder.converted(first, of_first, kind, span)?;
                let second = self.builder.converted(second, of_second, kind, span)?;
                Ok(Logical::One(self.builder.scalar(ScalarOp::Compare(comparison, first, second), span)?))
            }
            (Numeric::Each(each), Numeric::One(one, of_one)) => {
                self.with_one(comparison, each, one, of_one, span)
            }
            (Numeric::One(one, of_one), Numeric::Each(each)) => {
                self.with_one(mirrored(comparison), each, one, of_one, span)
            }
            (Numeric::Each(x), Numeric::Each(y)) => {
                let domain = self.common_domain(&[Some(x), Some(y)], span)?;
                // Of 64 bits, with and without sign, no integer type holds both: they are compared as they are.
                let (x, y) = match x.lane != y.lane && kind.is_integer() {
                    true => (x, y),
                    false => (self.in_kind(a, kind, domain, span)?, self.in_kind(b, kind, domain, span)?),
                };
                let op = Op::Compare(comparison, x.register, y.register);
                Ok(Logical::Each(self.each(op, Lane::Mask, domain, span)?))
            }
        }
    }

    /// How each element compares with one number: integers exactly.
    fn with_one(
        &mut self,
        comparison: Comparison,
        each: Elements,
        one: usize,
        of_one: Kind,
        span: Span,
    ) -> Result<Logical> {
        let kind = each.lane.kind().meets(of_one);
        // An integer that meets integers stays as it is, however large it is.
        let kind = if kind.is_integer() { each.lane.kind() } else { kind };
        let one = self.builder.converted(one, of_one, kind, span)?;
        let each = self.in_kind(Numeric::Each(each), kind, each.domain, span)?;
        let op = Op::CompareInput(comparison, each.register, one as u16);
        Ok(Logical::Each(self.each(op, Lane::Mask, each.domain, span)?))
    }

    /// An operator, or a function of two numbers.
    pub(super) fn arithmetic(&mut self, op: Binary, a: Numeric, b: Numeric, span: Span) -> Result<Numeric> {
        let kind = self.kind_of(op, a, b, span)?;
        if let (Binary::Power, Numeric::Each(each), Numeric::One(exponent, _)) = (op, a, b) {
            // As NumPy computes these: exactly rounded, and much faster.
            match self.builder.constant_of(exponent) {
                Some(Scalar::Number(number)) if number.to_f64() == 2.0 => {
                    let each = self.in_kind(a, kind, each.domain, span)?;
                    let square = Op::Binary(Binary::Times, each.register, each.register);
                    return self.each(square, each.lane, each.domain, span).map(Numeric::Each);
                }
                Some(Scalar::Number(number)) if number.to_f64() == 0.5 => {
                    let each = self.in_kind(a, kind, each.domain, span)?;
                    let root = Op::Unary(Unary::Sqrt, each.register);
                    return self.each(root, each.lane, each.domain, span).map(Numeric::Each);
                }
                _ => {}
            }
        }
        if let (Numeric::One(a, of_a), Numeric::One(b, of_b)) = (a, b) {
            let (a, b) =
                (self.builder.converted(a, of_a, kind, span)?, self.builder.converted(b, of_b, kind, span)?);
            return Ok(Numeric::One(self.builder.scalar(ScalarOp::Binary(op, a, b), span)?, kind));
        }
        let domain = self.common_domain(&[of_numeric(a), of_numeric(b)], span)?;
        let (a, b) = (self.in_kind(a, kind, domain, span)?, self.in_kind(b, kind, domain, span)?);
        self.each(Op::Binary(op, a.register, b.register), Lane::of(kind), domain, span).map(Numeric::Each)
    }

    /// The kind that an operator computes in.
    fn kind_of(&self, op: Binary, a: Numeric, b: Numeric, span: Span) -> Result<Kind> {
        let kind = a.kind().meets(b.kind());
        Ok(match op {
            Binary::Divide | Binary::Atan2 | Binary::Hypot => kind.as_float(),
            Binary::Power if kind.is_integer() && !self.is_natural(b) => kind.as_float(),
            Binary::BitwiseAnd if !kind.is_integer() => {
                let what = "bitwise_and() takes integers; one of these is a float";
                return Err(Problem::new(ErrorKind::TypeMismatch, span, what));
            }
            Binary::Minimum | Binary::Maximum => kind,
            // Integers are computed with signs.
            _ if kind == Kind::U64 => Kind::I64,
            _ => kind,
        })
    }

    /// Whether it stands in the text as an integer from 0 on.
    fn is_natural(&self, number: Numeric) -> bool {
        let Numeric::One(id, _) = number else { return false };
        matches!(self.builder.constant_of(id), Some(Scalar::Number(Number::Integer(0..))))
    }

    /// A function of one number.
    pub(super) fn function(&mut self, op: Unary, number: Numeric, span: Span) -> Result<Numeric> {
        let keeps =
            matches!(op, Unary::Minus | Unary::Abs | Unary::Floor | Unary::Ceil | Unary::Round | Unary::Sign);
        let kind = match number.kind() {
            kind if !keeps => kind.as_float(),
            Kind::U64 => Kind::I64,
            kind => kind,
        };
        match number {
            Numeric::One(id, of) => {
                let id = self.builder.converted(id, of, kind, span)?;
                Ok(Numeric::One(self.builder.scalar(ScalarOp::Unary(op, id), span)?, kind))
            }
            Numeric::Each(each) => {
                let each = self.in_kind(number, kind, each.domain, span)?;
                self.each(Op::Unary(op, each.register), each.lane, each.domain, span).map(Numeric::Each)
            }
        }
    }

    /// A test of one number.
    pub(super) fn test(&mut self, test: Test, number: Numeric, span: Span) -> Result<Logical> {
        Ok(match number {
            Numeric::One(id, _) => Logical::One(self.builder.scalar(ScalarOp::Test(test, id), span)?),
            Numeric::Each(of) => {
                Logical::Each(self.each(Op::Test(test, of.register), Lane::Mask, of.domain, span)?)
            }
        })
    }

    /// One of two numbers, by a condition.
    pub(super) fn selected(
        &mut self,
        condition: Logical,
        a: Numeric,
        b: Numeric,
        span: Span,
    ) -> Result<Numeric> {
        let kind = a.kind().meets(b.kind());
        if let (Logical::One(holds), Numeric::One(a, of_a), Numeric::One(b, of_b)) = (condition, a, b) {
            let (a, b) =
                (self.builder.converted(a, of_a, kind, span)?, self.builder.converted(b, of_b, kind, span)?);
            return Ok(Numeric::One(self.builder.scalar(ScalarOp::Select(holds, a, b), span)?, kind));
        }
        let domain = self.common_domain(&[of_logical(condition), of_numeric(a), of_numeric(b)], span)?;
        let mask = self.mask(condition, domain, span)?.register;
        let (a, b) =
            (self.in_kind(a, kind, domain, span)?.register, self.in_kind(b, kind, domain, span)?.register);
        self.each(Op::Select(mask, a, b), Lane::of(kind), domain, span).map(Numeric::Each)
    }

    /// A number for each element, in a kind.
    pub(super) fn in_kind(
        &mut self,
        number: Numeric,
        kind: Kind,
        domain: usize,
        span: Span,
    ) -> Result<Elements> {
        let lane = Lane::of(kind);
        match number {
            Numeric::Each(elements) if elements.lane == lane => Ok(elements),
            Numeric::Each(elements) => self.each(Op::Convert(elements.register), lane, elements.domain, span),
            Numeric::One(id, from) => {
                let id = self.builder.converted(id, from, kind, span)?;
                self.check_fits(id, lane, span)?;
                self.each(Op::Input(id as u16), lane, domain, span)
            }
        }
    }

    /// Checks that an integer of the text fits the type of elements.
    fn check_fits(&self, id: usize, lane: Lane, span: Span) -> Result<()> {
        let Some(Scalar::Number(Number::Integer(number))) = self.builder.constant_of(id) else {
            return Ok(());
        };
        let fits = match lane {
            Lane::I64 => i64::try_from(*number).is_ok(),
            Lane::U64 => u64::try_from(*number).is_ok(),
            _ => true,
        };
        match fits {
            true => Ok(()),
            false => Err(Problem::invalid(
                span,
                format!("integers are computed in 64 bits, and {number} has more"),
            )),
        }
    }

    pub(super) fn each(&mut self, op: Op, lane: Lane, domain: usize, span: Span) -> Result<Elements> {
        Ok(Elements { register: self.builder.element(op, lane, span)?, lane, domain })
    }

    /// The one domain of all of these that are elements.
    pub(super) fn common_domain(&self, parts: &[Option<Elements>], span: Span) -> Result<usize> {
        let mut domains = parts.iter().flatten().map(|elements| elements.domain);
        let first = domains.next().unwrap_or_default();
        let Some(other) = domains.find(|domain| *domain != first) else { return Ok(first) };
        let (a, b) = (&self.builder.domains[first], &self.builder.domains[other]);
        let differ = if a.stream != b.stream {
            format!(
                "one is of stream '{}', the other of '{}'; streams meet as aggregates alone, as max(...)",
                a.stream, b.stream
            )
        } else if a.level != b.level {
            "they are of different refinement levels".into()
        } else if a.shape != b.shape {
            let shape = |shape: &Option<forebay_core::region::Dims>| match shape {
                Some(shape) => format!("{:?}", &shape[..]),
                None => "none".into(),
            };
            format!("one has the shape {}, the other {}", shape(&a.shape), shape(&b.shape))
        } else {
            "they are different regions: name the same one behind each field".into()
        };
        let what = format!("these elements do not lie at the same places: {differ}");
        Err(Problem::new(ErrorKind::TypeMismatch, span, what))
    }
}

fn of_numeric(numeric: Numeric) -> Option<Elements> {
    match numeric {
        Numeric::Each(elements) => Some(elements),
        Numeric::One(..) => None,
    }
}

pub(super) fn of_logical(logical: Logical) -> Option<Elements> {
    match logical {
        Logical::Each(elements) => Some(elements),
        Logical::One(_) => None,
    }
}

/// The same comparison with its sides changed.
fn mirrored(comparison: Comparison) -> Comparison {
    match comparison {
        Comparison::Less => Comparison::Greater,
        Comparison::LessEqual => Comparison::GreaterEqual,
        Comparison::Greater => Comparison::Less,
        Comparison::GreaterEqual => Comparison::LessEqual,
        same => same,
    }
}
