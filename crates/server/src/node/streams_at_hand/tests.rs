//! The streams of a server pass the suite of all streams.

use super::{Consequence, StreamsAtHand};
use crate::context::{Common, Context};
use crate::node::Node;
use crate::pipelines::tests::bench::first_of_two;
use crate::pipelines::tests::conformance::{Surroundings, suite};
use crate::streams::attachments::{Attachments, Delivery};
use crate::streams::coordination::Coordination;
use crate::streams::users::{StreamEvent, Streams};
use forebay_core::ids::StepNumber;
use forebay_core::steps::{Effect, StreamCoordinator};
use std::sync::Arc;

struct Server {
    node: Arc<Node>,
    common: Common,
    coordination: Coordination,
    attachments: Attachments,
    told: Vec<StreamEvent>,
    freed: Vec<StepNumber>,
    _directory: tempfile::TempDir,
}

impl Server {
    /// What the node does with effects, as far as pipelines notice.
    fn apply(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Deliver(id, report) => {
                    let Some(Delivery::User(user)) = self.attachments.delivery(id) else {
                        panic!("nobody is told of {report:?}");
                    };
                    self.told.push(StreamEvent::Step { user: user.clone(), report });
                }
                Effect::Free { id, .. } => self.freed.push(id.step),
                _ => {}
            }
        }
    }
}

impl Surroundings for Server {
    fn with<T>(&mut self, event: impl FnOnce(&Context<'_>, &mut dyn Streams) -> T) -> T {
        let cx = Context { server: &self.node, common: &mut self.common };
        let mut streams = StreamsAtHand {
            coordination: &mut self.coordination,
            attachments: &mut self.attachments,
            have_all_told: true,
            are_holders_members: true,
            consequences: Vec::new(),
        };
        let result = event(&cx, &mut streams);
        for consequence in streams.consequences {
            match consequence {
                Consequence::Effects(_, effects) => self.apply(effects),
                Consequence::Tell(event) => self.told.push(event),
            }
        }
        result
    }

    fn change(&mut self, change: impl FnOnce(&mut StreamCoordinator) -> Vec<Effect>) {
        let cx = Context { server: &self.node, common: &mut self.common };
        let effects = change(self.coordination.at(&cx, "s"));
        self.apply(effects);
    }

    fn told(&mut self) -> Vec<StreamEvent> {
        std::mem::take(&mut self.told)
    }

    fn freed(&mut self) -> Vec<StepNumber> {
        std::mem::take(&mut self.freed)
    }
}

#[tokio::test]
async fn the_streams_of_a_server_are_streams() {
    suite(async || {
        let (node, directory) = first_of_two().await;
        Server {
            node,
            common: Common::default(),
            coordination: Coordination::default(),
            attachments: Attachments::default(),
            told: Vec::new(),
            freed: Vec::new(),
            _directory: directory,
        }
    })
    .await;
}
