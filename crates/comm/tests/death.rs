//! Peers that die or close: the others are told at once and by name, whatever they are at.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)]

mod common;

use common::{Over, comms, endpoint, group, on_all, only, pattern};
use forebay_core::{Error, ErrorKind};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Long enough for a busy machine, far below the deadline.
const AT_ONCE: Duration = Duration::from_secs(5);
const DEADLINE: Duration = Duration::from_secs(60);
/// Set for the processes that these tests start: which rank they are, and what they do.
const CHILD: &str = "FOREBAY_COMM_TEST_CHILD";

/// Lets others get into their waits.
fn a_moment() {
    std::thread::park_timeout(Duration::from_millis(200));
}

fn assert_gone(error: &Error, rank: u32) {
    assert_eq!(error.kind, ErrorKind::Unreachable, "{error}");
    assert!(error.text.contains(&format!("rank {rank} (")), "{error}");
}

struct Worker {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Worker {
    fn start(rank: u32, role: &str) -> Worker {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_worker_process", "--nocapture"])
            .env(CHILD, format!("{rank} {role}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        Worker { process, input, output: BufReader::new(output) }
    }

    /// The rest of the next line that begins so.
    fn said(&mut self, what: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "it ended without saying '{what}'");
            // The test harness does not end its own line first.
            if let Some((_, rest)) = line.split_once(what) {
                return rest.trim().to_owned();
            }
        }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a started process does; nothing in an ordinary run.
#[test]
fn a_worker_process() {
    let Ok(role) = std::env::var(CHILD) else { return };
    let (rank, role) = role.split_once(' ').unwrap();
    let endpoint = endpoint(&format!("w{rank}"));
    println!("\naddresses: {}", endpoint.addresses().join(" "));
    let mut lines = std::io::stdin().lines().map(|line| line.unwrap());
    let members = lines.next().unwrap();
    let members = members.split('|').map(|member| member.split(' ').map(str::to_owned).collect()).collect();
    let comm = endpoint.comm(1, rank.parse().unwrap(), members).unwrap();
    comm.set_timeout(DEADLINE);
    let error = match role {
        "idle" => None,
        "barrier" => Some(comm.barrier().unwrap_err()),
        "barriers" => Some(loop {
            if let Err(error) = comm.barrier() {
                break error;
            }
        }),
        "flood" => Some(loop {
            if let Err(error) = comm.send(0, 1, &pattern(1, 30 << 20)) {
                break error;
            }
        }),
        other => panic!("no role {other}"),
    };
    if let Some(error) = error {
        println!("\nfailed: {:?} {}", error.kind, error.text);
    }
    // The comm stays open: the others do not learn from its end.
    let _ = lines.next();
}

/// Rank 0 is this process, the others do what `roles` say. Returns when all have started.
fn start(roles: &[&str], over: Over) -> (forebay_comm::Endpoint, forebay_comm::Comm, Vec<Worker>) {
    let here = endpoint("w0");
    let mut workers: Vec<_> = (1..).zip(roles).map(|(rank, role)| Worker::start(rank, role)).collect();
    let mut members = vec![only(here.addresses(), over)];
    for worker in &mut workers {
        let addresses = worker.said("addresses: ");
        members.push(only(addresses.split(' ').map(str::to_owned).collect(), over));
    }
    let line = members.iter().map(|member| member.join(" ")).collect::<Vec<_>>().join("|");
    workers.iter_mut().for_each(|worker| worker.tell(&line));
    let comm = here.comm(1, 0, members).unwrap();
    comm.set_timeout(DEADLINE);
    (here, comm, workers)
}

/// Kills one worker (SIGKILL) while all, or all but that one, are in barriers; everybody is told.
fn killed(role: &str, victims_role: &str, over: Over) {
    let mut roles = [role; 6];
    roles[3] = victims_role;
    let (_here, comm, mut workers) = start(&roles, over);
    let killed_at = std::thread::scope(|scope| {
        let killer = scope.spawn(|| {
            a_moment();
            workers[3].process.kill().unwrap();
            Instant::now()
        });
        let error = loop {
            if let Err(error) = comm.barrier() {
                break error;
            }
        };
        assert_gone(&error, 4);
        assert!(error.text.contains("barrier") && error.text.contains("rank 0"), "{error}");
        killer.join().unwrap()
    });
    for (rank, worker) in (1..).zip(&mut workers).filter(|(rank, _)| *rank != 4) {
        let text = worker.said("failed: ");
        assert!(text.starts_with("Unreachable ") && text.contains("rank 4 ("), "rank {rank}: {text}");
    }
    assert!(killed_at.elapsed() < AT_ONCE, "{:?}", killed_at.elapsed());
    // Later ones fail likewise; what does not involve it goes on.
    assert_gone(&comm.barrier().unwrap_err(), 4);
    assert_gone(&comm.recv(4, 0).unwrap_err(), 4);
    assert_gone(&comm.send(4, 0, b"x").unwrap_err(), 4);
    comm.send(1, 0, b"still here?").unwrap();
    comm.set_timeout(Duration::from_millis(50));
    assert_eq!(comm.recv(1, 0).unwrap_err().kind, ErrorKind::Timeout);
}

#[test]
fn a_process_killed_before_a_barrier_is_told_to_all_over_shm() {
    killed("barrier", "idle", Over::Shm);
}

#[test]
fn a_process_killed_before_a_barrier_is_told_to_all_over_tcp() {
    killed("barrier", "idle", Over::Tcp);
}

#[test]
fn a_process_killed_within_barriers_is_told_to_all_over_shm() {
    killed("barriers", "barriers", Over::Shm);
}

#[test]
fn a_process_killed_within_barriers_is_told_to_all_over_tcp() {
    killed("barriers", "barriers", Over::Tcp);
}

#[test]
fn a_process_killed_while_it_is_received_from_is_noticed() {
    // It never dials anybody: who receives from it does.
    let (_here, comm, mut workers) = start(&["idle", "idle"], Over::Shm);
    let began = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| assert_gone(&comm.recv(1, 9).unwrap_err(), 1));
        a_moment();
        workers[0].process.kill().unwrap();
        let began = Instant::now();
        waiting.join().unwrap();
        began
    });
    assert!(began.elapsed() < AT_ONCE);
    comm.send(2, 0, b"goes on").unwrap();
    workers[1].process.kill().unwrap();
    workers[1].process.wait().unwrap();
    assert_gone(&comm.recv(2, 9).unwrap_err(), 2);
}

#[test]
fn a_process_killed_within_a_message_leaves_no_part_of_it() {
    for over in [Over::Tcp, Over::Shm] {
        let (_here, comm, mut workers) = start(&["flood"], over);
        assert!(comm.recv(1, 1).unwrap() == pattern(1, 30 << 20));
        workers[0].process.kill().unwrap();
        let error = loop {
            match comm.recv(1, 1) {
                Ok(message) => assert!(message == pattern(1, 30 << 20)),
                Err(error) => break error,
            }
        };
        assert_gone(&error, 1);
    }
}

/// Who is stopped while others wait for it is waited for by their deadline, in whatever they do; then it goes on with them.
#[test]
fn a_process_stopped_within_a_message_is_waited_for_by_the_deadline() {
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    let (_here, comm, workers) = start(&["flood"], Over::Shm);
    assert!(comm.recv(1, 1).unwrap() == pattern(1, 30 << 20));
    let process = Pid::from_child(&workers[0].process);
    kill_process(process, Signal::STOP).unwrap();
    waitpid(Some(process), WaitOptions::UNTRACED).unwrap();
    comm.set_timeout(Duration::from_millis(100));
    // It may have lent the next one before: that can be read while it stands still.
    let mut errors = (0..3).filter_map(|_| comm.recv(1, 1).err());
    assert_eq!(errors.next().unwrap().kind, ErrorKind::Timeout);
    let error = comm.send(1, 1, &pattern(2, 100_000)).unwrap_err();
    assert!(error.text.contains("rank 1 ('w1'): it does not receive it"), "{error}");
    kill_process(process, Signal::CONT).unwrap();
    comm.set_timeout(DEADLINE);
    assert!(comm.recv(1, 1).unwrap() == pattern(1, 30 << 20));
}

#[test]
fn a_stopped_process_is_waited_for_by_the_deadline_and_no_longer() {
    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    let (_here, comm, workers) = start(&["idle"], Over::Shm);
    let process = Pid::from_child(&workers[0].process);
    kill_process(process, Signal::STOP).unwrap();
    waitpid(Some(process), WaitOptions::UNTRACED).unwrap();
    comm.set_timeout(Duration::from_millis(100));
    // Its kernel accepts, but nobody shakes hands.
    for error in
        [comm.recv(1, 3).unwrap_err(), comm.send(1, 3, b"x").unwrap_err(), comm.barrier().unwrap_err()]
    {
        assert_eq!(error.kind, ErrorKind::Timeout, "{error}");
        assert!(error.text.contains("rank 0 waited 100ms for a connection to rank 1 (at shm:"), "{error}");
    }
    // It is no more than slow: it goes on.
    kill_process(process, Signal::CONT).unwrap();
    comm.set_timeout(DEADLINE);
    comm.send(1, 3, b"x").unwrap();
}

#[test]
fn what_was_sent_before_the_end_is_received() {
    for over in [Over::Shm, Over::Tcp] {
        for round in 0..20 {
            let (mut endpoints, members) = group(2, over);
            let mut all = comms(&endpoints, &members, 1);
            let (one, zero) = (all.pop().unwrap(), all.pop().unwrap());
            let bytes = if round % 2 == 0 { 10 } else { 6_000_000 };
            std::thread::scope(|scope| {
                // Both dial at once, so that there are two connections.
                let receiving = scope.spawn(|| zero.recv(1, 0).unwrap());
                one.send(0, 0, &pattern(round, bytes)).unwrap();
                drop(one);
                drop(endpoints.pop());
                assert!(receiving.join().unwrap() == pattern(round, bytes));
            });
            assert_gone(&zero.recv(1, 0).unwrap_err(), 1);
        }
    }
}

#[test]
fn a_rank_that_closes_the_comm_is_told() {
    let (endpoints, members) = group(5, Over::Shm);
    let mut all = comms(&endpoints, &members, 1);
    let last = all.pop().unwrap();
    let ready = Barrier::new(5);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            ready.wait();
            a_moment();
            drop(last);
        });
        let began = Instant::now();
        let errors = on_all(&all, |comm| {
            ready.wait();
            comm.allreduce_by(vec![1], |a, b| a[0] += b[0]).unwrap_err()
        });
        errors.iter().for_each(|error| assert_gone(error, 4));
        assert!(began.elapsed() < AT_ONCE);
    });
    // Who asks only now learns it too.
    assert!(all[1].recv(4, 0).unwrap_err().text.contains("has closed this communicator"));
    // The endpoints are as good as before.
    drop(all);
    on_all(&comms(&endpoints, &members, 2), |comm| comm.barrier().unwrap());
}

/// Something that waits for rank 1.
type Wait = fn(&forebay_comm::Comm) -> Error;

/// Ranks 0 and 2 wait for rank 1, which cannot go on, in a copy of their communicator.
fn revoked(over: Over) {
    let (endpoints, members) = group(3, over);
    let comms = comms(&endpoints, &members, 1);
    let copies = on_all(&comms, |comm| comm.dup().unwrap());
    let waits: &[(&str, Wait)] = &[
        ("a message of it", |copy| copy.recv(1, 0).unwrap_err()),
        ("a message of anybody", |copy| copy.recv_any(None, None).unwrap_err()),
        ("a long one that it does not receive", |copy| copy.send(1, 0, &pattern(0, 9 << 20)).unwrap_err()),
        ("a barrier", |copy| copy.barrier().unwrap_err()),
    ];
    // Over a socket it goes into the memory of rank 1: nobody waits for that.
    for (what, wait) in waits.iter().filter(|(what, _)| over == Over::Shm || !what.contains("long")) {
        let copies = on_all(&copies, |copy| copy.dup().unwrap());
        let begun = Instant::now();
        on_all(&copies, |copy| {
            let error = if copy.rank() == 1 {
                a_moment();
                copy.revoke("VTK has no memory").unwrap();
                copy.revoke("nobody hears this").unwrap();
                copy.barrier().unwrap_err()
            } else {
                wait(copy)
            };
            assert_eq!(error.kind, ErrorKind::Unreachable, "{what}: {error}");
            let why = "rank 1 has revoked communicator 1: VTK has no memory";
            assert!(error.text.contains(why), "{what}: {error}");
            // Nothing is begun in it any more, on any rank.
            assert!(copy.send(0, 0, &[1]).unwrap_err().text.contains(why));
            let mut own = [0];
            assert!(copy.recv_into(Some(copy.rank()), None, &mut own).unwrap_err().text.contains(why));
        });
        assert!(begun.elapsed() < AT_ONCE, "{what}");
    }
    // What they are parts of goes on.
    on_all(&copies, |copy| copy.barrier().unwrap());
    on_all(&comms, |comm| comm.barrier().unwrap());
}

#[test]
fn a_rank_that_revokes_a_part_is_heard_over_shm() {
    revoked(Over::Shm);
}

#[test]
fn a_rank_that_revokes_a_part_is_heard_over_tcp() {
    revoked(Over::Tcp);
}

#[test]
fn another_part_of_the_same_split_goes_on() {
    let (endpoints, members) = group(4, Over::Shm);
    let comms = comms(&endpoints, &members, 1);
    let parts = on_all(&comms, |comm| comm.split(Some(comm.rank() % 2), 0).unwrap().unwrap());
    parts[3].revoke("it is odd").unwrap();
    let odd = [&parts[1], &parts[3]].map(|part| part.barrier().unwrap_err().text);
    assert!(odd.iter().all(|text| text.contains("rank 3 has revoked communicator 1: it is odd")), "{odd:?}");
    on_all(&comms, |comm| comm.barrier().unwrap()); // all have heard of it
    std::thread::scope(|scope| {
        let even = [&parts[0], &parts[2]].map(|part| scope.spawn(|| part.barrier()));
        even.into_iter().for_each(|one| one.join().unwrap().unwrap());
    });
}

/// Parts that have one number since neither knows of the other.
#[test]
fn a_part_of_other_ranks_that_is_made_later_goes_on() {
    let (endpoints, members) = group(4, Over::Shm);
    let comms = comms(&endpoints, &members, 1);
    let halves = on_all(&comms, |comm| comm.split(Some(comm.rank() / 2), 0).unwrap().unwrap());
    std::thread::scope(|scope| {
        let first = [&halves[0], &halves[1]].map(|half| scope.spawn(|| half.dup().unwrap()));
        for copy in first.map(|one| one.join().unwrap()) {
            copy.revoke("of ranks 0 and 1 alone").unwrap();
        }
    });
    on_all(&comms, |comm| comm.barrier().unwrap());
    std::thread::scope(|scope| {
        let second = [&halves[2], &halves[3]].map(|half| scope.spawn(|| half.dup().unwrap().barrier()));
        second.into_iter().for_each(|one| one.join().unwrap().unwrap());
    });
}

/// Who waits to send asks, too.
#[test]
fn who_sends_to_one_that_has_revoked_is_told() {
    let (endpoints, members) = group(2, Over::Shm);
    let comms = comms(&endpoints, &members, 1);
    comms[1].revoke("it computes").unwrap();
    let begun = Instant::now();
    let error = comms[0].send(1, 0, &pattern(0, 1 << 20)).unwrap_err();
    assert!(error.text.contains("rank 1 has revoked communicator 1: it computes"), "{error}");
    assert!(begun.elapsed() < AT_ONCE);
}

#[test]
fn nothing_is_begun_in_a_communicator_of_one_rank_that_was_revoked() {
    let (endpoints, members) = group(1, Over::Shm);
    let comm = std::sync::Arc::new(comms(&endpoints, &members, 1).remove(0));
    let copy = std::sync::Arc::new(comm.dup().unwrap());
    copy.revoke("it is alone").unwrap();
    let (mut colors, mut depths) = ([0; 4], [0; 4]);
    for error in [
        copy.barrier().unwrap_err(),
        copy.dup().unwrap_err(),
        copy.broadcast(0, vec![1]).unwrap_err(),
        copy.ibarrier().wait(&comm).unwrap_err(),
        copy.recv_any(None, None).unwrap_err(),
        copy.composite_nearest(None, (&mut colors, &mut depths), 1.0, false).unwrap_err(),
    ] {
        assert!(error.text.contains("rank 0 has revoked communicator 1: it is alone"), "{error}");
    }
    comm.barrier().unwrap();
}

#[test]
fn who_revokes_before_anybody_has_met_is_heard() {
    let (endpoints, members) = group(3, Over::Shm);
    let comms = comms(&endpoints, &members, 1);
    comms[1].revoke(&"long ".repeat(100_000)).unwrap();
    for error in on_all(&comms, |comm| comm.barrier().unwrap_err()) {
        assert!(error.text.contains("rank 1 has revoked communicator 1: long long"), "{error}");
        assert!(error.text.len() < 2000, "{}", error.text.len());
    }
}

#[test]
fn an_endpoint_leaves_nothing_behind() {
    let (endpoints, members) = group(3, Over::Tcp);
    let names: Vec<String> = endpoints
        .iter()
        .map(|endpoint| only(endpoint.addresses(), Over::Shm)[0].rsplit('/').next().unwrap().to_owned())
        .collect();
    let sockets = || std::fs::read_to_string("/proc/self/net/unix").unwrap();
    let all = comms(&endpoints, &members, 1);
    on_all(&all, |comm| comm.barrier().unwrap());
    assert!(names.iter().all(|name| sockets().contains(name)));
    let began = Instant::now();
    drop(endpoints);
    assert!(began.elapsed() < Duration::from_millis(500), "{:?}", began.elapsed());
    assert!(!names.iter().any(|name| sockets().contains(name)));
    for member in &members[..] {
        let port = member[0].strip_prefix("tcp:").unwrap();
        assert!(std::net::TcpStream::connect(port).is_err());
    }
    assert_eq!(all[0].barrier().unwrap_err().kind, ErrorKind::Closed);
    assert_eq!(all[0].send(1, 0, b"x").unwrap_err().kind, ErrorKind::Closed);
}
