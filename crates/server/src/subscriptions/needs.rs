//! What a subscription needs of its stream.

use forebay_core::contract::Period;
use forebay_core::contract::{Index, Need, Needs, Slice, Slices, Statistics, Terms};
use forebay_query::Syntax;
use forebay_query::plan::{Plan, PlannedField, Range};
use forebay_query::subscription::Definition;
use forebay_query::syntax::FieldUse;
use std::collections::BTreeSet;

/// The fields that a text names; once they are known, no more of each than the region that is watched, if it is one. None of them has to
/// be offered.
pub(super) fn needs_of(definition: &Definition, stream: &str, syntax: &Syntax, plan: Option<&Plan>) -> Needs {
    let of_stream = |field: &&FieldUse| field.stream.as_deref().or(definition.own.as_deref()) == Some(stream);
    let names: BTreeSet<&str> =
        syntax.taken_fields().filter(of_stream).map(|field| &field.name[..]).collect();
    let period = Period::every(definition.every);
    let need = |name: &str| Need {
        field: name.to_owned(),
        terms: Terms {
            period,
            part: plan.and_then(|plan| part_of(plan, stream, name)),
            statistics: plan.map_or(Statistics::None, |plan| statistics_of(plan, stream, name)),
        },
        dtype: None,
        optional: true,
    };
    Needs::Fields(names.into_iter().map(need).collect())
}

/// The same, with all of each field.
pub(super) fn whole_fields(needs: Needs) -> Needs {
    match needs {
        Needs::Fields(mut fields) => {
            fields.iter_mut().for_each(|need| need.terms.part = None);
            Needs::Fields(fields)
        }
        all => all,
    }
}

/// What two need that name the same fields.
pub(super) fn together(a: Needs, b: Needs) -> Needs {
    let (Needs::Fields(mut fields), Needs::Fields(others)) = (a, b) else { return Needs::All(Terms::ALL) };
    for (own, other) in fields.iter_mut().zip(others) {
        let Terms { part, statistics, .. } = other.terms;
        own.terms.part = own.terms.part.take().filter(|own| part.as_ref() == Some(own));
        own.terms.statistics = own.terms.statistics.and(statistics);
    }
    Needs::Fields(fields)
}

/// The statistics of a field that decide without a look at its elements.
fn statistics_of(plan: &Plan, stream: &str, name: &str) -> Statistics {
    let fields = named(plan, stream, name);
    let is_told =
        |(field, _): (usize, _)| plan.aggregates.iter().any(|aggregate| aggregate.is_told_by_bounds(field));
    let mut told = fields.map(is_told);
    if told.any(|is_told| is_told) { Statistics::Extremes } else { Statistics::None }
}

/// A field of a stream, as often as the plan takes something of it.
fn named<'a>(
    plan: &'a Plan,
    stream: &'a str,
    name: &'a str,
) -> impl Iterator<Item = (usize, &'a PlannedField)> {
    let is_it = move |planned: &PlannedField| {
        planned.field.name == name && plan.domains[planned.domain].stream == stream
    };
    plan.fields.iter().enumerate().filter(move |(_, planned)| is_it(planned))
}

/// The region of a field, if the plan takes one alone, and no neighbours of its elements.
fn part_of(plan: &Plan, stream: &str, name: &str) -> Option<Slices> {
    let mut domains = named(plan, stream, name);
    let (index, planned) = domains.next()?;
    if domains.any(|(_, other)| other.domain != planned.domain) {
        return None;
    }
    let ranges = plan.domains[planned.domain].ranges.as_ref()?;
    if plan.takes_neighbours(index) || planned.field.is_static {
        return None;
    }
    let slices: Vec<Slice> = ranges.iter().map(slice_of).collect::<Option<_>>()?;
    if slices.iter().all(|slice| *slice == Slice::ALL) {
        return None;
    }
    Slices::new(slices, Vec::new()).ok()
}

/// A range as a slice; `None` of coordinates.
fn slice_of(range: &Range) -> Option<Slice> {
    match range {
        Range::Slice(slice) => Some(*slice),
        Range::Index(Index::FromStart(index)) => {
            let stop = Some(Index::FromStart(index.checked_add(1)?));
            Some(Slice { start: Some(Index::FromStart(*index)), stop, step: 1 })
        }
        Range::Index(Index::FromEnd(index)) => {
            let stop = (*index > 1).then(|| Index::FromEnd(index - 1));
            Some(Slice { start: Some(Index::FromEnd(*index)), stop, step: 1 })
        }
        Range::Coordinates(..) => None,
    }
}
