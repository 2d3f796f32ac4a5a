//! Members that others take for gone. One member's word is not enough where nothing proves it: the one that is cut off takes
//! all others for gone, and may be heard by them. So a member goes when so many take it for gone that they are a quorum,
//! with the witness where it votes; who proposes has the others check, who reach it or not, each for itself.
//!
//! A connection that has ended is never made again. Where two members have lost each other and so many others say that they
//! reach the one, and the other, that those are a quorum, one of the two goes nevertheless: the one that has lost most, or
//! else the one that joined last. So both are asked after: who loses others while it is cut off itself takes nobody with it.
//! The same happens where a connection has not ended, but one does not get an answer of the other for long.

use crate::agreement::{Voter, Voters};
use crate::ids::ServerId;
use crate::seeded::{Bug, seeded};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How long the others have to say that they have lost a member, too, before they are asked.
const ASK: Duration = Duration::from_millis(100);
/// How long to wait before they are asked again, at first; twice as long each time, up to the latter.
const ASK_AGAIN: Duration = Duration::from_millis(500);
const ASK_AGAIN_MAX: Duration = Duration::from_secs(8);
/// How long it counts that a member did not get an answer, or did.
const COUNTS: Duration = Duration::from_secs(3);
/// After this long, what two have lost of whom others reach both is their connection.
const SETTLES: Duration = Duration::from_secs(1);
/// After this long it has as good as ended where one does not get an answer of the other: packets between them are dropped.
const SILENT_FOR: Duration = Duration::from_secs(30);
/// So long others must have reached both then: they may have been away, and have come back before these two.
const STEADY: Duration = Duration::from_secs(10);

/// Why a member is taken for gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Evidence {
    /// It does not answer.
    Silent,
    /// The connection to it has ended, or cannot be made.
    Lost,
    /// Its process has ended for certain.
    Dead,
}

/// That one member takes another one for gone.
#[derive(Debug, Clone, Copy)]
struct Statement {
    evidence: Evidence,
    /// Since when.
    since: Duration,
    /// When it said so last.
    at: Duration,
}

/// That a member is taken for gone.
#[derive(Debug)]
struct Suspicion {
    by: BTreeMap<ServerId, Statement>,
    /// Since when somebody does, in this epoch.
    since: Duration,
    /// When the others are to be asked.
    ask_at: Duration,
    /// How long to wait after that.
    ask_again: Duration,
}

/// Who is taken for gone, as far as one member knows.
#[derive(Debug, Default)]
pub(super) struct Suspicions {
    about: BTreeMap<ServerId, Suspicion>,
    /// While there are suspicions: who reached each member, since when, and when they said so last.
    reached: BTreeMap<ServerId, BTreeMap<ServerId, (Duration, Duration)>>,
}

impl Suspicions {
    /// One member takes another for gone. Returns whether it said something else before, or nothing.
    pub(super) fn add(&mut self, about: ServerId, by: ServerId, evidence: Evidence, now: Duration) -> bool {
        let suspicion = self.about.entry(about).or_insert_with(|| Suspicion::since(now));
        let before = suspicion.by.get(&by).copied();
        let evidence = before.map_or(evidence, |before| before.evidence.max(evidence));
        let since = before.map_or(now, |before| before.since);
        suspicion.by.insert(by, Statement { evidence, since, at: now });
        if let Some(reached) = self.reached.get_mut(&about) {
            reached.remove(&by);
        }
        before.is_none_or(|before| before.evidence != evidence)
    }

    /// A member reaches another one: it does not take it for gone any more. Returns whether it had.
    pub(super) fn note_reached(&mut self, about: ServerId, by: ServerId, now: Duration) -> bool {
        if self.about.is_empty() {
            return false;
        }
        let reached = self.reached.entry(about).or_default().entry(by).or_insert((now, now));
        let (since, at) = *reached;
        *reached = (if goes_on(at, now) { since } else { now }, now);
        let Some(suspicion) = self.about.get_mut(&about) else { return false };
        let had = suspicion.by.remove(&by).is_some();
        if suspicion.by.is_empty() {
            self.about.remove(&about);
        }
        if self.about.is_empty() {
            self.reached.clear();
        }
        had
    }

    /// Others are members now.
    pub(super) fn follow(&mut self, is_member: impl Fn(ServerId) -> bool, now: Duration) {
        // That it is reached is to be said anew; how long it has been is known.
        self.reached.retain(|about, reached| {
            reached.retain(|by, _| is_member(*by));
            is_member(*about)
        });
        self.about.retain(|about, suspicion| {
            suspicion.by.retain(|by, _| is_member(*by));
            suspicion.restart(now);
            is_member(*about) && !suspicion.by.is_empty()
        });
        if self.about.is_empty() {
            self.reached.clear();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.about.is_empty()
    }

    /// Why a member takes another one for gone, if it does.
    pub(super) fn of(&self, about: ServerId, by: ServerId) -> Option<Evidence> {
        self.about.get(&about)?.by.get(&by).map(|said| said.evidence)
    }

    /// Whom a member takes for gone, and why.
    pub(super) fn by(&self, by: ServerId) -> impl Iterator<Item = (ServerId, Evidence)> + '_ {
        self.about
            .iter()
            .filter_map(move |(about, suspicion)| Some((*about, suspicion.by.get(&by)?.evidence)))
    }

    /// All that somebody takes for gone, and since when.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ServerId, Duration)> + '_ {
        self.about.iter().map(|(about, suspicion)| (*about, suspicion.since))
    }

    /// Who is to go.
    pub(super) fn to_go(&self, voters: &Voters, me: ServerId, now: Duration) -> BTreeSet<ServerId> {
        let enough = self.about.iter().filter(|(_, suspicion)| suspicion.is_enough(voters, me, now));
        let to_go: BTreeSet<ServerId> = enough.map(|(about, _)| *about).collect();
        if to_go.is_empty() { self.odd_one(voters, now).into_iter().collect() } else { to_go }
    }

    /// When it is to be looked again who is to go, and when the others are to be asked about a member.
    pub(super) fn looks_at(&self, about: ServerId) -> impl Iterator<Item = Duration> + use<> {
        let suspicion = self.about.get(&about);
        let settles =
            suspicion.and_then(|suspicion| suspicion.by.values().map(|said| suspicion.settles(said)).min());
        suspicion.map(|suspicion| suspicion.ask_at).into_iter().chain(settles)
    }

    /// About whom the others are to be asked now, for the sake of a member that somebody takes for gone: it, and those that
    /// have lost it. They are then not to be again for a while.
    pub(super) fn members_to_ask(&mut self, about: ServerId, now: Duration) -> Vec<ServerId> {
        let Some(suspicion) = self.about.get_mut(&about).filter(|suspicion| now >= suspicion.ask_at) else {
            return Vec::new();
        };
        suspicion.ask_at = now + suspicion.ask_again;
        suspicion.ask_again = (2 * suspicion.ask_again).min(ASK_AGAIN_MAX);
        [about].into_iter().chain(suspicion.seem_lost(now)).collect()
    }

    /// Of those that have lost each other while others reach both, the one that goes.
    fn odd_one(&self, voters: &Voters, now: Duration) -> Option<ServerId> {
        let mut pairs = BTreeSet::new();
        for (about, suspicion) in &self.about {
            for (by, said) in suspicion.by.iter().filter(|(_, said)| now >= suspicion.settles(said)) {
                let silent = said.evidence == Evidence::Silent;
                // What it said before the network was away may not hold any more.
                if silent && !goes_on(said.at, now) {
                    continue;
                }
                let steady = if silent { STEADY } else { Duration::ZERO };
                if [about, by].iter().all(|id| self.lives(**id, suspicion.since, steady, voters, now)) {
                    pairs.insert((by.min(about), by.max(about)));
                }
            }
        }
        let mut lost: BTreeMap<ServerId, usize> = BTreeMap::new();
        for (one, other) in pairs {
            *lost.entry(*one).or_default() += 1;
            *lost.entry(*other).or_default() += 1;
        }
        lost.into_iter().map(|(id, times)| (times, id)).max().map(|(_, id)| id)
    }

    /// Whether those that have reached a member of late, after that time and steadily for so long, could decide together with
    /// it.
    fn lives(&self, id: ServerId, since: Duration, steady: Duration, voters: &Voters, now: Duration) -> bool {
        let reached = self.reached.get(&id).into_iter().flatten();
        let counts = |from: Duration, at: Duration| at >= since && now <= at + COUNTS && now >= from + steady;
        let of_late = reached.filter(|(_, (from, at))| counts(*from, *at)).map(|(by, _)| *by);
        let who = of_late.chain([id]).map(Voter::Member).chain([Voter::Witness]).collect();
        voters.are_enough(&who)
    }
}

/// Whether what was said then holds until it is said again: members are asked at least so often.
fn goes_on(at: Duration, now: Duration) -> bool {
    now <= at + ASK_AGAIN_MAX + COUNTS
}

impl Suspicion {
    fn since(now: Duration) -> Suspicion {
        Suspicion { by: BTreeMap::new(), since: now, ask_at: now + ASK, ask_again: ASK_AGAIN }
    }

    fn restart(&mut self, now: Duration) {
        *self = Suspicion { by: std::mem::take(&mut self.by), ..Suspicion::since(now) };
    }

    /// When what one member says is taken for the end of its connection to this one.
    fn settles(&self, said: &Statement) -> Duration {
        match said.evidence {
            Evidence::Silent => said.since + SILENT_FOR,
            Evidence::Lost | Evidence::Dead => self.since + SETTLES,
        }
    }

    /// Who has lost the connection, or will have if it goes on like this: so early that it is known by then whether it was
    /// reached steadily.
    fn seem_lost(&self, now: Duration) -> impl Iterator<Item = ServerId> + '_ {
        let asked_from = |said: &Statement| match said.evidence {
            Evidence::Silent => self.settles(said) - 2 * STEADY,
            Evidence::Lost | Evidence::Dead => Duration::ZERO,
        };
        self.by.iter().filter(move |(_, said)| now >= asked_from(said)).map(|(by, _)| *by)
    }

    fn is_enough(&self, voters: &Voters, me: ServerId, now: Duration) -> bool {
        let counts = |by: &ServerId, evidence: Evidence, at: Duration| {
            *by == me || evidence > Evidence::Silent || now <= at + COUNTS
        };
        let doubting = self.by.iter().filter(|(by, said)| counts(by, said.evidence, said.at));
        let doubting = doubting.map(|(by, _)| Voter::Member(*by)).chain([Voter::Witness]).collect();
        let proven = self.by.values().any(|said| said.evidence == Evidence::Dead);
        proven || voters.are_enough(&doubting) || seeded(Bug::BelievesEachSuspicion)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: Evidence = Evidence::Lost;

    fn ids(ids: &[u32]) -> BTreeSet<ServerId> {
        ids.iter().copied().map(ServerId).collect()
    }

    /// Who goes of so many members, in the eyes of server 0, by what was said at some times, at another time.
    fn to_go(members: u32, said: &[(u32, u32, Evidence, u64)], now: u64) -> BTreeSet<ServerId> {
        let mut suspicions = Suspicions::default();
        for (by, about, evidence, at) in said {
            suspicions.add(ServerId(*about), ServerId(*by), *evidence, Duration::from_millis(*at));
        }
        suspicions.to_go(&Voters::of((0..members).map(ServerId)), ServerId(0), Duration::from_millis(now))
    }

    #[test]
    fn as_many_as_decide_must_doubt() {
        let silent = |by, about| (by, about, Evidence::Silent, 0);
        assert_eq!(to_go(5, &[silent(1, 4), silent(2, 4)], 10), ids(&[]));
        assert_eq!(to_go(5, &[silent(1, 4), silent(2, 4), silent(0, 4)], 10), ids(&[4]));
        assert_eq!(to_go(4, &[silent(1, 3), silent(2, 3)], 10), ids(&[3]), "the witness votes, too");
        assert_eq!(to_go(2, &[silent(0, 1)], 10), ids(&[1]));
        assert_eq!(to_go(5, &[(3, 4, Evidence::Dead, 0)], 10), ids(&[4]), "it is proven");
        let cut_off = [0, 1, 2, 3].map(|about| silent(4, about));
        assert_eq!(to_go(5, &cut_off, 60_000), ids(&[]), "one that hears nobody is not believed");
    }

    #[test]
    fn that_somebody_did_not_answer_counts_for_a_while() {
        let said =
            [(1, 4, Evidence::Silent, 0), (2, 4, Evidence::Silent, 2000), (0, 4, Evidence::Silent, 2000)];
        assert_eq!(to_go(5, &said, 3000), ids(&[4]));
        assert_eq!(to_go(5, &said, 3001), ids(&[]));
        let lost = [(1, 4, LOST, 0), (2, 4, LOST, 2000), (0, 4, LOST, 2000)];
        assert_eq!(to_go(5, &lost, 30_000), ids(&[4]));
    }

    #[test]
    fn of_two_that_have_lost_each_other_one_goes() {
        let lost = |pairs: &[(u32, u32)], reached: &[(u32, u32)], now| {
            let mut suspicions = Suspicions::default();
            for (by, about) in pairs {
                suspicions.add(ServerId(*about), ServerId(*by), LOST, Duration::ZERO);
            }
            for (by, about) in reached {
                suspicions.note_reached(ServerId(*about), ServerId(*by), Duration::ZERO);
            }
            let voters = Voters::of((0..5).map(ServerId));
            suspicions.to_go(&voters, ServerId(0), Duration::from_millis(now))
        };
        let each_other = [(1, 2), (2, 1)];
        let reached = [(0, 1), (3, 1), (0, 2), (3, 2)];
        assert_eq!(lost(&each_other, &reached, 999), ids(&[]));
        assert_eq!(lost(&each_other, &reached, 1000), ids(&[2]), "the later one");
        assert_eq!(
            lost(&each_other, &[(0, 1), (0, 2)], 1000),
            ids(&[]),
            "the others do not say that they live"
        );
        assert_eq!(lost(&[(1, 2)], &reached, 1000), ids(&[2]), "it suffices that one has lost the other");
        assert_eq!(
            lost(&[(1, 2)], &reached[2..], 1000),
            ids(&[]),
            "who has lost others may be cut off itself"
        );
        assert_eq!(lost(&each_other, &reached, 3001), ids(&[]), "nor have they for long");
        let silent = |now, said: &[u64], reached: &[(u32, u32)], at: &[u64]| {
            let mut suspicions = Suspicions::default();
            for at in said {
                suspicions.add(ServerId(2), ServerId(1), Evidence::Silent, Duration::from_millis(*at));
            }
            for (at, (by, about)) in at.iter().flat_map(|at| reached.iter().map(move |pair| (*at, pair))) {
                suspicions.note_reached(ServerId(*about), ServerId(*by), Duration::from_millis(at));
            }
            let voters = Voters::of((0..5).map(ServerId));
            suspicions.to_go(&voters, ServerId(0), Duration::from_millis(now))
        };
        assert_eq!(
            silent(29_999, &[0, 28_000], &reached, &[19_000, 29_000]),
            ids(&[]),
            "it may still answer"
        );
        assert_eq!(
            silent(30_000, &[0, 28_000], &reached, &[19_000, 29_000]),
            ids(&[2]),
            "it did not for long"
        );
        assert_eq!(silent(30_000, &[0, 18_000], &reached, &[19_000, 29_000]), ids(&[]), "it may since have");
        assert_eq!(
            silent(30_000, &[0, 28_000], &reached, &[29_000]),
            ids(&[]),
            "the others have only just come back"
        );
        assert_eq!(
            silent(30_000, &[0, 28_000], &reached, &[10_000, 29_000]),
            ids(&[]),
            "and so they have, again"
        );
        assert_eq!(
            silent(30_000, &[0, 28_000], &reached, &[16_000, 26_000]),
            ids(&[]),
            "nobody has reached them of late"
        );
        let more = [(0, 1), (4, 1), (0, 2), (4, 2), (0, 3), (4, 3)];
        assert_eq!(lost(&[(1, 2), (1, 3)], &more, 1000), ids(&[1]), "who has lost more");
        assert_eq!(
            lost(&[(0, 1), (0, 2)], &[], 60_000),
            ids(&[]),
            "two may have died, and the others be slow"
        );
        let beside = [(1, 2), (0, 4), (1, 4), (2, 4)];
        assert_eq!(lost(&beside, &reached, 1000), ids(&[4]), "the one that nobody reaches at first");
    }

    #[test]
    fn the_others_are_asked_more_and_more_seldom() {
        let at = Duration::from_millis;
        let mut suspicions = Suspicions::default();
        assert!(suspicions.add(ServerId(1), ServerId(2), Evidence::Silent, at(0)));
        assert!(!suspicions.add(ServerId(1), ServerId(2), Evidence::Silent, at(1)));
        assert_eq!(suspicions.looks_at(ServerId(1)).min(), Some(at(100)));
        let asked: Vec<(u64, usize)> = (0..20_000)
            .map(|now| (now, suspicions.members_to_ask(ServerId(1), at(now)).len()))
            .filter(|(_, about)| *about > 0)
            .collect();
        let alone_at_first = [(100, 1), (600, 1), (1600, 1), (3600, 1), (7600, 1), (15_600, 2)];
        assert_eq!(asked, alone_at_first, "then about both");
        assert!(suspicions.add(ServerId(1), ServerId(2), LOST, at(20_000)));
        assert_eq!(
            (suspicions.of(ServerId(1), ServerId(2)), suspicions.by(ServerId(2)).count()),
            (Some(LOST), 1)
        );
        let both = [1, 2].map(ServerId);
        assert_eq!(
            suspicions.members_to_ask(ServerId(1), at(24_000)),
            both,
            "and after the one that has lost it"
        );
        suspicions.follow(|id| id != ServerId(3), at(30_000));
        assert_eq!(suspicions.looks_at(ServerId(1)).min(), Some(at(30_100)));
        assert!(
            suspicions.note_reached(ServerId(1), ServerId(2), at(1))
                && !suspicions.note_reached(ServerId(1), ServerId(2), at(1))
        );
        assert_eq!(suspicions.iter().count(), 0);
    }

    #[test]
    fn that_members_are_reached_steadily_outlasts_a_change_of_the_others() {
        let at = Duration::from_millis;
        let goes = |again: bool| {
            let mut suspicions = Suspicions::default();
            let reach = |suspicions: &mut Suspicions, now| {
                for (by, about) in
                    [(0, 1), (3, 1), (0, 2), (3, 2)].map(|(by, about)| (ServerId(by), ServerId(about)))
                {
                    suspicions.note_reached(about, by, at(now));
                }
            };
            for now in [0, 28_000] {
                suspicions.add(ServerId(2), ServerId(1), Evidence::Silent, at(now));
            }
            reach(&mut suspicions, 19_500);
            reach(&mut suspicions, 29_000);
            suspicions.follow(|id| id != ServerId(4), at(30_000));
            if again {
                reach(&mut suspicions, 30_100);
            }
            suspicions.to_go(&Voters::of((0..4).map(ServerId)), ServerId(0), at(30_200))
        };
        assert_eq!(goes(true), ids(&[2]));
        assert_eq!(goes(false), ids(&[]), "nobody has said so in this epoch");
    }
}
