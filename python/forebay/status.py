"""What `Admin.status` returns, as types: `GroupStatus` is the whole.

Generated from interface/status.toml by scripts/generate_faces.py: change it there.
"""

from typing import Any, NotRequired, TypedDict

__all__ = [
    "ConnectionStatus",
    "FieldMatch",
    "FieldNeed",
    "FieldStatus",
    "GroupStatus",
    "HeldCounts",
    "LostServer",
    "OfferedField",
    "PipelineStatus",
    "RankCounts",
    "ReaderContract",
    "ReaderNeeds",
    "ReaderStatus",
    "ResponseStatus",
    "ServerStatus",
    "StepCounts",
    "StreamContracts",
    "StreamStatus",
    "SubscriptionStatus",
    "WorkerStatus",
]


class ConnectionStatus(TypedDict):
    """A connection of a handle that was opened with a name. A handle can have connections to several servers."""

    role: str
    """What it is for, as in `connections`."""
    name: str
    """The name that its handle was given."""
    host: str
    """Where that runs."""
    pid: int
    """Its process."""


class ServerStatus(TypedDict):
    """A server. Of one that does not answer there are only its number, its process and why."""

    server: int
    """Its number: 2 is what people are shown as server2."""
    pid: int
    """Its process."""
    error: NotRequired[str]
    """Only if it does not answer: why; then nothing else is told of it."""
    version: NotRequired[str]
    """The version of its command."""
    epoch: NotRequired[int]
    """The agreement on the members that it knows."""
    members: NotRequired[int]
    """How many members that has."""
    gone: NotRequired[list[int]]
    """The numbers of those of them that it takes for dead."""
    addresses: NotRequired[list[str]]
    """Where it listens."""
    silence_seconds: NotRequired[float]
    """What the first server of the group decided with `--silence`."""
    encrypts_bulk_data: NotRequired[bool]
    """The same of `--encrypt`."""
    uptime_seconds: NotRequired[float]
    """Since it started."""
    budget_bytes: NotRequired[int]
    """How many bytes of blocks it may hold."""
    staged_bytes: NotRequired[int]
    """How many it holds."""
    peak_staged_bytes: NotRequired[int]
    """How many it held at most."""
    arena_bytes: NotRequired[int]
    """Memory of its arenas that is in use: touched pages."""
    rss_bytes: NotRequired[int]
    """What its process occupies beside the arenas."""
    directory_bytes: NotRequired[int]
    """What it knows of where blocks are."""
    blocks: NotRequired[int]
    """Of how many blocks; one that touches tiles of several owners counts at each."""
    held_records_bytes: NotRequired[int]
    """Records of blocks that wait for their step to be closed."""
    replicated_steps: NotRequired[int]
    """Of how many steps others are to hold copies for it."""
    steps_lacking_copies: NotRequired[int]
    """Of how many of those too few do now."""
    backup_steps: NotRequired[int]
    """Of how many steps it holds copies for others."""
    connections: NotRequired[dict[str, int]]
    """How many there are: `producers`, `placements` (of ranks, at servers that are not their home),
    `consumers`, `spaces`, `workers`, `admins`, `servers`; a role that nobody has had yet is left out."""
    named: NotRequired[list[ConnectionStatus]]
    """Those of them whose handle was given a name, at most 100."""


class LostServer(TypedDict):
    """A server that its group has given up."""

    server: int
    """Its number."""
    pid: int
    """Its process."""
    epoch: int
    """The first agreement on the members without it."""
    back_as: int | None
    """The number with which its process has come back."""


class RankCounts(TypedDict):
    """How many ranks a run has."""

    size: int
    """As the simulation said."""
    open: int
    """How many are there."""


class StepCounts(TypedDict):
    """How many steps a run has had."""

    closed: int
    """Closed ones."""
    dropped: int
    """How many of those were dropped, since there was no room or the policy said so."""
    torn: int
    """How many of them were torn: a rank died in them, or left them out."""


class HeldCounts(TypedDict):
    """What servers hold of a stream's steps."""

    steps: int
    """Closed steps of which something is held."""
    bytes: int
    """Of their blocks."""
    blocks: int
    """How many blocks."""


class FieldNeed(TypedDict):
    """A field of a contract."""

    field: str
    """Its name."""
    every: int
    """Every so many of the steps at which it is offered."""
    first: int | None
    """From which step on they are counted; null: from the first."""
    region: str | None
    """The part of it that is needed, as NumPy writes it; null: all."""
    optional: bool
    """Whether it may be missing."""


class ReaderNeeds(TypedDict):
    """A contract: all fields, or these."""

    every: NotRequired[int]
    """Only where all fields are needed: every so many of the steps."""
    fields: NotRequired[list[FieldNeed]]
    """Only where some fields are needed."""


class ReaderStatus(TypedDict):
    """A consumer or a pipeline that is attached to a stream."""

    kind: str
    """`consumer`, `pipeline` or `subscriptions`."""
    name: str | None
    """The name that it was given."""
    host: str | None
    """Where it runs; null of a pipeline."""
    pid: int | None
    """Its process; null of a pipeline."""
    ranks: int
    """How many read: 1, unless it is parallel, or several share its steps."""
    server: int
    """The server that it is connected to."""
    needs: ReaderNeeds
    """Its contract."""
    take: str
    """`all` or `latest`."""
    window: int
    """How many steps it may hold."""
    held: int
    """How many it holds."""
    waiting: int
    """Closed steps that wait for it: its lag."""
    missed: int
    """Steps that it has missed in all; as with `steps`, counted anew when its coordinator has died."""
    last: int | None
    """The last step that it was told of."""
    unmatched: str | None
    """What is said of a contract that met none of the last 16 steps: the numbers seen, and what to do."""


class FieldStatus(TypedDict):
    """A field that a stream offers."""

    name: str
    """Its name."""
    dtype: str
    """The type of its elements."""
    shape: list[int] | None
    """Null if its blocks have no place in one."""
    ndim: int
    """How many dimensions it has."""
    static: bool
    """Whether it belongs to the run: put once, and given to every reader."""
    every: int
    """It is offered at every so many of the producer's steps."""
    dims: list[str]
    """Names of the dimensions, or empty."""
    units: str
    """As the simulation gave them."""
    attrs: dict[str, Any]
    """Its attributes, by name."""


class StreamStatus(TypedDict):
    """A stream, and its latest run."""

    name: str
    """Its name."""
    server: int
    """The server that coordinates it."""
    run: int
    """Its latest run: a restarted simulation is a new one."""
    phase: str
    """Of that run: `running`, `finished` (all its ranks have closed it) or `crashed`; `awaited` if none is
    known."""
    since: float | None
    """Since when, in seconds since 1970, as the server's clock said; null if none is known."""
    why: str | None
    """Which ranks did not close it, and what became of them: of one that has crashed, and of one that goes
    on without some."""
    running_step: int | None
    """The step that the furthest of its ranks has begun, also while nobody is attached; null if no server
    is the home of one of its ranks now."""
    steps_per_second: float | None
    """How fast it goes on, over the last ten seconds."""
    reached: int | None
    """The highest step that one of its ranks is known to have begun."""
    policy: str | None
    """What becomes of its steps when readers or memory cannot keep up: `drop-oldest`, `block` or `latest`;
    null if it has had no run."""
    awaited_readers: int | None
    """For how many readers with different names its first step waits (`wait_for_readers`); null if it does
    not, or has begun."""
    ranks: RankCounts
    """How many it has."""
    steps: StepCounts
    """How many this run has had, as counted by the server that coordinates the stream now: one that takes
    the place of another that died begins anew, and of one that leaves it goes on."""
    counted_since_epoch: int
    """The epoch in which that server began to count; 0 if all are counted from the beginning of the run."""
    latest: int | None
    """The latest closed step that is still held."""
    last_closed: int | None
    """The highest step that was closed, as the server that coordinates the stream now has seen: held or
    not."""
    held: HeldCounts
    """What is held of its steps."""
    attached: int
    """How many consumers and pipelines."""
    readers: list[ReaderStatus]
    """These, at most 1000."""
    fields: list[FieldStatus]
    """What it offers."""
    attrs: dict[str, Any]
    """Attributes of the stream, by name."""
    details_left_out: bool
    """Whether fields and attributes had no room in the message."""


class WorkerStatus(TypedDict):
    """A worker of a pipeline."""

    server: int
    """The server beside which it runs."""
    pipeline: str
    """The name of its pipeline."""
    pid: int | None
    """Its process."""
    starts: int
    """How often it was started."""
    executing: bool
    """Whether it is at a step."""
    log: list[str]
    """The last lines that it printed."""


class PipelineStatus(TypedDict):
    """A pipeline. Of one that has ended, or whose coordinator does not answer, less is told, and the rest is null."""

    name: str
    """Its name."""
    stream: str | None
    """What it runs on."""
    code: str | None
    """What it runs."""
    server: int | None
    """The server that coordinates it."""
    ended: str | None
    """Why it could go on no longer; it is shown until it is destroyed."""
    error: str | None
    """Why less is told: its coordinator does not answer. Then `workers` is all that is known of it."""
    workers_ready: int | None
    """How many of its workers are ready."""
    workers_expected: int | None
    """How many take part: one that is being started for a server which has joined is in neither until it
    is ready."""
    driven: bool | None
    """Whether ranks drive it."""
    on: str | None
    """The subscription at whose events it runs, if it does so alone."""
    active_steps: list[int] | None
    """Of one that ranks drive: the steps that some rank has activated and not deactivated."""
    running_step: int | None
    """The step that it is at."""
    executed: int | None
    """Steps that it has seen through."""
    failed: int | None
    """Steps that failed."""
    missed: int | None
    """Steps that were dropped before it came to them."""
    repeated: int | None
    """Steps that were run again, since a server had died with a worker."""
    last_step: int | None
    """The last step."""
    last_seconds: float | None
    """How long it took."""
    last_error: str | None
    """The last error, with its traceback."""
    workers: list[WorkerStatus]
    """Its workers."""


class GroupStatus(TypedDict):
    """What a group's servers say of themselves, and of their streams and pipelines."""

    lineage: str
    """Which group this is."""
    epoch: int
    """Which agreement on its members is in force."""
    size: int
    """How many servers it has."""
    servers: list[ServerStatus]
    """In the order of their numbers."""
    lost: list[LostServer]
    """The latest servers that were given up."""
    streams: list[StreamStatus]
    """By name."""
    streams_left_out: int
    """How many streams had no room in the message; those in use come first."""
    pipelines: list[PipelineStatus]
    """By name."""


class OfferedField(TypedDict):
    """A field that a stream's latest run offers, and what all readers together need of it."""

    field: str
    """Its name."""
    dtype: str
    """The type of its elements."""
    static: bool
    """Whether it belongs to the run, and not to its steps."""
    first: int | None
    """The first step number at which it is offered; null of one that is static."""
    apart: int | None
    """How far apart in numbers two of its steps are; null of one that is static."""
    bytes: int | None
    """How many bytes it has, at a step; null if it has no global shape."""
    readers: int
    """How many readers need it."""
    last_staged: int | None
    """The last closed step at which something of it was staged, as the server that coordinates the stream
    now has seen; null of one that is static."""
    staged_bytes: int | None
    """How many bytes of it were staged then, ghosts among them."""


class FieldMatch(TypedDict):
    """What a reader needs of a field."""

    field: str
    """Its name."""
    static: bool
    """Whether it belongs to the run, and not to its steps."""
    every: int
    """Every so many of the steps at which it is offered."""
    first: int | None
    """The first of them, by its number; null of one that is static."""
    apart: int | None
    """How far apart in numbers two of them are; null of one that is static."""
    region: str | None
    """The part of it that is needed, as NumPy writes it; null: all."""
    statistics: str | None
    """`along`: those of blocks and field, with the data; `alone`: those of the field, and no data;
    `extremes`: the smallest and the largest of blocks and tiles, with the data, as subscriptions need
    them."""
    bytes: int | None
    """How many bytes that is at a step, without ghosts; null if the field has no global shape."""
    last: int | None
    """The last closed step of the run at which it was needed."""


class ReaderContract(TypedDict):
    """A consumer or a pipeline, and what it needs of the fields that are offered."""

    kind: str
    """`consumer`, `pipeline` or `subscriptions`."""
    name: str | None
    """The name that it was given."""
    host: str | None
    """Where it runs; null of a pipeline."""
    pid: int | None
    """Its process; null of a pipeline."""
    ranks: int
    """How many read: 1, unless it is parallel, or several share its steps."""
    server: int
    """The server that it is connected to."""
    needs: ReaderNeeds
    """Its contract, as it was given."""
    matches: list[FieldMatch]
    """The fields that are offered and needed."""
    missing: list[str]
    """The fields that it needs and that are not offered: optional ones, or the ranks have not declared all
    yet."""
    unmatched: str | None
    """What is said of a contract that met none of the last 16 steps."""


class StreamContracts(TypedDict):
    """What `forebay contracts` and `Admin.contracts` tell: what a stream's latest run offers, and what of it each reader needs."""

    stream: str
    """The stream's name."""
    run: int | None
    """Its latest run; null if none is known."""
    last_closed: int | None
    """The highest step of it that was closed, as far as is known."""
    fields: list[OfferedField]
    """What it offers, and what is staged of that: the union of all contracts."""
    readers: list[ReaderContract]
    """The consumers and pipelines that are attached."""
    readers_left_out: int
    """How many of those had no room in the message."""


class ResponseStatus(TypedDict):
    """What servers were busy with from when steps were closed until their events were told, in seconds over all evaluations: divided by `evaluated` it is that of one. Steps that wait for one before them to be evaluated are counted from when it is their turn."""

    managing: float
    """Finding out what is due, and telling events."""
    waiting: float
    """Waiting for bytes that other servers hold."""
    computing: float
    """Computing, at the server that took longest."""
    aggregating: float
    """Asking along the tree of servers, and putting answers together."""


class SubscriptionStatus(TypedDict):
    """What `forebay subscriptions` and `Admin.subscriptions` tell: what each subscription watches for, and what has come of it."""

    name: str
    """Its name."""
    stream: str | None
    """The stream whose steps it watches; null: it watches the space."""
    server: int | None
    """The server that coordinates it."""
    text: str
    """What it watches for."""
    every: int
    """At every so many of the steps at which its fields are offered."""
    on: str
    """At which evaluations there are events: `each`, `rise`, `fall` or `both`."""
    limit: int | None
    """After how many events it ends."""
    expires: int | None
    """When it ends at the latest, in milliseconds since 1970."""
    missing: str
    """`skip`: what is not known takes no part; `reset`: it counts as if it did not hold."""
    keep: bool
    """Whether it goes on without anybody who listens."""
    paused: bool
    """Whether nothing is evaluated."""
    subscribers: int
    """How many listen to it now."""
    evaluated: int
    """How often it was evaluated."""
    held: int
    """How often what it watches for held."""
    events: int
    """How many events there were."""
    unknown: dict[str, Any]
    """How often whether it holds was not known, by the sort of reason: `torn`, `not covered`, `lost`, `not
    offered`, `overflow`, `history`, `no partner`, `mismatch`."""
    unknown_why: str | None
    """Why the last evaluation gave nothing known, if it did not."""
    missed: int
    """How many steps were dropped before they could be evaluated."""
    seconds: float
    """Seconds of one core that evaluating it has taken; what several ask together is shared out evenly."""
    read_bytes: int
    """Bytes that were read for it, in the same way."""
    response: ResponseStatus
    """How long it took in all until what came of steps was told."""
    last_run: int | None
    """The run of the last step that was evaluated."""
    last_step: int | None
    """The last step that was evaluated."""
    last_event_step: int | None
    """The step of the last event."""
