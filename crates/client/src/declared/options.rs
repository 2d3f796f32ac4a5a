//! How handles are opened.
//!
//! Generated from interface/forebay.toml by scripts/generate_faces.py: change it there.

use crate::group_options::GroupOptions;
use crate::on_loss::OnLoss;
use crate::on_rank_loss::OnRankLoss;
use forebay_core::assign::Assign;
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, StepNumber};
use forebay_core::placement::Placement;
use forebay_core::steps::Durability;
use forebay_core::steps::Policy;
use forebay_core::steps::Sharing;
use forebay_core::steps::Start;
use forebay_core::steps::Take;

/// How to open a producer.
#[derive(Debug, Clone)]
pub struct ProducerOptions {
    /// The group.
    pub group: GroupOptions,
    /// The name under which readers find the simulation's output.
    pub stream: String,
    /// This rank, counted from 0.
    pub rank: u32,
    /// How many ranks there are; all of them must open the stream.
    pub size: u32,
    /// What becomes of closed steps when readers or memory cannot keep up: `Policy::DropOldest` (they are
    /// counted, readers see a gap), `Policy::Block` (puts wait for room) or `Policy::Latest`.
    pub policy: Policy,
    /// How many closed steps are kept although nobody reads them.
    pub keep: u32,
    /// What to do when the home server is gone, and no other one takes this rank within two seconds:
    /// `OnLoss::Skip` (the simulation goes on unstaged: `Producer::lost` tells). With `OnLoss::Fail` a call waits
    /// for another one until `timeout`, and then fails with `ErrorKind::Unreachable`; so it does where something
    /// of the open step is lost.
    pub on_loss: OnLoss,
    /// Which server holds a block: the rank's home, which is on its host if any is (`Placement::Nearest`), a
    /// server by the block's id, so that they are spread evenly (`Placement::ByBlock`), or the one that a
    /// function of a `ToPlace` names. A block that the home does not hold costs a second question. Blocks of up
    /// to 1 KiB travel with the step and are not placed.
    pub placement: Placement,
    /// After a restart from a checkpoint: the run, and its last step that is still true.
    pub continues: Option<(RunNumber, StepNumber)>,
    /// Bytes of closed steps that may wait for readers before the policy drops some; by default 1 GiB.
    pub queue_bytes: u64,
    /// How many servers hold each block, 1 to 8: all but one of them may die. A copy on another host is
    /// preferred; on one host it costs almost nothing, since the servers share the memory.
    pub replicas: u32,
    /// With copies, what is safe when: what was put once the step has ended or `Producer::flush` has returned
    /// (`Durability::Local`), or each block once its put has returned (`Durability::Replicated`).
    pub durability: Durability,
    /// How many readers with different names are to be attached before the first step of the run begins;
    /// `ErrorKind::Timeout` at the deadline names those that have come. Two codes that read each other both need
    /// it from their first step.
    pub wait_for_readers: u32,
    /// What names the job that the ranks belong to, the same for all of them: ranks of two jobs never make one
    /// run. By default as the launcher says (PMIx, Slurm, Open MPI, MPICH on one host); where it says nothing,
    /// ranks are told apart by their numbers alone. A program that uses MPI opens its ranks by its communicator
    /// instead (`new_job_name`).
    pub job: Option<String>,
    /// The number of the first step, or of one before it: with `stride` it says which numbers steps have.
    /// Readers' periods count the steps from there on. A step with another number is refused.
    pub first: u64,
    /// The distance between the numbers of two steps: 10 where a simulation hands over each tenth of its
    /// iterations.
    pub stride: u64,
}

impl ProducerOptions {
    /// With all defaults.
    pub fn new(stream: &str) -> ProducerOptions {
        ProducerOptions {
            group: GroupOptions::default(),
            stream: stream.to_owned(),
            rank: 0,
            size: 1,
            policy: Policy::DropOldest,
            keep: 0,
            on_loss: OnLoss::Skip,
            placement: Placement::Nearest,
            continues: None,
            queue_bytes: 1 << 30,
            replicas: 1,
            durability: Durability::Local,
            wait_for_readers: 0,
            job: None,
            first: 0,
            stride: 1,
        }
    }
}

/// How to open a consumer.
#[derive(Debug, Clone)]
pub struct ConsumerOptions {
    /// The group.
    pub group: GroupOptions,
    /// The name that the producer gave. It need not exist yet.
    pub stream: String,
    /// What is needed, by default all fields.
    pub needs: Needs,
    /// How many steps may be held at once, 1 to 1024. More wait in the stream, under its policy.
    pub window: u32,
    /// Whether to go on with the next run when the simulation is restarted.
    pub follow: bool,
    /// With which step to begin: `Start::Next`, the next step that begins; `Start::Oldest`, the oldest that the
    /// stream keeps; `Start::Latest`, the newest that is held; `Start::Held`, those that are held now and none
    /// that comes later, so that nothing is demanded of the simulation; `Start::Run`, the first step of a run: of
    /// the one that is there, if it has begun none yet, else of the next one, whatever ran before;
    /// `Start::Resume`, where the last reader of this `name` has stopped, as the group knows, with the next step
    /// that begins if there was none: what it had not finished with when it died is given again; or a cursor:
    /// where an earlier reader of the stream stopped, in this process or another, as `Consumer::cursor` tells.
    /// Steps that are held no longer are left out, and counted as `missed` with the first one that comes, as far
    /// as the group knows. `ErrorKind::NotFound` if the stream has had no such run.
    pub start: Start,
    /// Bytes of earlier steps that arrays may keep in the servers' memory. Beyond that the blocks of further
    /// steps are copied, so that a reader that collects arrays cannot fill the servers. The arrays of one step
    /// may be kept whatever its size; by default 1 GiB.
    pub pin_bytes: u64,
    /// Which of the steps that wait for it the reader is given: `Take::All` of them, in order; or the
    /// `Take::Latest`, for a live view: then `next` gives the newest closed step and counts those passed over as
    /// `missed`. Neither the simulation nor other readers notice, whatever the stream's policy.
    pub take: Take,
    /// Of a parallel reader: this rank, counted from 0.
    pub rank: u32,
    /// How many ranks the reader has. They begin once all have come, have one position in the stream, and are
    /// given the same steps in the same order; a step is held until the last rank has released it.
    pub size: u32,
    /// Of a parallel reader: what the other ranks do when one dies, `OnRankLoss::Fail` (they are told
    /// `ErrorKind::Lost`, which names it) or `OnRankLoss::GoOn` (without it: what it had not finished with,
    /// nobody reads).
    pub on_loss: OnRankLoss,
    /// Of a parallel reader: which blocks are this rank's, as `Step::mine` tells. `Assign::All`; `Assign::Ranks`,
    /// those of whole ranks of the simulation, so that fields which belong together stay so;
    /// `Assign::RoundRobin`; `Assign::Balanced`, by bytes; `Assign::Slab`, a slab of each field that has a global
    /// shape, cut along its first dimension that is long enough; `Assign::HostRanks`, `Assign::HostRoundRobin` or
    /// `Assign::HostBalanced`, where each rank is given first what lies on its own host.
    pub assign: Assign,
    /// Whether the steps are shared out among all readers of this `name`: `Sharing::OnDemand`, each step goes to
    /// the reader that has asked for one first; `Sharing::RoundRobin`, to the next in turn. Readers come and go;
    /// a step with which one that dies had not finished is given to another one, which is told how often that has
    /// happened (`attempt`). A reader has finished with a step when it releases it.
    pub share: Sharing,
}

impl ConsumerOptions {
    /// With all defaults.
    pub fn new(stream: &str) -> ConsumerOptions {
        ConsumerOptions {
            group: GroupOptions::default(),
            stream: stream.to_owned(),
            needs: Needs::all(1),
            window: 4,
            follow: false,
            start: Start::Next,
            pin_bytes: 1 << 30,
            take: Take::All,
            rank: 0,
            size: 1,
            on_loss: OnRankLoss::Fail,
            assign: Assign::All,
            share: Sharing::None,
        }
    }
}

/// How to open a space.
#[derive(Debug, Clone)]
pub struct SpaceOptions {
    /// The group.
    pub group: GroupOptions,
    /// How many servers hold each array that this handle puts, 1 to 8: all but one of them may die.
    /// `ErrorKind::Invalid` if the group has fewer.
    pub replicas: u32,
}

impl SpaceOptions {
    /// With all defaults.
    pub fn new(group: GroupOptions) -> SpaceOptions {
        SpaceOptions { group, replicas: 1 }
    }
}
