//! How a space is opened.

use crate::connection::group_options::GroupOptions;

/// How to open a space.
#[derive(Debug, Clone)]
pub struct SpaceOptions {
    /// The group.
    pub group: GroupOptions,
    /// How many servers hold each array that is put: all but one may die. At most as many as the group has when it is
    /// opened, and 8; where servers go later, as many as are left.
    pub replicas: u32,
}

impl SpaceOptions {
    /// With one server that holds each array.
    pub fn new(group: GroupOptions) -> SpaceOptions {
        SpaceOptions { group, replicas: 1 }
    }
}
