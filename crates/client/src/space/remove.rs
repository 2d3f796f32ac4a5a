//! Removing what was put into the space.

use crate::space::handle::{Space, not_owned};
use forebay_core::Result;
use forebay_core::ids::StepNumber;
use forebay_wire::client::space::{Reply, Request};
use std::time::Instant;

impl Space {
    /// Removes what was put of a field at a step, on every server. When it returns nobody finds it any more.
    pub fn remove(&self, field: &str, step: StepNumber) -> Result<()> {
        self.guard.check("space")?;
        let group = self.pool.group();
        group.retry_while_failing_over(Instant::now() + group.limit(), || {
            let describer = self.describer(field, step)?;
            let remove = Request::Remove { field: field.to_owned(), step };
            let answer = self.pool.connection(describer)?.call(&remove, "to remove an array")?;
            match answer.message {
                Reply::NotOwned => Err(not_owned(describer, field, step)),
                _ => Ok(()),
            }
        })
    }
}
