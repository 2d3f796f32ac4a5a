//! One evaluation of a plan at a step: in rounds of questions to those that hold elements.

use crate::gather::{Found, Gathered, Gathering, Partial, Question};
use crate::plan::{Lane, Measure, Plan, Property, ScalarId, ScalarOp, folded};
use crate::syntax::Level;
use crate::time::{Moment, Outcome, WatchState, Watched};
use crate::value::{Number, Place, Scalar, Unknown, UnknownKind};
use forebay_core::contract::Field;
use forebay_core::selection::Selection;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What is known of a step before anything is asked.
#[derive(Debug, Clone, PartialEq)]
pub struct StepFacts {
    /// The step, and its time.
    pub moment: Moment,
    /// The fields of the plan as they are at this step, or why they are not there.
    pub fields: Vec<Result<Field, Unknown>>,
}

/// One evaluation of a plan at a step.
#[derive(Debug, Clone)]
pub struct Evaluation {
    plan: Arc<Plan>,
    facts: StepFacts,
    /// The elements of each domain; `None` of blocks without a place.
    selections: Vec<Result<Option<Selection>, Unknown>>,
    scalars: Vec<Option<Scalar>>,
    /// Of aggregates whose programs can run.
    gatherings: Vec<Option<Gathering>>,
}

/// What an aggregate of an event is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReportedValue {
    /// The binding's name, or the aggregate as a text.
    pub label: String,
    /// Its value, or why there is none.
    pub value: Scalar,
    /// How many elements are no numbers.
    pub nan: u64,
    /// Where its extreme lies.
    pub place: Option<Place>,
}

impl Evaluation {
    /// Begins. What needs no question is known already; functions of time need what they remember.
    pub fn new(plan: Arc<Plan>, facts: StepFacts, state: Option<&mut WatchState>) -> Evaluation {
        let selections = (0..plan.domains.len()).map(|domain| selection(&plan, &facts, domain)).collect();
        let scalars = vec![None; plan.scalars.len()];
        let gatherings = vec![None; plan.aggregates.len()];
        let mut evaluation = Evaluation { plan, facts, selections, scalars, gatherings };
        evaluation.go_on(state);
        evaluation
    }

    /// What is asked next of all that hold elements: of each aggregate one question or two, side by side. None if all is known.
    pub fn questions(&self) -> Vec<Question> {
        let mut questions = Vec::new();
        for (aggregate, gathering) in self.gatherings.iter().enumerate() {
            let stages = gathering.as_ref().map(Gathering::stages).unwrap_or_default();
            for stage in stages {
                let inputs = self.inputs(aggregate).unwrap_or_default();
                questions.push(Question { aggregate: aggregate as u16, stage, inputs });
            }
        }
        questions
    }

    /// Takes the answers to [`Evaluation::questions`], in their order, each merged of all that hold elements.
    pub fn answer(&mut self, answers: Vec<Gathered>, state: Option<&mut WatchState>) {
        let mut answers = answers.into_iter();
        for aggregate in 0..self.gatherings.len() {
            let count = self.gatherings[aggregate].as_ref().map_or(0, |gathering| gathering.stages().len());
            if count == 0 {
                continue;
            }
            let given: Vec<Gathered> = answers.by_ref().take(count).collect();
            let lacks = self.lacks(aggregate, &given);
            if let Some(gathering) = &mut self.gatherings[aggregate] {
                match lacks {
                    Some(why) => gathering.fail(why),
                    None => gathering.answer(given),
                }
            }
        }
        self.go_on(state);
    }

    /// Why the answers do not speak of all elements, if they do not.
    fn lacks(&self, aggregate: usize, given: &[Gathered]) -> Option<Unknown> {
        let domain = self.plan.aggregates[aggregate].domain;
        let selection = self.selections[domain].as_ref().ok()?.as_ref()?;
        if given.iter().any(|answer| answer.partial.is_err())
            || self.plan.domains[domain].level != Level::One(0)
        {
            return None;
        }
        if self.plan.aggregates[aggregate].measure == Measure::Covered {
            return None;
        }
        let (found, all) = (given.first().map_or(0, |answer| answer.elements), selection.volume());
        (found != all).then(|| {
            let name = self
                .plan
                .fields
                .iter()
                .find(|field| field.domain == domain)
                .map_or("", |field| &field.field.name);
            let text = format!("of {all} elements of field '{name}' {found} were put and are held");
            Unknown::new(UnknownKind::NotCovered, text)
        })
    }

    /// Whether all is known.
    pub fn is_done(&self) -> bool {
        self.scalars.iter().all(Option::is_some)
    }

    /// What is watched, or evaluated; unknown until all is known.
    pub fn value(&self) -> Scalar {
        self.scalar(self.plan.value)
    }

    /// What comes of it for what is watched: once, when all is known.
    pub fn outcome(&self, state: &mut WatchState, unknown_resets: bool) -> Outcome {
        let value = self.value();
        let until = self.plan.until.map(|(id, duration)| (self.scalar(id), duration));
        let until = until.as_ref().map(|(scalar, duration)| (scalar, *duration));
        state.turn(Watched { condition: (&value, self.plan.hold), until, unknown_resets }, self.facts.moment)
    }

    /// What an event tells of.
    pub fn reported(&self) -> Vec<ReportedValue> {
        let of = |reported: &crate::plan::Reported| {
            let found = reported.aggregate.and_then(|aggregate| self.found(aggregate));
            ReportedValue {
                label: reported.label.clone(),
                value: self.scalar(reported.value),
                nan: found.map_or(0, |found| found.nan),
                place: found.and_then(|found| found.extreme()).map(|extreme| extreme.place.clone()),
            }
        };
        self.plan.reported.iter().map(of).collect()
    }

    fn scalar(&self, id: ScalarId) -> Scalar {
        self.scalars[id]
            .clone()
            .unwrap_or_else(|| Scalar::Unknown(Unknown::new(UnknownKind::Lost, "the evaluation did not end")))
    }

    fn found(&self, aggregate: usize) -> Option<&Found> {
        self.gatherings[aggregate].as_ref()?.found()?.as_ref().ok()
    }

    /// The scalars that the program of an aggregate takes; `None` if some are not known yet.
    fn inputs(&self, aggregate: usize) -> Option<Vec<Scalar>> {
        let inputs = &self.plan.aggregates[aggregate].program.inputs;
        inputs.iter().map(|id| self.scalars[*id].clone()).collect()
    }

    /// Computes what can be computed, and begins with the aggregates that can be gathered.
    fn go_on(&mut self, mut state: Option<&mut WatchState>) {
        loop {
            for id in 0..self.scalars.len() {
                if self.scalars[id].is_none() {
                    self.scalars[id] = self.compute(id, state.as_deref_mut());
                }
            }
            let mut has_failed = false;
            for aggregate in 0..self.gatherings.len() {
                if self.gatherings[aggregate].is_none() {
                    self.gatherings[aggregate] = self.begin(aggregate);
                    has_failed |= self.gatherings[aggregate]
                        .as_ref()
                        .is_some_and(|gathering| gathering.found().is_some());
                }
            }
            if !has_failed {
                return;
            }
        }
    }

    fn compute(&self, id: ScalarId, state: Option<&mut WatchState>) -> Option<Scalar> {
        let op = &self.plan.scalars[id];
        if op.operands().any(|operand| self.scalars[operand].is_none()) {
            return None;
        }
        match op {
            ScalarOp::Step => Some(Scalar::Number(Number::Integer(self.facts.moment.step.into()))),
            ScalarOp::Time => Some(Scalar::Number(Number::F64(self.facts.moment.time))),
            ScalarOp::Spacing(field, dim) => Some(match &self.facts.fields[*field] {
                Ok(field) => {
                    let spacing = field.spacing.get(usize::from(*dim)).copied().unwrap_or(1.0);
                    Scalar::Number(Number::F64(spacing))
                }
                Err(why) => Scalar::Unknown(why.clone()),
            }),
            ScalarOp::Aggregate(aggregate, property) => {
                let found = self.gatherings[*aggregate].as_ref()?.found()?;
                let found = found.as_ref().map_err(Clone::clone);
                let value = found.and_then(|found| self.property(*aggregate, found, *property));
                Some(value.unwrap_or_else(Scalar::Unknown))
            }
            ScalarOp::Temporal(temporal) => {
                let of = |id: ScalarId| self.scalars[id].as_ref();
                let inputs = [of(temporal.inputs[0])?, of(temporal.inputs[1])?];
                let value =
                    state.and_then(|state| state.evaluate(id, temporal.function, inputs, self.facts.moment));
                let lacks =
                    || Unknown::new(UnknownKind::History, "nothing is remembered of evaluations before");
                Some(value.unwrap_or_else(|| Scalar::Unknown(lacks())))
            }
            op => folded(op, &Known(&self.scalars)),
        }
    }

    fn begin(&self, aggregate: usize) -> Option<Gathering> {
        let planned = &self.plan.aggregates[aggregate];
        let inputs = self.inputs(aggregate)?;
        let mut gathering = Gathering::new(planned.measure, self.lane(aggregate));
        let unknown = inputs.into_iter().find_map(|input| match input {
            Scalar::Unknown(why) => Some(why),
            _ => None,
        });
        match (&unknown, &self.selections[planned.domain]) {
            (Some(why), _) | (None, Err(why)) if planned.measure != Measure::Covered => {
                gathering.fail(why.clone())
            }
            (_, Ok(Some(selection))) if planned.measure == Measure::Size => {
                let elements = selection.volume();
                gathering.answer(vec![Gathered { elements, nan: 0, partial: Ok(Partial::Elements) }]);
            }
            (_, Err(_)) => {
                // What does not lie in the array is not covered.
                gathering.answer(vec![Gathered { elements: 0, nan: 0, partial: Ok(Partial::All(false)) }]);
            }
            _ => {}
        }
        Some(gathering)
    }

    /// Of which type the numbers of an aggregate are.
    fn lane(&self, aggregate: usize) -> Lane {
        let program = &self.plan.aggregates[aggregate].program;
        let value = program.value.and_then(|value| program.instructions.get(value.index()));
        value.map_or(Lane::Mask, |instruction| instruction.lane)
    }

    fn property(&self, aggregate: usize, found: &Found, property: Property) -> Result<Scalar, Unknown> {
        let place = found.extreme().map(|extreme| &extreme.place);
        let integer = |number: Option<u64>| {
            let number = number.map_or(Number::F64(f64::NAN), |number| Number::Integer(number.into()));
            Ok(Scalar::Number(number))
        };
        let index = |dim: u8| place.and_then(|place| place.index.get(usize::from(dim)).copied());
        match property {
            Property::Value(reduction) => found.value(reduction, self.lane(aggregate)),
            Property::Nan => integer(Some(found.nan)),
            Property::Place => Ok(Scalar::Place(place.cloned())),
            Property::Index(dim) => integer(index(dim)),
            Property::Rank => integer(place.and_then(|place| place.block).map(|block| block.rank.into())),
            Property::Block => integer(place.and_then(|place| place.block).map(|block| block.number)),
            Property::Coordinate(dim) => {
                let domain = self.plan.aggregates[aggregate].domain;
                let field = self.field_of(domain)?;
                let level = place.map_or(0, |place| place.level);
                let at = index(dim).map(|index| crate::plan::coordinate(field, dim.into(), level, index));
                Ok(Scalar::Number(Number::F64(at.unwrap_or(f64::NAN))))
            }
        }
    }

    /// A field of a domain, as it is at this step.
    fn field_of(&self, domain: usize) -> Result<&Field, Unknown> {
        let index = self.plan.fields.iter().position(|field| field.domain == domain);
        match index.map(|index| &self.facts.fields[index]) {
            Some(Ok(field)) => Ok(field),
            Some(Err(why)) => Err(why.clone()),
            None => Err(Unknown::new(UnknownKind::NotOffered, "no field lies there")),
        }
    }
}

/// The elements of a domain at a step, or why there are none.
fn selection(plan: &Plan, facts: &StepFacts, domain: usize) -> Result<Option<Selection>, Unknown> {
    let mut found: Option<(&Field, Option<Selection>)> = None;
    let of_domain = plan.fields.iter().zip(&facts.fields).filter(|(planned, _)| planned.domain == domain);
    for (planned, field) in of_domain {
        let field = field.as_ref().map_err(Clone::clone)?;
        if field.dtype != planned.field.dtype || field.shape.is_some() != planned.field.shape.is_some() {
            let text = format!("field '{}' is {} now", field.name, field.kind_and_shape());
            return Err(Unknown::new(UnknownKind::Mismatch, text));
        }
        match &found {
            Some((first, _)) if first.shape != field.shape => {
                let text = format!(
                    "fields '{}' and '{}' are of different shapes at this step",
                    first.name, field.name
                );
                return Err(Unknown::new(UnknownKind::Mismatch, text));
            }
            Some(_) => {}
            None => found = Some((field, plan.domains[domain].selection(field)?)),
        }
    }
    Ok(found.and_then(|(_, selection)| selection))
}

/// Scalars of which those are known that are looked at.
struct Known<'a>(&'a [Option<Scalar>]);

impl crate::plan::Scalars for Known<'_> {
    fn of(&self, id: ScalarId) -> Scalar {
        let lacks = || Scalar::Unknown(Unknown::new(UnknownKind::Lost, "a number lacks"));
        self.0.get(id).cloned().flatten().unwrap_or_else(lacks)
    }
}
