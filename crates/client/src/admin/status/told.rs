//! What the status of a group says.
//! Generated from interface/status.toml by scripts/generate_faces.py: change it there.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a group's servers say of themselves, and of their streams and pipelines.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupStatus {
    /// Which group this is.
    pub lineage: String,
    /// Which agreement on its members is in force.
    pub epoch: u64,
    /// How many servers it has.
    pub size: u64,
    /// In the order of their numbers.
    pub servers: Vec<ServerStatus>,
    /// The latest servers that were given up.
    pub lost: Vec<LostServer>,
    /// By name.
    pub streams: Vec<StreamStatus>,
    /// How many streams had no room in the message; those in use come first.
    pub streams_left_out: u64,
    /// By name.
    pub pipelines: Vec<PipelineStatus>,
}

/// A server. Of one that does not answer there are only its number, its process and why.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ServerStatus {
    /// Its number: 2 is what people are shown as server2.
    pub server: u64,
    /// Its process.
    pub pid: u64,
    /// Only if it does not answer: why; then nothing else is told of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The version of its command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The agreement on the members that it knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// How many members that has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub members: Option<u64>,
    /// The numbers of those of them that it takes for dead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone: Option<Vec<u64>>,
    /// Where it listens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub addresses: Option<Vec<String>>,
    /// What the first server of the group decided with `--silence`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub silence_seconds: Option<f64>,
    /// The same of `--encrypt`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encrypts_bulk_data: Option<bool>,
    /// Since it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uptime_seconds: Option<f64>,
    /// How many bytes of blocks it may hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_bytes: Option<u64>,
    /// How many it holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staged_bytes: Option<u64>,
    /// How many it held at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_staged_bytes: Option<u64>,
    /// Memory of its arenas that is in use: touched pages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arena_bytes: Option<u64>,
    /// What its process occupies beside the arenas.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rss_bytes: Option<u64>,
    /// What it knows of where blocks are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory_bytes: Option<u64>,
    /// Of how many blocks; one that touches tiles of several owners counts at each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u64>,
    /// Records of blocks that wait for their step to be closed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_records_bytes: Option<u64>,
    /// Of how many steps others are to hold copies for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicated_steps: Option<u64>,
    /// Of how many of those too few do now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps_lacking_copies: Option<u64>,
    /// Of how many steps it holds copies for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup_steps: Option<u64>,
    /// How many there are: `producers`, `placements` (of ranks, at servers that are not their home), `consumers`,
    /// `spaces`, `workers`, `admins`, `servers`; a role that nobody has had yet is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<BTreeMap<String, u64>>,
    /// Those of them whose handle was given a name, at most 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub named: Option<Vec<ConnectionStatus>>,
}

/// A connection of a handle that was opened with a name. A handle can have connections to several servers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ConnectionStatus {
    /// What it is for, as in `connections`.
    pub role: String,
    /// The name that its handle was given.
    pub name: String,
    /// Where that runs.
    pub host: String,
    /// Its process.
    pub pid: u64,
}

/// A server that its group has given up.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LostServer {
    /// Its number.
    pub server: u64,
    /// Its process.
    pub pid: u64,
    /// The first agreement on the members without it.
    pub epoch: u64,
    /// The number with which its process has come back.
    pub back_as: Option<u64>,
}

/// A stream, and its latest run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamStatus {
    /// Its name.
    pub name: String,
    /// The server that coordinates it.
    pub server: u64,
    /// Its latest run: a restarted simulation is a new one.
    pub run: u64,
    /// Of that run: `running`, `finished` (all its ranks have closed it) or `crashed`; `awaited` if none is known.
    pub phase: String,
    /// Since when, in seconds since 1970, as the server's clock said; null if none is known.
    pub since: Option<f64>,
    /// Which ranks did not close it, and what became of them: of one that has crashed, and of one that goes on
    /// without some.
    pub why: Option<String>,
    /// The step that the furthest of its ranks has begun, also while nobody is attached; null if no server is the
    /// home of one of its ranks now.
    pub running_step: Option<u64>,
    /// How fast it goes on, over the last ten seconds.
    pub steps_per_second: Option<f64>,
    /// The highest step that one of its ranks is known to have begun.
    pub reached: Option<u64>,
    /// What becomes of its steps when readers or memory cannot keep up: `drop-oldest`, `block` or `latest`; null if
    /// it has had no run.
    pub policy: Option<String>,
    /// For how many readers with different names its first step waits (`wait_for_readers`); null if it does not, or
    /// has begun.
    pub awaited_readers: Option<u64>,
    /// How many it has.
    pub ranks: RankCounts,
    /// How many this run has had, as counted by the server that coordinates the stream now: one that takes the place
    /// of another that died begins anew, and of one that leaves it goes on.
    pub steps: StepCounts,
    /// The epoch in which that server began to count; 0 if all are counted from the beginning of the run.
    pub counted_since_epoch: u64,
    /// The latest closed step that is still held.
    pub latest: Option<u64>,
    /// The highest step that was closed, as the server that coordinates the stream now has seen: held or not.
    pub last_closed: Option<u64>,
    /// What is held of its steps.
    pub held: HeldCounts,
    /// How many consumers and pipelines.
    pub attached: u64,
    /// These, at most 1000.
    pub readers: Vec<ReaderStatus>,
    /// What it offers.
    pub fields: Vec<FieldStatus>,
    /// Attributes of the stream, by name.
    pub attrs: serde_json::Map<String, serde_json::Value>,
    /// Whether fields and attributes had no room in the message.
    pub details_left_out: bool,
}

/// How many ranks a run has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RankCounts {
    /// As the simulation said.
    pub size: u64,
    /// How many are there.
    pub open: u64,
}

/// How many steps a run has had.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepCounts {
    /// Closed ones.
    pub closed: u64,
    /// How many of those were dropped, since there was no room or the policy said so.
    pub dropped: u64,
    /// How many of them were torn: a rank died in them, or left them out.
    pub torn: u64,
}

/// What servers hold of a stream's steps.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HeldCounts {
    /// Closed steps of which something is held.
    pub steps: u64,
    /// Of their blocks.
    pub bytes: u64,
    /// How many blocks.
    pub blocks: u64,
}

/// A field that a stream offers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FieldStatus {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: String,
    /// Null if its blocks have no place in one.
    pub shape: Option<Vec<u64>>,
    /// How many dimensions it has.
    pub ndim: u64,
    /// Whether it belongs to the run: put once, and given to every reader.
    #[serde(rename = "static")]
    pub is_static: bool,
    /// It is offered at every so many of the producer's steps.
    pub every: u64,
    /// Names of the dimensions, or empty.
    pub dims: Vec<String>,
    /// As the simulation gave them.
    pub units: String,
    /// Its attributes, by name.
    pub attrs: serde_json::Map<String, serde_json::Value>,
}

/// A consumer or a pipeline that is attached to a stream.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReaderStatus {
    /// `consumer`, `pipeline` or `subscriptions`.
    pub kind: String,
    /// The name that it was given.
    pub name: Option<String>,
    /// Where it runs; null of a pipeline.
    pub host: Option<String>,
    /// Its process; null of a pipeline.
    pub pid: Option<u64>,
    /// How many read: 1, unless it is parallel, or several share its steps.
    pub ranks: u64,
    /// The server that it is connected to.
    pub server: u64,
    /// Its contract.
    pub needs: ReaderNeeds,
    /// `all` or `latest`.
    pub take: String,
    /// How many steps it may hold.
    pub window: u64,
    /// How many it holds.
    pub held: u64,
    /// Closed steps that wait for it: its lag.
    pub waiting: u64,
    /// Steps that it has missed in all; as with `steps`, counted anew when its coordinator has died.
    pub missed: u64,
    /// The last step that it was told of.
    pub last: Option<u64>,
    /// What is said of a contract that met none of the last 16 steps: the numbers seen, and what to do.
    pub unmatched: Option<String>,
}

/// A contract: all fields, or these.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReaderNeeds {
    /// Only where all fields are needed: every so many of the steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// Only where some fields are needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fields: Option<Vec<FieldNeed>>,
}

/// A field of a contract.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FieldNeed {
    /// Its name.
    pub field: String,
    /// Every so many of the steps at which it is offered.
    pub every: u64,
    /// From which step on they are counted; null: from the first.
    pub first: Option<u64>,
    /// The part of it that is needed, as NumPy writes it; null: all.
    pub region: Option<String>,
    /// Whether it may be missing.
    pub optional: bool,
}

/// A pipeline. Of one that has ended, or whose coordinator does not answer, less is told, and the rest is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PipelineStatus {
    /// Its name.
    pub name: String,
    /// What it runs on.
    pub stream: Option<String>,
    /// What it runs.
    pub code: Option<String>,
    /// The server that coordinates it.
    pub server: Option<u64>,
    /// Why it could go on no longer; it is shown until it is destroyed.
    pub ended: Option<String>,
    /// Why less is told: its coordinator does not answer. Then `workers` is all that is known of it.
    pub error: Option<String>,
    /// How many of its workers are ready.
    pub workers_ready: Option<u64>,
    /// How many take part: one that is being started for a server which has joined is in neither until it is ready.
    pub workers_expected: Option<u64>,
    /// Whether ranks drive it.
    pub driven: Option<bool>,
    /// The subscription at whose events it runs, if it does so alone.
    pub on: Option<String>,
    /// Of one that ranks drive: the steps that some rank has activated and not deactivated.
    pub active_steps: Option<Vec<u64>>,
    /// The step that it is at.
    pub running_step: Option<u64>,
    /// Steps that it has seen through.
    pub executed: Option<u64>,
    /// Steps that failed.
    pub failed: Option<u64>,
    /// Steps that were dropped before it came to them.
    pub missed: Option<u64>,
    /// Steps that were run again, since a server had died with a worker.
    pub repeated: Option<u64>,
    /// The last step.
    pub last_step: Option<u64>,
    /// How long it took.
    pub last_seconds: Option<f64>,
    /// The last error, with its traceback.
    pub last_error: Option<String>,
    /// Its workers.
    pub workers: Vec<WorkerStatus>,
}

/// A worker of a pipeline.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerStatus {
    /// The server beside which it runs.
    pub server: u64,
    /// The name of its pipeline.
    pub pipeline: String,
    /// Its process.
    pub pid: Option<u64>,
    /// How often it was started.
    pub starts: u64,
    /// Whether it is at a step.
    pub executing: bool,
    /// The last lines that it printed.
    pub log: Vec<String>,
}

/// What `forebay contracts` and `Admin.contracts` tell: what a stream's latest run offers, and what of it each
/// reader needs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StreamContracts {
    /// The stream's name.
    pub stream: String,
    /// Its latest run; null if none is known.
    pub run: Option<u64>,
    /// The highest step of it that was closed, as far as is known.
    pub last_closed: Option<u64>,
    /// What it offers, and what is staged of that: the union of all contracts.
    pub fields: Vec<OfferedField>,
    /// The consumers and pipelines that are attached.
    pub readers: Vec<ReaderContract>,
    /// How many of those had no room in the message.
    pub readers_left_out: u64,
}

/// A field that a stream's latest run offers, and what all readers together need of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OfferedField {
    /// Its name.
    pub field: String,
    /// The type of its elements.
    pub dtype: String,
    /// Whether it belongs to the run, and not to its steps.
    #[serde(rename = "static")]
    pub is_static: bool,
    /// The first step number at which it is offered; null of one that is static.
    pub first: Option<u64>,
    /// How far apart in numbers two of its steps are; null of one that is static.
    pub apart: Option<u64>,
    /// How many bytes it has, at a step; null if it has no global shape.
    pub bytes: Option<u64>,
    /// How many readers need it.
    pub readers: u64,
    /// The last closed step at which something of it was staged, as the server that coordinates the stream now has
    /// seen; null of one that is static.
    pub last_staged: Option<u64>,
    /// How many bytes of it were staged then, ghosts among them.
    pub staged_bytes: Option<u64>,
}

/// A consumer or a pipeline, and what it needs of the fields that are offered.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ReaderContract {
    /// `consumer`, `pipeline` or `subscriptions`.
    pub kind: String,
    /// The name that it was given.
    pub name: Option<String>,
    /// Where it runs; null of a pipeline.
    pub host: Option<String>,
    /// Its process; null of a pipeline.
    pub pid: Option<u64>,
    /// How many read: 1, unless it is parallel, or several share its steps.
    pub ranks: u64,
    /// The server that it is connected to.
    pub server: u64,
    /// Its contract, as it was given.
    pub needs: ReaderNeeds,
    /// The fields that are offered and needed.
    pub matches: Vec<FieldMatch>,
    /// The fields that it needs and that are not offered: optional ones, or the ranks have not declared all yet.
    pub missing: Vec<String>,
    /// What is said of a contract that met none of the last 16 steps.
    pub unmatched: Option<String>,
}

/// What a reader needs of a field.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct FieldMatch {
    /// Its name.
    pub field: String,
    /// Whether it belongs to the run, and not to its steps.
    #[serde(rename = "static")]
    pub is_static: bool,
    /// Every so many of the steps at which it is offered.
    pub every: u64,
    /// The first of them, by its number; null of one that is static.
    pub first: Option<u64>,
    /// How far apart in numbers two of them are; null of one that is static.
    pub apart: Option<u64>,
    /// The part of it that is needed, as NumPy writes it; null: all.
    pub region: Option<String>,
    /// `along`: those of blocks and field, with the data; `alone`: those of the field, and no data; `extremes`: the
    /// smallest and the largest of blocks and tiles, with the data, as subscriptions need them.
    pub statistics: Option<String>,
    /// How many bytes that is at a step, without ghosts; null if the field has no global shape.
    pub bytes: Option<u64>,
    /// The last closed step of the run at which it was needed.
    pub last: Option<u64>,
}

/// What `forebay subscriptions` and `Admin.subscriptions` tell: what each subscription watches for, and what has
/// come of it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SubscriptionStatus {
    /// Its name.
    pub name: String,
    /// The stream whose steps it watches; null: it watches the space.
    pub stream: Option<String>,
    /// The server that coordinates it.
    pub server: Option<u64>,
    /// What it watches for.
    pub text: String,
    /// At every so many of the steps at which its fields are offered.
    pub every: u64,
    /// At which evaluations there are events: `each`, `rise`, `fall` or `both`.
    pub on: String,
    /// After how many events it ends.
    pub limit: Option<u64>,
    /// When it ends at the latest, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// `skip`: what is not known takes no part; `reset`: it counts as if it did not hold.
    pub missing: String,
    /// Whether it goes on without anybody who listens.
    pub keep: bool,
    /// Whether nothing is evaluated.
    pub paused: bool,
    /// How many listen to it now.
    pub subscribers: u64,
    /// How often it was evaluated.
    pub evaluated: u64,
    /// How often what it watches for held.
    pub held: u64,
    /// How many events there were.
    pub events: u64,
    /// How often whether it holds was not known, by the sort of reason: `torn`, `not covered`, `lost`, `not offered`,
    /// `overflow`, `history`, `no partner`, `mismatch`.
    pub unknown: serde_json::Map<String, serde_json::Value>,
    /// Why the last evaluation gave nothing known, if it did not.
    pub unknown_why: Option<String>,
    /// How many steps were dropped before they could be evaluated.
    pub missed: u64,
    /// Seconds of one core that evaluating it has taken; what several ask together is shared out evenly.
    pub seconds: f64,
    /// Bytes that were read for it, in the same way.
    pub read_bytes: u64,
    /// How long it took in all until what came of steps was told.
    pub response: ResponseStatus,
    /// The run of the last step that was evaluated.
    pub last_run: Option<u64>,
    /// The last step that was evaluated.
    pub last_step: Option<u64>,
    /// The step of the last event.
    pub last_event_step: Option<u64>,
}

/// What servers were busy with from when steps were closed until their events were told, in seconds over all
/// evaluations: divided by `evaluated` it is that of one. Steps that wait for one before them to be evaluated are
/// counted from when it is their turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResponseStatus {
    /// Finding out what is due, and telling events.
    pub managing: f64,
    /// Waiting for bytes that other servers hold.
    pub waiting: f64,
    /// Computing, at the server that took longest.
    pub computing: f64,
    /// Asking along the tree of servers, and putting answers together.
    pub aggregating: f64,
}
