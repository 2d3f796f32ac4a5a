//! Other processes on this host, watched: the kernel proves their death.

use forebay_core::{Error, ErrorKind, Result};
use forebay_transport::readiness::readable;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::{Arc, Once};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// How often a process is looked at that cannot be waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// A process that is watched.
#[derive(Debug)]
pub struct Process(Watched);

#[derive(Debug)]
enum Watched {
    /// The kernel tells when it ends.
    Told(AsyncFd<OwnedFd>),
    /// Where the kernel or a filter refuses that, it is looked at again and again: by its number, and when it started, since
    /// numbers are used again.
    LookedAt { pid: u32, started: u64 },
}

impl Process {
    /// Watches a process from now on. `NotFound` if it has ended already.
    pub fn watch(pid: u32) -> Result<Process> {
        let gone = || Error::not_found(format!("process {pid} has ended already"));
        let failed = |e: &std::io::Error| Error::io(format!("cannot watch process {pid}"), e);
        let raw = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw).ok_or_else(gone)?;
        let descriptor = rustix::process::pidfd_open(raw, rustix::process::PidfdFlags::empty());
        let descriptor = descriptor.map_err(|error| match error {
            rustix::io::Errno::SRCH => gone(),
            other => failed(&other.into()),
        });
        let refused = match descriptor {
            Ok(descriptor) => {
                let told = readable(descriptor).map_err(|error| failed(&error))?;
                return Ok(Process(Watched::Told(told)));
            }
            Err(error) if error.kind == ErrorKind::NotFound => return Err(error),
            Err(refused) => refused,
        };
        // Not where there are too many open files: that passes.
        let started = started(pid).ok().flatten().filter(|_| is_refused());
        let process = started.map(|started| Process(Watched::LookedAt { pid, started })).ok_or(refused)?;
        SAID.call_once(|| {
            tracing::warn!(
                "this system refuses pidfd_open: whether processes have ended is looked at five times a second"
            );
        });
        Ok(process)
    }

    /// Waits until it has ended. One that lives is never said to have ended, whatever this server lacks: others
    /// would then use what it still shows.
    pub async fn ended(&self) {
        let descriptor = match &self.0 {
            Watched::Told(descriptor) => descriptor,
            Watched::LookedAt { pid, started: before } => {
                while started(*pid).map_or(true, |now| now == Some(*before)) {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                return;
            }
        };
        if descriptor.readable().await.is_ok() {
            return;
        }
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let mut poll = [PollFd::new(descriptor.get_ref(), PollFlags::IN)];
            if rustix::event::poll(&mut poll, Some(&now)).is_ok_and(|ready| ready > 0) {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// That it was said once.
static SAID: Once = Once::new();

/// Whether the kernel has no descriptors of processes, or a filter refuses them: also of this process.
fn is_refused() -> bool {
    let own = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty());
    matches!(own, Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM | rustix::io::Errno::ACCESS))
}

/// When a process started, in the kernel's ticks since the machine did; `None` if it has ended, whether or not anybody has
/// taken note of that (proc_pid_stat(5)). An error says that it cannot be seen now.
fn started(pid: u32) -> io::Result<Option<u64>> {
    let told = match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(told) => told,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    // Its name may hold anything.
    let after_name = told.rsplit_once(')').map(|(_, after)| after);
    let mut fields = after_name.unwrap_or_default().split_whitespace();
    let has_ended = matches!(fields.next(), Some("Z" | "X" | "x"));
    let started = fields.nth(18).and_then(|field| field.parse().ok());
    let started = started.ok_or(io::ErrorKind::InvalidData)?;
    Ok((!has_ended).then_some(started))
}

/// Waits until whoever holds the other end of a leash is gone without having let go of this server.
pub async fn dropped(leash: Option<Arc<OwnedFd>>) {
    if let Some(leash) = leash
        && let Err(error) = let_go(&leash).await
    {
        return tracing::warn!("what started this server is gone: {error}");
    }
    std::future::pending().await
}

/// Waits until whoever holds the other end of a leash lets go of this server; an error if he is gone instead.
async fn let_go(leash: &OwnedFd) -> std::io::Result<()> {
    let watched = readable(leash.try_clone()?)?;
    loop {
        let mut ready = watched.readable().await?;
        match rustix::io::read(leash, &mut [0; 1]) {
            Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(()),
            // A byte that another server took.
            Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Waits until a process has ended, if it is one that can be watched.
pub async fn ended(process: Option<&Process>) {
    match process {
        Some(process) => process.ended().await,
        None => std::future::pending().await,
    }
}
