//! The handle of somebody who looks after a group.

use crate::connection::group::Group;
use crate::group_options::GroupOptions;
use forebay_core::Result;

/// Looks after a group.
#[derive(Debug)]
pub struct Admin {
    pub(super) group: Group,
}

impl Admin {
    /// Finds the group. Connects at each call.
    pub fn open(options: &GroupOptions) -> Result<Admin> {
        Ok(Admin { group: Group::find(options)? })
    }

    /// Looks after a group that was found.
    pub(crate) fn of(group: Group) -> Admin {
        Admin { group }
    }

    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }
}
