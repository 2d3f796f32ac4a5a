//! The life of a stream's steps, as its coordinator sees it: ranks join and end steps, steps close, go to
//! those attached, are released, and are free again.
//!
//! Every method takes what happened and returns what must now be done, as [`Effect`]s. The modules, each of which uses
//! only those before it:
//!
//! - `options`: what the ranks of a run agree on;
//! - `contribution`: what one rank has put in one step;
//! - `report`: a closed step, as readers are told of it;
//! - `run_end`: how ranks and runs end;
//! - `holders`, `run_told`: which of several readers hold which step, and what somebody was told of a run;
//! - `cohort`: the ranks of a consumer that is parallel;
//! - `share`: readers among which steps are shared out;
//! - `attachment`: a consumer or a pipeline;
//! - `gathering`: the ranks of a cohort that have come, until all have;
//! - `situation`: what a reader waits for, and which readers there are;
//! - `matched`, `matching`: what of the offer all that is attached needs;
//! - `effect`: what must be done after something happened;
//! - `rank`, `step`, `statics`, `offer`, `run_phase`, `run`: a run, its ranks, its steps, and what belongs to no step;
//! - `ledger`: what a home has told, in case that a coordinator dies;
//! - `takeover`: what a coordinator that takes the place of another one is being told;
//! - `coordinator`: the state of one stream, and what changes it.

mod attachment;
mod cohort;
mod contribution;
mod coordinator;
mod counts;
mod effect;
mod gathering;
mod holders;
mod ledger;
mod matched;
mod matching;
mod numbers;
mod offer;
mod options;
mod queued;
mod rank;
mod reader_status;
mod report;
mod run;
mod run_end;
mod run_phase;
mod run_told;
mod share;
mod situation;
mod statics;
mod step;
mod takeover;
mod unmatched;

pub use attachment::{Attachment, AttachmentId, AttachmentRecord, Delivery, Start, Take};
pub use cohort::{CohortRank, CohortRecord, ToldStep};
pub use contribution::{FieldContribution, RegisteredBlocks, StepContribution};
pub use coordinator::{Arrival, StreamCoordinator, StreamPhase, StreamStatus};
pub use counts::{HandedCounts, StepCounts};
pub use effect::{Effect, Joined};
pub use gathering::Coming;
pub use ledger::{Ledger, RankLedger, RankReport, RunLedger, RunReport};
pub use matched::FieldMatch;
pub use matching::{Matching, Offered, ReaderMatches};
pub use options::{Durability, Policy, RunOptions, check_replicas, check_replicas_among};
pub use rank::{Joining, Rejoin};
pub use reader_status::ReaderStatus;
pub use report::{FieldReport, HeldStep, RECORDS_TRAVEL_RANKS_MAX, StepReport};
pub use run_end::{RankCounts, RankEnd, RunEnd, RunOutcome, RunSummary};
pub use share::{ShareRecord, Sharer, Sharing};
pub use situation::{ReadersThere, Situation};
