//! How a rank leaves its stream, or gives it up.

use crate::connection::rpc::lock;
use crate::on_loss::OnLoss;
use crate::producer::rank::Producer;
use forebay_core::Result;
use forebay_core::placement::Placement;
use forebay_wire::client::producer::Request;

impl Producer {
    /// Ends the stream for this rank; an open step is left torn. A run is finished when all its ranks have done so: a rank that
    /// ends without it has crashed. Waits until other servers know. Later calls fail. Closing twice is harmless.
    pub fn close(&self) -> Result<()> {
        if self.guard.is_child() {
            return Ok(());
        }
        let _rank = lock(&self.whole_rank);
        let mut state = lock(&self.state);
        if std::mem::replace(&mut state.closed, true) {
            return Ok(());
        }
        let was_staging = state.staging.is_active();
        drop(state);
        lock(&self.others).clear();
        *lock(&self.placement) = Placement::Nearest;
        let left = if was_staging { self.leave_home() } else { Ok(()) };
        // Where its home is gone, another server tells the others that this rank has left.
        let mut state = lock(&self.state);
        if !state.staging.is_active() {
            state.open = None;
            // However long ago it was looked for one in vain.
            state.retry_at = None;
            let state = self.resume_staging(state);
            if state.staging.is_active() {
                drop(state);
                return self.leave_home();
            }
            if let Some(error) = state.staging.why().filter(|_| was_staging && self.on_loss == OnLoss::Fail) {
                return Err(error.clone());
            }
        }
        left
    }

    /// Gives up this rank without closing the stream: readers are told that the run has crashed, as if this process had ended,
    /// and an open step is left torn. For a simulation that fails and goes on as a process. Waits until the home server holds
    /// what was put, if it answers. Later calls fail; giving up twice, or after closing, is harmless.
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
        lock(&self.others).clear();
        *lock(&self.placement) = Placement::Nearest;
        let home = self.home();
        if was_staging {
            // What fails is told to nobody: the rank has failed for a reason of its own.
            let _ = home.rpc.call(&Request::Abandon, "to let this rank go");
        }
        home.rpc.hang_up();
    }

    /// Tells the home server that this rank leaves.
    fn leave_home(&self) -> Result<()> {
        let home = self.home();
        let flushed = home.rpc.call(&Request::Flush, "to hold what was put");
        let counts = lock(&self.state).counts;
        let left = home.rpc.call(&Request::Close(counts), "to let this rank go");
        let left = flushed.and(left);
        let let_go = left.is_err() && home.rpc.was_let_go();
        home.rpc.hang_up();
        let mut state = lock(&self.state);
        match left {
            Ok(_) => Ok(()),
            Err(_) if let_go => {
                self.on_let_go(&mut state);
                Ok(())
            }
            Err(error) => self.on_home_lost(&mut state, error),
        }
    }
}
