//! Other processes on this host, watched: the kernel proves their death.

use forebay_core::{Error, Result};
use forebay_transport::readiness::readable;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// How often a process is looked at that cannot be waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// A process that is watched.
#[derive(Debug)]
pub struct Process(AsyncFd<OwnedFd>);

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
        })?;
        readable(descriptor).map(Process).map_err(|error| failed(&error))
    }

    /// Waits until it has ended. One that lives is never said to have ended, whatever this server lacks: others
    /// would then use what it still shows.
    pub async fn ended(&self) {
        if self.0.readable().await.is_ok() {
            return;
        }
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let mut poll = [PollFd::new(self.0.get_ref(), PollFlags::IN)];
            if rustix::event::poll(&mut poll, Some(&now)).is_ok_and(|ready| ready > 0) {
                return;
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
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
