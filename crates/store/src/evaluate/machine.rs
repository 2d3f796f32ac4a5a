//! All instructions of a program on a chunk.

use crate::element::values_of;
use crate::evaluate::CHUNK;
use crate::evaluate::fused::{Action, actions};
use crate::evaluate::kernels;
use crate::evaluate::load::Loading;
use crate::evaluate::runs::Segment;
use crate::evaluate::window::FieldArray;
use forebay_core::dtype::Dtype;
use forebay_core::{Error, Result};
use forebay_query::plan::{Lane, Op, Program, Register};
use forebay_query::syntax::Comparison;
use forebay_query::value::{Number, Scalar};

/// Registers of one lane, each a chunk: what was computed, or elements where they lie.
type Registers<'a, T> = Vec<Slot<'a, T>>;

#[derive(Debug)]
struct Slot<'a, T> {
    computed: Vec<T>,
    lying: Option<&'a [T]>,
}

impl<'a, T> Slot<'a, T> {
    fn values(&self) -> &[T] {
        self.lying.unwrap_or(&self.computed)
    }

    /// Shows elements where they lie, or else copies so many of them.
    #[inline(always)]
    fn load(&mut self, lying: Option<&'a [T]>, count: usize, copy: impl FnOnce(&mut [T])) {
        self.lying = lying;
        if lying.is_none() {
            copy(&mut self.computed[..count]);
        }
    }

    /// Fills it with one number.
    fn fill(&mut self, number: T)
    where
        T: Copy,
    {
        self.lying = None;
        self.computed.fill(number);
    }

    /// Its room, which is given back filled.
    fn take(&mut self) -> Vec<T> {
        self.lying = None;
        std::mem::take(&mut self.computed)
    }
}

/// A program with registers for what it computes: used again once nobody needs what is in them.
#[derive(Debug)]
pub(super) struct Machine<'p> {
    program: &'p Program,
    inputs: &'p [Scalar],
    /// By the instruction: what is done for it.
    actions: Vec<Action>,
    /// By the instruction: the register of its lane that it fills.
    places: Vec<usize>,
    f64s: Registers<'p, f64>,
    f32s: Registers<'p, f32>,
    i64s: Registers<'p, i64>,
    u64s: Registers<'p, u64>,
    masks: Registers<'p, u8>,
    /// By the instruction: whether it is a scalar that is beyond its lane.
    beyond: Vec<bool>,
}

/// What a chunk gave: the first element of it whose integer is beyond its type, if one is.
pub(super) type Beyond = Option<usize>;

impl<'p> Machine<'p> {
    /// For a program, and the scalars that it takes.
    pub(super) fn new(program: &'p Program, inputs: &'p [Scalar]) -> Result<Machine<'p>> {
        if program.inputs.len() != inputs.len() {
            return Err(Error::protocol("a question does not have the scalars that its program takes"));
        }
        let actions = actions(program);
        let (places, counts) = places(program, &actions);
        fn registers<'a, T: Copy + Default>(count: usize) -> Registers<'a, T> {
            let slot = || Slot { computed: vec![T::default(); CHUNK], lying: None };
            (0..count).map(|_| slot()).collect()
        }
        let mut machine = Machine {
            program,
            inputs,
            actions,
            places,
            f64s: registers(counts[Lane::F64 as usize]),
            f32s: registers(counts[Lane::F32 as usize]),
            i64s: registers(counts[Lane::I64 as usize]),
            u64s: registers(counts[Lane::U64 as usize]),
            masks: registers(counts[Lane::Mask as usize]),
            beyond: vec![false; program.instructions.len()],
        };
        for (index, instruction) in program.instructions.iter().enumerate() {
            if let (Op::Input(input), Action::Plain) = (instruction.op, machine.actions[index]) {
                let beyond =
                    machine.input(machine.places[index], instruction.lane, &inputs[usize::from(input)])?;
                machine.beyond[index] = beyond.is_some();
            }
        }
        Ok(machine)
    }

    pub(super) fn f64s(&self, register: Register) -> &[f64] {
        self.f64s[self.places[register.index()]].values()
    }

    pub(super) fn f32s(&self, register: Register) -> &[f32] {
        self.f32s[self.places[register.index()]].values()
    }

    pub(super) fn i64s(&self, register: Register) -> &[i64] {
        self.i64s[self.places[register.index()]].values()
    }

    pub(super) fn u64s(&self, register: Register) -> &[u64] {
        self.u64s[self.places[register.index()]].values()
    }

    pub(super) fn masks(&self, register: Register) -> &[u8] {
        self.masks[self.places[register.index()]].values()
    }

    /// Whether it gives nothing but the elements of an array, of which runs need not be copied.
    pub(super) fn takes_as_it_lies(&self, arrays: &[Option<FieldArray<'_>>]) -> bool {
        let [instruction] = &self.program.instructions[..] else { return false };
        let Op::Load { field, shift: None, .. } = instruction.op else { return false };
        let array = arrays.get(usize::from(field)).and_then(Option::as_ref);
        array.is_some_and(|array| match instruction.lane {
            Lane::F64 => array.dtype == Dtype::F64 && values_of::<f64>(array.bytes).is_some(),
            Lane::F32 => array.dtype == Dtype::F32 && values_of::<f32>(array.bytes).is_some(),
            _ => false,
        })
    }

    /// How many elements a chunk has: as many as the nearest cache holds of all registers.
    pub(super) fn chunk(&self) -> usize {
        const NEAREST: usize = 16 << 10;
        let loads =
            self.program.instructions.iter().filter(|instruction| matches!(instruction.op, Op::Load { .. }));
        let wide = self.f64s.len() + self.i64s.len() + self.u64s.len();
        let bytes = 8 * wide + 4 * self.f32s.len() + self.masks.len() + 8 * loads.count().saturating_sub(1);
        1 << (NEAREST / bytes.max(1)).clamp(128, CHUNK).ilog2()
    }

    /// Computes a chunk of so many elements.
    #[inline(always)]
    pub(super) fn run(
        &mut self,
        arrays: &'p [Option<FieldArray<'p>>],
        (segments, step): (&[Segment], u64),
        count: usize,
    ) -> Result<Beyond> {
        let mut beyond = None;
        for (index, instruction) in self.program.instructions.iter().enumerate() {
            let place = self.places[index];
            if self.actions[index] != Action::Plain {
                self.together(self.actions[index], instruction.lane, place, count);
                continue;
            }
            let found =
                match instruction.op {
                    Op::Load { field, part, shift } => {
                        let array = arrays.get(usize::from(field)).and_then(Option::as_ref);
                        let array = array
                            .ok_or_else(|| Error::internal("an array that a program takes is not there"))?;
                        let loading = Loading { array, segments, step, shift };
                        match instruction.lane {
                            Lane::F64 => self.f64s[place]
                                .load(loading.lying(count), count, |to| loading.f64s(part, to)),
                            Lane::F32 => self.f32s[place]
                                .load(loading.lying(count), count, |to| loading.f32s(part, to)),
                            Lane::I64 => self.i64s[place]
                                .load(loading.lying(count), count, |to| loading.i64s(part, to)),
                            Lane::U64 => self.u64s[place]
                                .load(loading.lying(count), count, |to| loading.u64s(part, to)),
                            Lane::Mask => loading.masks(&mut self.masks[place].computed[..count]),
                        }
                        None
                    }
                    // Its register was filled before the first chunk.
                    Op::Input(_) => self.beyond[index].then_some(0),
                    op => match instruction.lane {
                        Lane::F64 => self.on_f64(op, place, count)?,
                        Lane::F32 => self.on_f32(op, place, count)?,
                        Lane::I64 => self.on_i64(op, place, count)?,
                        Lane::U64 => self.on_u64(op, place, count)?,
                        Lane::Mask => self.on_mask(op, place, count)?,
                    },
                };
            beyond = beyond.into_iter().chain(found).min();
        }
        Ok(beyond)
    }

    /// Fills a register with one scalar.
    fn input(&mut self, place: usize, lane: Lane, input: &Scalar) -> Result<Beyond> {
        let unfit = || Error::protocol("a scalar of a question is of another type than its program takes");
        match (lane, input) {
            (Lane::Mask, Scalar::Condition(condition)) => self.masks[place].fill((*condition).into()),
            (Lane::F64, Scalar::Number(number)) => self.f64s[place].fill(number.to_f64()),
            (Lane::F32, Scalar::Number(Number::F32(number))) => self.f32s[place].fill(*number),
            (Lane::F32, Scalar::Number(number)) => self.f32s[place].fill(number.to_f64() as f32),
            (Lane::I64, Scalar::Number(Number::Integer(number))) => match i64::try_from(*number) {
                Ok(number) => self.i64s[place].fill(number),
                Err(_) => return Ok(Some(0)),
            },
            (Lane::U64, Scalar::Number(Number::Integer(number))) => match u64::try_from(*number) {
                Ok(number) => self.u64s[place].fill(number),
                Err(_) => return Ok(Some(0)),
            },
            _ => return Err(unfit()),
        }
        Ok(None)
    }

    /// Several instructions on floats at once.
    #[inline(always)]
    fn together(&mut self, action: Action, lane: Lane, place: usize, count: usize) {
        macro_rules! on {
            ($registers:ident) => {{
                let mut to = self.$registers[place].take();
                let of = |register: Register| &self.$registers(register)[..count];
                match action {
                    Action::MulAdd(a, b) => kernels::mul_add(&mut to[..count], of(a), b.map(of)),
                    Action::Products(a, b) => kernels::products(&mut to[..count], a.map(of), b.map(of)),
                    Action::Plain | Action::Nothing => {}
                }
                self.$registers[place].computed = to;
            }};
        }
        match (action, lane) {
            (Action::Nothing, _) => {}
            (_, Lane::F32) => on!(f32s),
            (_, _) => on!(f64s),
        }
    }

    #[inline(always)]
    fn on_f64(&mut self, op: Op, place: usize, count: usize) -> Result<Beyond> {
        let mut to = self.f64s[place].take();
        let out = &mut to[..count];
        let of = |register: Register| &self.f64s(register)[..count];
        match op {
            Op::Unary(op, a) => kernels::unary(op, out, of(a)),
            Op::Binary(op, a, b) => kernels::binary(op, out, of(a), of(b)),
            Op::Select(mask, a, b) => kernels::select(out, self.masks(mask), of(a), of(b)),
            Op::Convert(a) => match self.lane(a) {
                Lane::F32 => kernels::convert(out, self.f32s(a), f64::from),
                Lane::I64 => kernels::convert(out, self.i64s(a), |a| a as f64),
                Lane::U64 => kernels::convert(out, self.u64s(a), |a| a as f64),
                _ => return Err(unfit(op)),
            },
            op => return Err(unfit(op)),
        }
        self.f64s[place].computed = to;
        Ok(None)
    }

    #[inline(always)]
    fn on_f32(&mut self, op: Op, place: usize, count: usize) -> Result<Beyond> {
        let mut to = self.f32s[place].take();
        let out = &mut to[..count];
        let of = |register: Register| &self.f32s(register)[..count];
        match op {
            Op::Unary(op, a) => kernels::unary(op, out, of(a)),
            Op::Binary(op, a, b) => kernels::binary(op, out, of(a), of(b)),
            Op::Select(mask, a, b) => kernels::select(out, self.masks(mask), of(a), of(b)),
            Op::Convert(a) => match self.lane(a) {
                Lane::F64 => kernels::convert(out, self.f64s(a), |a| a as f32),
                Lane::I64 => kernels::convert(out, self.i64s(a), |a| a as f32),
                Lane::U64 => kernels::convert(out, self.u64s(a), |a| a as f32),
                _ => return Err(unfit(op)),
            },
            op => return Err(unfit(op)),
        }
        self.f32s[place].computed = to;
        Ok(None)
    }

    #[inline(always)]
    fn on_i64(&mut self, op: Op, place: usize, count: usize) -> Result<Beyond> {
        let mut to = self.i64s[place].take();
        let out = &mut to[..count];
        let of = |register: Register| &self.i64s(register)[..count];
        let beyond = match op {
            Op::Unary(op, a) => kernels::unary_integer(op, out, of(a)),
            Op::Binary(op, a, b) => kernels::binary_integer(op, out, of(a), of(b)),
            Op::Select(mask, a, b) => {
                kernels::select(out, self.masks(mask), of(a), of(b));
                None
            }
            Op::Convert(a) if self.lane(a) == Lane::U64 => {
                kernels::convert(out, self.u64s(a), |a| a as i64);
                self.u64s(a)[..count].iter().position(|a| i64::try_from(*a).is_err())
            }
            op => return Err(unfit(op)),
        };
        self.i64s[place].computed = to;
        Ok(beyond)
    }

    #[inline(always)]
    fn on_u64(&mut self, op: Op, place: usize, count: usize) -> Result<Beyond> {
        use forebay_query::value::arithmetic::Binary;
        let mut to = self.u64s[place].take();
        let out = &mut to[..count];
        let of = |register: Register| &self.u64s(register)[..count];
        match op {
            Op::Binary(Binary::Minimum, a, b) => kernels::smaller(out, of(a), of(b)),
            Op::Binary(Binary::Maximum, a, b) => kernels::larger(out, of(a), of(b)),
            Op::Select(mask, a, b) => kernels::select(out, self.masks(mask), of(a), of(b)),
            op => return Err(unfit(op)),
        }
        self.u64s[place].computed = to;
        Ok(None)
    }

    #[inline(always)]
    fn on_mask(&mut self, op: Op, place: usize, count: usize) -> Result<Beyond> {
        let mut to = self.masks[place].take();
        let out = &mut to[..count];
        let of = |register: Register| &self.masks(register)[..count];
        match op {
            Op::And(a, b) => kernels::and(out, of(a), of(b)),
            Op::Or(a, b) => kernels::or(out, of(a), of(b)),
            Op::Not(a) => kernels::not(out, of(a)),
            Op::Test(test, a) => match self.lane(a) {
                Lane::F64 => kernels::test(test, out, self.f64s(a)),
                Lane::F32 => kernels::test(test, out, self.f32s(a)),
                // Integers are finite.
                _ => out.fill(u8::from(test == forebay_query::value::arithmetic::Test::IsFinite)),
            },
            Op::Compare(comparison, a, b) => match (self.lane(a), self.lane(b)) {
                (Lane::F64, _) => kernels::compare(comparison, out, self.f64s(a), self.f64s(b)),
                (Lane::F32, _) => kernels::compare(comparison, out, self.f32s(a), self.f32s(b)),
                (Lane::I64, Lane::U64) => kernels::compare_wide(comparison, out, self.i64s(a), self.u64s(b)),
                (Lane::U64, Lane::I64) => kernels::compare_wide(comparison, out, self.u64s(a), self.i64s(b)),
                (Lane::I64, _) => kernels::compare(comparison, out, self.i64s(a), self.i64s(b)),
                (Lane::U64, _) => kernels::compare(comparison, out, self.u64s(a), self.u64s(b)),
                (Lane::Mask, _) => return Err(unfit(op)),
            },
            Op::CompareInput(comparison, a, input) => {
                self.compare_input(comparison, out, a, &self.inputs[usize::from(input)])?;
            }
            op => return Err(unfit(op)),
        }
        self.masks[place].computed = to;
        Ok(None)
    }

    #[inline(always)]
    fn compare_input(
        &self,
        comparison: Comparison,
        out: &mut [u8],
        a: Register,
        input: &Scalar,
    ) -> Result<()> {
        let Scalar::Number(number) = input else {
            return Err(Error::protocol("a scalar of a question is no number"));
        };
        match (self.lane(a), *number) {
            (Lane::F64, number) => kernels::compare_with(comparison, out, self.f64s(a), number.to_f64()),
            (Lane::F32, Number::F32(number)) => kernels::compare_with(comparison, out, self.f32s(a), number),
            (Lane::F32, number) => {
                kernels::compare_with(comparison, out, self.f32s(a), number.to_f64() as f32)
            }
            (Lane::I64, Number::Integer(number)) => match i64::try_from(number) {
                Ok(number) => kernels::compare_with(comparison, out, self.i64s(a), number),
                Err(_) => out.fill(beyond_all(comparison, number > 0).into()),
            },
            (Lane::U64, Number::Integer(number)) => match u64::try_from(number) {
                Ok(number) => kernels::compare_with(comparison, out, self.u64s(a), number),
                Err(_) => out.fill(beyond_all(comparison, number > 0).into()),
            },
            _ => {
                return Err(Error::protocol(
                    "a scalar of a question is of another type than its program takes",
                ));
            }
        }
        Ok(())
    }

    fn lane(&self, register: Register) -> Lane {
        self.program.instructions[register.index()].lane
    }
}

/// How any element compares with a number that is above all of its type, or below.
fn beyond_all(comparison: Comparison, is_above: bool) -> bool {
    match comparison {
        Comparison::Less | Comparison::LessEqual => is_above,
        Comparison::Greater | Comparison::GreaterEqual => !is_above,
        Comparison::Equal => false,
        Comparison::NotEqual => true,
    }
}

fn unfit(op: Op) -> Error {
    Error::internal(format!("{op:?} of another lane than it can be"))
}

/// A register of its lane for each instruction, and how many registers each lane needs.
fn places(program: &Program, actions: &[Action]) -> (Vec<usize>, [usize; 5]) {
    let count = program.instructions.len();
    let mut last_use: Vec<usize> = (0..count).collect();
    let operands: Vec<Vec<Register>> = program
        .instructions
        .iter()
        .zip(actions)
        .map(|(instruction, action)| action.operands(instruction.op))
        .collect();
    for (index, operands) in operands.iter().enumerate() {
        operands.iter().for_each(|operand| last_use[operand.index()] = index);
    }
    // Scalars are filled once; what a chunk gives is needed behind the last instruction.
    let scalars = (0..count).filter(|index| matches!(program.instructions[*index].op, Op::Input(_)));
    scalars.for_each(|index| last_use[index] = count);
    program.value.into_iter().chain(program.mask).for_each(|register| last_use[register.index()] = count);
    let mut free: [Vec<usize>; 5] = Default::default();
    let (mut places, mut counts) = (Vec::with_capacity(count), [0; 5]);
    // Nothing else may be in the register of a scalar before that comes: those have their own.
    for (index, instruction) in program.instructions.iter().enumerate() {
        if matches!(instruction.op, Op::Input(_)) && actions[index] == Action::Plain {
            places.push(counts[instruction.lane as usize]);
            counts[instruction.lane as usize] += 1;
            continue;
        }
        if actions[index] == Action::Nothing {
            places.push(0);
            continue;
        }
        let lane = instruction.lane as usize;
        // Its operands are still needed while it is filled.
        places.push(free[lane].pop().unwrap_or_else(|| {
            counts[lane] += 1;
            counts[lane] - 1
        }));
        let mut freed: Vec<usize> = operands[index].iter().map(|operand| operand.index()).collect();
        freed.push(index);
        freed.sort_unstable();
        freed.dedup();
        for operand in freed.into_iter().filter(|operand| last_use[*operand] == index) {
            free[program.instructions[operand].lane as usize].push(places[operand]);
        }
    }
    (places, counts)
}
