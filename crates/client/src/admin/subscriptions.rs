//! The subscriptions of a group.

use crate::admin::handle::Admin;
use crate::admin::status::told::SubscriptionStatus;
use crate::connection::rpc::unexpected;
use forebay_core::ids::ServerId;
use forebay_core::{Error, Result};
use forebay_wire::client::admin::{Reply, Request};

impl Admin {
    /// All subscriptions, by stream and name: what each watches for, and what has come of it. `docs/status.md` describes the members.
    /// Waits for all servers; those that cannot be reached are left out.
    pub fn subscriptions(&self) -> Result<Vec<SubscriptionStatus>> {
        let _ = self.group.refresh();
        let mut asked: Vec<(ServerId, u64)> =
            self.group.known().file.servers.iter().map(|entry| (entry.id, 0)).collect();
        let mut all: Vec<SubscriptionStatus> = Vec::new();
        while let Some((server, skip)) = asked.pop() {
            let question = Request::Subscriptions { skip };
            let told = self.group.ask_all([server], &question, "to tell its subscriptions", |_| false)?;
            for answer in told.into_values().flatten() {
                let Reply::Subscriptions { list, more } = answer else { return Err(unexpected(&answer)) };
                let list: Vec<SubscriptionStatus> = serde_json::from_str(&list)
                    .map_err(|error| Error::protocol(format!("subscriptions cannot be read: {error}")))?;
                if more {
                    asked.push((server, skip + list.len() as u64));
                }
                all.extend(list);
            }
        }
        all.sort_by(|a, b| (&a.stream, &a.name).cmp(&(&b.stream, &b.name)));
        Ok(all)
    }
}

impl SubscriptionStatus {
    /// These as programs in all languages get them: a list as JSON.
    pub fn list_to_json(all: &[SubscriptionStatus]) -> serde_json::Value {
        serde_json::to_value(all).unwrap_or_default()
    }
}
