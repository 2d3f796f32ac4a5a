//! What subscribers are told, and the latest of that.

use crate::evaluation::ReportedValue;
use crate::time::{Episode, Turn};
use forebay_core::ids::{RunNumber, StepNumber};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// How many events are remembered for subscribers that are away, or slow.
pub const EVENTS_MAX: usize = 1024;

/// What is watched held at a step, or did so no more.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its number among the events of the subscription, from 1 on.
    pub number: u64,
    /// The run.
    pub run: RunNumber,
    /// The step.
    pub step: StepNumber,
    /// Physical time; not a number if the producer gave none.
    pub time: f64,
    /// Whether it is the first of an episode, a later one, or its end.
    pub turn: Turn,
    /// The episode.
    pub episode: Episode,
    /// What the bindings and aggregates are.
    pub values: Vec<ReportedValue>,
}

/// The latest events.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct EventLog {
    events: VecDeque<Event>,
    /// The number of the last event of all.
    last: u64,
}

impl EventLog {
    /// The number that the next event has.
    pub fn next_number(&self) -> u64 {
        self.last + 1
    }

    /// The number of the last event; 0 if there was none.
    pub fn last_number(&self) -> u64 {
        self.last
    }

    /// An event has come: the oldest is forgotten if there are many.
    pub fn push(&mut self, event: Event) {
        if event.number <= self.last {
            return;
        }
        self.last = event.number;
        self.events.push_back(event);
        if self.events.len() > EVENTS_MAX {
            self.events.pop_front();
        }
    }

    /// The first event after the one of this number that is remembered, and how many before it are not.
    pub fn after(&self, number: u64) -> Option<(&Event, u64)> {
        let place = self.events.partition_point(|event| event.number <= number);
        let event = self.events.get(place)?;
        Some((event, event.number - number - 1))
    }

    /// The number of the last event before a step of a run, or at it.
    pub fn number_at(&self, run: RunNumber, step: StepNumber) -> u64 {
        let before = self.events.iter().rev().find(|event| (event.run, event.step) <= (run, step));
        before.map_or_else(
            || self.events.front().map_or(self.last, |first| first.number - 1),
            |event| event.number,
        )
    }

    /// Those that are remembered, the oldest first.
    pub fn all(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_is_counted() {
        let mut log = EventLog::default();
        let episode = Episode { number: 1, first: 0, missing: 0 };
        for number in 1..=EVENTS_MAX as u64 + 10 {
            let (run, step) = (1, number * 2);
            log.push(Event { number, run, step, time: 0.0, turn: Turn::Holds, episode, values: Vec::new() });
        }
        let (first, missed) = log.after(0).unwrap();
        assert_eq!((first.number, missed), (11, 10));
        let (next, missed) = log.after(500).unwrap();
        assert_eq!((next.number, missed), (501, 0));
        assert!(log.after(log.last_number()).is_none());
        assert_eq!([log.number_at(1, 41), log.number_at(1, 42), log.number_at(1, 1)], [20, 21, 10]);
        assert_eq!(log.number_at(2, 0), log.last_number());
        let first = log.all().next().unwrap().clone();
        log.push(Event { number: 3, ..first });
        assert_eq!(log.next_number(), EVENTS_MAX as u64 + 11, "what is told again is known");
    }
}
