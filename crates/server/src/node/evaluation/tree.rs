//! An inquiry along the tree of servers: each answers for its share, and passes halves of the others on.

use super::super::Node;
use crate::evaluation::CheckedText;
use crate::questions::Answer;
use forebay_core::{Error, Result};
use forebay_query::gather::Gathered;
use forebay_wire::evaluation::{Answers, Inquiry, Share};
use forebay_wire::peer::evaluation::Message;
use std::sync::Arc;
use tokio::sync::oneshot::Receiver;

/// A question to a server further down.
struct Asked {
    about: String,
    answer: Receiver<Answer>,
}

impl Node {
    /// Asks the server of the first share, which may be this one, for the answers of all.
    pub(super) async fn inquire(self: &Arc<Node>, inquiry: Inquiry) -> Result<Answers> {
        match inquiry.shares.first() {
            Some(share) if share.server == self.id => self.answer_inquiry(inquiry).await,
            _ => self.ask_below(inquiry)?.wait().await,
        }
    }

    /// The answers for the first share, which is this server's, and for all others, of which halves are passed on.
    pub(super) async fn answer_inquiry(self: &Arc<Node>, inquiry: Inquiry) -> Result<Answers> {
        let Inquiry { id, texts, asked, mut shares } = inquiry;
        if shares.first().is_none_or(|share| share.server != self.id) {
            return Err(Error::protocol("an inquiry whose first share is another server's"));
        }
        let own = shares.remove(0);
        let second = shares.split_off(shares.len().div_ceil(2));
        let mut below = Vec::new();
        for shares in [shares, second].into_iter().filter(|shares| !shares.is_empty()) {
            let inquiry = Inquiry { id: id.clone(), texts: texts.clone(), asked: asked.clone(), shares };
            below.push(self.ask_below(inquiry)?);
        }
        let texts = texts.into_iter().map(CheckedText::of).collect::<Result<Vec<CheckedText>>>()?;
        let Share { lists, .. } = own;
        let mut all =
            self.answer_share(&texts, &asked, lists).await.map_err(|error| error.during(id.to_string()))?;
        for asked_below in below {
            let answers = asked_below.wait().await?;
            let fits = answers.gathered.len() == all.gathered.len()
                && answers.gathered.iter().all(Gathered::is_well_formed);
            if !fits {
                return Err(Error::protocol("the answers of a server do not fit what it was asked"));
            }
            all.cost.add(answers.cost);
            all.gathered.iter_mut().zip(answers.gathered).for_each(|(own, theirs)| own.merge(theirs));
        }
        Ok(all)
    }

    fn ask_below(&self, inquiry: Inquiry) -> Result<Asked> {
        let gone = || Error::unreachable("a server that holds something of a field is gone");
        let server = inquiry.shares.first().map(|share| share.server).ok_or_else(gone)?;
        let about = server.to_string();
        let mut state = self.state.lock();
        let inquiry = Box::new(inquiry);
        let asked = self.question(&mut state, server, |token| Message::Inquire { token, inquiry });
        let (_, answer) =
            asked.ok_or_else(|| Error::unreachable(format!("{about} is gone")).about(server))?;
        self.drain(&mut state);
        Ok(Asked { about, answer })
    }
}

impl Asked {
    /// Waits for the answers. That ends when the server has gone.
    async fn wait(self) -> Result<Answers> {
        match self.answer.await {
            Ok(Answer::Evaluated(result)) => *result,
            Ok(_) => Err(Error::protocol(format!("{} answers something else", self.about))),
            Err(_) => Err(Error::unreachable(format!("{} has gone amid an evaluation", self.about))),
        }
    }
}
