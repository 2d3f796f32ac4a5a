//! Elements and operations of reductions, as `forebay_comm.h` numbers them.

use forebay_client::comm::{Datatype, Operation};
use forebay_client::core::dtype::Dtype;
use forebay_client::{Error, Result};

/// Pairs of a value and a place.
const PAIRS: [(i32, Datatype); 5] = [
    (101, Datatype::Float32Int),
    (102, Datatype::Float64Int),
    (103, Datatype::Int64Int),
    (104, Datatype::Int32Int),
    (105, Datatype::Int16Int),
];

/// The type of a dtype's number.
pub(crate) fn datatype(number: i32) -> Result<Datatype> {
    if let Some((_, pair)) = PAIRS.iter().find(|(pair, _)| *pair == number) {
        return Ok(*pair);
    }
    let dtype = Dtype::ALL.iter().find(|dtype| **dtype as i32 == number);
    let found = dtype.map(|dtype| match dtype {
        Dtype::Bool => Datatype::Bool,
        Dtype::I8 => Datatype::Int8,
        Dtype::U8 => Datatype::UInt8,
        Dtype::I16 => Datatype::Int16,
        Dtype::U16 => Datatype::UInt16,
        Dtype::I32 => Datatype::Int32,
        Dtype::U32 => Datatype::UInt32,
        Dtype::I64 => Datatype::Int64,
        Dtype::U64 => Datatype::UInt64,
        Dtype::F16 => Datatype::Float16,
        Dtype::Bf16 => Datatype::BFloat16,
        Dtype::F32 => Datatype::Float32,
        Dtype::F64 => Datatype::Float64,
        Dtype::C64 => Datatype::Complex64,
        Dtype::C128 => Datatype::Complex128,
    });
    found.ok_or_else(|| Error::invalid(format!("dtype={number}: use FB_F64 and the like, or FB_F64_PLACE")))
}

/// Bytes of an element: of a dtype, or of one that only a function knows.
pub(crate) fn size_of(number: i32) -> Result<usize> {
    match number {
        ..0 => Ok(number.unsigned_abs() as usize),
        _ => datatype(number).map(Datatype::size),
    }
}

/// The operation of a number.
pub(crate) fn operation(number: i32) -> Result<Operation> {
    let found = usize::try_from(number).ok().and_then(|number| Operation::ALL.get(number.checked_sub(1)?));
    found.copied().ok_or_else(|| {
        Error::invalid(format!("op={number}: use FB_OP_SUM and the like, or one of fb_comm_function_op"))
    })
}
