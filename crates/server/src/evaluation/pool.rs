//! Threads that compute for evaluations. They have the lowest priority: a simulation on the same cores goes before. (Design note 22.)

use super::manners::Manners;
use forebay_core::{Error, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::{Semaphore, oneshot};

/// The lowest priority that there is.
const NICE: i32 = 19;
/// How many jobs wait for each thread at most: each holds what it reads.
const JOBS_A_THREAD: usize = 2;

/// What is to be done, and whether the thread rests for it.
struct Job {
    weight: Weight,
    run: Box<dyn FnOnce() + Send>,
}

/// Threads that compute. They start with the first job, and end with the pool.
#[derive(Debug)]
pub(crate) struct Pool {
    threads: usize,
    /// How many jobs may be there at once that wait until threads have rested, and how many others.
    room: Semaphore,
    prompt_room: Semaphore,
    queue: Arc<Queue>,
}

/// How much a job has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Weight {
    /// So little that threads do it that rest.
    Light,
    /// More.
    Heavy,
    /// However much it is, somebody waits for it: threads do it that rest, and rest no longer for it.
    Awaited,
}

impl Weight {
    /// Whether threads do it that rest.
    fn is_prompt(self) -> bool {
        self != Weight::Heavy
    }
}

#[derive(Default)]
struct Queue {
    jobs: Mutex<Jobs>,
    /// There is a job for threads that do not rest, or the pool ends.
    any: Condvar,
    /// There is one for those that do, or the pool ends.
    prompt: Condvar,
}

#[derive(Default)]
struct Jobs {
    prompt: VecDeque<Job>,
    heavy: VecDeque<Job>,
    are_started: bool,
    is_over: bool,
}

impl Queue {
    /// The next job for a thread that rests until then but for prompt ones; `None` once the pool ends.
    fn next(&self, rests_until: Instant) -> Option<Job> {
        let mut jobs = self.jobs.lock();
        loop {
            if jobs.is_over {
                return None;
            }
            let rests = Instant::now() < rests_until;
            let next = jobs.prompt.pop_front().or_else(|| if rests { None } else { jobs.heavy.pop_front() });
            if next.is_some() {
                return next;
            }
            match rests {
                true => drop(self.prompt.wait_until(&mut jobs, rests_until)),
                false => self.any.wait(&mut jobs),
            }
        }
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let jobs = self.jobs.lock();
        write!(f, "Queue({} jobs wait, and {} prompt ones)", jobs.heavy.len(), jobs.prompt.len())
    }
}

impl Pool {
    /// So many threads. With none, each job is done where it is asked for.
    pub(crate) fn new(threads: usize) -> Pool {
        let room = || Semaphore::new(threads.max(1) * JOBS_A_THREAD);
        Pool { threads, room: room(), prompt_room: room(), queue: Arc::default() }
    }

    /// How many jobs are worth being there at once.
    pub(crate) fn width(&self) -> usize {
        self.threads.max(1) * JOBS_A_THREAD
    }

    /// Has something computed. Waits until it is; what is given up meanwhile is computed all the same, if it has begun.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        weight: Weight,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T> {
        if self.threads == 0 {
            return Ok(job());
        }
        let failed = || Error::internal("an evaluation panicked");
        let room = if weight.is_prompt() { &self.prompt_room } else { &self.room };
        let _place = room.acquire().await.map_err(|_| failed())?;
        let (done, result) = oneshot::channel();
        self.push(Job { weight, run: Box::new(move || drop(done.send(job()))) });
        result.await.map_err(|_| failed())
    }

    fn push(&self, job: Job) {
        let is_prompt = job.weight.is_prompt();
        let mut jobs = self.queue.jobs.lock();
        match is_prompt {
            true => jobs.prompt.push_back(job),
            false => jobs.heavy.push_back(job),
        }
        if !std::mem::replace(&mut jobs.are_started, true) {
            (0..self.threads).for_each(|_| self.start_thread());
        }
        drop(jobs);
        self.queue.any.notify_one();
        if is_prompt {
            self.queue.prompt.notify_one();
        }
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
        jobs.prompt.clear();
        jobs.heavy.clear();
        drop(jobs);
        self.queue.any.notify_all();
        self.queue.prompt.notify_all();
    }
}

fn work(queue: &Queue) {
    let this = rustix::thread::gettid();
    if let Err(error) = rustix::process::setpriority_process(Some(this), NICE) {
        tracing::info!("evaluations run with the priority of the server: {error}");
    }
    let mut rests_until = Instant::now();
    while let Some(Job { weight, run }) = queue.next(rests_until) {
        let manners = Manners::begin();
        // Whoever waits for it hears that it has failed: the thread goes on.
        let _ = catch_unwind(AssertUnwindSafe(run));
        if weight != Weight::Awaited {
            rests_until = rests_until.max(Instant::now()) + manners.rest();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Weight::Heavy;
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
        let (first, second) =
            tokio::join!(pool.run(Heavy, meet(together.clone())), pool.run(Heavy, meet(together)));
        assert_eq!((first.unwrap(), second.unwrap()), (NICE, NICE));
        let panics = |_: ()| -> u32 { std::panic::resume_unwind(Box::new("as it should")) };
        assert!(pool.run(Heavy, move || panics(())).await.is_err());
        let mut all = tokio::task::JoinSet::new();
        for number in 0..100 {
            let pool = pool.clone();
            all.spawn(async move { pool.run(Heavy, move || number).await.unwrap() });
        }
        assert_eq!(all.join_all().await.into_iter().sum::<i32>(), 4950);
        assert_eq!(Pool::new(0).run(Heavy, || 3).await, Ok(3), "without threads at once");
    }

    #[test]
    fn a_thread_that_rests_does_prompt_jobs_alone() {
        let pool = Pool::new(1);
        // Nobody takes them but this test.
        pool.queue.jobs.lock().are_started = true;
        for weight in [Weight::Heavy, Weight::Light, Weight::Awaited] {
            pool.push(Job { weight, run: Box::new(|| ()) });
        }
        let rests = Instant::now() + std::time::Duration::from_millis(50);
        let next = || pool.queue.next(rests).unwrap().weight;
        assert_eq!([next(), next()], [Weight::Light, Weight::Awaited]);
        // The heavy one waits until the thread has rested.
        assert!(next() == Weight::Heavy && Instant::now() >= rests);
    }
}
