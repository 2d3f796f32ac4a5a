//! Registering a block with the owners of the tiles that it touches: with all of them, or with none.
//!
//! 1. The holder asks the server that describes the field for the description in force, with that server's part of the block;
//!    a description that the holder knows saves this question.
//! 2. It registers with the other owners under that description.
//! 3. If one of them refuses, or the description is no longer in force, it takes the block back from the others.

use super::{HeldBlock, Holder, range_at};
use crate::context::Context;
use crate::held::Held;
use crate::questions::Answer;
use crate::space::{FieldAtStep, PendingAnswer};
use forebay_core::block::{BlockRecord, Location};
use forebay_core::contract::Field;
use forebay_core::ids::{BlockKey, DescriptionNumber, ServerId};
use forebay_core::steps::FieldReport;
use forebay_core::{Error, Result};
use forebay_wire::peer::space::Message;

/// What an owner is asked to register.
#[derive(Debug)]
pub(crate) struct OwnerRequest {
    pub(crate) owner: ServerId,
    /// 0 asks the server that describes the field for the description in force.
    pub(crate) description: DescriptionNumber,
    pub(crate) report: FieldReport,
}

/// An owner that was asked.
#[derive(Debug)]
pub(crate) struct OwnerQuestion {
    pub(crate) owner: ServerId,
    /// The block that it was asked to register, if any.
    pub(crate) range: Option<Held>,
    /// `None` if the owner is gone.
    pub(crate) pending: Option<PendingAnswer>,
}

/// What an owner says to a registration.
#[derive(Debug)]
pub(crate) enum OwnerReply {
    /// The block is registered under this description.
    Registered(DescriptionNumber),
    /// The description is no longer in force.
    Stale,
    /// The block does not fit, or the owner is gone: not registered.
    Refused(Error),
    /// No answer in time: the block may be registered or not.
    Silent(Error),
}

impl From<Result<DescriptionNumber>> for OwnerReply {
    fn from(result: Result<DescriptionNumber>) -> OwnerReply {
        match result {
            Ok(0) => OwnerReply::Stale,
            Ok(description) => OwnerReply::Registered(description),
            Err(error) => OwnerReply::Refused(error),
        }
    }
}

/// What follows from the replies of all owners.
#[derive(Debug, Default)]
pub(crate) struct RegistrationOutcome {
    /// Whether an owner said that the description is no longer in force.
    pub(crate) is_stale: bool,
    /// The first error.
    pub(crate) failure: Option<Error>,
    /// Owners that may know the block.
    pub(crate) may_know: Vec<ServerId>,
}

impl RegistrationOutcome {
    pub(crate) fn of(replies: impl IntoIterator<Item = (ServerId, OwnerReply)>) -> RegistrationOutcome {
        let mut outcome = RegistrationOutcome::default();
        for (owner, reply) in replies {
            match reply {
                OwnerReply::Registered(_) => outcome.may_know.push(owner),
                OwnerReply::Stale => outcome.is_stale = true,
                OwnerReply::Refused(error) => outcome.failure = outcome.failure.or(Some(error)),
                OwnerReply::Silent(error) => {
                    outcome.may_know.push(owner);
                    outcome.failure = outcome.failure.or(Some(error));
                }
            }
        }
        outcome
    }

    /// Whether owners are to let go of the block.
    pub(crate) fn has_failed(&self) -> bool {
        self.is_stale || self.failure.is_some()
    }
}

impl Holder {
    /// A block is about to be registered: under which description, if one is known; then [`Holder::end_registration`] is to
    /// follow. Fails if the field was described otherwise.
    pub(crate) fn begin_registration(
        &mut self,
        key: &FieldAtStep,
        field: &Field,
    ) -> Result<Option<DescriptionNumber>> {
        self.descriptions.begin(key, field)
    }

    /// Asks several owners at once to register. If `remember`, the description that they answer is remembered, since more is to
    /// be registered under it; [`Holder::end_registration`] is to follow.
    pub(crate) fn ask_owners(
        &mut self,
        cx: &mut Context<'_>,
        key: &FieldAtStep,
        requests: impl IntoIterator<Item = OwnerRequest>,
        remember: bool,
    ) -> Vec<OwnerQuestion> {
        let ask = |OwnerRequest { owner, description, report }| {
            let range = report.blocks.first().map(|block| range_at(&block.location));
            let block = range.and_then(|range| self.blocks.get_mut(&range));
            // Each question counts, since each that fails is taken back. One that replaces another is never taken back, and may
            // have been handed over to this owner already.
            let is_known = |block: &HeldBlock| block.field.whole && block.owners.contains(&owner);
            if let Some(block) = block.filter(|block| !is_known(block)) {
                block.owners.push(owner);
            }
            let (step, remembered) = (key.step, remember.then(|| report.field.clone()));
            let asked = cx.ask(owner, |token| Message::Register { token, step, description, report });
            let pending = asked.map(|(token, answer)| PendingAnswer { server: owner, token, answer });
            if let (Some(field), Some(pending)) = (remembered, &pending) {
                self.descriptions.ask(pending.token, key.clone(), field);
            }
            OwnerQuestion { owner, range, pending }
        };
        requests.into_iter().map(ask).collect()
    }

    /// An owner answers.
    pub(crate) fn on_registered(
        &mut self,
        cx: &mut Context<'_>,
        token: u64,
        result: Result<DescriptionNumber>,
    ) {
        let question = cx.common.questions.take(token);
        let number = result.as_ref().ok().copied().filter(|_| question.is_some());
        self.descriptions.on_answer(token, number);
        if let Some(question) = question {
            question.answer(Answer::Described(result));
        }
    }

    /// Nobody waits for an owner's answer any more.
    pub(crate) fn give_up_question(&mut self, cx: &mut Context<'_>, token: u64) {
        cx.common.questions.take(token);
        self.descriptions.on_answer(token, None);
    }

    /// The registration of a block under a description has ended, and may have shown that it is no longer in force.
    pub(crate) fn end_registration(
        &mut self,
        cx: &mut Context<'_>,
        description: DescriptionNumber,
        is_stale: bool,
    ) {
        if is_stale {
            self.descriptions.doubt(description);
        }
        for (server, token) in self.descriptions.end(description) {
            cx.tell(server, Message::Done { token });
        }
    }

    /// A description under which this server registers is no longer in force.
    pub(crate) fn on_revoke(
        &mut self,
        cx: &mut Context<'_>,
        from: ServerId,
        token: u64,
        description: DescriptionNumber,
    ) {
        if self.descriptions.revoke(description, from, token) {
            cx.tell(from, Message::Done { token });
        }
    }

    /// Owners are to let go of a block that could not be put.
    pub(crate) fn unregister(
        &self,
        cx: &mut Context<'_>,
        key: &FieldAtStep,
        record: &BlockRecord,
        owners: impl IntoIterator<Item = ServerId>,
    ) {
        let block: (BlockKey, Location) = (record.key, record.location);
        for owner in owners {
            let (field, step, blocks) = (key.field.clone(), key.step, vec![block]);
            cx.tell(owner, Message::Unregister { field, step, blocks });
        }
    }

    /// A block has too few copies: all its owners are to let go of it.
    pub(crate) fn withdraw(&self, cx: &mut Context<'_>, range: Held) {
        if let Some(block) = self.blocks.get(&range) {
            self.unregister(cx, &block.key, &block.record, block.owners.iter().copied());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_registered_with_all_owners_or_taken_back() {
        let [first, second, third] = [1, 2, 3].map(ServerId);
        let all = [(first, OwnerReply::from(Ok(7))), (second, OwnerReply::from(Ok(7)))];
        let outcome = RegistrationOutcome::of(all);
        assert!(!outcome.has_failed());
        let failed = [
            (first, OwnerReply::from(Ok(7))),
            (second, OwnerReply::from(Err(Error::conflict("it overlaps")))),
            (third, OwnerReply::Silent(Error::timeout("late"))),
        ];
        let outcome = RegistrationOutcome::of(failed);
        assert!(outcome.has_failed() && !outcome.is_stale);
        assert_eq!(outcome.may_know, [first, third], "what is silent may have registered it");
        assert_eq!(outcome.failure.unwrap().text, "it overlaps");
        let stale = RegistrationOutcome::of([(first, OwnerReply::from(Ok(0)))]);
        assert!(stale.has_failed() && stale.is_stale && stale.failure.is_none() && stale.may_know.is_empty());
    }
}
