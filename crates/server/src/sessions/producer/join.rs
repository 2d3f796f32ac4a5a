//! Joining a stream, and what a rank declares of its run.

use super::Session;
use crate::questions::Answer;
use crate::sessions::rank::Rank;
use crate::sessions::writing::Writing;
use forebay_core::attr::Attr;
use forebay_core::contract::Field;
use forebay_core::ids::check_name;
use forebay_core::steps::{Joining, Rejoin, check_replicas_among};
use forebay_core::{Error, Result};
use forebay_wire::client::producer::Reply;
use forebay_wire::peer::streams::{self, JoinedRun};
use std::time::Duration;

/// How long a rank may wait for the stream's coordinator when it joins or defines.
const JOIN_PATIENCE: Duration = Duration::from_secs(20);

impl Session {
    /// Joins a stream as one rank.
    pub(super) async fn join(
        &mut self,
        request: u64,
        stream: String,
        joining: Box<Joining>,
        back_to: Option<Rejoin>,
    ) -> Result<Option<Reply>> {
        let (rank, options) = (joining.rank, &joining.options);
        let node = self.client.node.clone();
        check_name("stream", &stream)?;
        joining.check()?;
        if self.rank.is_some() {
            return Err(Error::protocol("this connection produces already"));
        }
        if node.leaves.get() {
            return Ok(Some(Reply::LetGo));
        }
        if back_to.is_none() {
            check_replicas_among(options.replicas, node.standing().view.members.len())?;
        }
        let attempt = back_to.as_ref().map_or(0, |back_to| back_to.attempt);
        // The arena first: a rank that could have none must not have joined.
        let writing = Writing::open(&node, self.client.shared_memory)?;
        let begin = writing.begin_page(&node);
        let join = |token| streams::Message::Join {
            token,
            stream: stream.clone(),
            joining: joining.clone(),
            back_to: back_to.clone(),
        };
        let joined = match begin {
            Err(error) => Err(error),
            Ok(begin) => match node.ask_coordinator(&stream, rank, JOIN_PATIENCE, join).await {
                Ok(Answer::Joined(result)) => result.map(|joined| (joined, begin)),
                Ok(_) => Err(Error::internal("a coordinator gave another answer than asked for")),
                Err(error) => Err(error),
            },
        };
        let (JoinedRun { run, below, .. }, begin) = match joined {
            Ok(joined) => joined,
            Err(error) => {
                writing.close(&node);
                return Err(error);
            }
        };
        let key = (stream, run, rank);
        node.state.lock().ranks.on_connected(&key, begin, attempt);
        let told = writing.share(&self.client, request, |arena| Reply::Joined { run, below, arena });
        self.rank = Some(Rank::new(key, options, attempt, writing));
        told
    }

    /// The rank has come back, and stays.
    pub(super) fn settle(&mut self) {
        if let Some(rank) = &mut self.rank {
            rank.settled = true;
        }
    }

    pub(super) async fn define(&mut self, field: Field) -> Result<()> {
        let node = self.client.node.clone();
        let rank = self.rank()?;
        if rank.open.is_some() {
            return Err(Error::step_order(format!("field '{}' cannot be defined within a step", field.name)));
        }
        field.check()?;
        let (stream, run, number) = rank.key();
        let define = |token| streams::Message::Define {
            token,
            stream: stream.clone(),
            run,
            rank: number,
            field: field.clone(),
        };
        if let Answer::Done(result) = node.ask_coordinator(&stream, number, JOIN_PATIENCE, define).await? {
            result?;
        }
        let demand = node.state.lock().ranks.on_defined(&stream, run, field.clone());
        let rank = self.rank()?;
        rank.fields.insert(field.name.clone(), field);
        if let Some(demand) = demand {
            rank.writing.prefault(&node, rank.likely_bytes(&demand));
        }
        Ok(())
    }

    pub(super) async fn set_attr(&mut self, field: Option<String>, key: String, attr: Attr) -> Result<()> {
        let node = self.client.node.clone();
        let rank = self.rank()?;
        if rank.open.is_some() {
            return Err(Error::step_order(format!("attribute '{key}' cannot be set within a step")));
        }
        attr.check(&key)?;
        let (stream, run, number) = rank.key();
        let set = |token| {
            let (stream, field, key, attr) = (stream.clone(), field.clone(), key.clone(), attr.clone());
            streams::Message::SetAttr { token, stream, run, field, key, attr }
        };
        if let Answer::Done(result) = node.ask_coordinator(&stream, number, JOIN_PATIENCE, set).await? {
            result?;
        }
        node.state.lock().ranks.on_attr_set(&stream, run, field.as_deref(), &key, attr);
        Ok(())
    }
}
