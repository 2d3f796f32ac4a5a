//! What has to be computed for a text, of fields that are known.
//!
//! - [`domain`]: which elements of which fields meet, element by element;
//! - [`program`]: what is computed of each element;
//! - [`aggregate`]: what of all elements;
//! - [`scalar_op`]: what of that, and of what was before;
//! - this file: all of it together.

mod aggregate;
mod domain;
mod program;
mod scalar_op;

pub use aggregate::{Aggregate, Measure, Property, Reduction, Weights};
pub(crate) use domain::coordinate;
pub use domain::{Domain, PlannedField, Range};
pub use program::{Instruction, Lane, Op, Part, Program, Register, ScalarId, Shift, Zone};
pub use scalar_op::{ScalarOp, Temporal, TimeFunction};
pub(crate) use scalar_op::{Scalars, folded};

use crate::syntax::Duration;
use forebay_core::Result;
use forebay_core::contract::Field;
use forebay_core::region::{MAX_NDIM, Region};

/// What an event tells of, besides the step.
#[derive(Debug, Clone, PartialEq)]
pub struct Reported {
    /// The binding's name, or the aggregate as a text.
    pub label: String,
    /// Its value.
    pub value: ScalarId,
    /// The aggregate that gives it, if one does by itself.
    pub aggregate: Option<usize>,
}

/// What has to be computed for a text.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Which elements.
    pub domains: Vec<Domain>,
    /// Of which fields.
    pub fields: Vec<PlannedField>,
    /// What is computed of all elements.
    pub aggregates: Vec<Aggregate>,
    /// What is computed of that: each behind those that it is made of.
    pub scalars: Vec<ScalarOp>,
    /// What is watched, or evaluated.
    pub value: ScalarId,
    /// For how long it must hold.
    pub hold: Option<Duration>,
    /// What ends an episode, and for how long that must hold.
    pub until: Option<(ScalarId, Option<Duration>)>,
    /// What an event tells of.
    pub reported: Vec<Reported>,
}

impl Plan {
    /// Whether it needs what was before.
    pub fn looks_back(&self) -> bool {
        self.hold.is_some() || self.until.is_some() || self.temporals().next().is_some()
    }

    /// Whether what is computed of an element takes neighbours of it, of the field in this place.
    pub fn takes_neighbours(&self, field: usize) -> bool {
        let reaches = |dim: u8| {
            self.aggregates.iter().any(|aggregate| aggregate.program.reach(field as u16, dim) != (0, 0))
        };
        (0..MAX_NDIM as u8).any(reaches)
    }

    /// The boxes that hold all elements that it takes of a field, as the field is now, each once: all of it where it takes neighbours.
    pub fn regions_of(&self, field: &Field) -> Result<Vec<Region>> {
        let mut all: Vec<Region> = Vec::new();
        let named = self.fields.iter().enumerate().filter(|(_, planned)| planned.field.name == field.name);
        for (index, planned) in named {
            let selection = self.domains[planned.domain].selection(field).map_err(|why| why.error())?;
            let region = match selection.filter(|_| !self.takes_neighbours(index)) {
                Some(selection) => field.span_of(&selection)?,
                None => Region::whole(field.shape.as_deref().unwrap_or_default())?,
            };
            if !all.iter().any(|known| known.contains(&region)) {
                all.retain(|known| !region.contains(known));
                all.push(region);
            }
        }
        Ok(all)
    }

    /// The functions of time, and their places among the scalars.
    pub fn temporals(&self) -> impl Iterator<Item = (ScalarId, &Temporal)> {
        self.scalars.iter().enumerate().filter_map(|(id, op)| match op {
            ScalarOp::Temporal(temporal) => Some((id, temporal)),
            _ => None,
        })
    }
}
