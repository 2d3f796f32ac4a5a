//! Joining a stream as one rank.

use crate::connection::group::Group;
use crate::connection::rpc::unexpected;
use crate::declared::ProducerOptions;
use crate::job;
use crate::producer::home_choice::HomeChoice;
use crate::producer::rank::Producer;
use crate::producer::state::ProducerState;
use crate::put_target::PutTarget;
use forebay_core::Result;
use forebay_core::contract::Sequence;
use forebay_core::steps::{Joining, RunOptions};
use forebay_transport::fork::ForkGuard;
use forebay_wire::client::producer::{Reply, Request};
use forebay_wire::connection::Role;
use std::sync::{Arc, Mutex};
use std::time::Instant;

impl Producer {
    /// Joins a stream as one rank. Waits for a few answers of the home server.
    pub fn open(options: &ProducerOptions) -> Result<Producer> {
        let group = Group::find(&options.group)?;
        let run_options = RunOptions {
            size: options.size,
            policy: options.policy,
            keep: options.keep,
            queue_bytes: options.queue_bytes,
            continues: options.continues,
            wait_for_readers: options.wait_for_readers,
            replicas: options.replicas,
            durability: options.durability,
            job: job::of_this_process(options.job.as_deref()),
        };
        let who = group.identity();
        let joining = Joining { rank: options.rank, who, options: run_options };
        joining.check()?;
        let sequence = Sequence { first: options.first, stride: options.stride };
        sequence.check().map_err(|error| error.during(format!("stream '{}'", options.stream)))?;
        let join = Request::Join {
            stream: options.stream.clone(),
            joining: Box::new(joining.clone()),
            back_to: None,
        };
        let mut leaving = Vec::new();
        let deadline = Instant::now() + group.limit();
        let (server, rpc, answer) = group.retry_while_failing_over(deadline, || {
            loop {
                let server = group.home_of_but(options.rank, &leaving)?;
                let rpc = Arc::new(group.connect(server, Role::Producer)?);
                let answer = rpc.call(&join, "to join the stream")?;
                match answer.message {
                    Reply::LetGo => leaving.push(server),
                    _ => return Ok((server, rpc, answer)),
                }
            }
        })?;
        let Reply::Joined { run, arena, .. } = answer.message else {
            return Err(unexpected(&answer.message));
        };
        let home_choice = HomeChoice::new(&group.known());
        Ok(Producer {
            guard: ForkGuard::new(),
            home: Mutex::new(Arc::new(PutTarget::new(server, rpc, arena, &answer.descriptors)?)),
            others: Mutex::default(),
            group,
            stream: options.stream.clone(),
            run,
            joining,
            on_loss: options.on_loss,
            sequence,
            placement: Mutex::new(options.placement.clone()),
            whole_rank: Mutex::default(),
            failed_move: Mutex::default(),
            state: Mutex::new(ProducerState { home_choice, ..ProducerState::default() }),
        })
    }
}
