//! What is asked of all servers in a round: each question once, whoever asks it.

use super::checked::CheckedText;
use forebay_core::block::Location;
use forebay_core::ids::{ServerId, StepId};
use forebay_core::steps::StepReport;
use forebay_query::Evaluation;
use forebay_query::decide::known_pieces;
use forebay_query::gather::{Gathered, Question};
use forebay_query::pieces::{FieldBlocks, Pieces, Source, pieces};
use forebay_query::plan::{Aggregate, Measure};
use forebay_query::value::{Unknown, UnknownKind};
use forebay_store::evaluate::nothing;
use forebay_wire::evaluation::{Asked, Inquiry, Share};
use std::collections::{BTreeMap, HashMap};

/// What is known of a step in all its streams.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StepBlocks<'a> {
    /// Of each stream one.
    pub(crate) reports: &'a [&'a StepReport],
    /// Why the blocks of a field are not known, by its stream and name.
    pub(crate) unknown: &'a BTreeMap<(String, String), Unknown>,
}

/// The questions of a round of several evaluations at one step, and how their answers are found.
#[derive(Debug)]
pub(crate) struct Round {
    id: StepId,
    texts: Vec<CheckedText>,
    /// Each once.
    questions: Vec<Unique>,
    /// By evaluation: where its questions stand among these.
    places: Vec<Vec<usize>>,
    lists: Vec<Result<Pieces, Unknown>>,
}

#[derive(Debug)]
struct Unique {
    text: usize,
    question: Question,
    list: usize,
    /// What statistics say of the pieces that nobody is asked about.
    known: Option<Gathered>,
    /// What is known without asking, or has been answered.
    answer: Option<Gathered>,
}

impl Round {
    /// The next questions of these evaluations, at a step of which this is known; `None` if all is known.
    pub(crate) fn begin<'a>(
        id: &StepId,
        blocks: StepBlocks<'_>,
        evaluations: impl Iterator<Item = (&'a CheckedText, &'a Evaluation)>,
    ) -> Option<Round> {
        let mut round = Round {
            id: id.clone(),
            texts: Vec::new(),
            questions: Vec::new(),
            places: Vec::new(),
            lists: Vec::new(),
        };
        let mut known: HashMap<(String, String), usize> = HashMap::new();
        let mut lists: HashMap<String, usize> = HashMap::new();
        for (text, evaluation) in evaluations {
            let mut places = Vec::new();
            for question in evaluation.questions() {
                let key = &text.keys[usize::from(question.aggregate)];
                let asks = format!("{:?} {:?}", question.stage, question.inputs);
                let place = *known.entry((key.clone(), asks)).or_insert_with(|| {
                    let list = *lists.entry(key.clone()).or_insert_with(|| {
                        round.lists.push(pieces_of(text, &question, blocks));
                        round.lists.len() - 1
                    });
                    round.add(text, question, list)
                });
                places.push(place);
            }
            round.places.push(places);
        }
        round.leave_out_known();
        (!round.questions.is_empty()).then_some(round)
    }

    fn add(&mut self, text: &CheckedText, question: Question, list: usize) -> usize {
        let is_last = self.texts.last().is_some_and(|last| std::sync::Arc::ptr_eq(&last.plan, &text.plan));
        if !is_last {
            self.texts.push(text.clone());
        }
        let aggregate = &text.plan.aggregates[usize::from(question.aggregate)];
        let fails = |why: &Unknown| Gathered { elements: 0, nan: 0, partial: Err(why.clone()) };
        let answer = match &self.lists[list] {
            Err(why) => Some(fails(why)),
            Ok(pieces) if aggregate.measure == Measure::Covered => Some(pieces.covered()),
            Ok(pieces) if pieces.list.is_empty() => nothing(aggregate, &question).ok(),
            Ok(_) => None,
        };
        self.questions.push(Unique { text: self.texts.len() - 1, question, list, known: None, answer });
        self.questions.len() - 1
    }

    /// Nobody is asked about pieces of which statistics say all that is asked.
    fn leave_out_known(&mut self) {
        let mut of_list: Vec<Vec<&mut Unique>> = self.lists.iter().map(|_| Vec::new()).collect();
        for unique in self.questions.iter_mut().filter(|unique| unique.answer.is_none()) {
            of_list[unique.list].push(unique);
        }
        for (pieces, open) in self.lists.iter_mut().zip(of_list) {
            let Ok(pieces) = pieces else { continue };
            let aggregates: Vec<&Aggregate> = open
                .iter()
                .map(|unique| {
                    &self.texts[unique.text].plan.aggregates[usize::from(unique.question.aggregate)]
                })
                .collect();
            let asked = || open.iter().zip(&aggregates);
            let known: Vec<Vec<Option<Gathered>>> = asked()
                .map(|(unique, aggregate)| known_pieces(aggregate, &unique.question, pieces.list.iter()))
                .collect();
            let mut totals: Vec<Option<Gathered>> =
                asked().map(|(unique, aggregate)| nothing(aggregate, &unique.question).ok()).collect();
            let is_left_out = |piece: usize| known.iter().all(|known| known[piece].is_some());
            for (total, answers) in totals.iter_mut().zip(&known) {
                for (_, answer) in answers.iter().enumerate().filter(|(piece, _)| is_left_out(*piece)) {
                    if let (Some(total), Some(answer)) = (&mut *total, answer) {
                        total.merge(answer.clone());
                    }
                }
            }
            let mut index = 0;
            pieces.list.retain(|_| {
                index += 1;
                !is_left_out(index - 1)
            });
            for (unique, total) in open.into_iter().zip(totals) {
                match pieces.list.is_empty() {
                    true => unique.answer = total,
                    false => unique.known = total,
                }
            }
        }
    }

    /// The texts, as they were checked.
    pub(crate) fn texts(&self) -> &[CheckedText] {
        &self.texts
    }

    /// Where blocks are that are asked for, of servers of which this holds.
    pub(crate) fn locations(&self, of: impl Fn(ServerId) -> bool) -> Vec<Location> {
        let mut found: Vec<Location> = Vec::new();
        let pieces = self.lists.iter().flatten().flat_map(|pieces| &pieces.list);
        for record in pieces.flat_map(|piece| piece.sources.iter().flatten()).flat_map(Source::records) {
            if record.inline.is_none() && of(record.location.server) && !found.contains(&record.location) {
                found.push(record.location);
            }
        }
        found
    }

    /// Blocks are elsewhere now.
    pub(crate) fn relocate(&mut self, moved: &HashMap<Location, Location>) {
        for piece in self.lists.iter_mut().flatten().flat_map(|pieces| &mut pieces.list) {
            for record in piece.sources.iter_mut().flatten().flat_map(Source::records_mut) {
                if let Some(now) = moved.get(&record.location) {
                    if piece.server == record.location.server {
                        piece.server = now.server;
                    }
                    record.location = *now;
                }
            }
        }
    }

    /// What is to be asked of which servers, the first share being the root's; `None` if nothing is. `root` chooses the root. Pieces
    /// whose server is gone, and of which all bytes are with the question, are answered by any other one.
    pub(crate) fn inquiry(
        &self,
        root: u64,
        is_awaited: bool,
        place_now: impl Fn(ServerId) -> ServerId,
    ) -> Option<Inquiry> {
        let open = || self.questions.iter().filter(|unique| unique.answer.is_none());
        let mut shares: BTreeMap<ServerId, Vec<Vec<forebay_query::pieces::Piece>>> = BTreeMap::new();
        let mut numbers: HashMap<usize, u16> = HashMap::new();
        for unique in open() {
            let number = numbers.len() as u16;
            if numbers.contains_key(&unique.list) {
                continue;
            }
            numbers.insert(unique.list, number);
            for piece in self.lists[unique.list].iter().flat_map(|pieces| &pieces.list) {
                let lists = shares.entry(place_now(piece.server)).or_default();
                lists.resize(lists.len().max(usize::from(number) + 1), Vec::new());
                lists[usize::from(number)].push(piece.clone());
            }
        }
        let asked = open().map(|unique| Asked {
            text: unique.text as u16,
            list: numbers.get(&unique.list).copied().unwrap_or_default(),
            question: unique.question.clone(),
        });
        let asked: Vec<Asked> = asked.collect();
        let mut shares: Vec<Share> =
            shares.into_iter().map(|(server, lists)| Share { server, lists }).collect();
        if asked.is_empty() || shares.is_empty() {
            return None;
        }
        let first = (root % shares.len() as u64) as usize;
        shares.rotate_left(first);
        let texts = self.texts.iter().map(|text| (*text.planned).clone()).collect();
        Some(Inquiry { id: self.id.clone(), texts, asked, shares, is_awaited })
    }

    /// Takes the answers to an inquiry, or why there are none.
    pub(crate) fn take(&mut self, answers: Result<Vec<Gathered>, Unknown>) {
        let open = self.questions.iter_mut().filter(|unique| unique.answer.is_none());
        match answers {
            Ok(answers) => {
                for (unique, mut answer) in open.zip(answers) {
                    unique.known.take().into_iter().for_each(|known| answer.merge(known));
                    unique.answer = Some(answer);
                }
            }
            Err(why) => open.for_each(|unique| {
                unique.answer = Some(Gathered { elements: 0, nan: 0, partial: Err(why.clone()) });
            }),
        }
    }

    /// The answers of an evaluation, in the order of its questions.
    pub(crate) fn answers_of(&self, evaluation: usize) -> Vec<Gathered> {
        let lacks = || {
            let why = Unknown::new(UnknownKind::Lost, "a question was not answered");
            Gathered { elements: 0, nan: 0, partial: Err(why) }
        };
        let places = self.places.get(evaluation).into_iter().flatten();
        places
            .map(|place| {
                self.questions.get(*place).and_then(|unique| unique.answer.clone()).unwrap_or_else(lacks)
            })
            .collect()
    }
}

fn pieces_of(text: &CheckedText, question: &Question, blocks: StepBlocks<'_>) -> Result<Pieces, Unknown> {
    let StepBlocks { reports, unknown } = blocks;
    let plan = &text.plan;
    let aggregate = &plan.aggregates[usize::from(question.aggregate)];
    let domain = &plan.domains[aggregate.domain];
    let of_domain = plan.fields.iter().filter(|planned| planned.domain == aggregate.domain);
    for planned in of_domain {
        if let Some(why) = unknown.get(&(domain.stream.clone(), planned.field.name.clone())) {
            return Err(why.clone());
        }
    }
    let report = reports.iter().find(|report| report.id.stream == domain.stream);
    let blocks_of = |name: &str| {
        let fields = report?.fields.iter().chain(report?.statics.iter().flatten());
        let found = fields.into_iter().find(|found| found.field.name == name)?;
        Some(FieldBlocks { field: &found.field, records: &found.blocks })
    };
    let fields: Vec<Option<FieldBlocks<'_>>> = plan
        .fields
        .iter()
        .map(|planned| (planned.domain == aggregate.domain).then(|| blocks_of(&planned.field.name)).flatten())
        .collect();
    pieces(plan, aggregate, &fields)
}
