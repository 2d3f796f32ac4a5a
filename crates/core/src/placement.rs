//! Placement: which server holds a block.

use crate::block::Extent;
use crate::ids::{BlockKey, ServerId};
use crate::view::{View, hash_name, mix};
use crate::{Error, Result};
use std::fmt;
use std::sync::Arc;

/// A block that is to be placed, as a user's function sees it.
#[derive(Debug, Clone, Copy)]
pub struct BlockToPlace<'a> {
    /// Its field's name.
    pub field: &'a str,
    /// The rank that puts it, and its number.
    pub key: BlockKey,
    /// Its box.
    pub extent: &'a Extent,
    /// The servers that there are, in the order of their numbers: the answer is one of them.
    pub servers: &'a [ServerId],
}

/// A user's function: the server that is to hold a block.
pub type PlacementFn = dyn Fn(&BlockToPlace<'_>) -> Result<ServerId> + Send + Sync;

/// How a rank's blocks are spread over the servers.
#[derive(Clone, Default)]
pub enum Placement {
    /// On the rank's home server, which is on its host if any is: one copy, no second hop. The default.
    #[default]
    Nearest,
    /// By the block's id: spread evenly, whatever the ranks do, and alike in every step.
    ByBlock,
    /// On this server; on the home if that is gone.
    On(ServerId),
    /// As a user's function says.
    Function(Arc<PlacementFn>),
}

impl fmt::Debug for Placement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Placement::Nearest => "Nearest",
            Placement::ByBlock => "ByBlock",
            Placement::On(_) => "On",
            Placement::Function(_) => "Function",
        })
    }
}

impl Placement {
    /// The server that holds this block of a rank with this home. Fails if a user's function fails, or names
    /// a server that there never was: `ever` is how many there have been. The home holds what one was to hold that is gone.
    pub fn server_of(
        &self,
        (view, ever): (&View, usize),
        home: ServerId,
        field: &str,
        key: BlockKey,
        extent: &Extent,
    ) -> Result<ServerId> {
        match self {
            Placement::Nearest => Ok(home),
            Placement::On(server) => Ok(if view.members.contains(server) { *server } else { home }),
            Placement::ByBlock => {
                let hash = mix(hash_name(field) ^ mix(u64::from(key.rank))).wrapping_add(key.number);
                Ok(view.owner_of(hash).unwrap_or(home))
            }
            Placement::Function(place) => {
                let servers = &view.members[..];
                let server = place(&BlockToPlace { field, key, extent, servers })?;
                if servers.contains(&server) {
                    return Ok(server);
                }
                // Numbers grow, so that a lower one than the highest is of a server that has gone.
                if (server.0 as usize) < ever {
                    return Ok(home);
                }
                let names: Vec<String> = servers.iter().map(ToString::to_string).collect();
                Err(Error::invalid(format!(
                    "the placement function put {key} of field '{field}' on {server}; there are {}",
                    names.join(", ")
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;
    use crate::ids::Lineage;

    fn view(n: u32) -> View {
        View { lineage: Lineage([0; 16]), epoch: 1, members: (0..n).map(ServerId).collect() }
    }

    #[test]
    fn by_block_spreads_the_blocks_of_one_rank() {
        let (view, extent) = (view(3), Extent::new(Some(&[0]), &[7], &[], &[]).unwrap());
        let mut counts = [0; 3];
        for number in 0..300 {
            let key = BlockKey::whole(5, number);
            let server = Placement::ByBlock.server_of((&view, 3), ServerId(1), "U", key, &extent).unwrap();
            counts[server.0 as usize] += 1;
            assert_eq!(
                Placement::Nearest.server_of((&view, 3), ServerId(1), "U", key, &extent).unwrap(),
                ServerId(1)
            );
        }
        assert!(counts.iter().all(|count| (70..130).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_function_that_names_no_server_is_an_error() {
        let extent = Extent::new(Some(&[4]), &[7], &[], &[]).unwrap();
        let by_offset = Placement::Function(Arc::new(|block| {
            let part = block.extent.offset().map_or(0, |offset| offset[0] as usize / 2);
            Ok(block.servers.get(part).copied().unwrap_or(ServerId(part as u32)))
        }));
        let key = BlockKey::whole(0, 0);
        assert_eq!(by_offset.server_of((&view(3), 3), ServerId(0), "U", key, &extent).unwrap(), ServerId(2));
        let error = by_offset.server_of((&view(2), 2), ServerId(0), "U", key, &extent).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Invalid);
        assert!(error.text.contains("server2; there are server0, server1"), "{error}");
        // There were three, and one of them has gone: the function needs not know.
        assert_eq!(by_offset.server_of((&view(2), 3), ServerId(1), "U", key, &extent).unwrap(), ServerId(1));
    }
}
