//! A scene in which members miss two rosters at once. Chance hardly ever plays it.

use super::*;
use crate::ids::Lineage;
use crate::roster::{Candidate, Incarnation, Settings};
use crate::seeded::seed;

const STEP: Duration = Duration::from_millis(10);
const RENEW: Duration = Duration::from_millis(300);

fn candidate(number: u32) -> Candidate {
    Candidate { incarnation: Incarnation(number.into()), pid: number, addresses: Vec::new(), formerly: None }
}

/// Members between which messages take no time, and the witness.
struct Stage {
    now: Duration,
    members: BTreeMap<ServerId, Membership>,
    witness: BTreeMap<Epoch, Acceptor<Arc<Roster>>>,
    /// Those on one side of a cut, once there is one.
    cut_off: BTreeSet<ServerId>,
}

impl Stage {
    fn comes_through(&self, from: ServerId, to: ServerId) -> bool {
        self.cut_off.contains(&from) == self.cut_off.contains(&to)
    }

    fn act(&mut self, id: u32, act: impl FnOnce(&mut Membership, Duration)) {
        act(self.members.get_mut(&ServerId(id)).unwrap(), self.now);
    }

    /// Until nobody has anything to say. Whom `deaf` names hears nothing of rosters in force.
    fn settle(&mut self, deaf: Option<ServerId>) {
        loop {
            let mut said = Vec::new();
            for (id, member) in &mut self.members {
                said.extend(member.effects().into_iter().map(|effect| (*id, effect)));
            }
            if said.is_empty() {
                return;
            }
            for (from, effect) in said {
                match effect {
                    Effect::Send(to, message) => {
                        let missed = deaf == Some(to) && matches!(message, Message::InForce(_));
                        let through = self.comes_through(from, to) && !missed;
                        if let Some(member) = self.members.get_mut(&to).filter(|_| through) {
                            member.receive(from, message, self.now);
                        }
                    }
                    Effect::AskWitness(epoch, question) if !self.cut_off.contains(&from) => {
                        let answer = self.witness.entry(epoch).or_default().answer(question);
                        self.act(from.0, |member, now| member.on_witness_answer(epoch, answer, now));
                    }
                    Effect::Ping(about) => {
                        let reached = self.comes_through(from, about);
                        self.act(from.0, |member, now| match reached {
                            true => member.on_reached(about, now),
                            false => member.suspect(about, Evidence::Silent, now),
                        });
                    }
                    _ => {}
                }
            }
        }
    }

    fn pass(&mut self, time: Duration, each: impl Fn(&Stage)) {
        let end = self.now + time;
        while self.now < end {
            self.now += STEP;
            let renews = self.now.as_millis().is_multiple_of(RENEW.as_millis());
            for member in self.members.values_mut() {
                member.tick(self.now);
                if renews {
                    member.renew_lease(self.now);
                }
            }
            self.settle(None);
            each(self);
        }
    }
}

/// Server 5 joins five others, of which 2, 3 and 4 do not learn that it has, although 2 voted for it. They are cut off
/// then, and evicted at once by the others. Whether somebody who was evicted could acknowledge anything.
fn the_evicted_acknowledge(bug: Option<Bug>) -> bool {
    seed(bug);
    let mut first = Roster::founded(Lineage([7; 16]), candidate(0), 1, Settings::default());
    let others: Vec<Change> = (1..5).map(|number| Change::Join(candidate(number))).collect();
    first = first.next(&others).unwrap();
    let first = Arc::new(first);
    let member = |id| (id, Membership::new(id, first.clone(), 1, Duration::ZERO));
    let members = first.ids().map(member).collect();
    let (witness, cut_off) = (BTreeMap::new(), BTreeSet::new());
    let mut stage = Stage { now: Duration::ZERO, members, witness, cut_off };
    stage.pass(Duration::from_secs(4), |_| {});
    assert!(stage.members.values().all(|member| member.may_acknowledge(stage.now)));

    stage.act(0, |member, now| member.wish(Change::Join(candidate(5)), now));
    stage.now += STEP;
    stage.cut_off = [ServerId(3), ServerId(4)].into();
    stage.act(0, Membership::tick);
    stage.settle(Some(ServerId(2)));
    stage.cut_off.insert(ServerId(2));
    let second = stage.members[&ServerId(1)].roster().clone();
    assert_eq!(second.members.len(), 6);
    stage.members.insert(ServerId(5), Membership::new(ServerId(5), second, 1, stage.now));
    for gone in [2, 3, 4].map(ServerId) {
        stage.act(0, |member, now| member.suspect(gone, Evidence::Lost, now));
    }
    let broken = std::cell::Cell::new(false);
    stage.pass(Duration::from_secs(8), |stage| {
        let evicted = !stage.members[&ServerId(0)].roster().contains(ServerId(2));
        let acknowledge = [2, 3, 4].iter().any(|id| stage.members[&ServerId(*id)].may_acknowledge(stage.now));
        broken.set(broken.get() || (evicted && acknowledge));
    });
    let last = stage.members[&ServerId(5)].roster();
    assert_eq!(last.ids().collect::<Vec<_>>(), [0, 1, 5].map(ServerId));
    seed(None);
    broken.get()
}

#[test]
fn who_missed_two_rosters_acknowledges_nothing() {
    assert!(!the_evicted_acknowledge(None));
    for bug in [Bug::DoesNotWaitForTheFormer, Bug::StandsByForEver] {
        assert!(the_evicted_acknowledge(Some(bug)), "{bug:?} is not noticed");
    }
}

#[test]
fn what_waits_for_a_lease_comes_into_force_when_the_death_is_proven() {
    let mut stage = group_of(3);
    let roster = stage.members[&ServerId(0)].roster().clone();
    stage.cut_off = [ServerId(2)].into();
    // Its connection has ended: it may still be running.
    stage.act(0, |member, now| member.suspect(ServerId(2), Evidence::Lost, now));
    stage.pass(Duration::from_millis(100), |_| {});
    assert_eq!(stage.members[&ServerId(0)].roster().epoch, roster.epoch);
    stage.act(0, |member, now| member.suspect(ServerId(2), Evidence::Dead, now));
    stage.pass(STEP, |_| {});
    let next = stage.members[&ServerId(1)].roster();
    assert_eq!((next.epoch, next.contains(ServerId(2))), (roster.epoch + 1, false));
}

/// A member votes for a roster without another one, and its answer does not come through; then all reach each other again, and
/// nobody wishes for that roster any more. Whether they can acknowledge something after that.
fn the_voters_go_on(bug: Option<Bug>) -> bool {
    seed(bug);
    let mut stage = group_of(3);
    let epoch = stage.members[&ServerId(0)].roster().epoch;
    for id in [0, 1] {
        stage.act(id, |member, now| member.suspect(ServerId(2), Evidence::Lost, now));
    }
    stage.cut_off = [ServerId(2)].into();
    stage.settle(None);
    stage.now += STEP;
    stage.act(0, Membership::tick);
    let asked = stage.members.get_mut(&ServerId(0)).unwrap().effects();
    for effect in asked {
        if let Effect::Send(ServerId(1), message) = effect {
            stage.act(1, |member, now| member.receive(ServerId(0), message, now));
        }
    }
    assert!(stage.members[&ServerId(1)].accepted().is_some());
    stage.act(1, |member, _| drop(member.effects()));
    stage.cut_off.clear();
    for id in [0, 1] {
        stage.act(id, |member, now| member.on_reached(ServerId(2), now));
    }
    stage.pass(Duration::from_secs(8), |_| {});
    let go_on = [0, 1].iter().all(|id| stage.members[&ServerId(*id)].may_acknowledge(stage.now));
    assert_eq!(stage.members[&ServerId(1)].roster().epoch > epoch, go_on);
    seed(None);
    go_on
}

#[test]
fn what_was_voted_for_is_finished_though_nobody_wishes_for_it() {
    assert!(the_voters_go_on(None));
    assert!(!the_voters_go_on(Some(Bug::LeavesRostersUnfinished)), "it is not noticed");
}

#[test]
fn a_group_that_lost_most_members_is_healed() {
    let mut stage = group_of(3);
    let roster = stage.members[&ServerId(0)].roster().clone();
    stage.cut_off = [1, 2].map(ServerId).into();
    for gone in [1, 2].map(ServerId) {
        stage.act(0, |member, now| member.suspect(gone, Evidence::Lost, now));
    }
    stage.pass(Duration::from_secs(5), |_| {});
    assert_eq!(stage.members[&ServerId(0)].roster().epoch, roster.epoch, "nobody can agree");
    assert!(!stage.members[&ServerId(0)].may_acknowledge(stage.now));
    assert!(
        stage.members[&ServerId(0)].healed(&[0, 1].map(ServerId).into()).is_err(),
        "those agree by themselves"
    );
    let healed = stage.members[&ServerId(0)].healed(&[ServerId(0)].into()).unwrap();
    let epoch = healed.epoch;
    stage.act(0, |member, now| member.enforce(healed, now));
    // What the others agree on meanwhile does not count.
    stage.act(1, |member, now| member.suspect(ServerId(0), Evidence::Lost, now));
    stage.pass(Duration::from_secs(5), |_| {});
    assert_eq!(stage.members[&ServerId(1)].roster().epoch, roster.epoch + 1);
    stage.cut_off.clear();
    stage.act(0, |member, _| member.on_epoch(ServerId(1), roster.epoch + 1));
    stage.act(0, |member, _| member.on_epoch(ServerId(2), roster.epoch + 1));
    stage.pass(Duration::from_secs(5), |_| {});
    assert!(stage.members[&ServerId(0)].may_acknowledge(stage.now));
    for out in [1, 2].map(ServerId) {
        assert!(stage.members[&out].is_out());
        assert_eq!(stage.members[&out].roster().epoch, epoch);
    }
}

/// A group that is founded with so many members, on a stage.
fn group_of(members: u32) -> Stage {
    let founded = Roster::founded(Lineage([7; 16]), candidate(0), 1, Settings::default());
    let others: Vec<Change> = (1..members).map(|number| Change::Join(candidate(number))).collect();
    let roster = Arc::new(founded.next(&others).unwrap_or(founded));
    let member = |id| (id, Membership::new(id, roster.clone(), 1, Duration::ZERO));
    let members = roster.ids().map(member).collect();
    Stage { now: Duration::ZERO, members, witness: BTreeMap::new(), cut_off: BTreeSet::new() }
}

/// A cable was cut for a while: what was said on the other side comes late.
#[test]
fn doubts_of_who_has_left_or_trusts_again_do_not_count() {
    let mut stage = group_of(3);
    let roster = stage.members[&ServerId(0)].roster().clone();
    let without = roster.next(&[Change::Evict(ServerId(2))]).unwrap();
    let mut member = Membership::new(ServerId(0), Arc::new(without), 1, Duration::ZERO);
    member.receive(ServerId(2), Message::Suspect(ServerId(1), Evidence::Lost), Duration::ZERO);
    assert_eq!(member.wake_at(), None);

    stage.act(2, |other, now| {
        other.suspect(ServerId(1), Evidence::Silent, now);
        other.on_reached(ServerId(1), now);
    });
    stage.settle(None);
    assert_eq!([0, 2].map(|id| stage.members[&ServerId(id)].wake_at()), [None, None]);
}

/// Three join a group of one and die before it knows: whether it can go on without them.
fn a_group_outlives_those_who_join_and_die(bug: Option<Bug>) -> bool {
    seed(bug);
    let mut stage = group_of(1);
    for number in [1, 2, 3] {
        stage.act(0, |member, now| member.wish(Change::Join(candidate(number)), now));
    }
    stage.pass(Duration::from_secs(2), |_| {});
    for _ in 0..3 {
        for joined in stage.members[&ServerId(0)].roster().clone().ids().skip(1) {
            stage.act(0, |member, now| member.suspect(joined, Evidence::Dead, now));
        }
        stage.pass(Duration::from_secs(2), |_| {});
    }
    seed(None);
    stage.members[&ServerId(0)].roster().members.len() == 1
}

#[test]
fn who_has_joined_and_is_not_heard_may_be_dead() {
    assert!(a_group_outlives_those_who_join_and_die(None));
    assert!(!a_group_outlives_those_who_join_and_die(Some(Bug::CountsTheUnheard)), "it is not noticed");
}

#[test]
fn all_join_who_are_heard() {
    let mut stage = group_of(1);
    for number in 1..8 {
        stage.act(0, |member, now| member.wish(Change::Join(candidate(number)), now));
    }
    for _ in 0..10 {
        stage.pass(STEP, |_| {});
        let roster = stage.members[&ServerId(0)].roster().clone();
        for id in roster.ids() {
            let now = stage.now;
            stage.members.entry(id).or_insert_with(|| Membership::new(id, roster.clone(), 1, now));
        }
        // As when it joins: it is told, and says so.
        stage.act(0, |member, _| member.announce(&roster, &roster.clone()));
        stage.settle(None);
    }
    assert_eq!(stage.members[&ServerId(7)].roster().members.len(), 8);
}

/// Two of five take two others for gone, whom all reach. Whether one of these goes; if not, one that nobody reaches does then.
fn few_are_believed(bug: Option<Bug>) -> bool {
    seed(bug);
    let mut stage = group_of(5);
    let epoch = stage.members[&ServerId(0)].roster().epoch;
    for (by, gone) in [(0, 1), (0, 2), (4, 1), (4, 2)] {
        stage.act(by, |member, now| member.suspect(ServerId(gone), Evidence::Silent, now));
    }
    stage.pass(Duration::from_secs(20), |_| {});
    seed(None);
    if stage.members.values().any(|member| member.roster().epoch != epoch) {
        return true;
    }
    stage.cut_off = [ServerId(1)].into();
    stage.act(4, |member, now| member.suspect(ServerId(1), Evidence::Silent, now));
    stage.pass(Duration::from_secs(20), |_| {});
    let last = stage.members[&ServerId(3)].roster();
    assert_eq!(last.ids().collect::<Vec<_>>(), [0, 2, 3, 4].map(ServerId));
    false
}

/// Who hears nobody takes all for gone, and may be heard by all.
#[test]
fn fewer_than_decide_are_not_believed() {
    assert!(!few_are_believed(None));
    assert!(few_are_believed(Some(Bug::BelievesEachSuspicion)), "it is not noticed");
}

/// Two servers have lost each other for good, and the others reach both.
#[test]
fn of_two_that_do_not_reach_each_other_one_goes() {
    let mut stage = group_of(4);
    stage.act(1, |member, now| member.suspect(ServerId(2), Evidence::Lost, now));
    stage.act(2, |member, now| member.suspect(ServerId(1), Evidence::Lost, now));
    stage.pass(Duration::from_secs(5), |_| {});
    let last = stage.members[&ServerId(0)].roster();
    assert_eq!(last.ids().collect::<Vec<_>>(), [0, 1, 3].map(ServerId));
    assert!(stage.members[&ServerId(2)].is_out());
}
