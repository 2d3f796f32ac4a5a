//! One suite for both implementations: with the standard atomics on real threads, and with loom's, which take every
//! interleaving in turn.

use super::*;

impl Atomic for loom::sync::atomic::AtomicU64 {
    fn load(&self) -> u64 {
        self.load(Ordering::SeqCst)
    }
    fn store(&self, value: u64) {
        self.store(value, Ordering::SeqCst);
    }
    fn compare_exchange(&self, current: u64, new: u64) -> bool {
        self.compare_exchange(current, new, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
    fn fetch_or(&self, bits: u64) -> u64 {
        self.fetch_or(bits, Ordering::SeqCst)
    }
}

/// Where an implementation runs.
trait Runs {
    type Number: Atomic + Send + Sync + 'static;
    /// A value that two threads use in turn.
    type Shared<T: Send + 'static>: Clone + Send + 'static;

    fn number(value: u64) -> Self::Number;
    fn shared<T: Send + 'static>(value: T) -> Self::Shared<T>;
    fn with<T: Send + 'static, R>(shared: &Self::Shared<T>, act: impl FnOnce(&mut T) -> R) -> R;
    /// Runs one in a thread of its own, and the other one beside it.
    fn beside<R>(one: impl FnOnce() + Send + 'static, other: impl FnOnce() -> R) -> R;
    /// Runs a case as often as its interleavings need.
    fn check(case: fn());
}

/// The standard atomics, on threads.
struct Threads;

impl Runs for Threads {
    type Number = AtomicU64;
    type Shared<T: Send + 'static> = std::sync::Arc<std::sync::Mutex<T>>;

    fn number(value: u64) -> AtomicU64 {
        AtomicU64::new(value)
    }
    fn shared<T: Send + 'static>(value: T) -> Self::Shared<T> {
        std::sync::Arc::new(std::sync::Mutex::new(value))
    }
    fn with<T: Send + 'static, R>(shared: &Self::Shared<T>, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut shared.lock().unwrap())
    }
    fn beside<R>(one: impl FnOnce() + Send + 'static, other: impl FnOnce() -> R) -> R {
        let one = std::thread::spawn(one);
        let result = other();
        one.join().unwrap();
        result
    }
    fn check(case: fn()) {
        (0..500).for_each(|_| case());
    }
}

/// Loom's atomics, in its model.
struct Model;

impl Runs for Model {
    type Number = loom::sync::atomic::AtomicU64;
    type Shared<T: Send + 'static> = loom::sync::Arc<loom::sync::Mutex<T>>;

    fn number(value: u64) -> Self::Number {
        loom::sync::atomic::AtomicU64::new(value)
    }
    fn shared<T: Send + 'static>(value: T) -> Self::Shared<T> {
        loom::sync::Arc::new(loom::sync::Mutex::new(value))
    }
    fn with<T: Send + 'static, R>(shared: &Self::Shared<T>, act: impl FnOnce(&mut T) -> R) -> R {
        act(&mut shared.lock().unwrap())
    }
    fn beside<R>(one: impl FnOnce() + Send + 'static, other: impl FnOnce() -> R) -> R {
        let one = loom::thread::spawn(one);
        let result = other();
        one.join().unwrap();
        result
    }
    fn check(case: fn()) {
        loom::model(case);
    }
}

// ---- the suite --------------------------------------------------------------------------------------

fn it_does_what_it_says<R: Runs>() {
    let number = R::number(4);
    assert_eq!(number.load(), 4);
    number.store(9);
    assert_eq!(number.load(), 9);
    assert!(!number.compare_exchange(4, 1), "it is 9");
    assert_eq!(number.load(), 9);
    assert!(number.compare_exchange(9, 1));
    assert_eq!((number.fetch_or(6), number.load()), (1, 7));
    assert_eq!((number.fetch_or(0), number.load()), (7, 7));
}

/// Of two that set bits none undoes what the other did, and one saw what the other had done.
fn no_bits_are_lost<R: Runs>() {
    let (number, seen) = (std::sync::Arc::new(R::number(0)), R::shared(0));
    let mine = {
        let (other, told) = (number.clone(), seen.clone());
        R::beside(
            move || {
                let found = other.fetch_or(1);
                R::with(&told, |seen| *seen = found);
            },
            || number.fetch_or(2),
        )
    };
    let seen = (R::with(&seen, |seen| *seen), mine);
    assert_eq!(number.load(), 3);
    assert!(seen == (0, 1) || seen == (2, 0), "{seen:?}");
}

/// Of two that exchange the same value one alone succeeds, and its value stays.
fn one_exchange_succeeds<R: Runs>() {
    let (number, succeeded) = (std::sync::Arc::new(R::number(0)), R::shared(false));
    let mine = {
        let (other, told) = (number.clone(), succeeded.clone());
        R::beside(
            move || {
                let done = other.compare_exchange(0, 1);
                R::with(&told, |succeeded| *succeeded = done);
            },
            || number.compare_exchange(0, 2),
        )
    };
    let theirs = R::with(&succeeded, |succeeded| *succeeded);
    assert_ne!(mine, theirs);
    assert_eq!(number.load(), if mine { 2 } else { 1 });
}

fn it_remembers_what_was_begun<R: Runs>() {
    let number = R::number(0);
    let word = BeginWord(&number);
    assert_eq!(word.revoke(), None);
    assert!(!word.try_begin(0));
    word.allow_begin_after(4);
    assert!(word.try_begin(7));
    assert!(!word.try_begin(u64::MAX), "a number that the word cannot hold is asked for");
    assert_eq!(word.revoke(), Some(7));
    assert_eq!(word.revoke(), Some(7));
    assert!(!word.try_begin(8));
    word.allow_begin_after(u64::MAX);
    assert!(!word.try_begin(9), "nothing has changed");
}

fn it_says_which_step_was_taken<R: Runs>() {
    let number = R::number(0);
    let word = TakenWord(&number);
    assert!(!word.is_taken(0));
    word.take(3);
    assert_eq!([2, 3, 4].map(|step| word.is_taken(step)), [false, true, false]);
    word.take(u64::MAX);
    assert_eq!([3, u64::MAX].map(|step| word.is_taken(step)), [true, false]);
}

/// What a server knows: the demand's version from each step on, and the highest step begun.
#[derive(Default)]
struct Server {
    cuts: Vec<(u64, u64)>,
    highest: Option<u64>,
}

impl Server {
    fn at(&self, step: u64) -> u64 {
        self.cuts.iter().filter(|(from, _)| *from <= step).map(|(_, version)| *version).max().unwrap_or(0)
    }

    fn change_demand(&mut self, word: BeginWord<'_, impl Atomic>, version: u64) {
        self.highest = self.highest.max(word.revoke());
        self.cuts.push((self.highest.map_or(0, |highest| highest + 1), version));
    }
}

/// A rank begins `steps` while the server changes the demand `changes` times: at every step the rank uses the demand
/// that holds there. A rank that dies leaves the word as it is, and the server goes on.
fn a_rank_uses_the_demand_in_force<R: Runs>(changes: u64, steps: u64) {
    let word = std::sync::Arc::new(R::number(ASK));
    let server = R::shared(Server::default());
    let change = {
        let (word, server) = (word.clone(), server.clone());
        move || {
            for version in 1..=changes {
                R::with(&server, |server| server.change_demand(BeginWord(&*word), version));
            }
        }
    };
    let used = R::beside(change, || {
        let mut known = 0;
        let mut use_demand = |step| {
            if !BeginWord(&*word).try_begin(step) {
                R::with(&server, |server| {
                    server.highest = server.highest.max(Some(step));
                    known = server.at(step);
                    BeginWord(&*word).allow_begin_after(step);
                });
            }
            known
        };
        (0..steps).map(&mut use_demand).collect::<Vec<_>>()
    });
    R::with(&server, |server| {
        for (step, version) in (0..).zip(used) {
            assert_eq!(version, server.at(step), "step {step}");
        }
        // The rank is dead now, wherever it was.
        server.change_demand(BeginWord(&*word), changes + 1);
        assert_eq!(server.highest, Some(steps - 1));
        assert_eq!(server.at(steps), changes + 1);
    });
}

macro_rules! suite {
    ($module:ident, $runs:ty) => {
        mod $module {
            use super::*;

            #[test]
            fn it_does_what_it_says() {
                <$runs>::check(super::it_does_what_it_says::<$runs>);
            }
            #[test]
            fn no_bits_are_lost() {
                <$runs>::check(super::no_bits_are_lost::<$runs>);
            }
            #[test]
            fn one_exchange_succeeds() {
                <$runs>::check(super::one_exchange_succeeds::<$runs>);
            }
            #[test]
            fn it_remembers_what_was_begun() {
                <$runs>::check(super::it_remembers_what_was_begun::<$runs>);
            }
            #[test]
            fn it_says_which_step_was_taken() {
                <$runs>::check(super::it_says_which_step_was_taken::<$runs>);
            }
            #[test]
            fn a_rank_never_uses_another_demand_than_the_one_in_force() {
                <$runs>::check(|| a_rank_uses_the_demand_in_force::<$runs>(2, 3));
            }
        }
    };
}

suite!(threads, Threads);
suite!(model, Model);
