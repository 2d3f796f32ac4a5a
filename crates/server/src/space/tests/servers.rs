//! Spaces of several servers, driven through their public faces: no sockets, and messages go when the test says so.

use super::below::Below;
use super::blocks::Block;
use crate::context::{Common, Context};
use crate::held::Held;
use crate::node::Node;
use crate::options::ServerOptions;
use crate::questions::Answer;
use crate::space::holder::registration::{OwnerQuestion, OwnerReply, OwnerRequest};
use crate::space::owner::search::{Search, SearchAnswer, SearchOutcome};
use crate::space::{FieldAtStep, Group, Space};
use forebay_cluster::ClusterOptions;
use forebay_cluster::forming::FormedMember;
use forebay_cluster::membership::entry;
use forebay_core::Result;
use forebay_core::ids::{DescriptionNumber, Lineage, ServerId};
use forebay_core::roster::{Candidate, Change, Incarnation, Roster, Settings};
use forebay_core::steps::FieldReport;
use forebay_wire::peer::PeerMessage;
use std::collections::BTreeMap;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::sync::mpsc;

/// What is told to one server by another one.
type Told = mpsc::Receiver<(PeerMessage, Option<rustix::fd::OwnedFd>)>;

#[derive(Debug)]
struct Server {
    node: Arc<Node>,
    common: Common,
    space: Space,
    below: Below,
    /// What it tells each of the others.
    tells: BTreeMap<ServerId, Told>,
    /// The ranges that were freed here.
    freed: Vec<Held>,
}

/// A group.
#[derive(Debug)]
pub(super) struct Servers {
    servers: BTreeMap<ServerId, Server>,
    roster: Arc<Roster>,
    /// Where the group's files are.
    _directory: TempDir,
}

fn options(directory: &TempDir, id: ServerId) -> ServerOptions {
    ServerOptions {
        cluster: ClusterOptions {
            group: directory.path().join(format!("group-{id}")),
            servers: 1,
            lineage: None,
            bind: Vec::new(),
            advertise: None,
            ports: None,
            seal_payload: false,
            silence: None,
        },
        budget: Some(1 << 20),
        watch_parent: None,
        private_place: None,
        leash: None,
    }
}

fn start(directory: &TempDir, roster: &Arc<Roster>, id: ServerId) -> Server {
    let options = options(directory, id);
    // It dials no other server.
    let mut alone = (**roster).clone();
    alone.members.retain(|member| member.id == id);
    let formed = FormedMember::alone(Arc::new(alone), id, options.cluster.group.clone()).unwrap();
    let (node, _) = Node::new(&options, formed);
    node.cluster.set_roster(roster.clone());
    let others = roster.members.iter().filter(|member| member.id != id);
    let tells = others.map(|member| (member.id, node.peers.intercept(&entry(member)).unwrap())).collect();
    let (common, space) = (Common::default(), Space::default());
    Server { node, common, space, below: Below::default(), tells, freed: Vec::new() }
}

impl Servers {
    /// So many servers, numbered from 0.
    pub(super) fn new(servers: u32) -> Servers {
        let candidate = |number| Candidate {
            incarnation: Incarnation(u64::from(number)),
            pid: 1,
            addresses: Vec::new(),
            formerly: None,
        };
        let founded = Roster::founded(Lineage([1; 16]), candidate(0), servers, Settings::default());
        let joined: Vec<Change> = (1..servers).map(|number| Change::Join(candidate(number))).collect();
        let roster = Arc::new(founded.next(&joined).unwrap());
        let directory = TempDir::new().unwrap();
        let servers = roster.ids().map(|id| (id, start(&directory, &roster, id))).collect();
        Servers { servers, roster, _directory: directory }
    }

    /// A server's space handles an event.
    pub(super) fn at<R>(
        &mut self,
        id: ServerId,
        event: impl FnOnce(&mut Space, &mut Context<'_>, &mut dyn Group) -> R,
    ) -> R {
        let Server { node, common, space, below, freed, .. } = self.servers.get_mut(&id).unwrap();
        let cx = &mut Context { server: node, common };
        let result = event(space, cx, below);
        // There are no copies: what nobody needs is free at once.
        for unused in space.holder.take_unused() {
            freed.push(unused.range);
            unused.asked_to_free.into_iter().for_each(|asked| space.holder.on_block_freed(cx, asked));
        }
        space.sanity_check().unwrap();
        result
    }

    /// Messages come to where they go, until there are none.
    pub(super) fn deliver(&mut self) {
        let next = |(id, server): (&ServerId, &mut Server)| {
            let own = server.common.next().map(|(from, message)| (from, *id, message));
            own.or_else(|| {
                server.tells.iter_mut().find_map(|(to, told)| Some((*id, *to, told.try_recv().ok()?.0)))
            })
        };
        while let Some((from, to, message)) = self.servers.iter_mut().find_map(next) {
            let PeerMessage::Space(message) = message else { panic!("{message:?} is not the space's") };
            if self.servers.contains_key(&to) {
                self.at(to, |space, cx, group| space.on_message(cx, group, from, message));
            }
        }
    }

    /// The server that describes a field.
    pub(super) fn describer_of(&self, key: &FieldAtStep) -> ServerId {
        self.roster.shards.owner_of(key.hash()).unwrap()
    }

    /// A field at a step that this server describes.
    pub(super) fn described_by(&self, server: ServerId) -> FieldAtStep {
        let mut keys = (0..).map(|step| FieldAtStep::new("T", step));
        keys.find(|key| self.describer_of(key) == server).unwrap()
    }

    /// The ranges that a server has freed.
    pub(super) fn freed(&self, server: ServerId) -> &[Held] {
        &self.servers[&server].freed
    }

    /// A server puts a block that it holds, as `node/space` does.
    pub(super) fn put(
        &mut self,
        holder: ServerId,
        key: &FieldAtStep,
        block: &Block,
    ) -> Result<DescriptionNumber> {
        let (field, record) = (block.field(), block.record(holder));
        let range = block.range();
        let begun = self.at(holder, |space, _, _| {
            space.holder.begin_put(range, Arc::new(field.clone()), key.clone(), record.clone())
        });
        assert!(begun.is_none());
        let shards = self.roster.shards.clone();
        let tiles = self.at(holder, |_, _, group| group.tiles(&shards, key, field.tiled_shape()));
        let report = |blocks| FieldReport::new(field.clone(), blocks);
        let describer = tiles.descriptor().unwrap();
        let mut owners = tiles.owners_of(&record.extent.interior());
        let describer_owns = owners.contains(&describer);
        owners.retain(|owner| *owner != describer);
        let blocks = if describer_owns { vec![record.clone()] } else { Vec::new() };
        let request = OwnerRequest { owner: describer, description: 0, report: report(blocks) };
        let result = self.ask(holder, key, vec![request], !tiles.is_single()).and_then(|description| {
            let request = |owner| {
                let report = report(vec![record.clone()]);
                OwnerRequest { owner, description, report }
            };
            let requests: Vec<OwnerRequest> = owners.into_iter().map(request).collect();
            if !requests.is_empty() {
                self.ask(holder, key, requests, false)?;
            }
            self.at(holder, |space, cx, group| {
                space.holder.end_registration(cx, description, false);
                space.holder.on_registered_everywhere(cx, group, range, description, &shards);
            });
            Ok(description)
        });
        self.at(holder, |space, _, _| space.holder.end_put(range));
        self.deliver();
        result
    }

    /// Asks owners, and lets them answer.
    fn ask(
        &mut self,
        holder: ServerId,
        key: &FieldAtStep,
        requests: Vec<OwnerRequest>,
        remember: bool,
    ) -> Result<DescriptionNumber> {
        let asked = self.at(holder, |space, cx, _| space.holder.ask_owners(cx, key, requests, remember));
        self.deliver();
        let mut last = Ok(0);
        for OwnerQuestion { owner, range, pending } in asked {
            let Answer::Described(result) = pending.unwrap().answer.try_recv().unwrap() else { panic!() };
            if let (OwnerReply::Refused(_), Some(range)) = (OwnerReply::from(result.clone()), range) {
                self.at(holder, |space, _, _| space.holder.let_go(owner, range));
            }
            last = result;
        }
        last
    }

    /// What an owner finds of a region.
    pub(super) fn search(&mut self, owner: ServerId, search: &mut Search) -> Result<SearchOutcome> {
        self.at(owner, |space, cx, group| space.owner.on_search(cx, group, search))
    }

    /// What an owner finds that knows all.
    pub(super) fn find(&mut self, owner: ServerId, key: &FieldAtStep, block: &Block) -> SearchAnswer {
        match self.search(owner, &mut block.search(key)).unwrap() {
            SearchOutcome::Found(found) => *found,
            outcome => panic!("{outcome:?}"),
        }
    }

    /// A server dies, and the others know it: not all have told yet what follows from that.
    pub(super) fn kill(&mut self, dead: ServerId) {
        self.servers.remove(&dead);
        let before = self.roster.shards.clone();
        self.roster = Arc::new(self.roster.next(&[Change::Evict(dead)]).unwrap());
        let living: Vec<ServerId> = self.servers.keys().copied().collect();
        for id in living {
            let server = self.servers.get_mut(&id).unwrap();
            server.common.members.note_gone(dead);
            server.common.questions.on_server_gone(dead);
            server.below.some_have_not_told = true;
            server.node.cluster.set_roster(self.roster.clone());
            let epoch = self.roster.epoch;
            self.at(id, |space, cx, group| {
                space.holder.on_server_gone(dead);
                space.holder.on_gone_agreed(epoch);
                space.holder.on_shards_reassigned(cx, group, &before);
            });
        }
    }

    /// All have told what follows from the view in force.
    pub(super) fn all_have_told(&mut self) {
        let living: Vec<ServerId> = self.servers.keys().copied().collect();
        for id in living {
            let server = self.servers.get_mut(&id).unwrap();
            server.below.some_have_not_told = false;
            let deferred = std::mem::take(&mut server.below.deferred);
            self.at(id, |space, cx, _| space.owner.on_all_reported(cx));
            for (from, message) in deferred {
                self.at(id, |space, cx, group| space.on_message(cx, group, from, message));
            }
        }
        self.deliver();
    }
}
