//! When a reader last needed which of the fields that are offered.

use crate::contract::{Field, Needs, Sequence, Slices, Statistics};
use crate::ids::{RunNumber, StepNumber};
use std::collections::BTreeMap;

/// A field that is offered, and that one reader needs.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldMatch {
    /// Its name.
    pub field: String,
    /// The reader needs it at every so many of the steps at which it is offered.
    pub every: u32,
    /// Which steps that are; `None` of a field that is static.
    pub steps: Option<Sequence>,
    /// Which part of it; `None`: all.
    pub part: Option<Slices>,
    /// Which statistics of it.
    pub statistics: Statistics,
    /// How many bytes that part has at a step, none if statistics alone are needed; `None` if the field has no global shape.
    pub bytes: Option<u64>,
    /// The last step at which it was needed by this reader and closed.
    pub last: Option<StepNumber>,
}

/// The last steps at which fields were needed by one reader, by their names.
#[derive(Debug, Default)]
pub(super) struct Matched {
    run: RunNumber,
    last: BTreeMap<String, StepNumber>,
}

impl Matched {
    /// A step at which a field is needed.
    pub(super) fn note(&mut self, run: RunNumber, step: StepNumber, field: &str) {
        if run != self.run {
            *self = Matched { run, last: BTreeMap::new() };
        }
        match self.last.get_mut(field) {
            Some(last) => *last = step.max(*last),
            None => drop(self.last.insert(field.to_owned(), step)),
        }
    }

    /// What is needed at which steps of these fields, which are offered by this run.
    pub(super) fn matches<'a>(
        &self,
        run: RunNumber,
        needs: &Needs,
        offered: impl Iterator<Item = &'a Field>,
    ) -> Vec<FieldMatch> {
        let last = |field: &Field| self.last.get(&field.name).copied().filter(|_| self.run == run);
        let one = |field: &Field| {
            let terms = needs.of(&field.name)?;
            let part = terms.part.clone().filter(|_| field.shape.is_some());
            let needed = match (&part, &field.shape) {
                _ if terms.statistics == Statistics::Alone => Some(0),
                (Some(part), Some(shape)) => part
                    .of(shape)
                    .map_or(Some(0), |part| part.volume().checked_mul(field.dtype.size() as u64)),
                _ => field.bytes(),
            };
            Some(FieldMatch {
                field: field.name.clone(),
                every: terms.period.every,
                steps: (!field.is_static).then(|| terms.period.steps_of(field)),
                part,
                statistics: terms.statistics,
                bytes: needed,
                last: last(field),
            })
        };
        offered.filter_map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::{Index, Need, Period, Slice, Terms};
    use crate::dtype::Dtype;

    #[test]
    fn what_is_needed_is_told_in_steps_and_bytes() {
        let mut field = Field::new("U", Dtype::F32, Some(&[8, 10]), 2);
        (field.every, field.sequence) = (2, Sequence { first: 100, stride: 5 });
        let row = Slice { start: Some(Index::FromStart(3)), stop: Some(Index::FromStart(4)), step: 1 };
        let part = Some(Slices::new(vec![row], vec![]).unwrap());
        let period = Period { every: 3, first: Some(112) };
        let needs =
            Needs::Fields(vec![Need { terms: Terms { period, part, ..Terms::ALL }, ..Need::new("U") }]);
        let mut matched = Matched::default();
        matched.note(1, 150, "U");
        matched.note(1, 120, "U");
        let found = matched.matches(1, &needs, [&field, &Field::new("V", Dtype::F32, None, 1)].into_iter());
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].steps, found[0].bytes), (Some(Sequence { first: 120, stride: 30 }), Some(40)));
        assert_eq!(found[0].last, Some(150));
        assert!(
            period.includes(&field, 120) && period.includes(&field, 150) && !period.includes(&field, 110)
        );
        matched.note(2, 100, "U");
        assert_eq!(matched.matches(2, &needs, [&field].into_iter())[0].last, Some(100), "of another run");
    }
}
