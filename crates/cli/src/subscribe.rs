//! `forebay subscribe`, and what is done with subscriptions.

use crate::Common;
use crate::completion;
use crate::live::Live;
use crate::output::Output;
use crate::values::{json_of, text_of};
use clap_complete::ArgValueCompleter;
use forebay_client::core::ids::Timestamp;
use forebay_client::query::SPACE;
use forebay_client::query::subscription::{Definition, KeptSteps};
use forebay_client::query::value::{Place, Scalar};
use forebay_client::status::SubscriptionStatus;
use forebay_client::{Admin, Change, Choice, ErrorKind, From, Notice, Result, Subscriber, SubscriptionEvent};
use serde_json::{Map, Value, json};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

/// Watch for something in a stream, and print its events as they come
///
/// As in forebay subscribe 'max(grayscott.U) > 0.9 for 3 steps'. The servers
/// evaluate the condition at each step, beside the blocks. With --json each
/// event is a JSON object on a line. Ends after --count events, or with the
/// subscription; that ends half a minute after this command, unless somebody
/// else listens to it or --keep is given.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Subscribe {
    /// What to watch for: a condition, as docs/expressions.md describes
    text: String,
    /// The stream of fields that are named without one
    #[arg(long, value_name = "STREAM", add = ArgValueCompleter::new(completion::streams))]
    stream: Option<String>,
    /// Of what is put into the space: at each put that completes a step
    #[arg(long, conflicts_with_all = ["stream", "keep_around"])]
    space: bool,
    /// Its name; one of that name that watches for the same goes on
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// At every so many of the steps at which its fields are offered
    #[arg(long, value_name = "N", default_value_t = 1, hide_default_value = true)]
    every: u32,
    /// At which evaluations there are events: each at which it holds, the rise
    /// or the fall of an episode, or both
    #[arg(long, value_name = "WHEN", default_value = "each", hide_default_value = true,
          value_parser = ["each", "rise", "fall", "both"])]
    on: String,
    /// It ends after so many events
    #[arg(long, value_name = "EVENTS")]
    limit: Option<u64>,
    /// It ends after this time, as in 20, 2m or 1h
    #[arg(long, value_name = "DURATION", value_parser = crate::duration::patience)]
    expires: Option<Duration>,
    /// What evaluations are that give nothing known: skip, they take no part;
    /// reset, they count as if it did not hold
    #[arg(long, value_name = "WHAT", default_value = "skip", hide_default_value = true, value_parser = ["skip", "reset"])]
    missing: String,
    /// It goes on without anybody who listens; with --detach this command
    /// prints nothing and ends at once
    #[arg(long)]
    keep: bool,
    /// Make it, and do not listen: with --keep
    #[arg(long, requires = "keep")]
    detach: bool,
    /// Keep the step of each event, so many before it and so many after it, as
    /// in 2:1
    #[arg(long, value_name = "BEFORE:AFTER", value_parser = around)]
    keep_around: Option<KeptSteps>,
    /// Begin with the first event that is remembered
    #[arg(long)]
    first: bool,
    /// End after so many events, and leave the subscription as it is
    #[arg(long, value_name = "EVENTS")]
    count: Option<u64>,
}

/// Show all subscriptions: counts, cost, and what is not known and why
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Subscriptions {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Clone, clap::Subcommand)]
enum Command {
    /// Evaluate nothing of a subscription until it is resumed
    Pause(Named),
    /// Go on with a subscription that was paused
    Resume(Named),
    /// End a subscription, for all who listen to it
    Remove(Named),
}

/// Which subscription.
#[derive(Debug, Clone, clap::Args)]
struct Named {
    /// Its name
    name: String,
    /// Its stream, if several have a subscription of this name
    #[arg(long, value_name = "STREAM", add = ArgValueCompleter::new(completion::streams))]
    stream: Option<String>,
}

fn around(text: &str) -> std::result::Result<KeptSteps, String> {
    let bad = || format!("'{text}': write steps before and after, as 2:1");
    let (before, after) = text.split_once(':').ok_or_else(bad)?;
    let number = |text: &str| text.parse::<u32>().map_err(|_| bad());
    Ok(KeptSteps { before: number(before)?, after: number(after)? })
}

pub(crate) fn subscribe(common: &Common, given: &Subscribe, output: &Output) -> Result<ExitCode> {
    let subscriber = Subscriber::open(&common.group_options()?)?;
    let name = given.name.clone().unwrap_or_else(|| subscriber.unused_name());
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let expires =
        given.expires.map(|after| Timestamp(u64::try_from((now + after).as_millis()).unwrap_or(u64::MAX)));
    let definition = Definition {
        own: if given.space { Some(SPACE.to_owned()) } else { given.stream.clone() },
        every: given.every,
        on: Choice::of_name(&given.on)?,
        limit: given.limit,
        expires,
        missing: Choice::of_name(&given.missing)?,
        keep: given.keep,
        keeps: given.keep_around,
        ..Definition::new(&name, &given.text)
    };
    let from = if given.first { From::First } else { From::Resume };
    let subscription = subscriber.subscribe(definition, from, 16)?;
    if given.detach {
        output.result(&json!({ "name": name, "stream": subscription.stream() }), |_| vec![name]);
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(stream) = subscription.stream() {
        remark_if_unknown(common, stream, output)?;
    }
    let mut live = Live::lines(output.is_json());
    let mut told = 0;
    while given.count.is_none_or(|count| told < count) && !live.is_broken() {
        let (value, line) = match subscription.next(common.timeout) {
            Ok(Notice::Event(event)) => {
                told += 1;
                (json_event(&subscription, &event), line_of(&event))
            }
            Ok(Notice::Unknown { run, step, why }) => {
                let line = format!("step {step}  not known: {}", why.text);
                (json!({ "unknown": why.text, "run": run, "step": step }), line)
            }
            Err(error) if error.kind == ErrorKind::Ended => {
                output.remark(&error.text);
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => return Err(error),
        };
        match output.is_json() {
            true => live.line(&value),
            false => live.show(&[line]),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Says so if nobody has opened a stream yet: its name may be wrong.
fn remark_if_unknown(common: &Common, stream: &str, output: &Output) -> Result<()> {
    let status = Admin::open(&common.group_options()?)?.status()?;
    if status.stream(stream).is_none_or(|known| known.run == 0) {
        let others: Vec<&str> =
            status.streams.iter().filter(|known| known.run > 0).map(|known| &known.name[..]).collect();
        let there =
            if others.is_empty() { String::new() } else { format!("; there is {}", others.join(", ")) };
        output.remark(&format!("nobody has opened stream '{stream}' yet: waiting for it{there}"));
    }
    Ok(())
}

fn json_event(subscription: &forebay_client::Subscription, told: &SubscriptionEvent) -> Value {
    let event = &told.event;
    let values: Map<String, Value> =
        event.values.iter().map(|value| (value.label.clone(), json_of(&value.value))).collect();
    let places: Map<String, Value> = event
        .values
        .iter()
        .filter_map(|value| Some((value.label.clone(), place(value.place.as_ref()?))))
        .collect();
    json!({
        "subscription": subscription.name(),
        "stream": subscription.stream(),
        "number": event.number,
        "run": event.run,
        "step": event.step,
        "time": Some(event.time).filter(|time| time.is_finite()),
        "turn": event.turn.name(),
        "episode": event.episode.number,
        "first": event.episode.first,
        "missing": event.episode.missing,
        "missed": told.missed,
        "values": values,
        "places": places,
    })
}

fn place(place: &Place) -> Value {
    json_of(&Scalar::Place(Some(place.clone())))
}

/// A time for people, without what doubles add behind twelve digits.
fn shown(time: f64) -> f64 {
    format!("{time:.11e}").parse().unwrap_or(time)
}

/// So many of something.
fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

/// An event for people.
fn line_of(told: &SubscriptionEvent) -> String {
    let event = &told.event;
    let mut line = format!("step {}", event.step);
    if event.time.is_finite() {
        line += &format!("  t={}", shown(event.time));
    }
    line += &format!("  {}", event.turn.name());
    for value in &event.values {
        line += &format!("  {} = {}", value.label, text_of(&value.value));
        if let Some(place) = &value.place {
            line += &format!(" at {place}");
        }
    }
    if told.missed > 0 {
        line += &format!("  ({} events before it were forgotten)", told.missed);
    }
    line
}

pub(crate) fn subscriptions(common: &Common, given: &Subscriptions, output: &Output) -> Result<ExitCode> {
    let admin = Admin::open(&common.group_options()?)?;
    let (named, change) = match &given.command {
        None => {
            let all = admin.subscriptions()?;
            let value = SubscriptionStatus::list_to_json(&all);
            output.result(&value, |_| table(&all));
            return Ok(ExitCode::SUCCESS);
        }
        Some(Command::Pause(named)) => (named, Change::Pause),
        Some(Command::Resume(named)) => (named, Change::Resume),
        Some(Command::Remove(named)) => (named, Change::Remove),
    };
    admin.change_subscription(&named.name, named.stream.as_deref(), change)?;
    let done = match change {
        Change::Pause => "paused",
        Change::Resume => "resumed",
        Change::Remove => "removed",
    };
    output.result(&json!({ "name": named.name, "done": done }), |_| vec![format!("{}: {done}", named.name)]);
    Ok(ExitCode::SUCCESS)
}

/// All subscriptions for people: a line of counts each, and what it watches for below.
fn table(all: &[SubscriptionStatus]) -> Vec<String> {
    if all.is_empty() {
        return vec!["no subscriptions".to_owned()];
    }
    let mut lines = Vec::new();
    for one in all {
        let unknown: u64 = one.unknown.values().filter_map(Value::as_u64).sum();
        let state = if one.paused { "  paused" } else { "" };
        let of = one.stream.as_ref().map_or("the space".to_owned(), |stream| format!("stream {stream}"));
        lines.push(format!("{} of {of}{state}", one.name));
        lines.push(format!("    {}", one.text));
        let last = one.last_event_step.map_or(String::new(), |step| format!(", the last at step {step}"));
        lines.push(format!(
            "    {}, true at {}; {}{last}",
            counted(one.evaluated, "evaluation"),
            one.held,
            counted(one.events, "event"),
        ));
        lines.push(format!(
            "    {}; {:.1} ms of computing, {} read",
            counted(one.subscribers, "subscriber"),
            1e3 * one.seconds,
            crate::output::bytes(one.read_bytes)
        ));
        if unknown > 0 {
            let why =
                one.unknown_why.as_ref().map_or(String::new(), |why| format!("; at the last one: {why}"));
            let sorts: Vec<String> =
                one.unknown.iter().map(|(sort, count)| format!("{sort} {count}")).collect();
            lines.push(format!("    not known at {unknown} ({}){why}", sorts.join(", ")));
        }
    }
    lines
}
