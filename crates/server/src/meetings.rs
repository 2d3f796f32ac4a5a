//! Processes that wait for each other here, to open a communicator by its name.
//!
//! Nothing of this is kept elsewhere: when this server ends, those who wait come to another one.

use forebay_cluster::environment::HashMap;
use forebay_core::identity::Identity;
use forebay_core::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// How many missing ranks are told.
const TOLD_MAX: usize = 8;

/// Those who wait, by the names of their communicators.
#[derive(Debug, Default)]
pub(crate) struct Meetings {
    forming: HashMap<String, Meeting>,
    tickets: u64,
}

#[derive(Debug)]
struct Meeting {
    size: u32,
    came: BTreeMap<u32, Guest>,
}

/// A rank that has come.
#[derive(Debug)]
struct Guest {
    ticket: u64,
    who: Identity,
    addresses: Vec<String>,
    met: oneshot::Sender<Met>,
}

/// All ranks have come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Met {
    /// The communicator's number.
    pub(crate) id: u64,
    /// Where each rank is reached.
    pub(crate) members: Arc<Vec<Vec<String>>>,
}

/// A rank that comes.
#[derive(Debug, Clone)]
pub(crate) struct Coming {
    pub(crate) name: String,
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) who: Identity,
    pub(crate) addresses: Vec<String>,
}

impl Meetings {
    /// A rank comes: the number by which it may be withdrawn, and by what it is told that all have come. The last one is told at
    /// once. `id` is what the communicator is called if this is the last one.
    pub(crate) fn come(&mut self, coming: Coming, id: u64) -> Result<(u64, oneshot::Receiver<Met>)> {
        let Coming { name, rank, size, who, addresses } = coming;
        let meeting = self.forming.get(&name);
        if let Some(meeting) = meeting.filter(|meeting| meeting.size != size) {
            return Err(Error::conflict(format!(
                "communicator '{name}' is opened with {size} ranks here, and with {} by {}",
                meeting.size,
                meeting.came.values().next().map_or(String::new(), |guest| guest.who.to_string())
            )));
        }
        if let Some(guest) = meeting.and_then(|meeting| meeting.came.get(&rank)) {
            return Err(Error::conflict(format!(
                "rank {rank} of communicator '{name}' is {} already, which waits for the others: each rank opens it once",
                guest.who
            )));
        }
        self.tickets += 1;
        let (ticket, (met, told)) = (self.tickets, oneshot::channel());
        let meeting =
            self.forming.entry(name.clone()).or_insert_with(|| Meeting { size, came: BTreeMap::new() });
        meeting.came.insert(rank, Guest { ticket, who, addresses, met });
        if meeting.came.len() == size as usize
            && let Some(meeting) = self.forming.remove(&name)
        {
            meeting.end(id);
        }
        Ok((ticket, told))
    }

    /// A rank does not wait any more.
    pub(crate) fn withdraw(&mut self, name: &str, rank: u32, ticket: u64) {
        let Some(meeting) = self.forming.get_mut(name) else { return };
        if meeting.came.get(&rank).is_some_and(|guest| guest.ticket == ticket) {
            meeting.came.remove(&rank);
        }
        if meeting.came.is_empty() {
            self.forming.remove(name);
        }
    }

    /// Which ranks have not come, in words.
    pub(crate) fn missing(&self, name: &str) -> String {
        let Some(meeting) = self.forming.get(name) else { return "none".to_owned() };
        let missing = || (0..meeting.size).filter(|rank| !meeting.came.contains_key(rank));
        let told: Vec<String> = missing().take(TOLD_MAX).map(|rank| rank.to_string()).collect();
        match missing().count() {
            1 => format!("rank {}", told.concat()),
            count if count > TOLD_MAX => format!("{count} ranks, {} among them,", told.join(", ")),
            _ => format!("ranks {}", told.join(", ")),
        }
    }

    /// How many processes wait.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.forming.values().map(|meeting| meeting.came.len()).sum()
    }
}

impl Meeting {
    fn end(mut self, id: u64) {
        let members: Vec<Vec<String>> =
            self.came.values_mut().map(|guest| std::mem::take(&mut guest.addresses)).collect();
        let met = Met { id, members: Arc::new(members) };
        for guest in self.came.into_values() {
            // One that has just given up is told by nobody; the others notice that it is not there.
            let _ = guest.met.send(met.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coming(name: &str, rank: u32, size: u32) -> Coming {
        let who = Identity { name: None, host: "here".into(), pid: 100 + rank };
        Coming { name: name.into(), rank, size, who, addresses: vec![format!("shm:{rank}")] }
    }

    #[test]
    fn ranks_meet_when_all_have_come() {
        let mut meetings = Meetings::default();
        let (_, mut last) = meetings.come(coming("c", 2, 3), 1).unwrap();
        let (_, mut first) = meetings.come(coming("c", 0, 3), 2).unwrap();
        let (_, mut other) = meetings.come(coming("another", 1, 2), 3).unwrap();
        assert!(last.try_recv().is_err());
        assert_eq!(meetings.missing("c"), "rank 1");
        let (_, mut middle) = meetings.come(coming("c", 1, 3), 4).unwrap();
        let met = last.try_recv().unwrap();
        assert_eq!(met.id, 4);
        assert_eq!(*met.members, [["shm:0"], ["shm:1"], ["shm:2"]]);
        assert_eq!((first.try_recv().unwrap(), middle.try_recv().unwrap()), (met.clone(), met));
        assert!(other.try_recv().is_err());
        // The name is free again.
        meetings.come(coming("c", 0, 2), 5).unwrap();
        assert_eq!(meetings.waiting(), 2);
    }

    #[test]
    fn who_comes_twice_or_counts_otherwise_is_refused() {
        let mut meetings = Meetings::default();
        let (ticket, _told) = meetings.come(coming("c", 1, 20), 1).unwrap();
        let twice = meetings.come(coming("c", 1, 20), 2).unwrap_err();
        assert!(twice.text.contains("rank 1") && twice.text.contains("process 101"), "{twice}");
        let size = meetings.come(coming("c", 0, 3), 2).unwrap_err();
        assert!(size.text.contains("3 ranks here, and with 20 by process 101"), "{size}");
        assert_eq!(meetings.missing("c"), "19 ranks, 0, 2, 3, 4, 5, 6, 7, 8 among them,");
        meetings.withdraw("c", 1, ticket + 1);
        assert_eq!(meetings.waiting(), 1);
        meetings.withdraw("c", 1, ticket);
        assert_eq!(meetings.waiting(), 0);
        meetings.come(coming("c", 0, 3), 2).unwrap();
        assert_eq!(meetings.missing("c"), "ranks 1, 2");
    }
}
