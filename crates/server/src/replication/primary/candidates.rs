//! Which servers can hold copies of what this server holds.

use crate::members::Members;
use crate::shared::Shared;
use forebay_cluster::membership::entry;
use forebay_core::ids::ServerId;

/// The servers that can hold copies for this one: the first are best, those on other hosts, then those after this one. If this
/// server leaves, it prefers servers that share its memory, so that nothing is copied.
pub(crate) fn candidates(server: &Shared, members: &Members) -> Vec<ServerId> {
    let standing = server.standing();
    let others = standing.roster.members.iter().filter(|member| member.id != server.id);
    let able = others.filter(|member| !members.is_gone(member.id) && !members.leaves(member.id));
    let leaves = members.this_one_leaves();
    let rank = |here: bool, id: ServerId| (here != leaves, id < server.id, id);
    let mut ranked: Vec<_> =
        able.map(|member| rank(server.environment.is_here(&entry(member)), member.id)).collect();
    ranked.sort_unstable();
    ranked.into_iter().map(|(.., id)| id).collect()
}

/// Members that leave, for what nobody else can hold: they hold it as long as they are there, and if they stay after all. None if
/// this server leaves, too.
pub(super) fn leavers(members: &Members) -> Vec<ServerId> {
    if members.this_one_leaves() {
        return Vec::new();
    }
    members.leaving().iter().copied().filter(|id| !members.is_gone(*id)).collect()
}
