//! Agreement on one value, once: single-decree Paxos (Lamport, "Paxos Made Simple", 2001).
//!
//! A group runs one instance for each epoch: the members of the view in force vote on the next one. It is safe
//! whatever is lost, repeated, delayed or reordered, and whoever proposes at the same time: two quorums share a voter,
//! and a proposer takes over what a voter may have helped to choose before.
//!
//! Where the number of members is even, a **witness** votes too: a record beside the connection file that one process
//! at a time can change. So half of the members and the witness are a quorum, and two halves that do not see each
//! other never both are.

mod acceptor;
mod proposer;
mod vote;

pub use acceptor::Acceptor;
pub use proposer::{Progress, Proposer};
pub use vote::{Answer, Ballot, Question, Voter, Voters};

#[cfg(test)]
mod tests;
