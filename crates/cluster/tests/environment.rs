//! This machine is an environment as any other.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use forebay_cluster::environment::{Environment, Machine};
use forebay_cluster::testing::environment::{World, suite};
use forebay_transport::{Address, Link, Listener};
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

/// This machine, with others who listen in this process.
struct Here {
    machine: Machine,
    listeners: Vec<Listener>,
    /// How many have listened.
    count: u32,
    runtime: Runtime,
}

impl World for Here {
    fn environment(&self) -> &dyn Environment {
        &self.machine
    }

    fn listen(&mut self, near: bool) -> Address {
        self.count += 1;
        let listener = if near {
            Listener::shm(&format!("forebay-test-{}-{}", std::process::id(), self.count))
        } else {
            Listener::tcp(&"127.0.0.1:0".parse().unwrap())
        };
        let listener = listener.unwrap();
        let address = listener.address().clone();
        self.listeners.push(listener);
        address
    }

    fn accept(&mut self, address: &Address) -> Box<dyn Link> {
        let listener = self.listeners.iter().find(|listener| listener.address() == address).unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            match listener.try_accept() {
                Ok(link) => return link,
                Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
            }
            assert!(Instant::now() < deadline, "nobody has connected");
        }
    }

    fn die(&mut self, address: &Address) {
        self.listeners.retain(|listener| listener.address() != address);
    }

    fn run<T>(&self, future: Pin<Box<dyn Future<Output = T> + '_>>) -> T {
        self.runtime.block_on(future)
    }
}

#[test]
fn this_machine_is_an_environment() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    suite(&mut Here { machine: Machine::this(), listeners: Vec::new(), count: 0, runtime });
}
