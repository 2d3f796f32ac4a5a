//! How a rank leaves its stream, or gives it up.

use crate::connection::rpc::lock;
use crate::on_loss::OnLoss;
use crate::producer::rank::Producer;
use forebay_core::placement::Placement;
use forebay_core::{ErrorKind, Result};
use forebay_wire::client::producer::Request;
use std::time::Duration;

/// How long one that gives itself up waits for its home, which may wait just now for something that this rank had asked for, and
/// does so until the connection ends.
const ABANDONED: Duration = Duration::from_secs(2);

impl Producer {
    /// Ends the stream for this rank; an open step is left torn. A run is finished when all its ranks have done so: a rank that
    /// ends without it has crashed. Waits until other servers know. Later calls fail. Closing twice is harmless; after
    /// `Timeout` it waits once more.
    pub fn close(&self) -> Result<()> {
        if self.guard.is_child() {
            return Ok(());
        }
        let _rank = lock(&self.whole_rank);
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.closed, true) && !state.leaving {
            return Ok(());
        }
        state.leaving = true;
        let was_staging = state.staging.is_active();
        drop(state);
        self.let_go_of_others();
        let mut left = if was_staging { self.leave_home() } else { Ok(()) };
        if self.finds_home_to_leave() {
            left = self.leave_home();
        } else if left.is_ok() && was_staging && self.on_loss == OnLoss::Fail {
            left = lock(&self.state).staging.why().map_or(Ok(()), |error| Err(error.clone()));
        }
        let waits_on = |error: &forebay_core::Error| error.kind == ErrorKind::Timeout;
        lock(&self.state).leaving = left.as_ref().is_err_and(waits_on);
        left
    }

    /// Gives up this rank without closing the stream: readers are told that the run has crashed, as if this process had ended,
    /// and an open step is left torn. For a simulation that fails and goes on as a process. Waits until the home server holds
    /// what was put, two seconds at most; where that is gone, until another one knows. Later calls fail; giving up twice, or
    /// after closing, is harmless.
    pub fn abandon(&self) {
        if self.guard.is_child() {
            return;
        }
        let was_staging = {
            let mut state = lock(&self.state);
            if std::mem::replace(&mut state.closed, true) {
                return;
            }
            state.staging.is_active()
        };
        self.let_go_of_others();
        if was_staging {
            self.abandon_home();
        }
        // Another thread may be within a call that waits in the rank's name: it hears that the connection has ended.
        let Ok(_rank) = self.whole_rank.try_lock() else { return };
        if self.finds_home_to_leave() {
            self.abandon_home();
        }
    }

    fn let_go_of_others(&self) {
        lock(&self.others).clear();
        *lock(&self.placement) = Placement::Nearest;
    }

    /// Where its home is gone, another server is to tell the others what became of this rank. Whether there is one.
    fn finds_home_to_leave(&self) -> bool {
        let mut state = lock(&self.state);
        if state.staging.is_active() {
            return false;
        }
        state.open = None;
        // However long ago it was looked for one in vain.
        state.retry_at = None;
        self.resume_staging(state).staging.is_active()
    }

    /// Tells the home server that this rank gives itself up. What fails is told to nobody: the rank has failed for a reason of
    /// its own.
    fn abandon_home(&self) {
        let home = self.home();
        let patience = home.rpc.patience().min(ABANDONED);
        let told = home.rpc.call_within(&Request::Abandon, None, patience, "to let this rank go");
        let let_go = home.rpc.was_let_go();
        home.rpc.hang_up();
        let mut state = lock(&self.state);
        match told {
            _ if let_go => self.on_let_go(&mut state),
            Err(error) => drop(self.on_home_lost(&mut state, error)),
            Ok(_) => {}
        }
    }

    /// Tells the home server that this rank leaves. Both messages go out before the first answer is awaited: a server that stands
    /// still finds both when it wakes.
    fn leave_home(&self) -> Result<()> {
        let (home, counts) = (self.home(), lock(&self.state).counts);
        let patience = home.rpc.patience();
        let flushed = home.rpc.ask(&Request::Flush, None, patience);
        let left = home.rpc.ask(&Request::Close(counts), None, patience);
        let flushed = flushed.and_then(|call| call.answer("to hold what was put")).map(drop);
        let left = left.and_then(|call| call.answer("to let this rank go")).map(drop);
        let left = flushed.and(left);
        if left.as_ref().is_err_and(|error| error.kind == ErrorKind::Timeout) {
            return left;
        }
        let let_go = left.is_err() && home.rpc.was_let_go();
        home.rpc.hang_up();
        let mut state = lock(&self.state);
        match left {
            Ok(()) => Ok(()),
            Err(_) if let_go => {
                self.on_let_go(&mut state);
                Ok(())
            }
            Err(error) => self.on_home_lost(&mut state, error),
        }
    }
}
