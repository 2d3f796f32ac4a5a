//! Pausing, resuming and removing subscriptions, whoever has made them.

use crate::admin::Admin;
use crate::admin::told::SubscriptionStatus;
use crate::connection::coordinator::CoordinatorAnswer;
use crate::connection::group::Group;
use crate::connection::rpc::{Rpc, unexpected};
use crate::subscription::handle::Subscription;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::{Error, Result};
use forebay_query::{SPACE, in_words};
use forebay_wire::client::consumer::{Reply, Request};
use forebay_wire::connection::Role;
use forebay_wire::subscription::Change;
use std::time::{Duration, Instant};

impl Subscription {
    /// Waits until the servers have agreed from which step on it watches: this step of this run; `None` if there is no run yet.
    pub fn wait_active(&self) -> Result<Option<(RunNumber, StepNumber)>> {
        let (stream, name) = (self.watched().to_owned(), self.name().to_owned());
        match ask(self.group(), &stream, &Request::AwaitSubscription { stream: stream.clone(), name })? {
            Reply::Needed { from } => Ok(from),
            other => Err(unexpected(&other)),
        }
    }

    /// Pauses, resumes or removes it.
    pub fn change(&self, change: Change) -> Result<()> {
        self::change(self.group(), self.watched(), self.name(), change)
    }
}

impl Admin {
    /// Pauses, resumes or removes a subscription of this name. `stream` is needed only where several streams have one of the name.
    pub fn change_subscription(&self, name: &str, stream: Option<&str>, change: Change) -> Result<()> {
        let all = self.subscriptions()?;
        let is_meant = |found: &&SubscriptionStatus| {
            found.name == name && (stream.is_none() || stream == found.stream.as_deref())
        };
        let of = |found: &SubscriptionStatus| found.stream.clone().unwrap_or_else(|| SPACE.to_owned());
        let streams: Vec<String> = all.iter().filter(is_meant).map(of).collect();
        match &streams[..] {
            [stream] => self::change(self.group(), stream, name, change),
            [] => {
                let known: Vec<&str> = all.iter().take(8).map(|found| &found.name[..]).collect();
                let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
                Err(Error::not_found(format!("there is no subscription '{name}'; there are {known}")))
            }
            _ => Err(Error::invalid(format!(
                "there are several subscriptions '{name}', of {}: say of which stream (stream=, on the command line --stream)",
                streams.iter().map(|stream| in_words(stream)).collect::<Vec<_>>().join(", ")
            ))),
        }
    }
}

fn change(group: &Group, stream: &str, name: &str, change: Change) -> Result<()> {
    let request = Request::ChangeSubscription { stream: stream.to_owned(), name: name.to_owned(), change };
    match ask(group, stream, &request)? {
        Reply::Done => Ok(()),
        other => Err(unexpected(&other)),
    }
}

/// Asks the server that coordinates a stream.
fn ask(group: &Group, stream: &str, request: &Request) -> Result<Reply> {
    let ask = |rpc: &Rpc, left: Duration| match rpc
        .call_within(request, None, left, "about a subscription")?
        .message
    {
        Reply::Redirect(server) => Ok(CoordinatorAnswer::Redirect(server)),
        reply => Ok(CoordinatorAnswer::Answer(reply)),
    };
    let deadline = Instant::now() + group.limit();
    group.at_coordinator(stream, &Role::Consumer, deadline, ask).map(|(_, _, reply)| reply)
}
