//! For tests: the same answers, element by element, in the plainest way.

use crate::evaluation::{Evaluation, StepFacts};
use crate::gather::{
    BUCKETS, Extreme, Gathered, Moments, Partial, Question, Stage, Total, bin_of, key_of, sketch_bucket,
};
use crate::plan::{Lane, Measure, Op, Part, Plan, Program, Register, Shift, Weights, Zone};
use crate::time::WatchState;
use crate::value::arithmetic::Integer;
use crate::value::{Kind, Number, Place, Scalar, Unknown, UnknownKind};
use forebay_core::contract::Field;
use forebay_core::region::Region;
use forebay_core::selection::Selection;
use std::sync::Arc;

/// A whole array in memory, row-major; of complex numbers both parts of each element.
#[derive(Debug, Clone)]
pub struct PlainArray {
    /// Its field.
    pub field: Field,
    /// Its elements.
    pub values: Vec<Number>,
}

impl PlainArray {
    /// Of real numbers, as their lane has them.
    pub fn new(field: Field, values: Vec<Number>) -> PlainArray {
        PlainArray { field, values }
    }

    fn shape(&self) -> Vec<u64> {
        self.field
            .shape
            .as_ref()
            .map(|shape| shape.to_vec())
            .unwrap_or_else(|| vec![self.values.len() as u64])
    }

    /// An element; of a periodic dimension also beyond its ends.
    fn at(&self, index: &[i64]) -> Number {
        let shape = self.shape();
        let flat =
            index.iter().zip(&shape).fold(0, |flat, (i, n)| flat * *n as i64 + i.rem_euclid(*n as i64));
        self.values[flat as usize]
    }
}

/// What an element gives: its value, and whether it counts; `None` if an integer is beyond its type.
pub(crate) fn element(
    program: &Program,
    inputs: &[Scalar],
    arrays: &[PlainArray],
    index: &[u64],
) -> Option<(Option<Number>, bool)> {
    let shape = arrays[usize::from(*program.fields().first()?)].shape();
    let zone = |(i, n): (&u64, &u64)| match *i {
        0 => Zone::Low,
        i if i + 1 == *n => Zone::High,
        _ => Zone::Middle,
    };
    let program = program.in_zones(&index.iter().zip(&shape).map(zone).collect::<Vec<_>>());
    let mut known: Vec<Scalar> = Vec::new();
    for instruction in &program.instructions {
        let result = match instruction.op {
            Op::Load { field, part, shift } => {
                assert_eq!(part, Part::Whole, "complex numbers are not plain");
                loaded(&arrays[usize::from(field)], shift, instruction.lane, index)
            }
            Op::Input(input) => match (&inputs[usize::from(input)], instruction.lane) {
                (Scalar::Number(number), lane) => in_lane(*number, lane)?,
                (condition, _) => condition.clone(),
            },
            op => computed(&program, op, instruction.lane, &known, inputs)?,
        };
        known.push(result);
    }
    let counts = program.mask.is_none_or(|mask| known[mask.index()] == Scalar::Condition(true));
    Some((program.value.and_then(|value| known[value.index()].number().ok()), counts))
}

fn loaded(array: &PlainArray, shift: Option<Shift>, lane: Lane, index: &[u64]) -> Scalar {
    let mut at: Vec<i64> = index.iter().map(|i| *i as i64).collect();
    if let Some(shift) = shift {
        at[usize::from(shift.dim)] += i64::from(shift.by);
    }
    match lane {
        Lane::Mask => Scalar::Condition(array.at(&at).to_f64() != 0.0),
        _ => Scalar::Number(array.at(&at)),
    }
}

fn in_lane(number: Number, lane: Lane) -> Option<Scalar> {
    match lane {
        Lane::I64 => narrow(number).map(|number| Scalar::Number(Number::Integer(number.into()))),
        lane => Some(Scalar::Number(number.to_kind(lane.kind()))),
    }
}

fn narrow(number: Number) -> Option<i64> {
    match number {
        Number::Integer(number) => i64::try_from(number).ok(),
        _ => None,
    }
}

fn computed(program: &Program, op: Op, lane: Lane, known: &[Scalar], inputs: &[Scalar]) -> Option<Scalar> {
    let number = |register: Register| known[register.index()].number().ok();
    let holds = |register: Register| known[register.index()] == Scalar::Condition(true);
    let integer = |number: i64| Scalar::Number(Number::Integer(number.into()));
    let is_integer = lane == Lane::I64;
    Some(match op {
        Op::Convert(a) => in_lane(number(a)?, lane)?,
        Op::Unary(op, a) if is_integer => integer(narrow(number(a)?)?.integer_unary(op)?),
        Op::Unary(op, a) => Scalar::Number(number(a)?.unary(op)?),
        Op::Binary(op, a, b) if is_integer => {
            integer(narrow(number(a)?)?.integer_binary(op, narrow(number(b)?)?)?)
        }
        Op::Binary(op, a, b) => Scalar::Number(number(a)?.binary(op, number(b)?)?),
        Op::Test(test, a) => Scalar::Condition(number(a)?.test(test)),
        Op::Compare(comparison, a, b) => Scalar::Condition(number(a)?.compares(comparison, number(b)?)),
        Op::CompareInput(comparison, a, input) => {
            let one = inputs[usize::from(input)].number().ok()?;
            let is_narrow = program.instructions[a.index()].lane == Lane::F32;
            let one = if is_narrow { one.to_kind(Kind::F32) } else { one };
            Scalar::Condition(number(a)?.compares(comparison, one))
        }
        Op::And(a, b) => Scalar::Condition(holds(a) && holds(b)),
        Op::Or(a, b) => Scalar::Condition(holds(a) || holds(b)),
        Op::Not(a) => Scalar::Condition(!holds(a)),
        Op::Select(mask, a, b) => known[if holds(mask) { a } else { b }.index()].clone(),
        Op::ByZone(..) | Op::Load { .. } | Op::Input(_) => return None,
    })
}

/// The answer to a question, of those elements of a selection that lie in a region.
pub fn answer(
    plan: &Plan,
    question: &Question,
    arrays: &[PlainArray],
    selection: &Selection,
    region: &Region,
) -> Gathered {
    let aggregate = &plan.aggregates[usize::from(question.aggregate)];
    let Some(part) = selection.cut_to(region) else {
        return Gathered {
            elements: 0,
            nan: 0,
            partial: Ok(of_nothing(aggregate.measure, question.stage, Lane::F64)),
        };
    };
    let program = &aggregate.program;
    let lane = program.value.map_or(Lane::Mask, |value| program.instructions[value.index()].lane);
    let mut gathered =
        Gathered { elements: 0, nan: 0, partial: Ok(of_nothing(aggregate.measure, question.stage, lane)) };
    for flat in 0..part.volume() {
        let index = unravelled(flat, &part);
        gathered.elements += 1;
        let found = if program.instructions.is_empty() {
            Some((None, true))
        } else {
            element(program, &question.inputs, arrays, &index)
        };
        let Some((value, counts)) = found else {
            gathered.partial =
                Err(Unknown::new(UnknownKind::Overflow, "an integer is beyond 64 bits, or was divided by 0"));
            continue;
        };
        let weight = match aggregate.measure {
            Measure::Sum(Weights::Trapezoid) => weight(&index, selection),
            _ => 1.0,
        };
        let one =
            one(aggregate.measure, question.stage, Element { value, lane, counts, index: &index, weight });
        gathered.merge(Gathered { elements: 0, ..one });
    }
    gathered
}

fn unravelled(flat: u64, part: &Selection) -> Vec<u64> {
    let mut left = flat;
    let mut index = vec![0; part.shape.len()];
    for d in (0..part.shape.len()).rev() {
        index[d] = part.offset[d] + left % part.shape[d] * part.step[d];
        left /= part.shape[d];
    }
    index
}

fn weight(index: &[u64], selection: &Selection) -> f64 {
    let is_end = |d: usize| {
        let last = selection.offset[d] + (selection.shape[d] - 1) * selection.step[d];
        selection.shape[d] > 1 && (index[d] == selection.offset[d] || index[d] == last)
    };
    0.5f64.powi((0..index.len()).filter(|d| is_end(*d)).count() as i32)
}

fn of_nothing(measure: Measure, stage: Stage, lane: Lane) -> Partial {
    match (stage, measure) {
        (Stage::Squares(_), _) => Partial::Squares(Box::default()),
        (Stage::Keys { .. } | Stage::Bins { .. }, _) => Partial::Buckets(Vec::new()),
        (Stage::Values { .. }, _) => Partial::Keys(Vec::new()),
        (Stage::First, measure) => match measure {
            Measure::Min => Partial::Least(None),
            Measure::Max => Partial::Greatest(None),
            Measure::Sum(_) => Partial::Sum(no_total(lane), 0),
            Measure::Moments => Partial::Moments(Box::new(Moments::new(no_total(lane)))),
            Measure::Count => Partial::Count(0),
            Measure::Any => Partial::Any(false),
            Measure::All | Measure::Covered => Partial::All(true),
            Measure::Size => Partial::Elements,
            Measure::Percentile(_) | Measure::Sketch => Partial::Buckets(Vec::new()),
            Measure::Histogram(_) => Partial::Bounds(None),
        },
    }
}

fn no_total(lane: Lane) -> Total {
    match lane {
        Lane::I64 | Lane::U64 => Total::Integer(0),
        _ => Total::Float(Box::default()),
    }
}

fn total_of(value: Number, weight: f64) -> Total {
    match value {
        Number::Integer(value) => Total::Integer(value),
        value => Total::Float(Box::new([value.to_f64() * weight].into_iter().collect())),
    }
}

/// What one element is.
struct Element<'a> {
    value: Option<Number>,
    lane: Lane,
    counts: bool,
    index: &'a [u64],
    weight: f64,
}

/// What one element adds.
fn one(
    measure: Measure,
    stage: Stage,
    Element { value, lane, counts, index, weight }: Element<'_>,
) -> Gathered {
    let nothing = of_nothing(measure, stage, lane);
    let is_nan = value.is_some_and(|value| value.to_f64().is_nan());
    let partial = match (stage, measure, value) {
        (Stage::First, Measure::Count, _) => Partial::Count(counts.into()),
        (Stage::First, Measure::Any, _) => Partial::Any(counts),
        (Stage::First, Measure::All, _) => Partial::All(counts),
        (_, _, Some(_)) if !counts || is_nan => nothing,
        (Stage::First, Measure::Min | Measure::Max, Some(value)) => {
            let extreme =
                Some(Extreme { value, place: Place { level: 0, block: None, index: index.into() } });
            if measure == Measure::Min { Partial::Least(extreme) } else { Partial::Greatest(extreme) }
        }
        (Stage::First, Measure::Sum(_), Some(value)) => Partial::Sum(total_of(value, weight), 1),
        (Stage::First, Measure::Moments, Some(value)) => {
            let mut moments = Moments::new(total_of(value, 1.0));
            moments.add_part(1, value.to_f64(), 0.0);
            Partial::Moments(Box::new(moments))
        }
        (Stage::Squares(mean), _, Some(value)) => {
            let distance = value.to_f64() - mean;
            Partial::Squares(Box::new([distance * distance].into_iter().collect()))
        }
        (Stage::First, Measure::Sketch, Some(value)) => {
            Partial::Buckets(sketch_bucket(value.to_f64()).map(|bucket| (bucket, 1)).into_iter().collect())
        }
        (Stage::First, Measure::Percentile(_), Some(value)) => {
            in_buckets(key_of(value, lane), 0, u64::BITS - BUCKETS.ilog2())
        }
        (Stage::Keys { low, shift }, _, Some(value)) => in_buckets(key_of(value, lane), low, shift.into()),
        (Stage::Values { low, high }, _, Some(value)) => {
            Partial::Keys(key_of(value, lane).filter(|key| (low..=high).contains(key)).into_iter().collect())
        }
        (Stage::First, Measure::Histogram(_), Some(value)) if value.to_f64().is_finite() => {
            Partial::Bounds(Some((value.to_f64(), value.to_f64())))
        }
        (Stage::Bins { low, high }, Measure::Histogram(bins), Some(value)) if value.to_f64().is_finite() => {
            Partial::Buckets(vec![(bin_of(value.to_f64(), low, high, bins), 1)])
        }
        _ => nothing,
    };
    Gathered { elements: 1, nan: u64::from(is_nan && counts), partial: Ok(partial) }
}

fn in_buckets(key: Option<u64>, low: u64, shift: u32) -> Partial {
    let bucket = key.and_then(|key| key.checked_sub(low)).map(|above| above >> shift);
    Partial::Buckets(
        bucket
            .filter(|bucket| *bucket < BUCKETS as u64)
            .map(|bucket| (bucket as u32, 1))
            .into_iter()
            .collect(),
    )
}

/// Evaluates a plan of whole arrays, which are divided into these blocks.
pub fn evaluate(
    plan: &Arc<Plan>,
    facts: StepFacts,
    arrays: &[PlainArray],
    blocks: &[Region],
    mut state: Option<&mut WatchState>,
) -> Evaluation {
    let mut evaluation = Evaluation::new(plan.clone(), facts, state.as_deref_mut());
    for _ in 0..64 {
        let questions = evaluation.questions();
        if questions.is_empty() {
            break;
        }
        let answers = questions.iter().map(|question| {
            let aggregate = &plan.aggregates[usize::from(question.aggregate)];
            let planned =
                plan.fields.iter().position(|field| field.domain == aggregate.domain).unwrap_or_default();
            let selection = plan.domains[aggregate.domain].selection(&arrays[planned].field).ok().flatten();
            let whole = Region::whole(&arrays[planned].shape()).unwrap_or_else(|_| blocks[0].clone());
            let selection = selection.unwrap_or_else(|| Selection::region(&whole));
            let parts = blocks.iter().map(|block| answer(plan, question, arrays, &selection, block));
            parts.reduce(|mut all, part| {
                all.merge(part);
                all
            })
        });
        let answers = answers.flatten().collect();
        evaluation.answer(answers, state.as_deref_mut());
    }
    evaluation
}
