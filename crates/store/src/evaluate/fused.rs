//! Instructions that are done together, so that what lies between them need not be stored; with the same bits.

use forebay_query::plan::{Lane, Op, Program, Register};
use forebay_query::syntax::Comparison;
use forebay_query::value::arithmetic::{Binary, Unary};
use forebay_query::value::{Number, Scalar};

/// What is done for an instruction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Action {
    /// What it says.
    Plain,
    /// Nothing: nobody needs it, or another one does it too.
    Nothing,
    /// A number, and a product that is added to it.
    MulAdd(Register, [Register; 2]),
    /// The sum of two products.
    Products([Register; 2], [Register; 2]),
}

/// What is done for each instruction of a program.
pub(super) fn actions(program: &Program) -> Vec<Action> {
    let mut uses = vec![0usize; program.instructions.len()];
    let operands = program.instructions.iter().flat_map(|instruction| instruction.op.operands());
    operands.chain(program.value).chain(program.mask).for_each(|register| uses[register.index()] += 1);
    let mut actions = vec![Action::Plain; program.instructions.len()];
    // From the last one on, so that what nobody needs is known before what it would have needed.
    for index in (0..program.instructions.len()).rev() {
        let instruction = program.instructions[index];
        // Another one does it too, and needs what it needs.
        if actions[index] == Action::Nothing {
            continue;
        }
        if uses[index] == 0 {
            actions[index] = Action::Nothing;
            instruction.op.operands().for_each(|register| uses[register.index()] -= 1);
            continue;
        }
        let Op::Binary(Binary::Plus, a, b) = instruction.op else { continue };
        let product = |register: Register| match program.instructions[register.index()].op {
            Op::Binary(Binary::Times, a, b) if uses[register.index()] == 1 => Some([a, b]),
            _ => None,
        };
        if !matches!(instruction.lane, Lane::F64 | Lane::F32) {
            continue;
        }
        let (action, done) = match (product(a), product(b)) {
            (Some(first), Some(second)) => (Action::Products(first, second), vec![a, b]),
            (Some(first), None) => (Action::MulAdd(b, first), vec![a]),
            (None, Some(second)) => (Action::MulAdd(a, second), vec![b]),
            (None, None) => continue,
        };
        actions[index] = action;
        done.into_iter().for_each(|register| actions[register.index()] = Action::Nothing);
    }
    actions
}

impl Action {
    /// What it needs, for an instruction.
    pub(super) fn operands(self, op: Op) -> Vec<Register> {
        match self {
            Action::Plain => op.operands().collect(),
            Action::Nothing => Vec::new(),
            Action::MulAdd(a, [b, c]) => vec![a, b, c],
            Action::Products([a, b], [c, d]) => vec![a, b, c, d],
        }
    }
}

/// A program in which square roots are not taken that are only compared with a number: what is below the root is compared with the
/// number to which that corresponds. With the scalars that it takes.
pub(super) fn without_roots(program: &Program, inputs: &[Scalar]) -> (Program, Vec<Scalar>) {
    let (mut program, mut inputs) = (program.clone(), inputs.to_vec());
    for index in 0..program.instructions.len() {
        let Op::CompareInput(comparison, a, input) = program.instructions[index].op else { continue };
        let Op::Unary(Unary::Sqrt, below) = program.instructions[a.index()].op else { continue };
        let end = match inputs.get(usize::from(input)) {
            Some(Scalar::Number(number)) => {
                end_below_root(comparison, *number, program.instructions[a.index()].lane)
            }
            _ => None,
        };
        if let (Some(end), Ok(place)) = (end, u16::try_from(inputs.len())) {
            program.instructions[index].op = Op::CompareInput(comparison, below, place);
            // No scalar of the plan stands for it.
            program.inputs.push(usize::MAX);
            inputs.push(Scalar::Number(end));
        }
    }
    (program, inputs)
}

/// With what to compare x instead of its square root, so that the same x pass. NaN, and what is below 0, pass neither.
fn end_below_root(comparison: Comparison, number: Number, lane: Lane) -> Option<Number> {
    macro_rules! search {
        ($number:expr) => {{
            let number = $number;
            if !(number > 0.0 && number.is_finite()) {
                return None;
            }
            let mut end = number * number;
            match comparison {
                // The last one whose root is not above.
                Comparison::Greater => {
                    while end.sqrt() > number {
                        end = end.next_down();
                    }
                    while end.next_up().sqrt() <= number {
                        end = end.next_up();
                    }
                }
                // The first one whose root is not below.
                Comparison::GreaterEqual => {
                    while end.sqrt() < number {
                        end = end.next_up();
                    }
                    while end.next_down().sqrt() >= number {
                        end = end.next_down();
                    }
                }
                _ => return None,
            }
            end
        }};
    }
    match lane {
        Lane::F64 => Some(Number::F64(search!(number.to_f64()))),
        Lane::F32 => Some(Number::F32(search!(number.to_f64() as f32))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_same_numbers_pass_without_the_root(number in prop_oneof![1e-300f64..1e300, 0.0f64..10.0], steps in -3i32..4) {
            for comparison in [Comparison::Greater, Comparison::GreaterEqual] {
                let Some(Number::F64(end)) = end_below_root(comparison, Number::F64(number), Lane::F64) else {
                    continue;
                };
                let mut x = end;
                for _ in 0..steps.abs() {
                    x = if steps > 0 { x.next_up() } else { x.next_down() };
                }
                let passes = |a: f64, b: f64| if comparison == Comparison::Greater { a > b } else { a >= b };
                prop_assert_eq!(passes(x.sqrt(), number), passes(x, end), "{} and {}", x, number);
            }
        }
    }

    #[test]
    fn ends_of_the_doubles_have_roots_too() {
        let end = |number: f64| end_below_root(Comparison::Greater, Number::F64(number), Lane::F64);
        assert_eq!(end(1e200), Some(Number::F64(f64::MAX)), "only the infinity passes");
        assert_eq!(end(5e-324), Some(Number::F64(0.0)));
        assert_eq!((end(0.0), end(-1.0), end(f64::NAN), end(f64::INFINITY)), (None, None, None, None));
        assert_eq!(end_below_root(Comparison::Less, Number::F64(1.0), Lane::F64), None);
        let narrow = end_below_root(Comparison::GreaterEqual, Number::F32(3.0), Lane::F32);
        assert_eq!(
            narrow,
            Some(Number::F32(9.0f32.next_down()))
                .filter(|_| 9.0f32.next_down().sqrt() >= 3.0)
                .or(Some(Number::F32(9.0)))
        );
    }
}
