//! The answer to a question, of the elements of a window.

use crate::evaluate::CHUNK;
use crate::evaluate::fused::without_roots;
use crate::evaluate::machine::Machine;
use crate::evaluate::reducer::Reducer;
use crate::evaluate::runs::{Runs, Segment};
use crate::evaluate::units::{CACHED, boxes_of};
use crate::evaluate::value::Chunk;
use crate::evaluate::window::Window;
use forebay_core::ids::BlockKey;
use forebay_core::region::Dims;
use forebay_core::selection::Selection;
use forebay_core::{Error, Result};
use forebay_query::gather::{Extreme, Gathered, Partial, Question, Stage};
use forebay_query::plan::{Aggregate, Lane, Measure, Program, Weights, Zone};
use forebay_query::value::{Place, Unknown, UnknownKind};

/// The answer to a question about an aggregate, of the elements of a window. Reads them once, and copies them chunk by chunk.
/// Fails if the window lacks what the program takes, or the question does not fit the aggregate.
pub fn gather(aggregate: &Aggregate, question: &Question, window: &Window<'_>) -> Result<Gathered> {
    window.check()?;
    let mut state = State::new(aggregate, question)?;
    if aggregate.program.zoned_dims().is_empty() {
        window.check_holds(&aggregate.program, &window.part)?;
        let (program, part) = (&aggregate.program, &window.part);
        widest(Task { state: &mut state, program, question, window, part })?;
        return Ok(state.finish(window.part.volume(), window.level, window.block));
    }
    for unit in boxes_of(&window.part, CACHED) {
        for (part, zones) in zoned(&aggregate.program, window, unit) {
            let program = aggregate.program.in_zones(&zones);
            window.check_holds(&program, &part)?;
            widest(Task { state: &mut state, program: &program, question, window, part: &part })?;
        }
        if state.is_decided() {
            break;
        }
    }
    Ok(state.finish(window.part.volume(), window.level, window.block))
}

/// The answer to a question, of no elements.
pub fn nothing(aggregate: &Aggregate, question: &Question) -> Result<Gathered> {
    Ok(State::new(aggregate, question)?.finish(0, 0, None))
}

/// What runs over the elements of a part.
struct Task<'a> {
    state: &'a mut State,
    program: &'a Program,
    question: &'a Question,
    window: &'a Window<'a>,
    part: &'a Selection,
}

/// Runs with the widest vectors that this processor has.
fn widest(task: Task<'_>) -> Result<()> {
    #[cfg(target_arch = "x86_64")]
    {
        if std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512vl")
            && std::is_x86_feature_detected!("avx512dq")
            && std::is_x86_feature_detected!("avx512bw")
        {
            #[allow(unsafe_code)]
            // SAFETY: the processor has these instructions.
            return unsafe { with_avx512(task) };
        }
        if std::is_x86_feature_detected!("avx2") {
            #[allow(unsafe_code)]
            // SAFETY: the processor has these instructions.
            return unsafe { with_avx2(task) };
        }
    }
    run(task)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
fn with_avx512(task: Task<'_>) -> Result<()> {
    run(task)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn with_avx2(task: Task<'_>) -> Result<()> {
    run(task)
}

/// What was gathered so far, of all parts of a window.
struct State {
    measure: Measure,
    reducer: Option<Reducer>,
    elements: u64,
    nan: u64,
    holds: u64,
    /// Where an integer is beyond its type.
    beyond: Option<Dims>,
}

impl State {
    fn new(aggregate: &Aggregate, question: &Question) -> Result<State> {
        let program = &aggregate.program;
        let lane = program.value.map_or(Lane::Mask, |value| program.instructions[value.index()].lane);
        let measure = aggregate.measure;
        let is_of_masks = matches!(measure, Measure::Count | Measure::Any | Measure::All | Measure::Size);
        let reducer = Reducer::new(measure, question.stage, lane);
        let fits = match is_of_masks {
            true => question.stage == Stage::First,
            false => reducer.is_some() && lane != Lane::Mask,
        };
        match fits {
            true => Ok(State { measure, reducer, elements: 0, nan: 0, holds: 0, beyond: None }),
            false => Err(Error::protocol("a question that does not fit its aggregate")),
        }
    }

    /// Whether further elements change nothing, but for how many there are.
    fn is_decided(&self) -> bool {
        match self.measure {
            Measure::Any => self.holds > 0,
            Measure::All => self.holds < self.elements,
            _ => false,
        }
    }

    fn finish(self, elements: u64, level: u32, block: Option<BlockKey>) -> Gathered {
        if let Some(index) = self.beyond {
            let text = format!(
                "an integer is beyond 64 bits, or was divided by 0, of the element at {:?}",
                &index[..]
            );
            return Gathered {
                elements,
                nan: self.nan,
                partial: Err(Unknown::new(UnknownKind::Overflow, text)),
            };
        }
        let place = |index: Dims| Place { level, block, index };
        let partial = match (self.measure, self.reducer) {
            (_, Some(reducer)) => reducer.finish(|value, index| Extreme { value, place: place(index) }),
            (Measure::Any, None) => Partial::Any(self.holds > 0),
            (Measure::All, None) => Partial::All(self.holds == self.elements),
            (Measure::Count, None) => Partial::Count(self.holds),
            (_, None) => Partial::Elements,
        };
        Gathered { elements, nan: self.nan, partial: Ok(partial) }
    }
}

#[inline(always)]
fn run(Task { state, program, question, window, part }: Task<'_>) -> Result<()> {
    let (program, inputs) = without_roots(program, &question.inputs);
    let program = &program;
    let mut machine = Machine::new(program, &inputs)?;
    let fields = program.fields();
    let arrays = window.arrays.iter().enumerate();
    let arrays =
        arrays.filter(|(field, _)| fields.contains(&(*field as u16))).filter_map(|(_, array)| array.as_ref());
    let (mut segments, mut weights) = (Vec::new(), Vec::new());
    let is_extreme = matches!(state.reducer, Some(Reducer::Extreme { .. })) && program.mask.is_none();
    for unit in boxes_of(part, CACHED) {
        let mut runs = Runs::new(&unit, arrays.clone());
        // Where nothing is computed first, chunks have no need to fit the nearest cache.
        let is_one_run = runs.step == 1 && runs.length() == unit.volume();
        let most = if is_extreme && is_one_run && machine.takes_as_it_lies(&window.arrays) {
            CACHED as usize
        } else {
            machine.chunk()
        };
        loop {
            let count = runs.next_chunk(most, &mut segments);
            if count == 0 || state.is_decided() {
                break;
            }
            state.elements += count as u64;
            let beyond = machine.run(&window.arrays, (&segments, runs.step), count)?;
            if let Some(place) = beyond {
                let index = runs.index_of(&segments, place);
                state.beyond = Some(state.beyond.take().map_or(index.clone(), |before| before.min(index)));
            }
            if matches!(state.measure, Measure::Sum(Weights::Trapezoid)) {
                weigh(&mut weights, &runs, &segments, count, &window.all);
            }
            let of_count = (!weights.is_empty()).then_some(&weights[..]);
            reduce(state, program, &machine, count, |place| runs.index_of(&segments, place), of_count);
        }
        state.reducer.iter_mut().for_each(Reducer::end_unit);
    }
    Ok(())
}

/// Takes in what a chunk gave.
#[inline(always)]
fn reduce(
    state: &mut State,
    program: &Program,
    machine: &Machine<'_>,
    count: usize,
    place: impl Fn(usize) -> Dims,
    weights: Option<&[f64]>,
) {
    let mask = program.mask.map(|mask| &machine.masks(mask)[..count]);
    let Some(reducer) = &mut state.reducer else {
        state.holds += mask.map_or(count as u64, |mask| mask.iter().map(|mask| u64::from(*mask)).sum());
        return;
    };
    let Some(value) = program.value else { return };
    state.nan += match program.instructions[value.index()].lane {
        Lane::F64 => reducer.add(Chunk { values: &machine.f64s(value)[..count], mask }, place, weights),
        Lane::F32 => reducer.add(Chunk { values: &machine.f32s(value)[..count], mask }, place, weights),
        Lane::I64 => reducer.add(Chunk { values: &machine.i64s(value)[..count], mask }, place, weights),
        Lane::U64 => reducer.add(Chunk { values: &machine.u64s(value)[..count], mask }, place, weights),
        Lane::Mask => 0,
    };
}

/// How much each element of a chunk adds by the trapezoidal rule: half as much at an end of each dimension.
fn weigh(weights: &mut Vec<f64>, runs: &Runs, segments: &[Segment], count: usize, all: &Selection) {
    debug_assert!(count <= CHUNK);
    let is_end = |d: usize, index: u64| {
        let last = all.offset[d] + all.shape[d].saturating_sub(1) * all.step[d];
        all.shape[d] > 1 && (index == all.offset[d] || index == last)
    };
    weights.clear();
    weights.extend((0..count).map(|place| {
        let index = runs.index_of(segments, place);
        let ends = index.iter().enumerate().filter(|(d, index)| is_end(*d, **index)).count();
        0.5f64.powi(ends as i32)
    }));
}

/// The parts of a part of a window whose elements lie at the ends of the dimensions that a program asks for, or between them.
fn zoned(program: &Program, window: &Window<'_>, part: Selection) -> Vec<(Selection, Vec<Zone>)> {
    let ndim = part.shape.len();
    let mut parts = vec![(part, vec![Zone::Middle; ndim])];
    for dim in program.zoned_dims().into_iter().map(usize::from).filter(|dim| *dim < ndim) {
        let last = window.shape[dim].saturating_sub(1);
        let zones = [(Zone::Low, 0, 1), (Zone::Middle, 1, last), (Zone::High, last, last + 1)];
        parts = parts
            .into_iter()
            .flat_map(|(part, zones_before)| {
                zones.into_iter().filter_map(move |(zone, first, end)| {
                    let mut zones = zones_before.clone();
                    zones[dim] = zone;
                    Some((within(&part, dim, first, end)?, zones))
                })
            })
            .collect();
    }
    parts
}

/// The elements of a selection whose index in a dimension is from `first` to before `end`.
fn within(part: &Selection, dim: usize, first: u64, end: u64) -> Option<Selection> {
    let (offset, step) = (part.offset[dim], part.step[dim]);
    let skipped = first.saturating_sub(offset).div_ceil(step);
    let stop = end.saturating_sub(offset).div_ceil(step).min(part.shape[dim]);
    let mut within = part.clone();
    within.offset[dim] = offset + skipped * step;
    within.shape[dim] = stop.checked_sub(skipped).filter(|count| *count > 0)?;
    Some(within)
}
