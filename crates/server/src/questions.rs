//! Questions to other servers that wait for an answer, by token.

use forebay_cluster::environment::HashMap;
use forebay_core::Result;
use forebay_core::ids::{DescriptionNumber, ServerId};
use forebay_core::steps::ReadersThere;
use forebay_wire::drive::DriveAnswer;
use forebay_wire::evaluation::Answers;
use forebay_wire::peer::streams::JoinedRun;
use tokio::sync::oneshot;

/// What another server answers.
#[derive(Debug)]
pub(crate) enum Answer {
    /// A rank has joined, or why not.
    Joined(Result<JoinedRun>),
    /// It is done, or what failed.
    Done(Result<()>),
    /// Under which description a block of the space is registered.
    Described(Result<DescriptionNumber>),
    /// What became of what a rank wanted of a pipeline.
    Driven(Result<DriveAnswer>),
    /// The answers to an inquiry.
    Evaluated(Box<Result<Answers>>),
    /// Which readers take part in a run.
    Readers(ReadersThere),
    /// Another server is to be asked.
    Redirect(ServerId),
}

/// What a question was about, for whoever handles its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct QuestionSubject {
    /// The stream.
    pub(crate) stream: String,
    /// The rank.
    pub(crate) rank: u32,
}

/// A question that waits for its answer.
#[derive(Debug)]
pub(crate) struct Question {
    /// Who was asked.
    server: ServerId,
    /// `None` if it is about no stream.
    about: Option<QuestionSubject>,
    reply: oneshot::Sender<Answer>,
}

impl Question {
    /// What it is about.
    pub(crate) fn about(&self) -> Option<&QuestionSubject> {
        self.about.as_ref()
    }

    /// Whoever asked is told; it may have given up.
    pub(crate) fn answer(self, answer: Answer) {
        let _ = self.reply.send(answer);
    }
}

/// All questions that wait.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    waiting: HashMap<u64, Question>,
}

impl Questions {
    /// A question is asked: where its answer will come. That ends without one if the server dies.
    pub(crate) fn ask(
        &mut self,
        token: u64,
        server: ServerId,
        about: Option<QuestionSubject>,
    ) -> oneshot::Receiver<Answer> {
        let (reply, answer) = oneshot::channel();
        self.waiting.insert(token, Question { server, about, reply });
        answer
    }

    /// Takes a question out: it is answered, or nobody waits for it any more.
    pub(crate) fn take(&mut self, token: u64) -> Option<Question> {
        self.waiting.remove(&token)
    }

    /// A question is answered; one that nobody waits for any more is passed over.
    pub(crate) fn answer(&mut self, token: u64, answer: Answer) {
        if let Some(question) = self.take(token) {
            question.answer(answer);
        }
    }

    /// A server is gone: whoever waits for an answer of it waits no more.
    pub(crate) fn on_server_gone(&mut self, server: ServerId) {
        self.waiting.retain(|_, question| question.server != server);
    }
}
