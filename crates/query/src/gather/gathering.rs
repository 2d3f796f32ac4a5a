//! From the first question of an aggregate to the last.

use crate::gather::buckets::{BUCKETS, sketch_value};
use crate::gather::moments::Moments;
use crate::gather::partial::{Extreme, Gathered, Partial};
use crate::gather::question::Stage;
use crate::gather::ranks::Ranks;
use crate::gather::total::Total;
use crate::plan::{Lane, Measure, Reduction};
use crate::value::{Number, Unknown, UnknownKind};
use forebay_core::exact_sum::ExactSum;

/// What is known of an aggregate.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// What the last round gave.
    measured: Measured,
    /// How many elements are no numbers.
    pub nan: u64,
    /// How many elements there are.
    pub elements: u64,
}

#[derive(Debug, Clone, PartialEq)]
enum Measured {
    Extreme(Option<Extreme>),
    Sum(Total, u64),
    Moments { total: Total, count: u64, squares: f64 },
    Count(u64),
    Condition(bool),
    Size,
    Percentile(Option<Number>),
    Sketch(Vec<(u32, u64)>),
    Bins(Vec<(u32, u64)>),
}

/// An aggregate while it is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Gathering {
    measure: Measure,
    /// Of which type its numbers are.
    lane: Lane,
    state: State,
}

#[derive(Debug, Clone, PartialEq)]
enum State {
    Asked(Vec<Stage>),
    /// The sum is known, and how many, and what was gathered with it; but squares of means are beyond the doubles.
    Summed {
        total: Total,
        count: u64,
        nan: u64,
        elements: u64,
        mean: f64,
    },
    Ranks(Box<Ranks>),
    Bounded {
        nan: u64,
        elements: u64,
        low: f64,
        high: f64,
    },
    Done(Result<Found, Unknown>),
}

impl Gathering {
    /// Of a measure of elements of a lane.
    pub fn new(measure: Measure, lane: Lane) -> Gathering {
        Gathering { measure, lane, state: State::Asked(vec![Stage::First]) }
    }

    /// What is asked next, each of all that hold elements; none if all is known.
    pub fn stages(&self) -> Vec<Stage> {
        match &self.state {
            State::Asked(stages) => stages.clone(),
            State::Summed { mean, .. } => vec![Stage::Squares(*mean)],
            State::Ranks(ranks) => ranks.stages(),
            State::Bounded { low, high, .. } => vec![Stage::Bins { low: *low, high: *high }],
            State::Done(_) => Vec::new(),
        }
    }

    /// What is known; `None` while questions are left.
    pub fn found(&self) -> Option<&Result<Found, Unknown>> {
        match &self.state {
            State::Done(found) => Some(found),
            _ => None,
        }
    }

    /// It cannot be known.
    pub fn fail(&mut self, why: Unknown) {
        self.state = State::Done(Err(why));
    }

    /// Takes the answers to what [`Gathering::stages`] asked, in their order, each merged of all.
    pub fn answer(&mut self, mut answers: Vec<Gathered>) {
        let mut partials = Vec::with_capacity(answers.len());
        let (elements, nan) = answers.first().map_or((0, 0), |first| (first.elements, first.nan));
        for answer in answers.drain(..) {
            match answer.partial {
                Ok(partial) => partials.push(partial),
                Err(why) => return self.fail(why),
            }
        }
        let state = std::mem::replace(&mut self.state, State::Asked(Vec::new()));
        self.state = match (state, partials.as_mut_slice()) {
            (State::Asked(_), [partial]) => self.first(take(partial), elements, nan),
            (State::Summed { total, count, nan, elements, .. }, [Partial::Squares(squares)]) => {
                let measured = Measured::Moments { total, count, squares: squares.to_f64() };
                State::Done(Ok(Found { measured, nan, elements }))
            }
            (State::Bounded { nan, elements, .. }, [Partial::Buckets(counts)]) => {
                let measured = Measured::Bins(std::mem::take(counts));
                State::Done(Ok(Found { measured, nan, elements }))
            }
            (State::Ranks(mut ranks), partials) => {
                ranks.answer(partials);
                self.ranked(ranks)
            }
            _ => State::Done(Err(unfit())),
        };
    }

    fn first(&self, partial: Partial, elements: u64, nan: u64) -> State {
        let done = |measured| State::Done(Ok(Found { measured, nan, elements }));
        match (self.measure, partial) {
            (_, Partial::Least(extreme) | Partial::Greatest(extreme)) => done(Measured::Extreme(extreme)),
            (_, Partial::Moments(moments)) => {
                let (squares, mean) = (moments.squares(), moments.mean());
                let Moments { total, count, .. } = *moments;
                match squares {
                    Some(squares) => done(Measured::Moments { total, count, squares }),
                    None => State::Summed { total, count, nan, elements, mean },
                }
            }
            (_, Partial::Sum(total, count)) => done(Measured::Sum(total, count)),
            (_, Partial::Count(count)) => done(Measured::Count(count)),
            (_, Partial::Any(holds) | Partial::All(holds)) => done(Measured::Condition(holds)),
            (_, Partial::Elements) => done(Measured::Size),
            (Measure::Sketch, Partial::Buckets(counts)) => done(Measured::Sketch(counts)),
            (Measure::Percentile(percent), Partial::Buckets(counts)) => {
                let first = Stage::Keys { low: 0, shift: (u64::BITS - BUCKETS.ilog2()) as u8 };
                let mut ranks = Ranks::new(percent, &counts, (nan, elements));
                ranks.take_counts(first, &counts);
                self.ranked(Box::new(ranks))
            }
            (Measure::Histogram(_), Partial::Bounds(bounds)) => match bounds {
                Some((low, high)) if low < high => State::Bounded { nan, elements, low, high },
                Some(_) => done(Measured::Bins(vec![(0, 1)])),
                None => done(Measured::Bins(Vec::new())),
            },
            _ => State::Done(Err(unfit())),
        }
    }

    fn ranked(&self, ranks: Box<Ranks>) -> State {
        match ranks.value(self.lane) {
            Some(value) => {
                let (nan, elements) = ranks.counted;
                State::Done(Ok(Found { measured: Measured::Percentile(value), nan, elements }))
            }
            None => State::Ranks(ranks),
        }
    }
}

fn take(partial: &mut Partial) -> Partial {
    std::mem::replace(partial, Partial::Elements)
}

fn unfit() -> Unknown {
    Unknown::new(UnknownKind::Mismatch, "an answer does not fit what was asked")
}

impl Found {
    /// Where its extreme lies.
    pub fn extreme(&self) -> Option<&Extreme> {
        match &self.measured {
            Measured::Extreme(extreme) => extreme.as_ref(),
            _ => None,
        }
    }

    /// What a reduction makes of it; a condition of some.
    pub fn value(&self, reduction: Reduction, lane: Lane) -> Result<crate::value::Scalar, Unknown> {
        use crate::value::Scalar;
        let number = match (reduction, &self.measured) {
            (Reduction::Min | Reduction::Max, Measured::Extreme(extreme)) => match extreme {
                Some(extreme) => extreme.value,
                None => no_number(lane),
            },
            (Reduction::Sum, Measured::Sum(Total::Integer(sum), _)) => Number::Integer(*sum),
            (Reduction::Sum, Measured::Sum(total, _)) => Number::F64(total.to_f64()),
            (Reduction::Mean, Measured::Sum(total, count) | Measured::Moments { total, count, .. }) => {
                Number::F64(total.to_f64() / *count as f64)
            }
            (Reduction::Var, Measured::Moments { count, squares, .. }) => {
                Number::F64(*squares / *count as f64)
            }
            (Reduction::Std, Measured::Moments { count, squares, .. }) => {
                Number::F64((*squares / *count as f64).sqrt())
            }
            (Reduction::Norm, Measured::Moments { total, count, squares }) => {
                let mean = if *count == 0 { 0.0 } else { total.to_f64() / *count as f64 };
                Number::F64((*squares + *count as f64 * mean * mean).sqrt())
            }
            (Reduction::Count | Reduction::Size, Measured::Count(count)) => Number::Integer((*count).into()),
            (Reduction::Size, Measured::Size) => Number::Integer(self.elements.into()),
            (Reduction::Any | Reduction::All | Reduction::Covered, Measured::Condition(holds)) => {
                return Ok(Scalar::Condition(*holds));
            }
            (Reduction::Percentile, Measured::Percentile(value)) => value.unwrap_or(no_number(lane)),
            (Reduction::Approximate(percent), Measured::Sketch(counts)) => approximate(percent, counts, lane),
            (Reduction::Entropy, Measured::Bins(counts)) => Number::F64(entropy(counts)),
            _ => return Err(unfit()),
        };
        Ok(Scalar::Number(number))
    }
}

fn no_number(lane: Lane) -> Number {
    if lane == Lane::F32 { Number::F32(f32::NAN) } else { Number::F64(f64::NAN) }
}

/// -sum p ln p of what lies in bins.
fn entropy(counts: &[(u32, u64)]) -> f64 {
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    if all == 0 {
        return f64::NAN;
    }
    let part = |count: u64| {
        let p = count as f64 / all as f64;
        if p == 0.0 { 0.0 } else { -p * p.ln() }
    };
    counts.iter().map(|(_, count)| part(*count)).collect::<ExactSum>().to_f64()
}

/// The number below which so many percent lie, of a sketch.
fn approximate(percent: f64, counts: &[(u32, u64)], lane: Lane) -> Number {
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    if all == 0 {
        return no_number(lane);
    }
    let rank = ((all - 1) as f64 * (percent / 100.0)).round() as u64;
    let mut before = 0;
    let found = counts.iter().find(|(_, count)| {
        before += count;
        rank < before
    });
    let value = found.or(counts.last()).map_or(f64::NAN, |(bucket, _)| sketch_value(*bucket));
    if lane == Lane::F32 { Number::F32(value as f32) } else { Number::F64(value) }
}
