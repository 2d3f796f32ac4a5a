use super::*;
use crate::ids::ServerId;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// A message on its way, by who proposes: a question to a voter, or its answer.
#[derive(Debug, Clone)]
enum OnItsWay {
    Question(usize, Voter, Question<u32>),
    Answer(usize, Voter, Answer<u32>),
}

/// Lets two or three members propose their own number, again and again, while messages come in any order, twice, or
/// never. Returns all that was seen to be chosen.
fn chosen(members: u32, script: &[(u8, u16)]) -> Vec<u32> {
    let voters = Voters::of((0..members).map(ServerId));
    let mut acceptors: std::collections::BTreeMap<Voter, Acceptor<u32>> =
        voters.iter().map(|voter| (voter, Acceptor::default())).collect();
    let mut proposers: Vec<Option<Proposer<u32>>> = (0..members.min(3)).map(|_| None).collect();
    let mut rounds = vec![0; proposers.len()];
    let mut on_their_way: Vec<OnItsWay> = Vec::new();
    let mut chosen = Vec::new();
    for (act, which) in script {
        let which = usize::from(*which);
        if *act < 12 || on_their_way.is_empty() {
            let who = which % proposers.len();
            let me = ServerId(who as u32);
            let (proposer, question) =
                Proposer::attempt(voters.clone(), me, ServerId(0), rounds[who], who as u32);
            rounds[who] = proposer.ballot().round + 1;
            proposers[who] = Some(proposer);
            on_their_way.extend(voters.iter().map(|voter| OnItsWay::Question(who, voter, question.clone())));
            continue;
        }
        let index = which % on_their_way.len();
        let message = match act % 8 {
            0 => on_their_way[index].clone(),
            _ => on_their_way.swap_remove(index),
        };
        match message {
            _ if *act % 16 == 1 => {}
            OnItsWay::Question(who, voter, question) => {
                let answer = acceptors.get_mut(&voter).unwrap().answer(question);
                on_their_way.push(OnItsWay::Answer(who, voter, answer));
            }
            OnItsWay::Answer(who, voter, answer) => {
                match proposers[who].as_mut().map(|proposer| proposer.on_answer(voter, answer)) {
                    Some(Progress::Ask(question)) => {
                        let asked = voters.iter().map(|v| OnItsWay::Question(who, v, question.clone()));
                        on_their_way.extend(asked);
                    }
                    Some(Progress::Chosen(value)) => chosen.push(value),
                    Some(Progress::Outbid(round)) => rounds[who] = rounds[who].max(round + 1),
                    Some(Progress::Waiting) | None => {}
                }
            }
        }
    }
    chosen
}

proptest! {
    /// Whatever happens to messages, one value is chosen at most.
    #[test]
    fn one_value(members in 1u32..6, script in prop::collection::vec((any::<u8>(), any::<u16>()), 1..400)) {
        let chosen = chosen(members, &script);
        prop_assert!(chosen.windows(2).all(|two| two[0] == two[1]), "{chosen:?}");
    }
}

#[test]
fn one_that_is_not_disturbed_needs_one_round_trip() {
    let voters = Voters::of([0, 1, 2].map(ServerId));
    let (mut proposer, question) = Proposer::attempt(voters.clone(), ServerId(0), ServerId(0), 0, "a");
    let mut acceptors: [Acceptor<&str>; 3] = Default::default();
    assert_eq!(
        proposer.on_answer(Voter::Member(ServerId(0)), acceptors[0].answer(question.clone())),
        Progress::Waiting
    );
    let answer = acceptors[1].answer(question.clone());
    assert_eq!(proposer.on_answer(Voter::Member(ServerId(1)), answer), Progress::Chosen("a"));

    // Another one takes over what may have been chosen.
    let (mut other, prepare) = Proposer::attempt(voters, ServerId(2), ServerId(0), 0, "b");
    let own = acceptors[2].answer(prepare.clone());
    assert_eq!(other.on_answer(Voter::Member(ServerId(2)), own), Progress::Waiting);
    let Progress::Ask(accept) = other.on_answer(Voter::Member(ServerId(1)), acceptors[1].answer(prepare))
    else {
        panic!("a quorum has promised")
    };
    assert_eq!(accept, Question::Accept(other.ballot(), "a"));
    // The first one's late question is refused where the promise was given.
    assert_eq!(
        acceptors[2].answer(question),
        Answer::Refused { asked: proposer.ballot(), promised: other.ballot() }
    );
}

#[test]
fn two_halves_cannot_both_choose() {
    let voters = Voters::of((0..4).map(ServerId));
    let half = |ids: [u32; 2]| -> BTreeSet<Voter> { ids.map(|id| Voter::Member(ServerId(id))).into() };
    assert!(!voters.are_enough(&half([0, 1])));
    let with_witness: BTreeSet<Voter> = half([2, 3]).into_iter().chain([Voter::Witness]).collect();
    assert!(voters.are_enough(&with_witness));
    assert!(!Voters::of((0..3).map(ServerId)).contains(Voter::Witness));
}
