//! The numbers that two processes change, in a model that tries every interleaving.

use super::atomic::Atomic;
use super::bell::{ASLEEP, get_up, lie_down, must_be_woken};
use super::loan::Loan;
use super::ring::{LINE, Memory, Reader, Writer};
use forebay_core::Result;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering};

impl Atomic for AtomicU64 {
    fn get(&self) -> u64 {
        self.load(Ordering::Acquire)
    }
    fn set(&self, value: u64) {
        self.store(value, Ordering::Release);
    }
    fn set_if(&self, current: u64, new: u64) -> bool {
        self.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
    fn count(&self) {
        self.fetch_add(1, Ordering::AcqRel);
    }
    fn fence() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// How many lines it holds.
const LINES: usize = 2;

/// A ring of two lines: of each only the first byte is there.
#[derive(Default)]
struct Small {
    written: AtomicU64,
    taken: AtomicU64,
    cramped: AtomicU64,
    lines: [UnsafeCell<u8>; LINES],
}

// SAFETY: the model finds every access to a line that is not ordered after the last one of the other thread.
#[allow(unsafe_code)]
unsafe impl Sync for Small {}

#[derive(Clone)]
struct Shared(Arc<Small>);

impl Memory for Shared {
    type Count = AtomicU64;

    fn written(&self) -> Result<&AtomicU64> {
        Ok(&self.0.written)
    }
    fn taken(&self) -> Result<&AtomicU64> {
        Ok(&self.0.taken)
    }
    fn cramped(&self) -> Result<&AtomicU64> {
        Ok(&self.0.cramped)
    }
    fn capacity(&self) -> usize {
        LINES * LINE
    }
    fn write(&self, at: usize, bytes: &[u8]) -> Result<()> {
        if let Some(byte) = bytes.first() {
            // SAFETY: the model checks that nobody else is at this line.
            #[allow(unsafe_code)]
            self.0.lines[at / LINE].with_mut(|line| unsafe { *line = *byte });
        }
        Ok(())
    }
    fn read(&self, at: usize, bytes: &mut [u8]) -> Result<()> {
        if let Some(byte) = bytes.first_mut() {
            // SAFETY: as above.
            #[allow(unsafe_code)]
            self.0.lines[at / LINE].with(|line| *byte = unsafe { *line });
        }
        Ok(())
    }
}

/// Sleeps until it is rung: how the kernel's wait is modelled.
fn sleep(bell: &AtomicU64, is_there: impl FnOnce() -> bool) {
    lie_down(bell);
    if !is_there() {
        while bell.get() == ASLEEP {
            loom::thread::yield_now();
        }
    }
    get_up(bell);
}

fn model(case: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(case);
}

/// What is written is read, in order, and who waits for bytes is woken once there are some.
#[test]
fn a_ring_loses_nothing_and_its_reader_does_not_sleep_forever() {
    model(|| {
        let (ring, bell) = (Shared(Arc::default()), Arc::new(AtomicU64::new(0)));
        let (theirs, rung) = (ring.clone(), bell.clone());
        let reading = loom::thread::spawn(move || {
            let mut reader = Reader::new(theirs);
            for expected in 1..=2u8 {
                if reader.available().unwrap() == 0 {
                    sleep(&rung, || reader.available().unwrap() > 0);
                }
                while reader.available().unwrap() == 0 {
                    loom::thread::yield_now();
                }
                let mut byte = [0];
                reader.read(0, &mut byte).unwrap();
                assert_eq!(byte, [expected]);
                reader.take(1).unwrap();
            }
        });
        let mut writer = Writer::new(ring);
        for number in 1..=2u8 {
            assert!(writer.room(LINE).unwrap() >= LINE);
            writer.write(&[&[number]]).unwrap();
            must_be_woken(&*bell);
        }
        reading.join().unwrap();
    });
}

/// Who waits for room looks again once there is some, though it looks for nothing but what it is told; nothing is written over what was not read.
#[test]
fn a_full_ring_is_waited_for() {
    model(|| {
        let (ring, bell) = (Shared(Arc::default()), Arc::new([AtomicU64::new(0), AtomicU64::new(0)]));
        let (theirs, theirs_to_ring) = (ring.clone(), bell.clone());
        let mut writer = Writer::new(ring);
        (1..=2).for_each(|number| writer.write(&[&[number]]).unwrap());
        let reading = loom::thread::spawn(move || {
            let [word, told] = &*theirs_to_ring;
            let tell = |is_cramped: bool| {
                if is_cramped {
                    told.count();
                    must_be_woken(word);
                }
            };
            let mut reader = Reader::new(theirs);
            for expected in 1..=2u8 {
                assert!(reader.available().unwrap() > 0);
                let mut byte = [0];
                reader.read(0, &mut byte).unwrap();
                assert_eq!(byte, [expected]);
                tell(reader.take(1).unwrap());
            }
            if reader.available().unwrap() == 0 {
                tell(reader.is_empty_at_last().unwrap());
            }
        });
        let [word, told] = &*bell;
        loop {
            let before = told.get();
            if writer.room(LINE).unwrap() >= LINE || writer.wait_for_room(LINE).unwrap() >= LINE {
                break;
            }
            sleep(word, || told.get() != before);
        }
        writer.write(&[&[3]]).unwrap();
        reading.join().unwrap();
    });
}

/// Who has lent looks again once its loan is back.
#[test]
fn who_waits_for_a_loan_is_told() {
    model(|| {
        let words = Arc::new([AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0)]);
        Loan { word: &words[0], number: 1 }.lend();
        let theirs = words.clone();
        let reading = loom::thread::spawn(move || {
            let loan = Loan { word: &theirs[0], number: 1 };
            assert!(loan.begin() && loan.give_back());
            theirs[2].count();
            must_be_woken(&theirs[1]);
        });
        let [word, bell, told] = &*words;
        let loan = Loan { word, number: 1 };
        loop {
            let before = told.get();
            if loan.is_back() {
                break;
            }
            sleep(bell, || told.get() != before);
        }
        reading.join().unwrap();
    });
}

/// Bytes that the sender has changed after it took its loan back are never taken for the message.
#[test]
fn a_loan_that_was_taken_back_is_not_read() {
    loom::model(|| {
        let word = Arc::new(AtomicU64::new(0));
        let bytes = Arc::new(AtomicU64::new(7));
        Loan { word: &*word, number: 5 }.lend();
        let (their_word, their_bytes) = (word.clone(), bytes.clone());
        let reading = loom::thread::spawn(move || {
            let loan = Loan { word: &*their_word, number: 5 };
            if !loan.begin() {
                return false;
            }
            let read = their_bytes.get();
            let is_valid = loan.give_back();
            assert!(!is_valid || read == 7);
            is_valid
        });
        let loan = Loan { word: &*word, number: 5 };
        let was_taken_back = !loan.is_back() && loan.take_back();
        if was_taken_back {
            bytes.set(8);
        }
        assert_eq!(reading.join().unwrap(), !was_taken_back);
    });
}
