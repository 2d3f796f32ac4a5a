//! What a reduction does with the elements of two ranks, whichever of the two does it.

use crate::operation::{Combine, Combines, Datatype, Operation};
use forebay_core::{Error, Result};
use std::sync::Arc;

/// A function on elements of so many bytes: first those of the lower rank, then those of the higher one, which the result replaces.
///
/// It is called by whichever thread looks at messages, with as many elements as that has, and must give the same for the same elements
/// on every rank. What it fails with fails the collective, on all ranks.
pub type Function = dyn Fn(usize, &[u8], &mut [u8]) -> Result<()> + Send + Sync;

/// What a reduction does, and with elements of how many bytes.
///
/// Elements are combined in the order of ranks, so that it need not commute; it should be associative.
#[derive(Clone)]
pub struct Reduction {
    element: usize,
    code: u16,
    way: Way,
}

#[derive(Clone)]
enum Way {
    BuiltIn(Combines),
    Function(Arc<Function>),
}

/// Where another rank is whose elements are combined with one's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Higher,
    Lower,
}

/// The code of all functions: ranks are not told apart by which one they give.
const FUNCTION: u16 = 1023;

impl std::fmt::Debug for Reduction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&name_of(self.code))
    }
}

impl Reduction {
    /// An operation that is built in. `Invalid` where it is not defined, such as bits of floating-point numbers.
    pub fn new(datatype: Datatype, operation: Operation) -> Result<Reduction> {
        let way = Way::BuiltIn(operation.of(datatype)?);
        let code = 1 + operation as u16 * Datatype::COUNT + datatype as u16;
        Ok(Reduction { element: datatype.size(), code, way })
    }

    /// A function on elements of so many bytes each, 1 or more.
    pub fn by(element: usize, function: Arc<Function>) -> Result<Reduction> {
        if element == 0 {
            return Err(Error::invalid("an element has 1 byte or more"));
        }
        Ok(Reduction { element, code: FUNCTION, way: Way::Function(function) })
    }

    /// Combines elements within this process: the second become the first with them.
    pub fn apply(&self, first: &[u8], second: &mut [u8]) -> Result<()> {
        self.check(second.len())?;
        if first.len() != second.len() {
            return Err(Error::invalid(format!("{} bytes are combined with {}", first.len(), second.len())));
        }
        self.combine(second, &mut first.to_vec(), Side::Lower)
    }

    /// Bytes of an element.
    pub(crate) fn element(&self) -> usize {
        self.element
    }

    /// What all ranks must agree on.
    pub(crate) fn code(&self) -> u16 {
        self.code
    }

    /// Fails unless so many bytes are whole elements.
    pub(crate) fn check(&self, bytes: usize) -> Result<()> {
        if bytes.is_multiple_of(self.element) {
            return Ok(());
        }
        Err(Error::invalid(format!("{bytes} bytes are no whole number of elements of {}", self.element)))
    }

    /// How elements are combined as they come, in pieces; `None`: all of them at once.
    pub(crate) fn in_pieces(&self, side: Side) -> Option<Combine> {
        match (&self.way, side) {
            (Way::BuiltIn(combines), Side::Higher) => Some(combines.with_higher),
            (Way::BuiltIn(combines), Side::Lower) => Some(combines.with_lower),
            (Way::Function(_), _) => None,
        }
    }

    /// Combines another rank's elements with one's own. The other's are of no meaning afterwards.
    pub(crate) fn combine(&self, mine: &mut [u8], others: &mut [u8], side: Side) -> Result<()> {
        match (&self.way, side) {
            (Way::BuiltIn(combines), Side::Higher) => (combines.with_higher.into)(mine, others),
            (Way::BuiltIn(combines), Side::Lower) => (combines.with_lower.into)(mine, others),
            (Way::Function(function), Side::Lower) => function(self.element, others, mine)?,
            (Way::Function(function), Side::Higher) => {
                function(self.element, mine, others)?;
                mine.copy_from_slice(others);
            }
        }
        Ok(())
    }
}

/// What a code stands for, for people.
pub(crate) fn name_of(code: u16) -> String {
    let found = code.checked_sub(1).and_then(|code| {
        let operation = Operation::ALL.get(usize::from(code / Datatype::COUNT))?;
        let datatype = Datatype::ALL.get(usize::from(code % Datatype::COUNT))?;
        Some(format!("{operation:?} of {datatype:?}"))
    });
    found.unwrap_or_else(|| "a function".to_owned())
}
