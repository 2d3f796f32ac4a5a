//! Looking at a stream without becoming one of its readers: nothing is demanded of the simulation for it, and a step is held
//! only while it is looked at.

use crate::admin::Admin;
use crate::admin::told::StreamStatus;
use crate::connection::group::Group;
use crate::consumer::Consumer;
use crate::declared::ConsumerOptions;
use crate::group_options::GroupOptions;
use crate::reading::step::Step;
use forebay_core::contract::Needs;
use forebay_core::ids::{RunNumber, StepNumber, check_name};
use forebay_core::steps::{Start, Take};
use forebay_core::{Error, ErrorKind, Result};
use serde_json::{Value, json};

/// A stream, looked at from outside.
#[derive(Debug, Clone)]
pub struct Stream {
    options: GroupOptions,
    name: String,
    needs: Needs,
}

/// A step that is held.
#[derive(Debug, Clone, PartialEq)]
pub struct StepInfo {
    /// Its run.
    pub run: RunNumber,
    /// Its number there.
    pub number: StepNumber,
    /// Physical time, if the producer gave one.
    pub time: Option<f64>,
    /// Names of its fields.
    pub fields: Vec<String>,
    /// How many bytes servers hold of it, without copies.
    pub bytes: u64,
    /// In how many blocks.
    pub blocks: u64,
    /// Whether a rank died in it, or left it out.
    pub torn: bool,
}

impl StepInfo {
    /// The same as JSON: time is null if the producer gave none.
    pub fn to_json(&self) -> Value {
        let StepInfo { run, number, time, fields, bytes, blocks, torn } = self;
        json!({
            "run": run, "number": number, "time": time, "fields": fields, "bytes": bytes, "blocks": blocks, "torn": torn,
        })
    }

    /// What is held of a step. Moves no data; in runs of many ranks the servers that know its blocks are asked.
    pub fn of(step: &Step) -> Result<StepInfo> {
        let report = step.report();
        let (mut bytes, mut blocks) = (0, 0);
        for field in &report.fields {
            for record in step.records(&field.field.name)?.iter() {
                bytes += record.location.bytes;
                blocks += 1;
            }
        }
        Ok(StepInfo {
            run: report.id.run,
            number: report.id.step,
            time: Some(report.time).filter(|time| !time.is_nan()),
            fields: report.fields.iter().map(|field| field.field.name.clone()).collect(),
            bytes,
            blocks,
            torn: report.torn,
        })
    }
}

/// The steps of a stream that were held when it was looked at, the oldest first.
#[derive(Debug)]
pub struct HeldSteps {
    consumer: Consumer,
}

impl Iterator for HeldSteps {
    type Item = Result<Step>;

    fn next(&mut self) -> Option<Result<Step>> {
        match self.consumer.next_step(None) {
            Err(error) if error.kind == ErrorKind::Ended => None,
            found => Some(found),
        }
    }
}

impl Stream {
    /// Finds the group. Waits for one that is forming, and for nothing else: the stream need not exist yet.
    pub fn open(options: &GroupOptions, name: &str) -> Result<Stream> {
        check_name("stream", name)?;
        Group::find(options)?;
        Ok(Stream { options: options.clone(), name: name.to_owned(), needs: Needs::all(1) })
    }

    /// The same stream, of which only this is looked at.
    pub fn needing(self, needs: Needs) -> Stream {
        Stream { needs, ..self }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the group says of it; `None` if nobody has opened it yet, or it was forgotten. Waits for the servers.
    pub fn status(&self) -> Result<Option<StreamStatus>> {
        Ok(Admin::open(&self.options)?.status()?.stream(&self.name).cloned())
    }

    /// The closed steps that are held now, one after the other, of all runs. Each is held until it is dropped.
    pub fn held(&self) -> Result<HeldSteps> {
        self.look(Start::HELD, Take::All)
    }

    /// What is known of each of them.
    pub fn steps(&self) -> Result<Vec<StepInfo>> {
        self.held()?.map(|step| StepInfo::of(&step?)).collect()
    }

    /// The newest closed step that is held. `ErrorKind::NotFound` if none is.
    pub fn latest(&self) -> Result<Step> {
        let newest = self.look(Start::HELD, Take::Latest)?.next().transpose()?;
        newest.ok_or_else(|| {
            Error::not_found(format!(
                "no step of stream '{}' is held: its producers keep steps for those who come later with `keep`",
                self.name
            ))
        })
    }

    /// The step of this number, of a run or of the latest one. `ErrorKind::NotFound` if there was no such step,
    /// `ErrorKind::Dropped` if it is held no longer: the text says which is the next that is.
    pub fn at(&self, run: Option<RunNumber>, number: StepNumber) -> Result<Step> {
        let name = &self.name;
        let Some(status) = self.status()? else {
            return Err(Error::not_found(format!("nobody has opened stream '{name}' yet")));
        };
        let wanted = run.unwrap_or(status.run);
        if wanted == 0 || wanted > status.run {
            return Err(Error::not_found(format!(
                "stream '{name}' has had no run {wanted}: its latest is {}",
                status.run
            )));
        }
        let found = self.look(Start::Held(wanted, number), Take::All)?.next().transpose()?;
        let next = match found {
            Some(step) if (step.report().id.run, step.number()) == (wanted, number) => return Ok(step),
            Some(step) => {
                format!("the next that is held is {} of run {}", step.number(), step.report().id.run)
            }
            None => "none after it is held".to_owned(),
        };
        if wanted == status.run && status.last_closed.is_none_or(|last| number > last) {
            let last = status.last_closed.map_or("none is".to_owned(), |last| format!("the last is {last}"));
            let of_run = format!("step {number} of run {wanted} of stream '{name}'");
            let text = match status.is_over() {
                true => {
                    format!("{of_run} was closed by nobody: the run is over; {last} that somebody needed")
                }
                false => format!("{of_run} is not closed yet: {last}"),
            };
            return Err(Error::not_found(text));
        }
        Err(Error::new(
            ErrorKind::Dropped,
            format!(
                "step {number} of run {wanted} of stream '{name}' is not held: nobody needed it, or it was given up; {next} \
                 (`keep` of its producers says how many are)"
            ),
        ))
    }

    fn look(&self, start: Start, take: Take) -> Result<HeldSteps> {
        let consumer = Consumer::open(&ConsumerOptions {
            group: self.options.clone(),
            needs: self.needs.clone(),
            start,
            take,
            // One may be looked at while the next is asked for.
            window: 2,
            ..ConsumerOptions::new(&self.name)
        })?;
        Ok(HeldSteps { consumer })
    }
}
