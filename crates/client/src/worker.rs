//! The worker's side of a pipeline: connects to its server, takes orders, reports.

use crate::connection::group::Group;
use crate::connection::rpc::Rpc;
use crate::group_options::GroupOptions;
use crate::reading::block_access::ARENAS_KEPT;
use crate::reading::held_steps::{HeldSteps, Hold, HoldOwner, StepSource};
use crate::reading::server_pool::ServerPool;
use crate::reading::share::Share;
use crate::reading::statics::{RunStatics, StaticFields};
use crate::reading::step::Step;
use crate::seconds::deadline_after;
use forebay_comm::{Comm, Endpoint, EndpointOptions};
use forebay_core::Result;
use forebay_core::contract::Needs;
use forebay_core::ids::ServerId;
use forebay_transport::Address;
use forebay_transport::host::end_with_parent;
use forebay_wire::client::worker::{Event, Request};
use forebay_wire::connection::Role;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// What runs one pipeline beside one server.
#[derive(Debug)]
pub struct Worker {
    group: Group,
    server: ServerId,
    rpc: Arc<Rpc>,
    /// Kept from order to order, so that arenas are mapped once.
    pool: Arc<ServerPool>,
    endpoint: Endpoint,
}

/// An order to run the pipeline on a step.
#[derive(Debug)]
pub struct Order {
    /// Names the execution.
    pub execution: u64,
    /// The step. The coordinator holds it until every worker is done.
    pub step: Step,
    /// The communicator of this execution.
    pub comm: Comm,
    /// Which blocks are this worker's.
    pub share: Share,
}

impl Worker {
    /// Connects to the server beside which this worker runs, and which started this process: from now on the
    /// process gets a SIGTERM when that server dies. A pipeline that executes looks at no connection.
    pub fn open(options: &GroupOptions, server: ServerId, pipeline: &str, instance: u64) -> Result<Worker> {
        // This comes first: if the server has died before, the connection fails.
        end_with_parent()?;
        let group = Group::find(options)?;
        let rpc = Arc::new(group.connect(server, Role::Worker { pipeline: pipeline.to_owned(), instance })?);
        let known = group.known();
        let entry = known.file.servers.iter().find(|entry| entry.id == server);
        let tcp = entry.and_then(|entry| {
            let addresses = entry.parsed().ok()?;
            addresses.into_iter().find_map(|address| match address {
                Address::Tcp(address) => Some(SocketAddr::new(address.ip(), 0)),
                Address::Shm { .. } => None,
            })
        });
        let endpoint = Endpoint::new(EndpointOptions {
            secret: known.file.secret.clone(),
            lineage: known.file.lineage,
            tcp,
            name: format!("the worker of pipeline '{pipeline}' on {server}"),
        })?;
        let pool = Arc::new(ServerPool::new(group.clone(), Role::Consumer));
        pool.adopt(server, rpc.clone());
        Ok(Worker { group, server, rpc, pool, endpoint })
    }

    /// The pipeline's code is loaded: from now on orders come.
    pub fn ready(&self, needs: Option<Needs>) -> Result<()> {
        let ready = Request::Ready { addresses: self.endpoint.addresses(), needs };
        self.rpc.call(&ready, "to take note of its worker").map(drop)
    }

    /// The pipeline's code cannot be loaded.
    pub fn failed(&self, traceback: &str) -> Result<()> {
        self.rpc.call(&Request::Failed { error: traceback.to_owned() }, "to take note").map(drop)
    }

    /// The next order; `ErrorKind::Timeout` after `timeout`, or when a signal ends the wait. Another error means
    /// that the server is gone: end.
    pub fn next_order(&self, timeout: Duration, comm_timeout: Duration) -> Result<Option<Order>> {
        let told = self.rpc.next_event(deadline_after(timeout), "to order an execution", |event| event);
        let Event::Execute(mut order) = told?;
        let servers = order.members.iter().map(|member| member.server).collect();
        let share = Share { own: self.server, servers, beside_all: order.beside_all };
        let members = order.members.iter().map(|member| member.addresses.clone()).collect();
        let comm = self.endpoint.comm(order.execution, order.rank, members)?;
        comm.set_timeout(comm_timeout);
        self.pool.forget_unused_arenas(ARENAS_KEPT, order.report.term);
        let held_as = HoldOwner::Execution(order.execution);
        let source = StepSource { rpc: self.rpc.clone(), server: self.server, held_as };
        let held = HeldSteps::new(self.pool.clone(), source);
        let attrs = order.report.attrs.take().map_or_else(Arc::default, Arc::from);
        let statics = order.report.statics.take();
        let statics = statics.map(|told| StaticFields::told_with(&order.report, told));
        let statics = statics.map(RunStatics::held_with_step);
        let step =
            Step::new(Arc::new(Hold::of_step(Arc::new(held), &order.report)), order.report, attrs, statics);
        Ok(Some(Order { execution: order.execution, step, comm, share }))
    }

    /// The order was carried out, or failed with this traceback.
    pub fn done(&self, execution: u64, error: Option<String>, seconds: f64) -> Result<()> {
        self.rpc.tell(&Request::Executed { execution, error, seconds })
    }

    /// The group.
    pub fn group(&self) -> &Group {
        &self.group
    }
}
