//! Putting an array in the place of another one: in one event of the server that describes the field, which alone answers for
//! such an array. Whoever looks for it finds the one before or the new one.
//!
//! 1. The holder asks for the number of a description, under which copies are made.
//! 2. It registers the array under that number: from then on nobody finds the one before here.
//! 3. If that one was put in parts, other servers own some: they are made to forget it, as for a removal.

use super::field::OwnedField;
use super::removal::{Removal, RemovalBegun};
use super::{FieldAtStep, Owner, Registration, does_not_describe, new_description};
use crate::context::Context;
use crate::space::Group;
use forebay_core::Result;
use forebay_core::ids::DescriptionNumber;

impl Owner {
    /// An array is to take the place of what there is: under which description, or 0 if a later one has its place already.
    pub(super) fn register_whole(
        &mut self,
        cx: &mut Context<'_>,
        group: &mut dyn Group,
        key: &FieldAtStep,
        registration: Registration,
        describes: bool,
    ) -> Result<DescriptionNumber> {
        if !describes {
            return Err(does_not_describe(cx, key));
        }
        let Registration { description, report, .. } = registration;
        if description == 0 {
            return Ok(new_description(cx));
        }
        let known = self.description_of(key);
        if known.is_some_and(|known| known > description) {
            return Ok(0);
        }
        if known != Some(description)
            && let Some(before) = self.forget(cx, group, key)
        {
            self.replaced.push((key.clone(), before));
        }
        let field = || OwnedField::new(description, report.field.clone());
        let owned = self.fields.entry(key.clone()).or_insert_with(field);
        let (before, result) = owned.insert(report.blocks, None::<&fn(&_) -> bool>);
        self.let_go(cx, group, key, before);
        result.map(|()| description)
    }

    /// What was replaced since this was called last, and has other owners: the caller waits for the answers, and then has
    /// [`Owner::on_revoked`] called.
    pub(crate) fn take_replaced(&mut self, cx: &mut Context<'_>, group: &mut dyn Group) -> Vec<RemovalBegun> {
        let replaced = std::mem::take(&mut self.replaced);
        replaced.iter().filter_map(|(key, before)| Removal::begin(cx, group, key, before)).collect()
    }
}
