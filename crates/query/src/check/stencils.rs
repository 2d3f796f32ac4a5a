//! What functions of neighbours mean.
//!
//! Differences are those of `numpy.gradient`: central, and one-sided at the ends of a domain that is not periodic. A value at a
//! neighbour is the same program with its loads shifted.

use crate::check::calls::Arguments;
use crate::check::checker::{Checker, Result};
use crate::check::fields::dim_of;
use crate::check::functions::Function;
use crate::check::meaning::{Elements, Meaning, Numeric};
use crate::plan::{Op, Register, ScalarOp, Shift};
use crate::syntax::{Level, NodeId, Problem, Span};
use crate::value::arithmetic::{Binary, Unary};
use crate::value::{Kind, Number};
use forebay_core::ErrorKind;
use forebay_core::contract::Field;
use std::collections::HashMap;

/// Something of which neighbours are taken: in a lane of floats.
struct Differentiable {
    elements: Elements,
    /// A field of its domain, whose distances count.
    planned: usize,
    field: Field,
    span: Span,
}

impl Checker<'_> {
    pub(super) fn stencil(&mut self, function: Function, arguments: &Arguments<'_>) -> Result<Meaning> {
        let span = arguments.span();
        let result = match function {
            Function::Gradient => {
                let ([of, dim], []) = arguments.take(["x", "dim"], [])?;
                let of = self.differentiable(of, arguments)?;
                let dim = self.dim_argument(dim, &of.field)?;
                self.gradient(&of, dim)?
            }
            Function::GradientMagnitude => {
                let ([of], []) = arguments.take(["x"], [])?;
                let of = self.differentiable(of, arguments)?;
                let parts =
                    (0..of.elements_ndim()).map(|dim| self.gradient(&of, dim)).collect::<Result<Vec<_>>>()?;
                self.length(&parts, span)?
            }
            Function::Laplacian => {
                let ([of], []) = arguments.take(["x"], [])?;
                let of = self.differentiable(of, arguments)?;
                let parts = (0..of.elements_ndim())
                    .map(|dim| self.curvature(&of, dim))
                    .collect::<Result<Vec<_>>>()?;
                self.total(&parts, span)?
            }
            _ => {
                let parts = self.vector(arguments)?;
                match function {
                    Function::Divergence => {
                        let parts = parts.iter().map(|(dim, of)| self.gradient(of, *dim));
                        let parts = parts.collect::<Result<Vec<_>>>()?;
                        self.total(&parts, span)?
                    }
                    _ => self.curl(&parts, span)?,
                }
            }
        };
        Ok(Meaning::Elements(result))
    }

    /// What an argument is, as floats, and whether neighbours can be taken.
    fn differentiable(&mut self, node: NodeId, arguments: &Arguments<'_>) -> Result<Differentiable> {
        let (name, span) = (arguments.function(), self.syntax.span(node));
        let by = format!("{name}()");
        let Numeric::Each(elements) = self.numeric(node, &by)? else {
            return Err(self.mismatch(node, &format!("{by} is of a field; this is a number")));
        };
        let domain = &self.builder.domains[elements.domain];
        if domain.shape.is_none() {
            return Err(Problem::invalid(
                span,
                format!("{by}: blocks without a place in a global array have no neighbours"),
            ));
        }
        if domain.level == Level::All {
            let what = format!("{by} of all levels: name one level, as U@0");
            return Err(Problem::new(ErrorKind::Unsupported, span, what));
        }
        let kind = elements.lane.kind().as_float();
        let elements = self.in_kind(Numeric::Each(elements), kind, elements.domain, span)?;
        let Some(planned) = self.builder.fields.iter().position(|field| field.domain == elements.domain)
        else {
            return Err(self.mismatch(node, &format!("{by} is of a field")));
        };
        let field = self.builder.fields[planned].field.clone();
        if let Some(short) = field.shape.iter().flatten().find(|n| **n < 2) {
            let what = format!(
                "{by} needs two elements in each dimension; field '{}' has {short} in one",
                field.name
            );
            return Err(Problem::invalid(span, what));
        }
        Ok(Differentiable { elements, planned, field, span })
    }

    /// The dimension that an argument names.
    fn dim_argument(&self, node: NodeId, field: &Field) -> Result<usize> {
        let span = self.syntax.span(node);
        match self.of(node) {
            Meaning::Field(index) if self.syntax.fields()[index].is_bare() => {
                dim_of(field, &self.syntax.fields()[index].name, span)
            }
            _ => Err(self.mismatch(node, "this is to be the name of a dimension, as gradient(U, x)")),
        }
    }

    /// Fields by the dimensions along which they point, in the order of dimensions.
    fn vector(&mut self, arguments: &Arguments<'_>) -> Result<Vec<(usize, Differentiable)>> {
        let span = arguments.span();
        let mut parts: Vec<(usize, Differentiable)> = Vec::new();
        for (name, node) in arguments.by_name()? {
            let of = self.differentiable(*node, arguments)?;
            let dim = dim_of(&of.field, name, self.syntax.span(*node))?;
            parts.push((dim, of));
        }
        parts.sort_by_key(|(dim, _)| *dim);
        let elements: Vec<_> = parts.iter().map(|(_, of)| Some(of.elements)).collect();
        self.common_domain(&elements, span)?;
        match parts.len() {
            2 | 3 => Ok(parts),
            count => {
                let what = format!("{}() takes two or three fields; these are {count}", arguments.function());
                Err(Problem::invalid(span, what))
            }
        }
    }

    /// The derivative in a dimension.
    fn gradient(&mut self, of: &Differentiable, dim: usize) -> Result<Elements> {
        let step = self.spacing(of, dim)?;
        let two = Numeric::One(self.builder.constant(Number::F64(2.0), of.span)?, Kind::WrittenFloat);
        let double = self.arithmetic(Binary::Times, two, step, of.span)?;
        let middle = self.difference(of, dim, (1, -1), double)?;
        if of.field.periodic.get(dim) == Some(&true) {
            return Ok(middle);
        }
        let low = self.difference(of, dim, (1, 0), step)?;
        let high = self.difference(of, dim, (0, -1), step)?;
        self.by_zone(of, dim, [low, middle, high])
    }

    fn difference(
        &mut self,
        of: &Differentiable,
        dim: usize,
        (to, from): (i8, i8),
        by: Numeric,
    ) -> Result<Elements> {
        let (to, from) = (self.shifted(of, dim, to)?, self.shifted(of, dim, from)?);
        let difference = self.arithmetic(Binary::Minus, Numeric::Each(to), Numeric::Each(from), of.span)?;
        self.in_lane(Binary::Divide, difference, by, of)
    }

    /// The second derivative in a dimension; at the ends that of the elements beside them.
    fn curvature(&mut self, of: &Differentiable, dim: usize) -> Result<Elements> {
        let step = self.spacing(of, dim)?;
        let square = self.arithmetic(Binary::Times, step, step, of.span)?;
        let two = Numeric::One(self.builder.constant(Number::F64(2.0), of.span)?, Kind::WrittenFloat);
        let around = |checker: &mut Self, middle: i8| -> Result<Elements> {
            let at = |checker: &mut Self, by: i8| checker.shifted(of, dim, by).map(Numeric::Each);
            let (next, here, before) =
                (at(checker, middle + 1)?, at(checker, middle)?, at(checker, middle - 1)?);
            let twice = checker.arithmetic(Binary::Times, two, here, of.span)?;
            let first = checker.arithmetic(Binary::Minus, next, twice, of.span)?;
            let all = checker.arithmetic(Binary::Plus, first, before, of.span)?;
            checker.in_lane(Binary::Divide, all, square, of)
        };
        let middle = around(self, 0)?;
        if of.field.periodic.get(dim) == Some(&true) {
            return Ok(middle);
        }
        if of.field.shape.as_ref().is_some_and(|shape| shape[dim] < 3) {
            let what = format!(
                "laplacian() needs three elements in each dimension; field '{}' has fewer",
                of.field.name
            );
            return Err(Problem::invalid(of.span, what));
        }
        let (low, high) = (around(self, 1)?, around(self, -1)?);
        self.by_zone(of, dim, [low, middle, high])
    }

    /// The length of the curl of two or three fields.
    fn curl(&mut self, parts: &[(usize, Differentiable)], span: Span) -> Result<Elements> {
        let mut components = Vec::new();
        let pairs: &[(usize, usize)] = if parts.len() == 2 { &[(0, 1)] } else { &[(0, 1), (1, 2), (2, 0)] };
        for (a, b) in pairs {
            let ((dim_a, of_a), (dim_b, of_b)) = (&parts[*a], &parts[*b]);
            let (first, second) = (self.gradient(of_b, *dim_a)?, self.gradient(of_a, *dim_b)?);
            let component =
                self.arithmetic(Binary::Minus, Numeric::Each(first), Numeric::Each(second), span)?;
            if let Numeric::Each(component) = component {
                components.push(component);
            }
        }
        self.length(&components, span)
    }

    fn length(&mut self, parts: &[Elements], span: Span) -> Result<Elements> {
        let mut squares = Vec::new();
        for part in parts {
            let part = Numeric::Each(*part);
            if let Numeric::Each(square) = self.arithmetic(Binary::Times, part, part, span)? {
                squares.push(square);
            }
        }
        let total = self.total(&squares, span)?;
        self.each(Op::Unary(Unary::Sqrt, total.register), total.lane, total.domain, span)
    }

    fn total(&mut self, parts: &[Elements], span: Span) -> Result<Elements> {
        let mut total: Option<Numeric> = None;
        for part in parts {
            let part = Numeric::Each(*part);
            total = Some(match total {
                Some(before) => self.arithmetic(Binary::Plus, before, part, span)?,
                None => part,
            });
        }
        match total {
            Some(Numeric::Each(total)) => Ok(total),
            _ => Err(Problem::invalid(span, "an array without dimensions has no neighbours")),
        }
    }

    /// The distance of elements in a dimension.
    fn spacing(&mut self, of: &Differentiable, dim: usize) -> Result<Numeric> {
        let spacing = self.builder.scalar(ScalarOp::Spacing(of.planned, dim as u8), of.span)?;
        // It does not make floats of 32 bits wider, as a number of Python does not.
        Ok(Numeric::One(spacing, Kind::WrittenFloat))
    }

    fn in_lane(&mut self, op: Binary, a: Numeric, b: Numeric, of: &Differentiable) -> Result<Elements> {
        match self.arithmetic(op, a, b, of.span)? {
            Numeric::Each(elements) => Ok(elements),
            Numeric::One(id, kind) => self.in_kind(Numeric::One(id, kind), kind, of.elements.domain, of.span),
        }
    }

    fn by_zone(&mut self, of: &Differentiable, dim: usize, zones: [Elements; 3]) -> Result<Elements> {
        let op = Op::ByZone(dim as u8, zones.map(|zone| zone.register));
        self.each(op, of.elements.lane, of.elements.domain, of.span)
    }

    /// The same at a neighbour: all that it is made of, with its loads shifted.
    fn shifted(&mut self, of: &Differentiable, dim: usize, by: i8) -> Result<Elements> {
        let Elements { register, .. } = of.elements;
        if by == 0 {
            return Ok(of.elements);
        }
        let shift = Shift { dim: dim as u8, by };
        let mut needed = vec![false; register.index() + 1];
        needed[register.index()] = true;
        let mut renamed: HashMap<Register, Register> = HashMap::new();
        for index in (0..=register.index()).rev() {
            if needed[index] {
                self.builder.instructions()[index].op.operands().for_each(|part| needed[part.index()] = true);
            }
        }
        for index in (0..=register.index()).filter(|index| needed[*index]) {
            let instruction = self.builder.instructions()[index];
            let op = match instruction.op {
                Op::ByZone(..) => return Err(nested(of.span)),
                Op::Load { shift: Some(_), .. } => return Err(nested(of.span)),
                Op::Load { field, part, shift: None } => Op::Load { field, part, shift: Some(shift) },
                op => op.renamed(|part| renamed.get(&part).copied().unwrap_or(part)),
            };
            renamed.insert(Register(index as u16), self.builder.element(op, instruction.lane, of.span)?);
        }
        let register = renamed.get(&register).copied().unwrap_or(register);
        Ok(Elements { register, ..of.elements })
    }
}

fn nested(span: Span) -> Problem {
    Problem::new(
        ErrorKind::Unsupported,
        span,
        "a function of neighbours of a function of neighbours is not built yet",
    )
}

impl Differentiable {
    fn elements_ndim(&self) -> usize {
        self.field.ndim.into()
    }
}
