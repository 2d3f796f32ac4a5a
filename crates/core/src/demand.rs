//! Demand: the union of the contracts of all that is attached to a stream.

use crate::contract::{Field, Needs};
use crate::ids::StepNumber;
use serde::{Deserialize, Serialize};

/// What is wanted of a stream. A producer asks it once for each field and step.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Demand {
    /// Grows with each change, so that a producer is sent only what it does not know yet.
    pub version: u64,
    /// The attached contracts, each different one once.
    needs: Vec<Needs>,
}

impl Demand {
    /// The union of these contracts.
    pub fn union<'a>(version: u64, contracts: impl Iterator<Item = &'a Needs>) -> Demand {
        let mut needs: Vec<Needs> = Vec::new();
        for contract in contracts {
            if !needs.contains(contract) {
                needs.push(contract.clone());
            }
        }
        Demand { version, needs }
    }

    /// The contracts, each different one once.
    pub fn contracts(&self) -> &[Needs] {
        &self.needs
    }

    /// Whether nothing at all is wanted.
    pub fn is_empty(&self) -> bool {
        self.needs.is_empty()
    }

    /// Whether this field is wanted at this step.
    pub fn wants(&self, field: &Field, step: StepNumber) -> bool {
        self.needs.iter().any(|needs| needs.wants(field, step))
    }

    /// Whether this contract is part of the union.
    pub fn includes(&self, contract: &Needs) -> bool {
        self.needs.contains(contract)
    }
}
