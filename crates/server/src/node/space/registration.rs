//! Registering a block of the space with the owners of all tiles that it touches, or with none: the waits of
//! `space/holder/registration.rs`.

use super::{Node, OWNERS_PATIENCE};
use crate::questions::Answer;
use crate::space::holder::registration::{OwnerQuestion, OwnerReply, OwnerRequest, RegistrationOutcome};
use crate::space::{FieldAtStep, PendingAnswer};
use forebay_core::block::BlockRecord;
use forebay_core::contract::Field;
use forebay_core::ids::{DescriptionNumber, ServerId};
use forebay_core::steps::FieldReport;
use forebay_core::tiles::TileMap;
use forebay_core::{Error, ErrorKind, Result};
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// Within this, a server that has died is given up, and others own its shards.
const GIVEN_UP: Duration = Duration::from_secs(3);
/// How long to wait before a block is registered again.
const TRY_AGAIN: Duration = Duration::from_millis(5);

/// A block that is being registered.
#[derive(Clone, Copy)]
pub(super) struct Block<'a> {
    pub(super) key: &'a FieldAtStep,
    pub(super) field: &'a Field,
    pub(super) record: &'a BlockRecord,
    /// Until when its owners may answer.
    pub(super) deadline: Instant,
}

impl Block<'_> {
    /// The same, asked for anew.
    pub(super) fn anew(self) -> Self {
        Block { deadline: Instant::now() + OWNERS_PATIENCE, ..self }
    }

    /// Asks an owner to register the block.
    pub(super) fn request(&self, owner: ServerId, description: DescriptionNumber) -> OwnerRequest {
        let report = FieldReport::new(self.field.clone(), vec![self.record.clone()]);
        OwnerRequest { owner, description, report }
    }

    /// Asks the server that describes the field for the description alone.
    pub(super) fn description_request(&self, owner: ServerId) -> OwnerRequest {
        OwnerRequest { owner, description: 0, report: FieldReport::new(self.field.clone(), Vec::new()) }
    }
}

impl Node {
    /// Registers a block: under which description. An owner that has just died has a successor soon.
    pub(super) async fn space_register(
        &self,
        key: &FieldAtStep,
        field: &Field,
        record: &BlockRecord,
    ) -> Result<DescriptionNumber> {
        let block = Block { key, field, record, deadline: Instant::now() };
        let register = || async move { self.space_register_with_owners(&block.anew()).await };
        self.space_try_again(register).await
    }

    /// Does what owners are asked for once more, while they cannot be reached: their successors are known soon.
    pub(super) async fn space_try_again<T, F: Future<Output = Result<T>>>(
        &self,
        act: impl Fn() -> F,
    ) -> Result<T> {
        let given_up = Instant::now() + GIVEN_UP;
        loop {
            match act().await {
                Err(error) if error.kind == ErrorKind::Unreachable && Instant::now() < given_up => {
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                result => return result,
            }
        }
    }

    /// The server that describes a field, as of the roster in force.
    pub(super) fn space_describer(&self, block: &Block<'_>) -> ServerId {
        let shards = &self.standing().roster.shards;
        shards.owner_of(block.key.hash()).unwrap_or(self.id)
    }

    /// What a single owner says: under which description it has registered the block, or 0 for none.
    pub(super) async fn space_only_reply(
        &self,
        block: &Block<'_>,
        request: OwnerRequest,
    ) -> Result<DescriptionNumber> {
        match self.space_ask(block, [request], false).await.pop() {
            Some((_, OwnerReply::Registered(number))) => Ok(number),
            Some((_, OwnerReply::Stale)) | None => Ok(0),
            Some((_, OwnerReply::Refused(error) | OwnerReply::Silent(error))) => Err(error),
        }
    }

    async fn space_register_with_owners(&self, block: &Block<'_>) -> Result<DescriptionNumber> {
        let shards = &self.standing().roster.shards;
        let tiles = self.in_space(|_, _, group| group.tiles(shards, block.key, block.field.tiled_shape()));
        if tiles.is_single() {
            return self.space_register_with_one(block, tiles.descriptor().unwrap_or(self.id)).await;
        }
        loop {
            if let Some(description) = self.space_register_with_several(block, &tiles).await? {
                return Ok(description);
            }
            // It was removed meanwhile: described anew.
            if Instant::now() >= block.deadline {
                let text = format!("{} is removed again and again while it is put", block.key);
                return Err(Error::timeout(text));
            }
        }
    }

    /// Registers a block of a field that has one owner, which describes it as well.
    async fn space_register_with_one(&self, block: &Block<'_>, owner: ServerId) -> Result<DescriptionNumber> {
        let mut description = 0;
        for (owner, reply) in self.space_ask(block, [block.request(owner, 0)], false).await {
            match reply {
                OwnerReply::Registered(number) => description = number,
                OwnerReply::Stale => {
                    return Err(Error::internal("a description of no number is not in force"));
                }
                OwnerReply::Refused(error) => return Err(error),
                OwnerReply::Silent(error) => {
                    self.space_unregister(block, [owner]);
                    return Err(error);
                }
            }
        }
        Ok(description)
    }

    /// Registers a block of a field that has several owners: under which description. `None` if the description that this
    /// server knew is no longer in force.
    async fn space_register_with_several(
        &self,
        block: &Block<'_>,
        tiles: &TileMap,
    ) -> Result<Option<DescriptionNumber>> {
        let describer = tiles.descriptor().unwrap_or(self.id);
        let mut owners = tiles.owners_of(&block.record.extent.interior());
        let known = self.in_space(|space, _, _| space.holder.begin_registration(block.key, block.field))?;
        let mut replies = Vec::new();
        let description = match known {
            Some(description) => description,
            None => {
                // The part of the server that describes the field goes with the question.
                let owns_part = owners.iter().position(|owner| *owner == describer);
                let request = match owns_part.map(|at| owners.remove(at)) {
                    Some(_) => block.request(describer, 0),
                    None => block.description_request(describer),
                };
                replies = self.space_ask(block, [request], true).await;
                match replies.last() {
                    Some((_, OwnerReply::Registered(description))) => *description,
                    _ => 0,
                }
            }
        };
        if description > 0 {
            let requests = owners.into_iter().map(|owner| block.request(owner, description));
            replies.extend(self.space_ask(block, requests, false).await);
        }
        let outcome = RegistrationOutcome::of(replies);
        let has_failed = outcome.has_failed();
        if has_failed {
            self.space_unregister(block, outcome.may_know);
        }
        if description > 0 {
            self.in_space(|space, cx, _| space.holder.end_registration(cx, description, outcome.is_stale));
        }
        match outcome.failure {
            Some(error) => Err(error),
            None => Ok((!has_failed).then_some(description)),
        }
    }

    /// Asks several owners at once to register a block: what each of them says.
    async fn space_ask(
        &self,
        block: &Block<'_>,
        requests: impl IntoIterator<Item = OwnerRequest>,
        remember: bool,
    ) -> Vec<(ServerId, OwnerReply)> {
        let asked = self.in_space(|space, cx, _| space.holder.ask_owners(cx, block.key, requests, remember));
        let mut replies = Vec::new();
        for OwnerQuestion { owner, range, pending } in asked {
            let reply = self.space_reply(block, owner, pending).await;
            if let (OwnerReply::Refused(_) | OwnerReply::Stale, Some(range)) = (&reply, range) {
                self.in_space(|space, _, _| space.holder.let_go(owner, range));
            }
            replies.push((owner, reply));
        }
        replies
    }

    /// Waits for what an owner says.
    async fn space_reply(
        &self,
        block: &Block<'_>,
        owner: ServerId,
        pending: Option<PendingAnswer>,
    ) -> OwnerReply {
        let fails = |how: &str| format!("{owner}, which owns a part of {}, {how}", block.key);
        let gone = || OwnerReply::Refused(Error::unreachable(fails("is gone")));
        let Some(PendingAnswer { token, answer, .. }) = pending else { return gone() };
        let reply = match timeout_at(block.deadline, answer).await {
            Ok(Ok(Answer::Described(result))) => return OwnerReply::from(result),
            Ok(_) => gone(),
            Err(_) => OwnerReply::Silent(Error::timeout(fails("did not answer in time"))),
        };
        self.in_space(|space, cx, _| space.holder.give_up_question(cx, token));
        reply
    }

    /// Has owners let go of a block that could not be registered with all.
    fn space_unregister(&self, block: &Block<'_>, owners: impl IntoIterator<Item = ServerId>) {
        self.in_space(|space, cx, _| space.holder.unregister(cx, block.key, block.record, owners));
    }
}
