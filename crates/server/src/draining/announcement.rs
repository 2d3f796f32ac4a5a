//! What a server that leaves asks the others: whether they know of it, and whether it may go.

use crate::node::Node;
use crate::questions::Answer;
use forebay_core::ids::ServerId;
use forebay_wire::peer::cluster;
use std::time::Duration;
use tokio::time::timeout;

/// How long the others may take to answer before they are asked again.
const ANSWER: Duration = Duration::from_secs(1);

impl Node {
    /// Tells the members that this server leaves, as far as they do not know.
    pub(super) async fn announce(&self) {
        let untold: Vec<ServerId> = {
            let state = self.state.lock();
            let others = self.others(&state).into_iter();
            others.filter(|id| !state.common.members.is_informed(*id)).collect()
        };
        for (server, agreed) in self.ask_others(untold, false).await {
            if agreed {
                self.state.lock().common.members.note_informed(server);
            }
        }
    }

    /// Whether no other member needs anything of this one.
    pub(super) async fn may_go(&self) -> bool {
        let others = {
            let mut state = self.state.lock();
            self.pipelines_pause(&mut state);
            self.others(&state)
        };
        self.ask_others(others, true).await.into_iter().all(|(_, may_go)| may_go)
    }

    /// Asks members about this one's leaving; what each answers. Those that are gone are left out.
    async fn ask_others(&self, servers: Vec<ServerId>, may_go: bool) -> Vec<(ServerId, bool)> {
        let asked: Vec<_> = {
            let mut state = self.state.lock();
            let state = &mut *state;
            let ask = |server: ServerId| {
                let question = |token| cluster::Message::Leaving { token, may_go };
                self.question(state, server, question).map(|(_, answer)| (server, answer))
            };
            servers.into_iter().filter_map(ask).collect()
        };
        let mut answers = Vec::new();
        for (server, answer) in asked {
            match timeout(ANSWER, answer).await {
                Ok(Ok(answer)) => {
                    answers.push((server, matches!(answer, Answer::Done(Ok(())))));
                }
                // It is gone.
                Ok(Err(_)) => {}
                Err(_) => answers.push((server, false)),
            }
        }
        answers
    }
}
