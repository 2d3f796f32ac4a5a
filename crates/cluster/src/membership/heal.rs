//! Going on where half of the members or more are gone for good: they cannot be agreed on by those that are left, so that
//! the operator says that none of them runs any more.

use crate::cluster::Cluster;
use crate::environment::off_thread;
use crate::peers::dialling;
use forebay_core::ids::ServerId;
use forebay_core::membership::Message;
use forebay_core::roster::Roster;
use forebay_core::{Error, Result};
use forebay_transport::connection_file::ConnectionFile;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// How long a server may take to say that it is there.
const ANSWER: Duration = Duration::from_secs(3);

/// With whom the group goes on, and without whom.
#[derive(Debug)]
pub struct Healed {
    /// The members with which it goes on.
    pub kept: Vec<ServerId>,
    /// Those that are gone for good.
    pub given_up: Vec<ServerId>,
}

impl Cluster {
    /// Begins a new line of the group's history, with those members that answer. Without `force`, only says who they are.
    pub async fn heal(&self, force: bool) -> Result<Healed> {
        let roster = self.standing().roster.clone();
        let mut answering = self.answering(&roster).await?;
        // A connection that has ended is never made again: with these it can agree on nothing, though they answer.
        answering.retain(|id| !self.is_gone(*id));
        let healed = self.healed(&answering)?;
        let (kept, given_up) = roster.ids().partition(|id| healed.contains(*id));
        if force {
            self.claim(healed.clone()).await?;
            tracing::warn!(
                "epoch {}: the group is healed, and goes on with {} servers",
                healed.epoch,
                healed.members.len()
            );
            self.at_membership(None, |membership, now| membership.enforce(healed, now));
        }
        Ok(Healed { kept, given_up })
    }

    /// The members that answer, this one among them.
    async fn answering(&self, roster: &Arc<Roster>) -> Result<BTreeSet<ServerId>> {
        let mut asked = dialling::ask_members(self, Vec::new(), ANSWER);
        let mut answering = BTreeSet::from([self.id]);
        while let Some(answer) = asked.join_next().await {
            let Ok(Some((server, theirs))) = answer else { continue };
            if theirs.epoch > roster.epoch {
                self.heard_of_members(server, Message::InForce(theirs), None);
                return Err(Error::conflict(format!(
                    "{server} knows of later members than {}: try again",
                    self.id
                )));
            }
            answering.insert(server);
        }
        Ok(answering)
    }

    /// Writes the connection file, unless it tells of later members: so one of several that heal at once does.
    async fn claim(&self, roster: Roster) -> Result<()> {
        let (witness, path) = (self.witness(), self.connection_file.clone());
        let file = ConnectionFile::of(&roster, self.secret.clone());
        let written = off_thread(&*self.environment, move || {
            if file.replace_earlier(&path, &witness)? {
                return Ok(());
            }
            let text = format!("{} tells of another group, or of later members: try again", path.display());
            Err(Error::conflict(text))
        });
        written.await.flatten()
    }
}
