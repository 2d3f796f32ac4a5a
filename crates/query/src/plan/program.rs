//! What is computed of each element: straight-line code, which chunks of elements run through.

use crate::syntax::Comparison;
use crate::value::Kind;
use crate::value::arithmetic::{Binary, Test, Unary};

/// A scalar, by its place among those of the plan.
pub type ScalarId = usize;

/// What an instruction gives: its place in the list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Register(pub u16);

impl Register {
    /// Its place in the list.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Of which type elements are while they are computed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the names say it
pub enum Lane {
    F32,
    F64,
    I64,
    U64,
    /// Conditions.
    Mask,
}

impl Lane {
    /// The lane of numbers of a kind.
    pub fn of(kind: Kind) -> Lane {
        match kind {
            Kind::F32 => Lane::F32,
            Kind::F64 | Kind::WrittenFloat => Lane::F64,
            Kind::I64 | Kind::Integer | Kind::WrittenInteger => Lane::I64,
            Kind::U64 => Lane::U64,
        }
    }

    /// The kind of its numbers.
    pub fn kind(self) -> Kind {
        match self {
            Lane::F32 => Kind::F32,
            Lane::F64 => Kind::F64,
            Lane::I64 | Lane::Mask => Kind::I64,
            Lane::U64 => Kind::U64,
        }
    }
}

/// What of an element is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the names say it
pub enum Part {
    Whole,
    /// Of a complex number.
    Real,
    /// Of a complex number.
    Imag,
    /// The absolute value of a complex number.
    Abs,
}

/// A neighbour, in a dimension of the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shift {
    /// The dimension.
    pub dim: u8,
    /// How far behind; before, if it is negative.
    pub by: i8,
}

/// Where an element lies in a dimension of the array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Zone {
    /// It is the first.
    Low,
    /// It has neighbours on both sides.
    Middle,
    /// It is the last.
    High,
}

/// What one instruction does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Op {
    /// Takes an element of a field of the plan, or a neighbour of that.
    Load {
        /// The field.
        field: u16,
        /// What of it.
        part: Part,
        /// Which neighbour.
        shift: Option<Shift>,
    },
    /// A number or a condition that is the same for all elements.
    Input(u16),
    /// A number in another lane.
    Convert(Register),
    /// A function of a number.
    Unary(Unary, Register),
    /// An operator on two numbers.
    Binary(Binary, Register, Register),
    /// A test of a number.
    Test(Test, Register),
    /// How two numbers compare.
    Compare(Comparison, Register, Register),
    /// How a number compares with one that is the same for all elements: integers exactly, also with those beyond their type.
    CompareInput(Comparison, Register, u16),
    /// Both conditions.
    And(Register, Register),
    /// One of two conditions.
    Or(Register, Register),
    /// A condition's opposite.
    Not(Register),
    /// Where a condition holds the first, elsewhere the second.
    Select(Register, Register, Register),
    /// One of three, by where in a dimension of the array the element lies.
    ByZone(u8, [Register; 3]),
}

impl Op {
    /// What it uses.
    pub fn operands(&self) -> impl Iterator<Item = Register> {
        let of = |registers: [Option<Register>; 3]| registers.into_iter().flatten();
        match *self {
            Op::Load { .. } | Op::Input(_) => of([None; 3]),
            Op::Convert(a) | Op::Unary(_, a) | Op::Test(_, a) | Op::Not(a) | Op::CompareInput(_, a, _) => {
                of([Some(a), None, None])
            }
            Op::Binary(_, a, b) | Op::Compare(_, a, b) | Op::And(a, b) | Op::Or(a, b) => {
                of([Some(a), Some(b), None])
            }
            Op::Select(c, a, b) => of([Some(c), Some(a), Some(b)]),
            Op::ByZone(_, zones) => of(zones.map(Some)),
        }
    }

    /// The same with what it uses elsewhere.
    pub(crate) fn renamed(mut self, to: impl Fn(Register) -> Register) -> Op {
        match &mut self {
            Op::Load { .. } | Op::Input(_) => {}
            Op::Convert(a) | Op::Unary(_, a) | Op::Test(_, a) | Op::Not(a) | Op::CompareInput(_, a, _) => {
                *a = to(*a)
            }
            Op::Binary(_, a, b) | Op::Compare(_, a, b) | Op::And(a, b) | Op::Or(a, b) => {
                (*a, *b) = (to(*a), to(*b));
            }
            Op::Select(c, a, b) => (*c, *a, *b) = (to(*c), to(*a), to(*b)),
            Op::ByZone(_, zones) => *zones = zones.map(to),
        }
        self
    }
}

/// One instruction, and the lane of what it gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instruction {
    /// What it does.
    pub op: Op,
    /// Of which type that is.
    pub lane: Lane,
}

/// What is computed of each element: a value, and whether it counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Program {
    /// Each behind those that it uses.
    pub instructions: Vec<Instruction>,
    /// The scalars that are the same for all elements, as [`Op::Input`] counts them.
    pub inputs: Vec<ScalarId>,
    /// The value; `None` where elements are only counted.
    pub value: Option<Register>,
    /// Which elements count; `None`: all.
    pub mask: Option<Register>,
}

impl Program {
    /// Of all instructions those that give these two, and what they need.
    pub fn of(all: &[Instruction], value: Option<Register>, mask: Option<Register>) -> Program {
        let mut is_used = vec![false; all.len()];
        value.into_iter().chain(mask).for_each(|register| is_used[register.index()] = true);
        for index in (0..all.len()).rev() {
            if is_used[index] {
                all[index].op.operands().for_each(|operand| is_used[operand.index()] = true);
            }
        }
        let mut program = Program::default();
        let mut places = vec![Register(0); all.len()];
        for (index, instruction) in all.iter().enumerate().filter(|(index, _)| is_used[*index]) {
            let mut op = instruction.op.renamed(|register| places[register.index()]);
            if let Op::Input(scalar) | Op::CompareInput(_, _, scalar) = &mut op {
                *scalar = program.input(*scalar);
            }
            places[index] = Register(program.instructions.len() as u16);
            program.instructions.push(Instruction { op, lane: instruction.lane });
        }
        program.value = value.map(|register| places[register.index()]);
        program.mask = mask.map(|register| places[register.index()]);
        program
    }

    /// The place of a scalar among the inputs.
    fn input(&mut self, scalar: u16) -> u16 {
        let id = usize::from(scalar);
        let known = self.inputs.iter().position(|input| *input == id);
        if known.is_none() {
            self.inputs.push(id);
        }
        known.unwrap_or(self.inputs.len() - 1) as u16
    }

    /// The same for elements that lie in these zones, one for each dimension of the array.
    pub fn in_zones(&self, zones: &[Zone]) -> Program {
        let mut chosen: Vec<Register> = Vec::with_capacity(self.instructions.len());
        let mut instructions = Vec::with_capacity(self.instructions.len());
        for (index, instruction) in self.instructions.iter().enumerate() {
            let op = instruction.op.renamed(|register| chosen[register.index()]);
            chosen.push(match op {
                Op::ByZone(dim, [low, middle, high]) => match zones.get(usize::from(dim)) {
                    Some(Zone::Low) => low,
                    Some(Zone::High) => high,
                    _ => middle,
                },
                _ => Register(index as u16),
            });
            instructions.push(Instruction { op, lane: instruction.lane });
        }
        let of = |register: Option<Register>| register.map(|register| chosen[register.index()]);
        let inputs = self.inputs.clone();
        // Inputs are counted as before.
        let mut program = Program::of_same_inputs(&instructions, of(self.value), of(self.mask));
        program.inputs = inputs;
        program
    }

    fn of_same_inputs(all: &[Instruction], value: Option<Register>, mask: Option<Register>) -> Program {
        let mut program = Program::of(all, value, mask);
        let back = std::mem::take(&mut program.inputs);
        for instruction in &mut program.instructions {
            if let Op::Input(input) | Op::CompareInput(_, _, input) = &mut instruction.op {
                *input = back[usize::from(*input)] as u16;
            }
        }
        program
    }

    /// The dimensions of which it asks where elements lie in them.
    pub fn zoned_dims(&self) -> Vec<u8> {
        let dims = self.instructions.iter().filter_map(|instruction| match instruction.op {
            Op::ByZone(dim, _) => Some(dim),
            _ => None,
        });
        let mut dims: Vec<u8> = dims.collect();
        dims.sort_unstable();
        dims.dedup();
        dims
    }

    /// The fields that it takes elements of.
    pub fn fields(&self) -> Vec<u16> {
        let fields = self.instructions.iter().filter_map(|instruction| match instruction.op {
            Op::Load { field, .. } => Some(field),
            _ => None,
        });
        let mut fields: Vec<u16> = fields.collect();
        fields.sort_unstable();
        fields.dedup();
        fields
    }

    /// How many neighbours of an element it takes of a field in a dimension: before it, and behind it.
    pub fn reach(&self, field: u16, dim: u8) -> (i64, i64) {
        let shifts = self.instructions.iter().filter_map(|instruction| match instruction.op {
            Op::Load { field: of, shift: Some(shift), .. } if of == field && shift.dim == dim => {
                Some(i64::from(shift.by))
            }
            _ => None,
        });
        shifts.fold((0, 0), |(below, above), by| (below.max(-by), above.max(by)))
    }

    /// The field whose elements are its value as they are, if that is so and all count.
    pub fn bare_field(&self) -> Option<u16> {
        let value = self.instructions.get(self.value?.index())?;
        match value.op {
            Op::Load { field, part: Part::Whole, shift: None } if self.mask.is_none() => Some(field),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_has_what_it_needs_alone() {
        let f64 = |op| Instruction { op, lane: Lane::F64 };
        let load = |field, by: i8| {
            let shift = (by != 0).then_some(Shift { dim: 1, by });
            f64(Op::Load { field, part: Part::Whole, shift })
        };
        let all = [
            load(3, 0),
            load(4, 1),
            load(4, -1),
            f64(Op::Input(9)),
            f64(Op::ByZone(1, [Register(1), Register(2), Register(3)])),
            f64(Op::Binary(Binary::Plus, Register(0), Register(0))),
        ];
        let sum = Program::of(&all, Some(Register(5)), None);
        assert_eq!((sum.instructions.len(), sum.value, sum.fields()), (2, Some(Register(1)), vec![3]));
        assert_eq!(
            (sum.bare_field(), Program::of(&all, Some(Register(0)), None).bare_field()),
            (None, Some(3))
        );
        let zoned = Program::of(&all, Some(Register(4)), None);
        assert_eq!((zoned.zoned_dims(), zoned.inputs.clone(), zoned.fields()), (vec![1], vec![9], vec![4]));
        let low = zoned.in_zones(&[Zone::Middle, Zone::Low]);
        assert_eq!((low.instructions, low.inputs), (vec![load(4, 1)], vec![9]));
        let high = zoned.in_zones(&[Zone::Middle, Zone::High]);
        assert_eq!((high.zoned_dims(), high.instructions), (vec![], vec![f64(Op::Input(0))]));
    }
}
