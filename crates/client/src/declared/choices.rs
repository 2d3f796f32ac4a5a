//! Which values each choice has.
//!
//! Generated from interface/forebay.toml by scripts/generate_faces.py: change it there.

use crate::choice::{Choice, Named};
use crate::group_options::TransportChoice;
use crate::holes::Holes;
use crate::on_loss::OnLoss;
use crate::on_rank_loss::OnRankLoss;
use crate::outcome::Outcome;
use forebay_core::assign::Assign;
use forebay_core::contract::Association;
use forebay_core::contract::Statistics;
use forebay_core::steps::Durability;
use forebay_core::steps::Policy;
use forebay_core::steps::Sharing;
use forebay_core::steps::Take;
use forebay_query::subscription::Missing;
use forebay_query::subscription::On;
use forebay_query::time::Turn;
use forebay_wire::subscription::Change;

impl Choice for Association {
    const WHAT: &str = "association";
    const VALUES: &[Named<Self>] = &[
        Named { value: Some(Association::Cell), number: 0, name: "cell", c_name: "FB_ASSOCIATION_CELL" },
        Named {
            value: Some(Association::Vertex),
            number: 1,
            name: "vertex",
            c_name: "FB_ASSOCIATION_VERTEX",
        },
    ];
}

impl Choice for Policy {
    const WHAT: &str = "policy";
    const VALUES: &[Named<Self>] = &[
        Named {
            value: Some(Policy::DropOldest),
            number: 0,
            name: "drop-oldest",
            c_name: "FB_POLICY_DROP_OLDEST",
        },
        Named { value: Some(Policy::Block), number: 1, name: "block", c_name: "FB_POLICY_BLOCK" },
        Named { value: Some(Policy::Latest), number: 2, name: "latest", c_name: "FB_POLICY_LATEST" },
        Named { value: None, number: 3, name: "spill", c_name: "FB_POLICY_SPILL" },
    ];
}

impl Choice for OnLoss {
    const WHAT: &str = "on_loss";
    const VALUES: &[Named<Self>] = &[
        Named { value: Some(OnLoss::Skip), number: 0, name: "skip", c_name: "FB_ON_LOSS_SKIP" },
        Named { value: Some(OnLoss::Fail), number: 1, name: "fail", c_name: "FB_ON_LOSS_FAIL" },
    ];
}

impl Choice for Durability {
    const WHAT: &str = "durability";
    const VALUES: &[Named<Self>] = &[
        Named { value: Some(Durability::Local), number: 0, name: "local", c_name: "FB_DURABILITY_LOCAL" },
        Named {
            value: Some(Durability::Replicated),
            number: 1,
            name: "replicated",
            c_name: "FB_DURABILITY_REPLICATED",
        },
    ];
}

impl Choice for Take {
    const WHAT: &str = "take";
    const VALUES: &[Named<Self>] = &[
        Named { value: Some(Take::All), number: 0, name: "all", c_name: "FB_TAKE_ALL" },
        Named { value: Some(Take::Latest), number: 1, name: "latest", c_name: "FB_TAKE_LATEST" },
    ];
}

impl Choice for Sharing {
    const WHAT: &str = "share";
    const VALUES: &[Named<Self>] = &[
        Named { value: Some(Sharing::None), number: 0, name: "none", c_name: "FB_SHARE_NONE" },
        Named { value: Some(Sharing::OnDemand), number: 1, name: "on-demand", c_name: "FB_SHARE_ON_DEMAND" },
        Named {
            value: Some(Sharing::RoundRobin),
            number: 2,
            name: "round-robin",
            c_name: "FB_SHARE_ROUND_ROBIN",
        },
    ];
}

impl Choice for OnRankLoss {
    const WHAT: &str = "on_rank_loss";
    const VALUES: &[Named<Self>] = &[
        Named { value: Some(OnRankLoss::Fail), number: 0, name: "fail", c_name: "FB_ON_RANK_LOSS_FAIL" },
        Named { value: Some(OnRankLoss::GoOn), number: 1, name: "go-on", c_name: "FB_ON_RANK_LOSS_GO_ON" },
    ];
}

impl Choice for Assign {
    const WHAT: &str = "assign";
    const VALUES: &[Named<Self>] = &[
        Named { value: Some(Assign::All), number: 0, name: "all", c_name: "FB_ASSIGN_ALL" },
        Named { value: Some(Assign::Ranks), number: 1, name: "ranks", c_name: "FB_ASSIGN_RANKS" },
        Named {
            value: Some(Assign::RoundRobin),
            number: 2,
            name: "round-robin",
            c_name: "FB_ASSIGN_ROUND_ROBIN",
        },
        Named { value: Some(Assign::Balanced), number: 3, name: "balanced", c_name: "FB_ASSIGN_BALANCED" },
        Named { value: Some(Assign::Slab), number: 4, name: "slab", c_name: "FB_ASSIGN_SLAB" },
        Named {
            value: Some(Assign::HostRanks),
            number: 5,
            name: "host+ranks",
            c_name: "FB_ASSIGN_HOST_RANKS",
        },
        Named {
            value: Some(Assign::HostRoundRobin),
            number: 6,
            name: "host+round-robin",
            c_name: "FB_ASSIGN_HOST_ROUND_ROBIN",
        },
        Named {
            value: Some(Assign::HostBalanced),
            number: 7,
            name: "host+balanced",
            c_name: "FB_ASSIGN_HOST_BALANCED",
        },
    ];
}

impl Choice for Statistics {
    const WHAT: &str = "stats";
    const VALUES: &[Named<Self>] = &[
        Named { value: Some(Statistics::None), number: 0, name: "none", c_name: "FB_STATS_NONE" },
        Named { value: Some(Statistics::Along), number: 1, name: "along", c_name: "FB_STATS_ALONG" },
        Named { value: Some(Statistics::Alone), number: 2, name: "alone", c_name: "FB_STATS_ALONE" },
    ];
}

impl Choice for Holes {
    const WHAT: &str = "holes";
    const VALUES: &[Named<Self>] = &[
        Named { value: Some(Holes::Refused), number: 0, name: "refused", c_name: "FB_HOLES_REFUSED" },
        Named { value: Some(Holes::Left), number: 1, name: "left", c_name: "FB_HOLES_LEFT" },
    ];
}

impl Choice for Outcome {
    const WHAT: &str = "outcome";
    const VALUES: &[Named<Self>] = &[
        Named { value: Some(Outcome::Staged), number: 0, name: "staged", c_name: "FB_OUTCOME_STAGED" },
        Named {
            value: Some(Outcome::Undemanded),
            number: 1,
            name: "undemanded",
            c_name: "FB_OUTCOME_UNDEMANDED",
        },
        Named { value: Some(Outcome::Dropped), number: 2, name: "dropped", c_name: "FB_OUTCOME_DROPPED" },
    ];
}

impl Choice for On {
    const WHAT: &str = "on";
    const VALUES: &[Named<Self>] = &[
        Named { value: Some(On::Each), number: 0, name: "each", c_name: "FB_ON_EACH" },
        Named { value: Some(On::Rise), number: 1, name: "rise", c_name: "FB_ON_RISE" },
        Named { value: Some(On::Fall), number: 2, name: "fall", c_name: "FB_ON_FALL" },
        Named { value: Some(On::Both), number: 3, name: "both", c_name: "FB_ON_BOTH" },
    ];
}

impl Choice for Missing {
    const WHAT: &str = "missing";
    const VALUES: &[Named<Self>] = &[
        Named { value: Some(Missing::Skip), number: 0, name: "skip", c_name: "FB_MISSING_SKIP" },
        Named { value: Some(Missing::Reset), number: 1, name: "reset", c_name: "FB_MISSING_RESET" },
    ];
}

impl Choice for Turn {
    const WHAT: &str = "turn";
    const VALUES: &[Named<Self>] = &[
        Named { value: None, number: 0, name: "unknown", c_name: "FB_TURN_UNKNOWN" },
        Named { value: Some(Turn::Rose), number: 1, name: "rose", c_name: "FB_TURN_ROSE" },
        Named { value: Some(Turn::Holds), number: 2, name: "holds", c_name: "FB_TURN_HOLDS" },
        Named { value: Some(Turn::Fell), number: 3, name: "fell", c_name: "FB_TURN_FELL" },
    ];
}

impl Choice for Change {
    const WHAT: &str = "change";
    const VALUES: &[Named<Self>] = &[
        Named { value: Some(Change::Pause), number: 0, name: "pause", c_name: "FB_CHANGE_PAUSE" },
        Named { value: Some(Change::Resume), number: 1, name: "resume", c_name: "FB_CHANGE_RESUME" },
        Named { value: Some(Change::Remove), number: 2, name: "remove", c_name: "FB_CHANGE_REMOVE" },
    ];
}

impl Choice for TransportChoice {
    const WHAT: &str = "transport";
    const VALUES: &[Named<Self>] = &[
        Named { value: Some(TransportChoice::Auto), number: 0, name: "auto", c_name: "FB_TRANSPORT_AUTO" },
        Named { value: Some(TransportChoice::Shm), number: 1, name: "shm", c_name: "FB_TRANSPORT_SHM" },
        Named { value: Some(TransportChoice::Tcp), number: 2, name: "tcp", c_name: "FB_TRANSPORT_TCP" },
    ];
}
