//! The lists of a plan while they grow: what is the same is there once.

use crate::plan::{
    Aggregate, Instruction, Lane, Op, PlannedField, Register, ScalarId, ScalarOp, Scalars, folded,
};
use crate::plan::{Domain, Plan};
use crate::syntax::{Problem, Span};
use crate::value::{Kind, Number, Scalar};
use std::collections::HashMap;

/// The most instructions of all programs together: neighbours are computed several times.
const INSTRUCTIONS_MAX: usize = 16 << 10;
/// The most scalars.
const SCALARS_MAX: usize = 16 << 10;

/// The lists of a plan.
#[derive(Debug, Default)]
pub(super) struct Builder {
    pub(super) domains: Vec<Domain>,
    pub(super) fields: Vec<PlannedField>,
    pub(super) aggregates: Vec<Aggregate>,
    pub(super) scalars: Vec<ScalarOp>,
    instructions: Vec<Instruction>,
    known: HashMap<Instruction, Register>,
}

impl Builder {
    pub(super) fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    /// An instruction: the one that is there already, if one does the same.
    pub(super) fn element(&mut self, op: Op, lane: Lane, span: Span) -> Result<Register, Problem> {
        let instruction = Instruction { op, lane };
        if let Some(register) = self.known.get(&instruction) {
            return Ok(*register);
        }
        if self.instructions.len() == INSTRUCTIONS_MAX {
            return Err(Problem::invalid(span, "too much is computed of each element: of neighbours most"));
        }
        let register = Register(self.instructions.len() as u16);
        self.instructions.push(instruction);
        self.known.insert(instruction, register);
        Ok(register)
    }

    /// A scalar: the one that is there already, if one is the same. What is made of constants is one.
    pub(super) fn scalar(&mut self, op: ScalarOp, span: Span) -> Result<ScalarId, Problem> {
        let constants = op.operands().map(|id| matches!(self.scalars[id], ScalarOp::Constant(_)));
        let (count, all) = constants.fold((0, true), |(count, all), is| (count + 1, all && is));
        let op = if count > 0 && all {
            folded(&op, &Constants(&self.scalars)).map_or(op, ScalarOp::Constant)
        } else {
            op
        };
        if let ScalarOp::Constant(Scalar::Unknown(why)) = &op {
            return Err(Problem::invalid(span, why.text.clone()));
        }
        if let Some(known) = self.scalars.iter().rposition(|known| is_same(known, &op)) {
            return Ok(known);
        }
        if self.scalars.len() == SCALARS_MAX {
            return Err(Problem::invalid(span, "too many numbers are computed"));
        }
        self.scalars.push(op);
        Ok(self.scalars.len() - 1)
    }

    pub(super) fn constant(&mut self, number: Number, span: Span) -> Result<ScalarId, Problem> {
        self.scalar(ScalarOp::Constant(Scalar::Number(number)), span)
    }

    /// The value of a scalar that stands in the text.
    pub(super) fn constant_of(&self, id: ScalarId) -> Option<&Scalar> {
        match &self.scalars[id] {
            ScalarOp::Constant(scalar) => Some(scalar),
            _ => None,
        }
    }

    /// A scalar in another kind.
    pub(super) fn converted(
        &mut self,
        id: ScalarId,
        from: Kind,
        to: Kind,
        span: Span,
    ) -> Result<ScalarId, Problem> {
        let is_as_it_is = from == to
            || (from.is_integer() && to.is_integer())
            || (to == Kind::WrittenFloat && from == Kind::F64);
        match is_as_it_is || (from == Kind::WrittenFloat && to == Kind::F64) {
            true => Ok(id),
            false => self.scalar(ScalarOp::Convert(id, to), span),
        }
    }

    /// The aggregate that gathers the same.
    pub(super) fn aggregate(&mut self, aggregate: Aggregate) -> usize {
        let known = self.aggregates.iter().position(|known| *known == aggregate);
        known.unwrap_or_else(|| {
            self.aggregates.push(aggregate);
            self.aggregates.len() - 1
        })
    }

    /// The plan without what is watched.
    pub(super) fn into_plan(self, value: ScalarId) -> Plan {
        let Builder { domains, fields, aggregates, scalars, .. } = self;
        Plan { domains, fields, aggregates, scalars, value, hold: None, until: None, reported: Vec::new() }
    }
}

/// Scalars that stand in the text.
struct Constants<'a>(&'a [ScalarOp]);

impl Scalars for Constants<'_> {
    fn of(&self, id: ScalarId) -> Scalar {
        match &self.0[id] {
            ScalarOp::Constant(scalar) => scalar.clone(),
            _ => Scalar::Condition(false),
        }
    }
}

/// Whether two scalars are the same whatever happens: NaN is.
fn is_same(a: &ScalarOp, b: &ScalarOp) -> bool {
    match (a, b) {
        (ScalarOp::Constant(Scalar::Number(a)), ScalarOp::Constant(Scalar::Number(b))) => match (a, b) {
            (Number::F64(a), Number::F64(b)) => a.to_bits() == b.to_bits(),
            (Number::F32(a), Number::F32(b)) => a.to_bits() == b.to_bits(),
            (a, b) => a == b,
        },
        (a, b) => a == b,
    }
}
