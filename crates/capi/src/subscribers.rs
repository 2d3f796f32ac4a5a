//! What makes subscriptions in this process: one for each group and manner of reaching it, so that the next subscription costs no
//! connection.

use forebay_client::{GroupOptions, Result, Subscriber};
use std::sync::{Arc, Mutex};

/// How many are remembered.
const SUBSCRIBERS_MAX: usize = 16;

/// The process and its options, in words, and what makes subscriptions.
type Known = (u32, String, Arc<Subscriber>);

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// What makes subscriptions with these options. Finds the group the first time.
pub(crate) fn subscriber(group: &GroupOptions) -> Result<Arc<Subscriber>> {
    let process = std::process::id();
    let options = format!("{group:?} {:?}", std::env::var_os("FOREBAY_GROUP"));
    let is_same = |known: &&Known| (known.0, &known.1) == (process, &options);
    // Nobody waits for the lock: a thread of a forked child's parent may have held it, and then nobody ever gives it back.
    if let Ok(known) = KNOWN.try_lock()
        && let Some((_, _, subscriber)) = known.iter().find(is_same)
    {
        return Ok(subscriber.clone());
    }
    let found = Arc::new(Subscriber::open(group)?);
    if let Ok(mut known) = KNOWN.try_lock() {
        known.push((process, options, found.clone()));
        if known.len() > SUBSCRIBERS_MAX {
            let (of, _, oldest) = known.remove(0);
            // What the parent of a child has made stays as it is.
            if of != process {
                std::mem::forget(oldest);
            }
        }
    }
    Ok(found)
}
