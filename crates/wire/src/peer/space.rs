//! About blocks of the space: between the servers that hold them, the owners of parts of fields, and the owner that describes
//! a field.

use crate::protocol::speaks;
use forebay_core::block::Location;
use forebay_core::error::Error;
use forebay_core::ids::{BlockKey, DescriptionNumber, StepNumber};
use forebay_core::steps::FieldReport;
use serde::{Deserialize, Serialize};

/// What servers say about the space.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// To an owner of parts of the field: these blocks are held by the sender. Answer: `Registered`.
    Register {
        /// Ties the answer to it.
        token: u64,
        /// The step.
        step: StepNumber,
        /// Under which description of the field; 0 asks the server that describes it which one is in force,
        /// and describes it if none is.
        description: DescriptionNumber,
        /// The field and the blocks.
        report: FieldReport,
    },
    /// To `Register`.
    Registered {
        /// The question's token.
        token: u64,
        /// Under which description they are registered; 0: not at all, that description is no longer in force.
        result: Result<DescriptionNumber, Error>,
    },
    /// To the server that owns parts of the field now whose owner has gone, or describes it: these blocks are held by the
    /// sender, and were registered under this description.
    HandOver {
        /// The step.
        step: StepNumber,
        /// The description.
        description: DescriptionNumber,
        /// The field and the blocks.
        report: FieldReport,
    },
    /// To an owner: the put failed elsewhere. It lets go of these blocks, also if it does not know them.
    Unregister {
        /// The field's name.
        field: String,
        /// The step.
        step: StepNumber,
        /// The blocks and where they are.
        blocks: Vec<(BlockKey, Location)>,
    },
    /// To a server that registers under this description: it is no longer in force. Answer: `Done`, once nothing that it
    /// began under it is on its way.
    Revoke {
        /// Ties the answer to it.
        token: u64,
        /// The description.
        description: DescriptionNumber,
    },
    /// To an owner: what was registered under this description is removed. Answer: `Done`.
    Forget {
        /// Ties the answer to it.
        token: u64,
        /// The field's name.
        field: String,
        /// The step.
        step: StepNumber,
        /// The description.
        description: DescriptionNumber,
    },
    /// To `Revoke` and `Forget`.
    Done {
        /// The question's token.
        token: u64,
    },
    /// To a holder: the sender has let go of these blocks. Answer, once nobody holds them any more: `Freed`.
    Free {
        /// Ties the answer to it.
        token: u64,
        /// Where the sender knew them: in the arenas of a server that is dead, if the holder is its successor.
        locations: Vec<Location>,
    },
    /// To `Free`: nobody holds them.
    Freed {
        /// The question's token.
        token: u64,
    },
}

speaks!(SpaceDirectory: Message);
