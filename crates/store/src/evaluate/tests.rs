//! Against the same answers in the plainest way.

use super::dense::Buffers;
use super::{FieldArray, Window, gather};
use forebay_core::contract::{Association, Field};
use forebay_core::dtype::Dtype;
use forebay_core::region::{Dims, MAX_NDIM, Region};
use forebay_core::selection::Selection;
use forebay_query::gather::{Partial, Question, Stage};
use forebay_query::plan::{Aggregate, Plan, ScalarOp};
use forebay_query::testing::{PlainArray, answer};
use forebay_query::value::{Number, Scalar};
use forebay_query::{Purpose, Schema, Syntax, check};
use proptest::prelude::*;

/// The bytes of numbers, as elements of a dtype.
fn bytes_of(numbers: &[Number], dtype: Dtype) -> Vec<u8> {
    let integer = |number: &Number| if let Number::Integer(number) = number { *number } else { 0 };
    let one = |number: &Number| match dtype {
        Dtype::F64 => number.to_f64().to_le_bytes().to_vec(),
        Dtype::F32 => (number.to_f64() as f32).to_le_bytes().to_vec(),
        Dtype::I64 => (integer(number) as i64).to_le_bytes().to_vec(),
        Dtype::U64 => (integer(number) as u64).to_le_bytes().to_vec(),
        Dtype::I32 => (integer(number) as i32).to_le_bytes().to_vec(),
        Dtype::U16 => (integer(number) as u16).to_le_bytes().to_vec(),
        Dtype::Bool => vec![u8::from(integer(number) != 0)],
        other => panic!("{other}"),
    };
    numbers.iter().flat_map(one).collect()
}

/// The part of a whole array that a block stores, ghosts included where the array goes on.
fn stored(array: &PlainArray, region: &Region, ghosts: u64) -> (Vec<u8>, [i64; MAX_NDIM], Dims) {
    let shape = array.field.shape.clone().unwrap();
    let mut origin = [0; MAX_NDIM];
    let mut extents = Dims::new();
    for d in 0..shape.len() {
        let low = region.offset()[d].saturating_sub(ghosts);
        origin[d] = low as i64;
        extents.push((region.end(d) + ghosts).min(shape[d]) - low);
    }
    let count = extents.iter().product::<u64>();
    let numbers = (0..count).map(|flat| {
        let (mut left, mut place, mut stride) = (flat, 0, 1);
        for d in (0..shape.len()).rev() {
            place += (origin[d] as u64 + left % extents[d]) * stride;
            left /= extents[d];
            stride *= shape[d];
        }
        array.values[place as usize]
    });
    (bytes_of(&numbers.collect::<Vec<_>>(), array.field.dtype), origin, extents)
}

const SHAPE: [u64; 3] = [5, 6, 7];

fn arrays(seed: u64) -> Vec<PlainArray> {
    let count = SHAPE.iter().product::<u64>();
    let random = move |name: u64, i: u64| {
        let mut bits = (seed ^ (i << 8) ^ name).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        bits ^= bits >> 29;
        bits.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 11
    };
    let double = move |name: u64, i: u64| match random(name + 90, i) % 23 {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => 0.0,
        3 => 1e30,
        _ => random(name, i) as f64 / 1e12 - 4000.0,
    };
    let of = |name: &str, dtype, number: &dyn Fn(u64) -> Number| {
        let mut field = Field::new(name, dtype, Some(&SHAPE), 3);
        (field.dims, field.spacing) = (["z", "y", "x"].map(String::from).to_vec(), vec![0.5, 1.0, 2.0]);
        field.association = if name == "V" { Association::Vertex } else { Association::Cell };
        PlainArray::new(field, (0..count).map(number).collect())
    };
    let integer = |number: i128| Number::Integer(number);
    vec![
        of("U", Dtype::F64, &|i| Number::F64(double(1, i))),
        of("V", Dtype::F64, &|i| Number::F64(double(2, i))),
        of("T", Dtype::F32, &|i| Number::F32(double(3, i) as f32)),
        of("I", Dtype::I32, &|i| integer(i128::from(random(4, i) as i32) >> 12)),
        of("W", Dtype::U16, &|i| integer((random(5, i) as u16 % 50).into())),
        of("L", Dtype::I64, &|i| integer((random(6, i) as i64).into())),
        of("N", Dtype::U64, &|i| integer((random(7, i) << 3).into())),
        of("S", Dtype::Bool, &|i| integer((random(8, i) % 2).into())),
    ]
}

/// Texts whose aggregates are all gathered in one round, but for their stages.
const TEXTS: &[&str] = &[
    "max(U) + min(U, where=V > 0) + argmax(T).x + sum(I) + norm(V) + count(U > 0.5 or S) + size(U, where=not S)",
    "any(isnan(U)) and all(U > 0 or V > 0 or T > 0) or any(U == 1e30)",
    "sum(U * 0.1 + V) + mean(sqrt(abs(T))) + var(T * T, where=isfinite(T)) + std(I / 7)",
    "max(where(U > V, U, V)) + min(clip(T, -5, 5)) + max(minimum(U, V)) + min(maximum(T, 0))",
    "max(I * W) + min(I // (W + 1)) + max(I % 7) + sum(abs(I)) + max(I ** 2) + min(-I) + max(bitwise_and(W, 6))",
    "max(L // 3) + min(L) + sum(N) + max(minimum(N, N)) + count(N > 9223372036854775808) + max(N // 1024)",
    "count(L > 9223372036854775808) + count(N > -1) + count(I == 2.5) + count(W >= 25) + sum(L)",
    "max(L * L) + count(N + N > 3)",
    "max(exp(U / 1000)) + min(sin(V)) + max(atan2(U, V)) + max(hypot(U, T)) + min(floor(U)) + max(sign(V) + round(T))",
    "max(gradient(V, x)) + min(gradient_magnitude(T)) + max(laplacian(V)) + sum(divergence(z=U, y=V, x=V), where=S)",
    "max(curl_magnitude(z=V, y=V, x=V)) + max(gradient(I, z))",
    "percentile(U, 50) + percentile(I, 10) + percentile(N, 99) + percentile(T, 3) + percentile_approx(V, 50) + entropy(U, bins=7)",
    "integral(V) + integral(U) + integral(V[1, 1:4, ::2])",
    "max(U[1:4, ::2, -1]) + sum(V[1:4, 1:, 3], where=T[1:4, 1:, 3] > 0) + argmin(I[2]).y + count(S[..., ::3])",
];

fn plan_of(text: &str, arrays: &[PlainArray]) -> Plan {
    let schema = Schema::new(Some("s")).with("s", arrays.iter().map(|array| array.field.clone()).collect());
    check(&Syntax::parse(text).unwrap(), &schema, Purpose::Once)
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Compares the answers to a question, of a block with so many ghosts.
fn compare(
    plan: &Plan,
    question: &Question,
    of_plan: &[PlainArray],
    region: &Region,
    ghosts: u64,
    text: &str,
) {
    let aggregate: &Aggregate = &plan.aggregates[usize::from(question.aggregate)];
    let selection = plan.domains[aggregate.domain].selection(&of_plan[0].field).unwrap().unwrap();
    let plain = answer(plan, question, of_plan, &selection, region);
    let Some(part) = selection.cut_to(region) else {
        assert_eq!(plain.elements, 0);
        return;
    };
    let memory: Vec<_> = of_plan.iter().map(|array| stored(array, region, ghosts)).collect();
    let held = of_plan.iter().zip(&memory).map(|(array, (bytes, origin, shape))| {
        Some(FieldArray { bytes, dtype: array.field.dtype, origin: *origin, shape: shape.clone() })
    });
    let window = Window {
        part,
        all: selection,
        shape: SHAPE.as_slice().into(),
        arrays: held.collect(),
        level: 0,
        block: None,
    };
    let found = gather(aggregate, question, &window).unwrap();
    let mut buffers = Buffers::default();
    if let Some(dense) = buffers.dense(&window, &[&aggregate.program]) {
        assert_eq!(gather(aggregate, question, &dense).unwrap(), found, "{text}: copied side by side");
    }
    match (&found.partial, &plain.partial) {
        (Err(found), Err(plain)) => assert_eq!(found.kind, plain.kind, "{text}"),
        (Ok(Partial::Squares(a)), Ok(Partial::Squares(b))) => check_near(a.to_f64(), b.to_f64(), text),
        (Ok(Partial::Moments(a)), Ok(Partial::Moments(b))) => {
            assert_eq!((&a.total, a.count), (&b.total, b.count), "{text}: {question:?} of {region}");
            check_near(a.squares().unwrap_or(f64::NAN), b.squares().unwrap_or(f64::NAN), text);
        }
        _ => assert_eq!(found, plain, "{text}: {question:?} of {region}"),
    }
}

fn check_near(a: f64, b: f64, text: &str) {
    let is_near = (a - b).abs() <= 1e-12 * b.abs() || (!a.is_finite() && !b.is_finite());
    assert!(is_near, "{text}: {a} and not {b}");
}

fn inputs(plan: &Plan, aggregate: &Aggregate) -> Vec<Scalar> {
    let input = |id: &usize| match &plan.scalars[*id] {
        ScalarOp::Constant(scalar) => scalar.clone(),
        // Distances, and what is made of them.
        _ => Scalar::Number(Number::F64(0.75)),
    };
    aggregate.program.inputs.iter().map(input).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn answers_are_those_of_plain_code(
        seed in any::<u64>(),
        (z, y, x) in (0u64..5, 0u64..6, 0u64..7),
        (dz, dy, dx) in (1u64..6, 1u64..7, 1u64..8),
        ghosts in 2u64..4,
    ) {
        let arrays = arrays(seed);
        let extent = |at: u64, by: u64, n: u64| by.min(n - at);
        let region = Region::new(&[z, y, x], &[extent(z, dz, 5), extent(y, dy, 6), extent(x, dx, 7)]).unwrap();
        for text in TEXTS {
            let plan = plan_of(text, &arrays);
            let of = |name: &str| arrays.iter().find(|array| array.field.name == name).unwrap().clone();
            let of_plan: Vec<_> = plan.fields.iter().map(|planned| of(&planned.field.name)).collect();
            for (index, aggregate) in plan.aggregates.iter().enumerate() {
                use forebay_query::plan::Measure;
                let stages = match aggregate.measure {
                    Measure::Moments => vec![Stage::First, Stage::Squares(12.5)],
                    Measure::Percentile(_) => {
                        let low = 0x4000 << 48;
                        vec![Stage::First, Stage::Keys { low, shift: 50 }, Stage::Values { low, high: low | 0xffff << 44 }]
                    }
                    Measure::Histogram(_) => vec![Stage::First, Stage::Bins { low: -4000.0, high: 1e30 }],
                    _ => vec![Stage::First],
                };
                for stage in stages {
                    let question = Question { aggregate: index as u16, stage, inputs: inputs(&plan, aggregate) };
                    compare(&plan, &question, &of_plan, &region, ghosts, text);
                }
            }
        }
    }
}

#[test]
fn what_lacks_is_an_error() {
    let arrays = arrays(1);
    let plan = plan_of("max(gradient(V, x))", &arrays);
    let region = Region::new(&[1, 1, 1], &[2, 2, 2]).unwrap();
    let (bytes, origin, shape) = stored(&arrays[1], &region, 0);
    let array = FieldArray { bytes: &bytes, dtype: Dtype::F64, origin, shape };
    let window = Window {
        part: Selection::region(&region),
        all: Selection::region(&Region::whole(&SHAPE).unwrap()),
        shape: SHAPE.as_slice().into(),
        arrays: vec![Some(array)],
        level: 0,
        block: None,
    };
    let question = Question { aggregate: 0, stage: Stage::First, inputs: inputs(&plan, &plan.aggregates[0]) };
    let error = gather(&plan.aggregates[0], &question, &window).unwrap_err();
    assert!(error.text.contains("lacks elements of a window"), "a neighbour: {error}");
    let none = Window { arrays: vec![None], ..window.clone() };
    assert!(gather(&plan.aggregates[0], &question, &none).is_err());
    let short = Question { inputs: Vec::new(), ..question.clone() };
    let plain = plan_of("count(V > 1)", &arrays);
    assert!(gather(&plain.aggregates[0], &short, &window).is_err(), "a scalar");
    let unfit =
        Question { stage: Stage::Squares(1.0), inputs: vec![Scalar::Number(Number::F64(1.0))], ..question };
    assert!(gather(&plain.aggregates[0], &unfit, &window).is_err(), "a stage of another measure");
}
