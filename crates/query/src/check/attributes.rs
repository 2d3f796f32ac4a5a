//! What attributes mean: of aggregates, and of places.

use crate::check::checker::{Checker, Result, described};
use crate::check::fields::dim_of;
use crate::check::meaning::Meaning;
use crate::plan::{Measure, Property, ScalarOp};
use crate::schema::did_you_mean;
use crate::syntax::{NodeId, Problem, Span, nearest};
use crate::value::Kind;
use forebay_core::ErrorKind;

impl Checker<'_> {
    pub(super) fn attribute(&mut self, of: NodeId, name: &str, span: Span) -> Result<Meaning> {
        match self.of(of) {
            Meaning::Place(_, aggregate) if name == "at" && self.is_placed(aggregate) => {
                Ok(Meaning::Position(aggregate))
            }
            Meaning::Place(_, aggregate) if !self.is_placed(aggregate) => {
                let property = match name {
                    "rank" => Property::Rank,
                    "block" => Property::Block,
                    _ => return Err(self.unknown("a place in a block", name, &["rank", "block"], span)),
                };
                self.property_of(aggregate, property, Kind::Integer, span)
            }
            Meaning::Place(_, aggregate) => {
                let dim = self.dim_of_place(aggregate, name, span)?;
                self.property_of(aggregate, Property::Index(dim), Kind::Integer, span)
            }
            Meaning::Position(aggregate) => {
                let dim = self.dim_of_place(aggregate, name, span)?;
                self.property_of(aggregate, Property::Coordinate(dim), Kind::F64, span)
            }
            Meaning::Number(id, _) | Meaning::Condition(id) => {
                let ScalarOp::Aggregate(aggregate, Property::Value(_)) = self.builder.scalars[id] else {
                    return Err(self.mismatch(of, "attributes are those of aggregates, as max(U).nan"));
                };
                let has_nan = !matches!(
                    self.builder.aggregates[aggregate].measure,
                    Measure::Any | Measure::All | Measure::Size | Measure::Covered | Measure::Count
                );
                match name {
                    "nan" if has_nan => self.property_of(aggregate, Property::Nan, Kind::Integer, span),
                    _ => {
                        Err(self.unknown("this aggregate", name, if has_nan { &["nan"] } else { &[] }, span))
                    }
                }
            }
            other => Err(self
                .mismatch(of, &format!("attributes are those of aggregates; this is {}", described(&other)))),
        }
    }

    fn unknown(&self, what: &str, name: &str, known: &[&str], span: Span) -> Problem {
        let has = if known.is_empty() { "none".into() } else { known.join(", ") };
        let like = did_you_mean(nearest(name, known.iter().copied()));
        Problem::new(
            ErrorKind::NotFound,
            span,
            format!("{what} has no attribute '{name}'; it has {has}{like}"),
        )
    }

    fn property_of(
        &mut self,
        aggregate: usize,
        property: Property,
        kind: Kind,
        span: Span,
    ) -> Result<Meaning> {
        Ok(Meaning::Number(self.builder.scalar(ScalarOp::Aggregate(aggregate, property), span)?, kind))
    }

    fn is_placed(&self, aggregate: usize) -> bool {
        self.builder.domains[self.builder.aggregates[aggregate].domain].shape.is_some()
    }

    fn dim_of_place(&self, aggregate: usize, name: &str, span: Span) -> Result<u8> {
        let domain = self.builder.aggregates[aggregate].domain;
        let field = self.builder.fields.iter().find(|field| field.domain == domain);
        match field {
            Some(planned) => dim_of(&planned.field, name, span).map(|dim| dim as u8),
            None => Err(self.unknown("this place", name, &[], span)),
        }
    }
}
