//! Subscriptions, and their events.

use crate::consumer::{Step, scalar};
use crate::errors::{Freed, waiting};
use crate::given;
use crate::options::AdminGiven;
use crate::timeout::Timeout;
use forebay_client::core::ids::Timestamp;
use forebay_client::query::SPACE;
use forebay_client::query::subscription::{Definition, Event, KeptSteps};
use forebay_client::status::SubscriptionStatus;
use forebay_client::{Admin, From, Notice};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::time::{Duration, SystemTime};

/// An event as a dictionary, its step; or the run, the step and the reason of what is not known.
type Told<'py> = (Option<Bound<'py, PyDict>>, Option<Step>, Option<(u64, u64, String)>);

/// Makes subscriptions over connections that stay.
#[pyclass(frozen)]
pub(crate) struct Subscriber(Freed<forebay_client::Subscriber>);

/// A subscription that this process listens to.
#[pyclass(frozen)]
pub(crate) struct Subscription(Freed<forebay_client::Subscription>);

#[pymethods]
impl Subscriber {
    #[new]
    fn open(py: Python<'_>, options: AdminGiven) -> PyResult<Subscriber> {
        let options = options.options()?;
        let opened = waiting(py, || forebay_client::Subscriber::open(&options))?;
        Ok(Subscriber(Freed::new(opened)))
    }

    #[allow(clippy::too_many_arguments)]
    fn subscribe(
        &self,
        py: Python<'_>,
        text: String,
        name: Option<String>,
        stream: Option<String>,
        space: bool,
        every: u32,
        on: &str,
        limit: Option<u64>,
        expires: Option<Timeout>,
        missing: &str,
        keep: bool,
        keep_around: Option<(u32, u32)>,
        hold: u32,
        start: &str,
        after: u64,
        window: u32,
    ) -> PyResult<Subscription> {
        let name = name.unwrap_or_else(|| self.0.unused_name());
        let expires = expires.map(Timeout::wait).transpose()?.map(from_now);
        let definition = Definition {
            own: if space { Some(SPACE.to_owned()) } else { stream },
            every,
            on: given::choice(on)?,
            limit,
            expires,
            missing: given::choice(missing)?,
            keep,
            keeps: keep_around.map(|(before, after)| KeptSteps { before, after }),
            hold,
            ..Definition::new(&name, &text)
        };
        let from = match start {
            "next" => From::Next,
            "first" => From::First,
            "resume" => From::Resume,
            _ => From::After(after),
        };
        let made = waiting(py, || self.0.subscribe(definition, from, window))?;
        Ok(Subscription(Freed::new(made)))
    }
}

#[pymethods]
impl Subscription {
    #[getter]
    fn name(&self) -> PyResult<String> {
        Ok(self.0.name().to_owned())
    }

    #[getter]
    fn stream(&self) -> PyResult<Option<String>> {
        Ok(self.0.stream().map(str::to_owned))
    }

    #[getter]
    fn text(&self) -> PyResult<String> {
        Ok(self.0.definition().text.clone())
    }

    fn cursor(&self) -> Option<u64> {
        self.0.cursor()
    }

    fn wait_active(&self, py: Python<'_>) -> PyResult<Option<(u64, u64)>> {
        waiting(py, || self.0.wait_active())
    }

    fn next<'py>(&self, py: Python<'py>, timeout: Option<Timeout>) -> PyResult<Told<'py>> {
        let timeout = timeout.map(Timeout::wait).transpose()?;
        match waiting(py, || self.0.next(timeout))? {
            Notice::Event(told) => {
                let event = event_dict(py, &told.event)?;
                event.set_item("missed", told.missed)?;
                let step = told.step.map(|step| Step { step: Freed::new(step), share: None });
                Ok((Some(event), step, None))
            }
            Notice::Unknown { run, step, why } => Ok((None, None, Some((run, step, why.text)))),
        }
    }

    fn change(&self, py: Python<'_>, change: &str) -> PyResult<()> {
        let change = given::choice(change)?;
        waiting(py, || self.0.change(change))
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        waiting(py, || {
            self.0.close();
            Ok(())
        })
    }
}

fn event_dict<'py>(py: Python<'py>, event: &Event) -> PyResult<Bound<'py, PyDict>> {
    let told = PyDict::new(py);
    told.set_item("number", event.number)?;
    told.set_item("run", event.run)?;
    told.set_item("step", event.step)?;
    told.set_item("time", Some(event.time).filter(|time| !time.is_nan()))?;
    told.set_item("turn", event.turn.name())?;
    told.set_item("episode", event.episode.number)?;
    told.set_item("first", event.episode.first)?;
    told.set_item("missing", event.episode.missing)?;
    let (values, nan, places) = (PyDict::new(py), PyDict::new(py), PyDict::new(py));
    for value in &event.values {
        values.set_item(&value.label, scalar(py, &value.value)?)?;
        nan.set_item(&value.label, value.nan)?;
        if let Some(place) = &value.place {
            places.set_item(&value.label, crate::consumer::place_parts(place))?;
        }
    }
    told.set_item("values", values)?;
    told.set_item("nan", nan)?;
    told.set_item("places", places)?;
    Ok(told)
}

/// All subscriptions of a group, as JSON.
#[pyfunction]
pub(crate) fn subscriptions(py: Python<'_>, options: AdminGiven) -> PyResult<String> {
    let options = options.options()?;
    let all = waiting(py, || Admin::open(&options)?.subscriptions())?;
    Ok(SubscriptionStatus::list_to_json(&all).to_string())
}

/// Pauses, resumes or removes a subscription.
#[pyfunction]
pub(crate) fn change_subscription(
    py: Python<'_>,
    options: AdminGiven,
    name: String,
    stream: Option<String>,
    change: &str,
) -> PyResult<()> {
    let (options, change) = (options.options()?, given::choice(change)?);
    waiting(py, || Admin::open(&options)?.change_subscription(&name, stream.as_deref(), change))
}

fn from_now(after: Duration) -> Timestamp {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    Timestamp(u64::try_from(now.saturating_add(after).as_millis()).unwrap_or(u64::MAX))
}
