//! Under which descriptions of fields this server registers blocks with their owners.
//!
//! The first block of a field at a step goes to the server that describes it; later ones go to the owners of
//! their parts alone. A description that is taken back is answered for only when nothing is on its way any more,
//! so that nothing is registered under it after that.

use super::FieldAtStep;
use forebay_cluster::environment::HashMap;
use forebay_core::Result;
use forebay_core::contract::Field;
use forebay_core::ids::{DescriptionNumber, ServerId};

/// How many descriptions are remembered besides those in use.
const IDLE_MAX: usize = 1024;

/// The descriptions that this server knows.
#[derive(Debug, Default)]
pub(super) struct Descriptions {
    by_number: HashMap<DescriptionNumber, Description>,
    /// The one in force, as far as is known.
    latest: HashMap<FieldAtStep, DescriptionNumber>,
    /// Fields whose description was asked for, by the question's token.
    asked: HashMap<u64, (FieldAtStep, Field)>,
}

#[derive(Debug)]
struct Description {
    key: FieldAtStep,
    field: Field,
    /// How many puts are registering under it now.
    in_flight: u32,
    /// Who took it back and waits for an answer with this token.
    revoked: Vec<(ServerId, u64)>,
}

impl Descriptions {
    /// A put begins to register: under which description, if one is known. Fails if the field is another.
    pub(super) fn begin(&mut self, key: &FieldAtStep, field: &Field) -> Result<Option<DescriptionNumber>> {
        let Some(number) = self.latest.get(key).copied() else { return Ok(None) };
        let Some(description) = self.by_number.get_mut(&number) else { return Ok(None) };
        key.check_same(&description.field, field)?;
        description.in_flight += 1;
        Ok(Some(number))
    }

    /// A description is asked for.
    pub(super) fn ask(&mut self, token: u64, key: FieldAtStep, field: Field) {
        self.asked.insert(token, (key, field));
    }

    /// The question was answered, or is given up. A put begins to register if it was answered with a number.
    pub(super) fn on_answer(&mut self, token: u64, number: Option<DescriptionNumber>) {
        let Some((key, field)) = self.asked.remove(&token) else { return };
        let Some(number) = number.filter(|number| *number > 0) else { return };
        if self.by_number.len() >= IDLE_MAX {
            self.by_number.retain(|_, description| description.in_flight > 0);
            let known = &self.by_number;
            self.latest.retain(|_, number| known.contains_key(number));
        }
        self.latest.insert(key.clone(), number);
        let new = || Description { key, field, in_flight: 0, revoked: Vec::new() };
        self.by_number.entry(number).or_insert_with(new).in_flight += 1;
    }

    /// A put has finished registering. Returns who waits for that, now that nothing is on its way.
    pub(super) fn end(&mut self, number: DescriptionNumber) -> Vec<(ServerId, u64)> {
        let Some(description) = self.by_number.get_mut(&number) else { return Vec::new() };
        description.in_flight = description.in_flight.saturating_sub(1);
        if description.in_flight > 0 || description.revoked.is_empty() {
            return Vec::new();
        }
        self.doubt(number);
        self.by_number.remove(&number).map_or(Vec::new(), |description| description.revoked)
    }

    /// Does not use a description any more for what comes.
    pub(super) fn doubt(&mut self, number: DescriptionNumber) {
        if let Some(description) = self.by_number.get(&number)
            && self.latest.get(&description.key) == Some(&number)
        {
            self.latest.remove(&description.key);
        }
    }

    /// A description is taken back. Whether that can be answered at once.
    pub(super) fn revoke(&mut self, number: DescriptionNumber, from: ServerId, token: u64) -> bool {
        self.doubt(number);
        match self.by_number.get_mut(&number) {
            Some(description) if description.in_flight > 0 => {
                description.revoked.push((from, token));
                false
            }
            _ => {
                self.by_number.remove(&number);
                true
            }
        }
    }

    /// Checks what always holds between two events.
    pub(super) fn sanity_check(&self) -> std::result::Result<(), String> {
        for (key, number) in &self.latest {
            if self.by_number.get(number).is_none_or(|description| description.key != *key) {
                return Err(format!("description {number} of {key} is in force but not known"));
            }
        }
        let idle = |description: &Description| description.in_flight == 0 && !description.revoked.is_empty();
        match self.by_number.values().find(|description| idle(description)) {
            Some(description) => Err(format!("a revoked description of {} is in no use", description.key)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::dtype::Dtype;

    fn field(n: u64) -> Field {
        Field::new("T", Dtype::F32, Some(&[n, 3]), 2)
    }

    #[test]
    fn a_description_in_use_is_answered_for_when_that_ends() {
        let mut descriptions = Descriptions::default();
        let key = || FieldAtStep::new("T", 4);
        assert_eq!(descriptions.begin(&key(), &field(5)).unwrap(), None);
        descriptions.ask(1, key(), field(5));
        descriptions.on_answer(1, Some(77));
        assert_eq!(descriptions.begin(&key(), &field(5)).unwrap(), Some(77));
        assert!(descriptions.begin(&key(), &field(6)).is_err());
        assert!(!descriptions.revoke(77, ServerId(2), 9));
        assert_eq!(descriptions.begin(&key(), &field(5)).unwrap(), None, "it is in force no more");
        assert_eq!(descriptions.end(77), []);
        assert_eq!(descriptions.end(77), [(ServerId(2), 9)]);
        assert!(descriptions.revoke(77, ServerId(2), 10));
        assert!(
            descriptions.by_number.is_empty()
                && descriptions.latest.is_empty()
                && descriptions.asked.is_empty()
        );
    }

    #[test]
    fn those_that_are_not_in_use_are_forgotten() {
        let mut descriptions = Descriptions::default();
        for n in 1..4 * IDLE_MAX as u64 {
            descriptions.ask(n, FieldAtStep::new("T", n), field(5));
            descriptions.on_answer(n, Some(n.into()));
            if n % 100 != 0 {
                descriptions.end(n.into());
            }
        }
        assert!(descriptions.by_number.len() <= IDLE_MAX && descriptions.latest.len() <= IDLE_MAX);
        assert_eq!(descriptions.begin(&FieldAtStep::new("T", 100), &field(5)).unwrap(), Some(100));
    }
}
