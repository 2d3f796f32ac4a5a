//! What every [`Environment`] does: its host and clock, and the links that it makes.

#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a suite is called by tests, which fail by panicking"
)]

use crate::environment::Environment;
use forebay_core::ids::ServerId;
use forebay_transport::connection_file::ServerEntry;
use forebay_transport::testing::link::{self, Pairs};
use forebay_transport::{Address, Kind, Link};
use forebay_wire::connection::HostId;
use std::io::ErrorKind;
use std::pin::Pin;
use std::time::Duration;

/// Where one environment stands, with others who can be connected to.
pub trait World {
    /// The environment.
    fn environment(&self) -> &dyn Environment;

    /// Somebody else listens from now on: on the environment's own host, or where only TCP goes.
    fn listen(&mut self, near: bool) -> Address;

    /// Takes the connection that was made to an address.
    fn accept(&mut self, address: &Address) -> Box<dyn Link>;

    /// Nobody listens there any more.
    fn die(&mut self, address: &Address);

    /// Lets what was sent arrive, where nobody else does.
    fn carry(&mut self) {}

    /// Whether links refuse bytes for a peer that has died ([`Pairs::refuses_bytes_for_the_dead`]).
    fn refuses_bytes_for_the_dead(&self, _near: bool) -> bool {
        true
    }

    /// Runs a future to its end. Time goes on meanwhile.
    fn run<T>(&self, future: Pin<Box<dyn Future<Output = T> + '_>>) -> T;
}

/// Runs the whole suite.
pub fn suite(world: &mut impl World) {
    the_host_stays_the_same(world);
    the_clock_goes_on_and_never_back(world);
    servers_on_this_host_are_here(world);
    who_listens_is_reached(world);
    nobody_is_reached_who_is_dead(world);
    for near in [true, false] {
        link::suite(&mut Made { world, near });
    }
}

fn the_host_stays_the_same(world: &impl World) {
    let host = world.environment().host().clone();
    assert!(!host.0.is_empty());
    assert_eq!(*world.environment().host(), host);
}

fn the_clock_goes_on_and_never_back(world: &impl World) {
    let pause = Duration::from_millis(5);
    let now = async || world.environment().now();
    let mut last = world.run(Box::pin(now()));
    for _ in 0..3 {
        world.run(Box::pin(async move { tokio::time::sleep(pause).await }));
        let now = world.run(Box::pin(now()));
        assert!(now >= last + pause, "{last:?}, then {now:?}");
        last = now;
    }
}

fn servers_on_this_host_are_here(world: &impl World) {
    let environment = world.environment();
    let own = Address::Shm { host: environment.host().clone(), name: "a".into() };
    let other = Address::Shm { host: HostId(format!("not {}", environment.host().0)), name: "a".into() };
    let tcp = Address::Tcp("127.0.0.1:1000".parse().unwrap());
    for (addresses, is_here) in
        [(vec![&own, &tcp], true), (vec![&tcp, &own], true), (vec![&other, &tcp], false), (vec![&tcp], false)]
    {
        let addresses: Vec<String> = addresses.into_iter().map(Address::to_string).collect();
        let server = ServerEntry { id: ServerId(3), pid: 1, addresses };
        assert_eq!(environment.is_here(&server), is_here, "{server:?}");
    }
}

fn who_listens_is_reached(world: &mut impl World) {
    for (near, kind) in [(true, Kind::Shm), (false, Kind::Tcp)] {
        let (mine, theirs) = Made { world, near }.pair();
        assert_eq!((mine.kind(), theirs.kind()), (kind, kind));
    }
}

/// Whoever has died refuses at once, though it was reached before.
fn nobody_is_reached_who_is_dead(world: &mut impl World) {
    for near in [true, false] {
        let address = world.listen(near);
        connect(world, &address).unwrap();
        drop(world.accept(&address));
        world.die(&address);
        assert_eq!(connect(world, &address).unwrap_err().kind(), ErrorKind::ConnectionRefused, "{address}");
    }
}

fn connect(world: &impl World, address: &Address) -> std::io::Result<Box<dyn Link>> {
    world.run(world.environment().connect(address.clone()))
}

/// Links as the environment makes them.
struct Made<'a, W> {
    world: &'a mut W,
    near: bool,
}

impl<W: World> Pairs for Made<'_, W> {
    fn pair(&mut self) -> (Box<dyn Link>, Box<dyn Link>) {
        let address = self.world.listen(self.near);
        let mine = connect(self.world, &address).unwrap();
        (mine, self.world.accept(&address))
    }

    fn carry(&mut self) {
        self.world.carry();
    }

    fn refuses_bytes_for_the_dead(&self) -> bool {
        self.world.refuses_bytes_for_the_dead(self.near)
    }
}
