//! Steps of streams that other servers coordinate, for subscriptions of this one that watch several streams: this server is a reader
//! of them.

use super::Node;
use super::fetching::greet;
use crate::subscriptions::FeedOrder;
use forebay_core::identity::Identity;
use forebay_core::ids::ServerId;
use forebay_core::steps::{AttachmentId, Start};
use forebay_core::{Error, Result};
use forebay_transport::asynchronous::Outbox;
use forebay_wire::client::consumer::{Attach, Event, Reply, Request};
use forebay_wire::connection::Role;
use forebay_wire::frame::Frame;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// How long it may take until it is known who coordinates a stream, and until that one has greeted.
const GREETING: Duration = Duration::from_secs(10);
/// How long to wait before a server is asked again.
const AGAIN: Duration = Duration::from_millis(200);
/// How many steps may be told before one is released: those that wait for another stream, and one that comes.
const WINDOW: u32 = 18;
/// The number of the question that attaches.
const ATTACHES: u64 = 1;

/// What follows from what was told.
enum Told {
    /// More may come.
    More,
    /// The run is over.
    Over,
    /// Nothing more comes over this connection.
    Gone,
}

/// A connection over which steps come: it ends with this. Whoever reads on in its place finds what it held for a while.
struct Connected(Arc<Outbox>);

impl Drop for Connected {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Node {
    /// Tells a subscription of the steps of a stream, until it needs them no more.
    pub(super) fn begin_feed(&self, order: FeedOrder) {
        let Some(node) = self.me.upgrade() else { return };
        tokio::spawn(async move {
            let over = order.over.clone();
            tokio::select! {
                () = over.notified() => {}
                () = node.feed(&order) => {}
            }
        });
    }

    async fn feed(self: &Arc<Node>, order: &FeedOrder) {
        let mut known = None;
        while self.state.lock().subscriptions.wants(order) {
            match self.feed_from(order, known.take()).await {
                Ok(elsewhere) => known = elsewhere,
                Err(error) => tracing::debug!("stream '{}' is asked for again: {error}", order.stream),
            }
            let now = self.environment.now();
            self.state.lock().subscriptions.on_feed_lost(order, now);
            if known.is_none() {
                tokio::time::sleep(AGAIN).await;
            }
        }
    }

    /// Tells of steps until the connection ends, or the run. Returns the server that coordinates the stream if that is another one.
    async fn feed_from(
        self: &Arc<Node>,
        order: &FeedOrder,
        server: Option<ServerId>,
    ) -> Result<Option<ServerId>> {
        let deadline = Instant::now() + GREETING;
        let server = match server {
            Some(server) => server,
            None => timeout_at(deadline, self.find_place(&order.stream))
                .await
                .map_err(|_| Error::timeout("it is not known in time who coordinates it"))?,
        };
        let (mut receiver, outbox) = greet(self, (server, Role::Consumer), deadline).await?.into_halves();
        let connected = Connected(outbox);
        let attach = self.attach_for(order);
        // Steps may be told before it is agreed from which on.
        self.state.lock().subscriptions.on_connected(order, connected.0.clone());
        connected.0.push(self.header(ATTACHES), &Request::Attach(Box::new(attach)))?;
        while let Some((frame, _)) = receiver.next().await? {
            if frame.header.request == ATTACHES {
                match frame.message::<Result<Reply>>()?? {
                    Reply::Attached { attachment, .. } => self.on_fed(order, attachment),
                    Reply::Redirect(server) => return Ok(Some(server)),
                    _ => return Err(Error::protocol("a stream is told of in another way")),
                }
                continue;
            }
            match self.take_told(order, &frame)? {
                Told::More => {}
                // At once, so that nothing of the next run is missed. What the attachment holds that has ended stays held.
                Told::Over => {
                    let attach = self.attach_for(order);
                    connected.0.push(self.header(ATTACHES), &Request::Attach(Box::new(attach)))?;
                }
                Told::Gone => return Ok(None),
            }
        }
        Ok(None)
    }

    /// It is agreed from which step on a stream is told.
    fn on_fed(&self, order: &FeedOrder, attachment: AttachmentId) {
        let mut state = self.state.lock();
        self.with_subscriptions(&mut state, |all, cx, streams| all.on_fed(cx, streams, order, attachment));
        self.drain(&mut state);
    }

    /// Takes what is told of a stream.
    fn take_told(&self, order: &FeedOrder, frame: &Frame) -> Result<Told> {
        let event = frame.message::<Event>()?;
        let mut state = self.state.lock();
        let told = self.with_subscriptions(&mut state, |all, cx, streams| match event {
            Event::Step { attachment, report } => {
                all.on_partner_step(cx, streams, order, (attachment, *report));
                Told::More
            }
            Event::Ended { .. } => {
                all.on_partner_over(cx, streams, order);
                Told::Over
            }
            Event::Detached { error, .. } => {
                tracing::info!(
                    "subscription '{}' is told of stream '{}' no more: {error}",
                    order.key.1,
                    order.stream
                );
                Told::Gone
            }
            Event::Fired { .. } | Event::Unknown { .. } => Told::More,
        });
        self.drain(&mut state);
        Ok(told)
    }

    fn attach_for(&self, order: &FeedOrder) -> Attach {
        let (last, is_over) = self.state.lock().subscriptions.told_until(order);
        let start = match last {
            Some(_) if is_over => Start::Run,
            Some((run, step)) => Start::Rejoin(run, step.saturating_add(1)),
            None => Start::Oldest,
        };
        let name = Some(format!("subscription {}", order.key.1).chars().take(200).collect());
        let reader = Identity { name, pid: std::process::id(), ..Identity::default() };
        Attach { start, is_followed: true, ..Attach::new(&order.stream, order.needs.clone(), WINDOW, reader) }
    }
}
