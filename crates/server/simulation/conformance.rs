//! A place in the simulation is an environment as any other.

use super::network::{Door, Network, Place, addresses};
use super::process::Micros;
use forebay_cluster::environment::Environment;
use forebay_cluster::testing::environment::{World, suite};
use forebay_transport::{Address, Link};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};

/// The longest that a byte takes to another host.
const SLOWEST: Micros = 500;
/// Where the environment is, and another host.
const HERE: usize = 1;
const THERE: usize = 2;

/// A place, with processes around it.
struct Around {
    place: Place,
    network: Network,
    doors: BTreeMap<String, (u32, Arc<Door>)>,
    /// How many processes there were.
    count: u32,
    now: Micros,
    runtime: Runtime,
}

impl World for Around {
    fn environment(&self) -> &dyn Environment {
        &self.place
    }

    fn listen(&mut self, near: bool) -> Address {
        self.count += 1;
        let [local, tcp] = addresses(self.count, if near { HERE } else { THERE }).try_into().unwrap();
        let address: Address = if near { local } else { tcp }.parse().unwrap();
        self.doors.insert(address.to_string(), (self.count, self.network.open(self.count)));
        address
    }

    fn accept(&mut self, address: &Address) -> Box<dyn Link> {
        self.runtime.block_on(self.doors[&address.to_string()].1.accept())
    }

    fn die(&mut self, address: &Address) {
        let (process, _) = self.doors.remove(&address.to_string()).unwrap();
        self.network.close(process);
    }

    fn carry(&mut self) {
        // What is taken on its way arrives by the next time.
        for _ in 0..2 {
            self.now += SLOWEST;
            self.network.carry(self.now);
        }
    }

    /// What comes through a cable for one who has died is lost there.
    fn refuses_bytes_for_the_dead(&self, near: bool) -> bool {
        near
    }

    fn run<T>(&self, future: Pin<Box<dyn Future<Output = T> + '_>>) -> T {
        self.runtime.block_on(future)
    }
}

#[test]
fn a_place_is_an_environment() {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let network = Network::new(1, SLOWEST);
    let place = runtime.block_on(async { Place::new(&network, HERE) });
    suite(&mut Around { place, network, doors: BTreeMap::new(), count: 0, now: 0, runtime });
}
