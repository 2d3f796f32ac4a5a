//! Threads that compute for evaluations. They have the lowest priority: a simulation on the same cores goes before. (Design note 22.)

use super::manners::Manners;
use forebay_core::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, oneshot};

/// The lowest priority that there is.
const NICE: i32 = 19;
/// How many jobs wait for each thread at most: each holds what it reads.
const JOBS_A_THREAD: usize = 2;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that compute. They start with the first job, and end with the pool.
#[derive(Debug)]
pub(crate) struct Pool {
    threads: usize,
    /// How many jobs may be there at once.
    room: Semaphore,
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    changed: Condvar,
    /// The pool ends.
    over: Condvar,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Job>,
    are_started: bool,
    is_over: bool,
}

impl Queue {
    /// A thread rests, unless the pool ends.
    fn rest(&self, time: Duration) {
        let mut jobs = self.jobs.lock();
        let until = Instant::now() + time;
        while !jobs.is_over && !time.is_zero() && !self.over.wait_until(&mut jobs, until).timed_out() {}
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue({} jobs wait)", self.jobs.lock().waiting.len())
    }
}

impl Pool {
    /// So many threads. With none, each job is done where it is asked for.
    pub(crate) fn new(threads: usize) -> Pool {
        let room = Semaphore::new(threads.max(1) * JOBS_A_THREAD);
        Pool { threads, room, queue: Arc::default() }
    }

    /// How many jobs are worth being there at once.
    pub(crate) fn width(&self) -> usize {
        self.threads.max(1) * JOBS_A_THREAD
    }

    /// Has something computed. Waits until it is; what is given up meanwhile is computed all the same, if it has begun.
    pub(crate) async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        if self.threads == 0 {
            return Ok(job());
        }
        let failed = || Error::internal("an evaluation panicked");
        let _place = self.room.acquire().await.map_err(|_| failed())?;
        let (done, result) = oneshot::channel();
        self.push(Box::new(move || drop(done.send(job()))));
        result.await.map_err(|_| failed())
    }

    fn push(&self, job: Job) {
        let mut jobs = self.queue.jobs.lock();
        jobs.waiting.push_back(job);
        if !std::mem::replace(&mut jobs.are_started, true) {
            (0..self.threads).for_each(|_| self.start_thread());
        }
        drop(jobs);
        self.queue.changed.notify_one();
    }

    fn start_thread(&self) {
        let queue = self.queue.clone();
        let started = std::thread::Builder::new().name("forebay-eval".to_owned()).spawn(move || work(&queue));
        if let Err(error) = started {
            tracing::warn!("a thread for evaluations cannot be started: {error}");
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut jobs = self.queue.jobs.lock();
        jobs.is_over = true;
        jobs.waiting.clear();
        drop(jobs);
        self.queue.changed.notify_all();
        self.queue.over.notify_all();
    }
}

fn work(queue: &Queue) {
    let this = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(this), NICE) {
        tracing::info!("evaluations run with the priority of the server: {error}");
    }
    loop {
        let job = {
            let mut jobs = queue.jobs.lock();
            loop {
                if jobs.is_over {
                    return;
                }
                match jobs.waiting.pop_front() {
                    Some(job) => break job,
                    None => queue.changed.wait(&mut jobs),
                }
            }
        };
        let manners = Manners::begin();
        // Whoever waits for it hears that it has failed: the thread goes on.
        let _ = catch_unwind(AssertUnwindSafe(job));
        let rest = manners.rest();
        queue.rest(rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn jobs_are_done_by_several_threads_and_one_that_panics_fails_alone() {
        let (pool, together) = (Arc::new(Pool::new(2)), Arc::new(AtomicUsize::new(0)));
        let meet = |together: Arc<AtomicUsize>| {
            move || {
                together.fetch_add(1, Ordering::SeqCst);
                while together.load(Ordering::SeqCst) < 2 {
                    std::thread::yield_now();
                }
                rustix::process::getpriority_process(Some(rustix::thread::gettid())).unwrap()
            }
        };
        let (first, second) = tokio::join!(pool.run(meet(together.clone())), pool.run(meet(together)));
        assert_eq!((first.unwrap(), second.unwrap()), (NICE, NICE));
        let panics = |_: ()| -> u32 { std::panic::resume_unwind(Box::new("as it should")) };
        assert!(pool.run(move || panics(())).await.is_err());
        let mut all = tokio::task::JoinSet::new();
        for number in 0..100 {
            let pool = pool.clone();
            all.spawn(async move { pool.run(move || number).await.unwrap() });
        }
        assert_eq!(all.join_all().await.into_iter().sum::<i32>(), 4950);
        assert_eq!(Pool::new(0).run(|| 3).await, Ok(3), "without threads at once");
    }
}
