//! Removing a field of the space at a step, everywhere: by the server that describes it.

use super::keep::OWNERS_PATIENCE;
use super::not_told;
use crate::node::{Node, State};
use crate::questions::Answer;
use forebay_core::ids::{DescriptionNumber, ServerId, StepNumber};
use forebay_core::{Error, Result};
use forebay_wire::peer::space;
use tokio::time::{Instant, timeout_at};

impl Node {
    /// Removes a field's blocks at a step: when this has returned nobody finds them any more. Their memory is
    /// free once no reader holds them. Waits for the other owners of the field, and for what is just being put. `false` if
    /// another server describes the field.
    pub(crate) async fn space_remove(&self, field: &str, step: StepNumber) -> Result<bool> {
        let deadline = Instant::now() + OWNERS_PATIENCE;
        timeout_at(deadline, self.told_by_all()).await.map_err(|_| not_told(field, step))?;
        if self.space_describes(field, step) != self.id {
            return Ok(false);
        }
        let key = (field.to_owned(), step);
        let late =
            || Error::timeout(format!("another removal of field '{field}' at step {step} takes too long"));
        let (description, others, revokes) = loop {
            let changed = {
                let mut state = self.state.lock();
                if !state.space.removing.contains_key(&key) {
                    let Some(owned) = self.space_let_go_of(&mut state, &key) else { return Ok(true) };
                    let shape = owned.index.field().shape.clone();
                    let tiles = self.space_tiles(&mut state, field, step, shape.as_deref());
                    if tiles.is_single() {
                        self.drain(&mut state);
                        return Ok(true);
                    }
                    state.space.removing.insert(key.clone(), Vec::new());
                    let description = owned.description;
                    let revoke = |token| space::Message::Revoke { token, description };
                    let revokes = self.questions(&mut state, owned.registrants, revoke);
                    let others: Vec<ServerId> =
                        tiles.owners().into_iter().filter(|owner| *owner != self.id).collect();
                    break (description, others, revokes);
                }
                state.space.wait_for(&key)
            };
            timeout_at(deadline, changed).await.map_err(|_| late())?;
        };
        let what = format!("field '{field}' at step {step}");
        let revoked = self.answers(revokes, deadline, &what).await;
        let forgets = {
            let mut state = self.state.lock();
            let forget = |token| space::Message::Forget { token, field: field.to_owned(), step, description };
            self.questions(&mut state, others, forget)
        };
        let forgotten = self.answers(forgets, deadline, &what).await;
        let mut state = self.state.lock();
        // What came meanwhile to be described anew.
        let waiting = state.space.removing.remove(&key).unwrap_or_default();
        let waiting = waiting.into_iter();
        state.common.queue_all(waiting.map(|(from, registration)| (from, registration.message().into())));
        state.space.wake(&key);
        self.drain(&mut state);
        revoked.and(forgotten).map(|()| true)
    }

    /// What was registered under a description is removed.
    pub(crate) fn space_forget(
        &self,
        state: &mut State,
        field: String,
        step: StepNumber,
        description: DescriptionNumber,
    ) {
        let key = (field, step);
        if state.space.index.get(&key).is_some_and(|owned| owned.description == description) {
            self.space_let_go_of(state, &key);
        }
    }

    /// Asks several servers the same; those that are gone are left out.
    fn questions(
        &self,
        state: &mut State,
        servers: impl IntoIterator<Item = ServerId>,
        question: impl Fn(u64) -> space::Message,
    ) -> Vec<(ServerId, u64, tokio::sync::oneshot::Receiver<Answer>)> {
        let servers = servers.into_iter();
        let waits = servers
            .filter_map(|server| {
                self.question(state, server, &question).map(|(token, wait)| (server, token, wait))
            })
            .collect();
        self.drain(state);
        waits
    }

    /// Waits for all answers. A server that is gone has nothing left to say; one that is silent is an error.
    async fn answers(
        &self,
        waits: Vec<(ServerId, u64, tokio::sync::oneshot::Receiver<Answer>)>,
        deadline: Instant,
        what: &str,
    ) -> Result<()> {
        let mut result = Ok(());
        for (server, token, wait) in waits {
            if timeout_at(deadline, wait).await.is_err() {
                self.state.lock().common.questions.take(token);
                result = result.and(Err(Error::timeout(format!(
                    "{server}, which knows blocks of {what}, did not answer in time; remove it again"
                ))));
            }
        }
        result
    }
}
