//! An inquiry along the tree of servers: each answers for its share, and passes halves of the others on.

use super::super::Node;
use crate::evaluation::CheckedText;
use crate::questions::Answer;
use forebay_core::{Error, ErrorKind, Result};
use forebay_query::gather::Gathered;
use forebay_wire::evaluation::{Answers, Inquiry, Share};
use forebay_wire::frame::{BODY_MAX, encoded_bytes};
use forebay_wire::peer::evaluation::Message;
use serde::Serialize;
use std::sync::Arc;
use tokio::sync::oneshot::Receiver;

/// How long what is said for one evaluation may be, in bytes: a message, but for what stands around it.
const SIZE_MAX: usize = BODY_MAX - (64 << 10);

/// A question to a server further down.
struct Asked {
    about: String,
    answer: Receiver<Answer>,
}

impl Node {
    /// Asks the server of the first share, which may be this one, for the answers of all. `texts` are those of the inquiry.
    pub(super) async fn inquire(
        self: &Arc<Node>,
        inquiry: Inquiry,
        texts: &[CheckedText],
    ) -> Result<Answers> {
        match inquiry.shares.first() {
            Some(share) if share.server == self.id => self.answer_inquiry(inquiry, Some(texts)).await,
            _ => self.ask_below(inquiry)?.wait().await,
        }
    }

    /// The answers for the first share, which is this server's, and for all others, of which halves are passed on. Texts that are not
    /// known are checked.
    pub(super) async fn answer_inquiry(
        self: &Arc<Node>,
        inquiry: Inquiry,
        known: Option<&[CheckedText]>,
    ) -> Result<Answers> {
        let Inquiry { id, texts, asked, mut shares, is_awaited } = inquiry;
        if shares.first().is_none_or(|share| share.server != self.id) {
            return Err(Error::protocol("an inquiry whose first share is another server's"));
        }
        let own = shares.remove(0);
        let mut below = Vec::new();
        for shares in halves(shares) {
            let inquiry =
                Inquiry { id: id.clone(), texts: texts.clone(), asked: asked.clone(), shares, is_awaited };
            below.push(self.ask_below(inquiry)?);
        }
        let texts = match known {
            Some(known) => known.to_vec(),
            None => texts.into_iter().map(CheckedText::of).collect::<Result<Vec<CheckedText>>>()?,
        };
        let Share { lists, .. } = own;
        let mut all = self
            .answer_share(&texts, &asked, lists, is_awaited)
            .await
            .map_err(|error| error.during(id.to_string()))?;
        for asked_below in below {
            let answers = asked_below.wait().await?;
            let fits = answers.gathered.len() == all.gathered.len()
                && answers.gathered.iter().all(Gathered::is_well_formed);
            if !fits {
                return Err(Error::protocol("the answers of a server do not fit what it was asked"));
            }
            all.cost = all.cost.beside(answers.cost);
            all.gathered.iter_mut().zip(answers.gathered).for_each(|(own, theirs)| own.merge(theirs));
        }
        Ok(all)
    }

    fn ask_below(&self, inquiry: Inquiry) -> Result<Asked> {
        check_size(&inquiry)?;
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

/// Checks that something fits into a message: what does not would never come.
pub(super) fn check_size<M: Serialize>(said: &M) -> Result<()> {
    let bytes = encoded_bytes(said)?;
    if bytes <= SIZE_MAX {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::Full,
        format!(
            "{} MiB would have to be said to another server for one evaluation, and {} MiB is the most: watch fewer things of \
             this stream, or put larger blocks",
            bytes >> 20,
            SIZE_MAX >> 20
        ),
    ))
}

/// What is passed on to two servers, each of which answers for the first share, and has others answer for the rest.
fn halves(mut shares: Vec<Share>) -> impl Iterator<Item = Vec<Share>> {
    let second = shares.split_off(shares.len().div_ceil(2));
    [shares, second].into_iter().filter(|shares| !shares.is_empty())
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

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::block::{BlockRecord, Extent, Location};
    use forebay_core::contract::Field;
    use forebay_core::dtype::Dtype;
    use forebay_core::ids::{BlockKey, ServerId, StepId};
    use forebay_query::gather::Question;
    use forebay_query::pieces::{FieldBlocks, pieces};
    use forebay_query::{Evaluation, StepFacts};
    use forebay_wire::evaluation::{Answers, Asked, Cost, PlannedText};
    use std::collections::BTreeMap;

    /// What travels for one question.
    #[derive(Debug, Default, PartialEq)]
    struct Travelled {
        messages: u64,
        bytes: u64,
        /// The longest way from the root down.
        depth: u64,
        /// How many messages the busiest server sends and receives.
        busiest: u64,
    }

    /// A question about a field of so many servers, each of which holds the blocks of 32 ranks, as in the weak scaling of paper 001.
    fn question(servers: u32) -> Inquiry {
        let (ranks, rows) = (u64::from(servers) * 32, 8);
        let field = Field::new("U", Dtype::F64, Some(&[ranks * rows, 1024, 512]), 3);
        let records: Vec<BlockRecord> = (0..ranks)
            .map(|rank| BlockRecord {
                key: BlockKey::whole(rank as u32, 0),
                level: 0,
                extent: Extent::new(Some(&[rank * rows, 0, 0]), &[rows, 1024, 512], &[], &[]).unwrap(),
                location: Location {
                    server: ServerId((rank / 32) as u32),
                    arena: 1,
                    offset: rank << 25,
                    bytes: 32 << 20,
                    generation: rank,
                },
                inline: None,
                stats: None,
            })
            .collect();
        let streams = vec![("s".to_owned(), vec![field.clone()])];
        let (text, own) = ("min(U) > 0.5".to_owned(), Some("s".to_owned()));
        let text = CheckedText::of(PlannedText { text, own, streams, watched: true }).unwrap();
        let facts = StepFacts {
            moment: forebay_query::time::Moment { step: 0, time: 0.0 },
            fields: vec![Ok(field.clone())],
        };
        let mut watch = forebay_query::time::WatchState::new(&text.plan);
        let evaluation = Evaluation::new(text.plan.clone(), facts, Some(&mut watch));
        let blocks = [Some(FieldBlocks { field: &field, records: &records })];
        let found = pieces(&text.plan, &text.plan.aggregates[0], &blocks).unwrap();
        let mut shares: BTreeMap<ServerId, Vec<forebay_query::pieces::Piece>> = BTreeMap::new();
        for piece in found.list {
            shares.entry(piece.server).or_default().push(piece);
        }
        let question: Question = evaluation.questions().remove(0);
        Inquiry {
            id: StepId { stream: "s".to_owned(), run: 1, step: 0 },
            texts: vec![(*text.planned).clone()],
            asked: vec![Asked { text: 0, list: 0, question }],
            shares: shares.into_iter().map(|(server, list)| Share { server, lists: vec![list] }).collect(),
            is_awaited: false,
        }
    }

    fn answer_bytes(inquiry: &Inquiry, text: &CheckedText) -> u64 {
        let aggregate = &text.plan.aggregates[0];
        let gathered = vec![forebay_store::evaluate::nothing(aggregate, &inquiry.asked[0].question).unwrap()];
        let result = Box::new(Ok(Answers { gathered, cost: Cost::default() }));
        size(&Message::Answers { token: 1 << 40, result })
    }

    fn size(message: &Message) -> u64 {
        forebay_wire::frame::encoded_bytes(message).unwrap() as u64
    }

    /// Passes a question on as servers do.
    fn travel(inquiry: Inquiry, text: &CheckedText, depth: u64, all: &mut Travelled) {
        let Inquiry { id, texts, asked, mut shares, is_awaited } = inquiry;
        shares.remove(0);
        let mut own = u64::from(depth > 0) * 2;
        for shares in halves(shares) {
            let inquiry =
                Inquiry { id: id.clone(), texts: texts.clone(), asked: asked.clone(), shares, is_awaited };
            all.messages += 2;
            own += 2;
            all.bytes += answer_bytes(&inquiry, text)
                + size(&Message::Inquire { token: 1 << 40, inquiry: Box::new(inquiry.clone()) });
            travel(inquiry, text, depth + 1, all);
        }
        all.depth = all.depth.max(depth);
        all.busiest = all.busiest.max(own);
    }

    /// The table stands in docs/watching.md, for the sizes of paper 001.
    #[test]
    fn a_question_travels_down_a_binary_tree() {
        let mut lines = Vec::new();
        for servers in [2u32, 4, 32, 64, 128, 256] {
            let inquiry = question(servers);
            let text = CheckedText::of(inquiry.texts[0].clone()).unwrap();
            let mut all = Travelled::default();
            travel(inquiry, &text, 0, &mut all);
            assert_eq!(all.messages, 2 * (u64::from(servers) - 1), "one question and one answer of each");
            assert_eq!(all.depth, u64::from(servers.ilog2()), "{servers} servers");
            assert!(all.busiest <= 6, "{servers} servers: {}", all.busiest);
            let (direct, kib) = (2 * (servers - 1), all.bytes.div_ceil(1024));
            lines.push(format!(
                "| {servers} | {} | {kib} | {} | {} | {direct} |",
                all.messages, all.depth, all.busiest
            ));
        }
        let page = include_str!("../../../../../docs/watching.md");
        for line in &lines {
            assert!(page.contains(line), "docs/watching.md lacks one of:\n{}", lines.join("\n"));
        }
    }
}
