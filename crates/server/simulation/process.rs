//! A simulated process: a runtime with a clock of its own, which runs only when the simulation says so.

use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tracing::Span;

/// Microseconds since the simulation began.
pub(super) type Micros = u64;

/// A process. Dropping it is killing it: its connections end, with what was not sent, and so does its memory, but for what
/// others have descriptors of.
#[derive(Debug)]
pub(super) struct Process {
    runtime: Runtime,
    /// Until when it has run.
    ran_until: Micros,
    /// How fast its clock runs, in thousandths.
    speed: u64,
    /// Says in the log who speaks.
    span: Span,
}

impl Process {
    /// Starts one. Its task runs when the process is run.
    pub(super) fn start(
        now: Micros,
        speed: u64,
        name: &str,
        main: impl Future<Output = ()> + Send + 'static,
    ) -> Process {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build();
        let runtime = runtime.expect("a runtime can be started");
        runtime.spawn(main);
        Process { runtime, ran_until: now, speed, span: tracing::info_span!("in", name) }
    }

    /// Runs it for a while: until now by its clock, and its tasks a few times each, not until all of them wait.
    pub(super) fn run(&mut self, now: Micros, rounds: u64) {
        let passed = Duration::from_micros((now - self.ran_until) * self.speed / 1000);
        self.ran_until = now;
        let _said = self.span.enter();
        self.runtime.block_on(async {
            tokio::time::advance(passed).await;
            for _ in 0..rounds {
                tokio::task::yield_now().await;
            }
        });
    }

    /// Does something as one of its tasks would.
    pub(super) fn within<T>(&self, act: impl FnOnce() -> T) -> T {
        let (_inside, _said) = (self.runtime.enter(), self.span.enter());
        act()
    }
}
