//! The steps that are asked for. Those that are held are looked at without a word to the simulation; for one that is still to
//! come, a reader is attached.

use crate::Common;
use crate::output::Output;
use forebay_client::core::contract::{Need, Needs};
use forebay_client::core::ids::StepNumber;
use forebay_client::core::steps::Start;
use forebay_client::status::StreamStatus;
use forebay_client::{Admin, Consumer, ConsumerOptions, Error, ErrorKind, HeldSteps, Result, Step, Stream};
use std::time::{Duration, Instant};

/// How long a step may be waited for unless somebody says otherwise.
const PATIENCE: Duration = Duration::from_secs(30);

/// Which steps of which stream are read, and which fields of them.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) stream: String,
    pub(crate) fields: Vec<String>,
    pub(crate) step: StepChoice,
}

/// Which steps are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepChoice {
    Oldest,
    Latest,
    Next,
    Number(StepNumber),
    /// Those held from the first to before the end, every so many.
    Range {
        first: Option<StepNumber>,
        end: Option<StepNumber>,
        every: u64,
    },
}

impl StepChoice {
    pub(crate) fn parse(text: &str) -> std::result::Result<StepChoice, String> {
        let bad = || format!("'{text}' is no step: write a number, oldest, latest, next, or A:B or A:B:STEP");
        let number = |text: &str| text.trim().parse::<StepNumber>().map_err(|_| bad());
        let bound = |text: &str| if text.trim().is_empty() { Ok(None) } else { number(text).map(Some) };
        match text {
            "oldest" | "first" => return Ok(StepChoice::Oldest),
            "latest" | "last" => return Ok(StepChoice::Latest),
            "next" => return Ok(StepChoice::Next),
            _ => {}
        }
        match text.split(':').collect::<Vec<_>>()[..] {
            [one] => number(one).map(StepChoice::Number),
            [first, end] => Ok(StepChoice::Range { first: bound(first)?, end: bound(end)?, every: 1 }),
            [first, end, every] => {
                let every = bound(every)?.unwrap_or(1);
                let range = StepChoice::Range { first: bound(first)?, end: bound(end)?, every };
                if every == 0 { Err(bad()) } else { Ok(range) }
            }
            _ => Err(bad()),
        }
    }
}

/// Does something with each of the steps that are asked for. Waits for one that has not come yet.
pub(crate) fn each(
    common: &Common,
    wanted: &Wanted,
    output: &Output,
    mut act: impl FnMut(Step) -> Result<()>,
) -> Result<()> {
    let group = common.group_options()?;
    let status = Admin::open(&group)?.status()?;
    let stream = status.stream(&wanted.stream);
    if let Some(stream) = stream
        && wanted.step != StepChoice::Next
    {
        check_offered(stream, wanted)?;
    }
    let search = Search { common, wanted, run: stream.map_or(0, |stream| stream.run) };
    let latest = stream.and_then(|stream| stream.latest);
    let found = match (wanted.step, latest) {
        (StepChoice::Range { .. }, _) => return search.held_range(&mut act),
        (StepChoice::Oldest, Some(_)) => search.first_held()?,
        (StepChoice::Latest, Some(_)) => search.last_held()?,
        (StepChoice::Number(number), Some(latest)) if number <= latest => search.held_at(number)?,
        _ => None,
    };
    if let Some(step) = found {
        return act(step);
    }
    let patience = common.timeout.unwrap_or(PATIENCE);
    match stream {
        None => output.remark(&format!(
            "nobody has opened stream '{}' yet: waiting, {patience:?} at most",
            wanted.stream
        )),
        Some(stream) if matches!(wanted.step, StepChoice::Oldest | StepChoice::Latest) => {
            let text = format!("no step of stream '{}' is held that has {}", wanted.stream, search.fields());
            if stream.is_over() && stream.held.blocks > 0 {
                return Err(Error::not_found(format!("{text}, and it has {}", stream.phase)));
            }
            output.remark(&format!("{text}: waiting for the next, {patience:?} at most"));
        }
        Some(_) => {}
    }
    act(search.to_come(patience)?)
}

/// A search for steps.
struct Search<'a> {
    common: &'a Common,
    wanted: &'a Wanted,
    /// The latest run: of earlier ones there may be steps that somebody still holds.
    run: u64,
}

impl Search<'_> {
    fn needs(&self) -> Needs {
        Needs::Fields(self.wanted.fields.iter().map(|field| Need::new(field)).collect())
    }

    /// The stream, as it is looked at without a word to the simulation.
    fn stream(&self) -> Result<Stream> {
        Ok(Stream::open(&self.common.group_options()?, &self.wanted.stream)?.needing(self.needs()))
    }

    fn held(&self) -> Result<HeldSteps> {
        self.stream()?.held()
    }

    /// The steps that are held and have all the fields, the oldest first, until one is `chosen`.
    fn find_held(&self, mut is_chosen: impl FnMut(&Step) -> bool) -> Result<Option<Step>> {
        for step in self.held()? {
            let step = step?;
            if self.is_readable(&step) && is_chosen(&step) {
                return Ok(Some(step));
            }
        }
        Ok(None)
    }

    /// Whether a step is of the latest run and has all the fields: they may be offered at different steps.
    fn is_readable(&self, step: &Step) -> bool {
        let has = |name: &String| step.fields().any(|field| field.field.name == *name);
        step.report().id.run >= self.run && self.wanted.fields.iter().all(has)
    }

    fn first_held(&self) -> Result<Option<Step>> {
        self.find_held(|_| true)
    }

    /// The newest, which is rarely another one than the newest of all.
    fn last_held(&self) -> Result<Option<Step>> {
        match self.stream()?.latest() {
            Ok(newest) if self.is_readable(&newest) => return Ok(Some(newest)),
            Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut last = None;
        for step in self.held()? {
            let step = step?;
            if self.is_readable(&step) {
                last = Some(step);
            }
        }
        Ok(last)
    }

    /// One that all ranks have passed: it is held, or there is an error that says which can be read.
    fn held_at(&self, number: StepNumber) -> Result<Option<Step>> {
        let mut before = None;
        let found = self.find_held(|step| {
            let is_before = step.number() < number;
            before = if is_before { Some(step.number()) } else { before };
            !is_before
        })?;
        let nearest = match found {
            Some(step) if step.number() == number => return Ok(Some(step)),
            Some(step) => format!("the first that can be read after it is {}", step.number()),
            None => match before {
                Some(before) => format!("the last that can be read before it is {before}"),
                None => "none can be read".to_owned(),
            },
        };
        Err(self.not_held(number, &nearest))
    }

    /// The steps of a range that are held.
    fn held_range(&self, act: &mut impl FnMut(Step) -> Result<()>) -> Result<()> {
        let StepChoice::Range { first, end, every } = self.wanted.step else { return Ok(()) };
        let (mut held, mut origin, mut found) = (Vec::new(), first, false);
        for step in self.held()? {
            let step = step?;
            let number = step.number();
            if !self.is_readable(&step) {
                continue;
            }
            held.push(number);
            let from = *origin.get_or_insert(number);
            let inside = number >= from && end.is_none_or(|end| number < end);
            if inside && (number - from) % every == 0 {
                found = true;
                act(step)?;
            }
        }
        if found {
            return Ok(());
        }
        let held = match (held.first(), held.last()) {
            (Some(first), Some(last)) => format!("those that are held go from {first} to {last}"),
            _ => "none is held".to_owned(),
        };
        Err(Error::not_found(format!(
            "stream '{}' holds none of the steps that --step names with {}: {held}",
            self.wanted.stream,
            self.fields()
        )))
    }

    /// A step that nobody holds yet.
    fn to_come(&self, patience: Duration) -> Result<Step> {
        let wanted = self.wanted;
        let start = if wanted.step == StepChoice::Next { Start::Next } else { Start::Oldest };
        let consumer = Consumer::open(&ConsumerOptions {
            needs: self.needs(),
            start,
            window: 2,
            group: self.common.group_options()?,
            ..ConsumerOptions::new(&wanted.stream)
        })?;
        let deadline = Instant::now() + patience;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let step = consumer.next_step(Some(left)).map_err(|error| self.late(error, patience))?;
            if !self.is_readable(&step) {
                continue;
            }
            match wanted.step {
                StepChoice::Number(number) if step.number() > number => {
                    let nearest = format!("the first that can be read after it is {}", step.number());
                    return Err(self.not_held(number, &nearest));
                }
                StepChoice::Number(number) if step.number() < number => {}
                _ => return Ok(step),
            }
        }
    }

    /// The error of one that did not come in time, with what was waited for.
    fn late(&self, mut error: Error, patience: Duration) -> Error {
        if error.kind == ErrorKind::Timeout {
            let wanted = match self.wanted.step {
                StepChoice::Number(number) => format!("step {number}"),
                _ => "the next step".to_owned(),
            };
            let status = self.common.group_options().and_then(|group| Admin::open(&group)?.status());
            let last = status.ok().and_then(|status| status.stream(&self.wanted.stream)?.last_closed);
            let last = last.map_or("none has".to_owned(), |last| format!("the last was {last}"));
            error.text = format!(
                "{wanted} of stream '{}' has not come within {patience:?}: {last}; give it longer with --timeout",
                self.wanted.stream
            );
        }
        error
    }

    fn not_held(&self, number: StepNumber, nearest: &str) -> Error {
        Error::not_found(format!(
            "step {number} of stream '{}' is not kept, or does not have {}: {nearest}",
            self.wanted.stream,
            self.fields()
        ))
    }

    /// The fields that are asked for, as messages name them.
    fn fields(&self) -> String {
        let are = if self.wanted.fields.len() == 1 { "field" } else { "fields" };
        format!("{are} '{}'", self.wanted.fields.join("' and '"))
    }
}

/// An error if it is known that nothing can be read, so that nobody waits for it.
fn check_offered(stream: &StreamStatus, wanted: &Wanted) -> Result<()> {
    if stream.is_over() && stream.held.blocks == 0 {
        return Err(Error::not_found(format!(
            "stream '{}' has {}, and keeps none of its steps: open its producers with keep=1, or more, to look at it \
             afterwards",
            wanted.stream, stream.phase
        )));
    }
    let offers = |field: &String| stream.fields.iter().any(|known| known.name == *field);
    // When a step has been closed all fields are known.
    let all_are_known = stream.steps.closed > 0 && !stream.details_left_out;
    if let Some(field) = wanted.fields.iter().find(|field| all_are_known && !offers(field)) {
        let offered: Vec<&str> = stream.fields.iter().map(|field| &field.name[..]).collect();
        return Err(Error::not_found(format!(
            "stream '{}' has no field '{field}'; it has {}",
            wanted.stream,
            offered.join(", ")
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_parsed() {
        let range = |first, end, every| Ok(StepChoice::Range { first, end, every });
        assert_eq!(StepChoice::parse("latest"), Ok(StepChoice::Latest));
        assert_eq!(StepChoice::parse("17"), Ok(StepChoice::Number(17)));
        assert_eq!(StepChoice::parse("40:50"), range(Some(40), Some(50), 1));
        assert_eq!(StepChoice::parse(":50:5"), range(None, Some(50), 5));
        assert_eq!(StepChoice::parse(":"), range(None, None, 1));
        for bad in ["", "x", "-1", "1:2:0", "1:2:3:4", "1.5", "a:b"] {
            assert!(StepChoice::parse(bad).is_err(), "{bad}");
        }
    }
}
