//! What statistics decide, and what is read of the rest, together give what reading all gives.

use super::{FieldArray, Window, gather, nothing};
use crate::element::bytes_of;
use crate::stats::Accumulator;
use forebay_core::block::{BlockRecord, Extent, Location};
use forebay_core::contract::Field;
use forebay_core::dtype::Dtype;
use forebay_core::ids::{BlockKey, ServerId};
use forebay_core::stats::StatsOfBlock;
use forebay_query::decide::{decide, known_pieces};
use forebay_query::gather::{Gathered, Question, Stage};
use forebay_query::pieces::{FieldBlocks, Held, Piece, pieces};
use forebay_query::plan::{Plan, ScalarOp};
use forebay_query::{Purpose, Schema, Syntax, check};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;

const SHAPE: [u64; 3] = [12, 60, 70];

/// Fields in blocks of two ranks, with their statistics.
struct Step {
    fields: Vec<Field>,
    records: Vec<Vec<BlockRecord>>,
    /// By field and rank.
    bytes: HashMap<(usize, u32), Vec<u8>>,
}

/// Numbers that grow in C order, with waves on them; some are NaN, if there are to be any.
fn number(seed: u64, field: u64, place: u64, nan: bool) -> f64 {
    let noise = (place ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    match nan && (place + seed).is_multiple_of(30_011) {
        true => f64::NAN,
        false => place as f64 / (1000.0 + field as f64) + noise as f64 / 1e7,
    }
}

fn step(seed: u64, nan: bool, ghosts: u64) -> Step {
    let kinds = [("U", Dtype::F64), ("V", Dtype::F64), ("T", Dtype::F32), ("K", Dtype::I64)];
    let fields: Vec<Field> =
        kinds.iter().map(|(name, dtype)| Field::new(name, *dtype, Some(&SHAPE), 3)).collect();
    let (mut records, mut bytes) = (Vec::new(), HashMap::new());
    for (index, field) in fields.iter().enumerate() {
        let mut of_field = Vec::new();
        for rank in 0..2u32 {
            let (offset, shape) = ([6 * u64::from(rank), 0, 0], [6, SHAPE[1], SHAPE[2]]);
            let width = [0, ghosts, 0];
            let extent = Extent::new(Some(&offset), &shape, &width, &width).unwrap();
            let stored = extent.stored_shape();
            let value = |place: u64| {
                let (z, y) = (place / (stored[1] * stored[2]), place / stored[2] % stored[1]);
                let is_ghost = y < ghosts || y >= stored[1] - ghosts;
                let global =
                    ((z + offset[0]) * SHAPE[1] + y.saturating_sub(ghosts)) * SHAPE[2] + place % stored[2];
                // Statistics that counted ghosts would decide what is not so.
                if is_ghost { -1e9 } else { number(seed, index as u64, global, nan) }
            };
            let values = (0..stored.iter().product()).map(value);
            let block: Vec<u8> = match field.dtype {
                Dtype::F64 => bytes_of(&values.collect::<Vec<f64>>()).to_vec(),
                Dtype::F32 => bytes_of(&values.map(|x| x as f32).collect::<Vec<f32>>()).to_vec(),
                _ => bytes_of(&values.map(|x| x as i64).collect::<Vec<i64>>()).to_vec(),
            };
            let wanted = if seed.is_multiple_of(2) { StatsOfBlock::All } else { StatsOfBlock::Extremes };
            let mut stats = Accumulator::new(field.dtype, extent.interior_bytes(field.dtype), wanted);
            stats.add_interior(&block, &extent);
            let stats = Some(Arc::new(stats.finish(&block, &extent)));
            let size = extent.bytes(field.dtype).unwrap();
            let location =
                Location { server: ServerId(rank), arena: 0, offset: 0, bytes: size, generation: 1 };
            of_field.push(BlockRecord {
                key: BlockKey::whole(rank, 0),
                level: 0,
                extent,
                location,
                inline: None,
                stats,
            });
            bytes.insert((index, rank), block);
        }
        records.push(of_field);
    }
    Step { fields, records, bytes }
}

impl Step {
    fn plan(&self, text: &str) -> Plan {
        let schema = Schema::new(Some("s")).with("s", self.fields.clone());
        check(&Syntax::parse(text).unwrap(), &schema, Purpose::Once).unwrap()
    }

    fn pieces(&self, plan: &Plan) -> Vec<Piece> {
        let of = |planned: &forebay_query::plan::PlannedField| {
            let index = self.fields.iter().position(|field| field.name == planned.field.name)?;
            Some(FieldBlocks { field: &self.fields[index], records: &self.records[index] })
        };
        let blocks: Vec<Option<FieldBlocks<'_>>> = plan.fields.iter().map(of).collect();
        pieces(plan, &plan.aggregates[0], &blocks).unwrap().list
    }

    /// The answer of a piece that is read.
    fn read(&self, plan: &Plan, question: &Question, piece: &Piece) -> Gathered {
        let arrays = piece.sources.iter().enumerate().map(|(planned, source)| {
            let source = source.as_ref()?;
            let Held::Block(record) = &source.held else { panic!("copies") };
            let index = self.fields.iter().position(|field| field.name == plan.fields[planned].field.name)?;
            Some(FieldArray::of(source, &self.bytes[&(index, record.key.rank)]))
        });
        gather(&plan.aggregates[0], question, &Window::of(piece, arrays.collect())).unwrap()
    }
}

fn question(plan: &Plan) -> Question {
    let literal = |id: &usize| match &plan.scalars[*id] {
        ScalarOp::Constant(scalar) => scalar.clone(),
        other => panic!("{other:?}"),
    };
    let inputs = plan.aggregates[0].program.inputs.iter().map(literal).collect();
    Question { aggregate: 0, stage: Stage::First, inputs }
}

/// The answer by reading all, that by statistics first, and how many elements were read for it.
fn both(step: &Step, text: &str) -> (Gathered, Gathered, u64) {
    let plan = step.plan(text);
    let (aggregate, question) = (&plan.aggregates[0], question(&plan));
    let (mut all, mut decided) =
        (nothing(aggregate, &question).unwrap(), nothing(aggregate, &question).unwrap());
    let (list, mut read) = (step.pieces(&plan), 0);
    let known = known_pieces(aggregate, &question, list.iter());
    for (piece, known) in list.iter().zip(known) {
        all.merge(step.read(&plan, &question, piece));
        if let Some(known) = known {
            decided.merge(known);
            continue;
        }
        let (known, unread) = decide(piece, &[(aggregate, &question)]);
        known.into_iter().for_each(|known| decided.merge(known));
        for part in unread.into_iter().flat_map(|unread| unread.parts) {
            read += part.volume();
            decided.merge(step.read(&plan, &question, &Piece { part, ..piece.clone() }));
        }
    }
    (all, decided, read)
}

/// Regions, and the share of elements in them.
const REGIONS: [&str; 4] = ["", "[2:11, 5:50, :]", "[:, ::3, 1:60:2]", "[7, :, :]"];

#[test]
fn what_is_decided_is_not_read() {
    let step = step(4, false, 1);
    let volume: u64 = SHAPE.iter().product();
    for (text, most) in [
        ("min(U)", 0),
        ("max(T)", 0),
        ("sum(K)", 0),
        ("size(U)", 0),
        ("count(U > 1e9)", 0),
        ("any(isnan(U))", 0),
        ("all(isfinite(U) and K >= 0)", 0),
        ("entropy(U)", 0),
        ("count(U > 25)", volume / 2),
        ("count(sqrt(U**2 + V**2) > 30)", volume / 2),
        ("max(U[:, 5:50, :])", volume / 2),
        ("min(U, where=T > 30)", volume / 2),
        ("sum(U, where=V > 45)", volume / 2),
        ("sum(U)", volume),
    ] {
        let (all, decided, read) = both(&step, text);
        assert_eq!(decided, all, "{text}");
        assert!(read <= most && (most == volume || read < volume), "{text}: {read} of {volume} are read");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 60 }))]
    #[test]
    fn statistics_change_no_answer(
        seed in any::<u64>(), nan in any::<bool>(), ghosts in 0u64..2, threshold in 0u32..52, region in prop::sample::select(REGIONS.to_vec())
    ) {
        let step = step(seed, nan, ghosts);
        let t = threshold;
        for text in [
            format!("min(U{region})"),
            format!("max(T{region})"),
            format!("argmax(V{region})"),
            format!("max(K{region} * 2)"),
            format!("min(U{region}, where=T{region} > {t})"),
            format!("max(-U{region} + V{region})"),
            format!("count(U{region} > {t})"),
            format!("count(U{region} > {t} and not V{region} > {t}.5)"),
            format!("any(T{region} > {t})"),
            format!("all(T{region} <= {t})"),
            format!("count(isnan(U{region}))"),
            format!("sum(K{region}, where=U{region} < {t})"),
            format!("mean(U{region}, where=U{region} < {t})"),
            format!("entropy(V{region})"),
            format!("size(U{region})"),
        ] {
            let (all, decided, _) = both(&step, &text);
            prop_assert_eq!(&decided, &all, "{}", text);
        }
    }
}
