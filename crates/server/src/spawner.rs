//! Where processes are started: always on the thread that runs the server, which ends last. The kernel tells a process of the
//! end of the thread that started it (see `forebay_client::Worker::open`), and a thread of the runtime may end before.

use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};

/// Has processes started.
#[derive(Debug)]
pub(crate) struct Spawner(mpsc::Sender<Spawn>);

/// Processes that are to be started.
pub(crate) type Spawns = mpsc::Receiver<Spawn>;

/// A process that is to be started, and where it is wanted.
pub(crate) type Spawn = (Command, oneshot::Sender<std::io::Result<Child>>);

impl Spawner {
    pub(crate) fn new() -> (Spawner, Spawns) {
        let (sender, receiver) = mpsc::channel(16);
        (Spawner(sender), receiver)
    }

    pub(crate) async fn spawn(&self, command: std::io::Result<Command>) -> std::io::Result<Child> {
        let ends = |_| std::io::Error::other("the server ends");
        let (sender, receiver) = oneshot::channel();
        self.0.send((command?, sender)).await.map_err(|_| std::io::Error::other("the server ends"))?;
        receiver.await.map_err(ends)?
    }
}

/// Starts processes as they are asked for.
pub(crate) async fn spawn_all(mut spawns: Spawns) {
    while let Some((mut command, wanted)) = spawns.recv().await {
        // One that is not wanted any more is killed when it is dropped.
        let _ = wanted.send(command.spawn());
    }
}
