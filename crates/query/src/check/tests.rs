//! Of which types texts are, and what does not fit.

use super::{Purpose, check};
use crate::plan::{Lane, Measure, Op, Plan, Property, ScalarOp, Shift, TimeFunction, Weights};
use crate::schema::Schema;
use crate::syntax::Syntax;
use crate::value::{Number, Scalar};
use forebay_core::contract::{Association, Field};
use forebay_core::dtype::Dtype;
use forebay_core::{ErrorKind, Result};
use proptest::prelude::*;

fn field(name: &str, dtype: Dtype, shape: &[u64]) -> Field {
    let mut field = Field::new(name, dtype, Some(shape), shape.len());
    field.dims = ["z", "y", "x"][3 - shape.len()..].iter().map(|dim| dim.to_string()).collect();
    field
}

fn schema() -> Schema {
    let cube = [64, 64, 64];
    let mut rho = field("rho", Dtype::F64, &cube);
    rho.spacing = vec![0.5; 3];
    let mut nodes = field("nodes", Dtype::F64, &cube);
    (nodes.spacing, nodes.association) = (vec![0.5; 3], Association::Vertex);
    let mut periodic = field("phi", Dtype::F32, &cube);
    periodic.periodic = vec![true, false, false];
    let own = vec![
        field("U", Dtype::F64, &cube),
        field("V", Dtype::F64, &cube),
        field("T", Dtype::F32, &cube),
        field("flags", Dtype::I32, &cube),
        field("ids", Dtype::U64, &cube),
        field("solid", Dtype::Bool, &cube),
        field("psi", Dtype::C128, &cube),
        field("plane", Dtype::F64, &[64, 32]),
        field("thin", Dtype::F64, &[1, 64]),
        field("scalar", Dtype::F64, &[]),
        Field::new("px", Dtype::F64, None, 1),
        rho,
        nodes,
        periodic,
    ];
    Schema::new(Some("fluid")).with("fluid", own).with("solid", vec![field("T", Dtype::F64, &[64, 64, 64])])
}

fn planned(text: &str, purpose: Purpose) -> Result<Plan> {
    check(&Syntax::parse(text)?, &schema(), purpose)
}

fn once(text: &str) -> Plan {
    planned(text, Purpose::Once).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn watch(text: &str) -> Plan {
    planned(text, Purpose::Watch).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// The kind, and the first line.
fn refused(text: &str, purpose: Purpose) -> (ErrorKind, String) {
    let error = planned(text, purpose).expect_err(text);
    (error.kind, error.text.lines().next().unwrap_or_default().to_owned())
}

#[test]
fn the_ten_questions_but_for_features() {
    for text in [
        "max(U[10:40, :, 8:24]) > 9 for 3 steps",
        "any(isnan(U) or isinf(U))",
        "m = sum(rho); abs(m - first(m)) > 1e-6 * abs(first(m))",
        "percentile(gradient_magnitude(U), 99) > 0.2",
        "e = entropy(U, bins=256); delta(e) <= 0",
        "count(sqrt(U**2 + V**2 + rho**2) > 3) / size(U) > 0.01",
        "max(T) > 1500 for 3 steps until max(T) < 1400 for 0.5 time",
        "abs(mean(fluid.T[x=0]) - mean(solid.T[x=-1])) > 1",
    ] {
        watch(text);
    }
    let place = once("argmax(U).z");
    assert_eq!(place.scalars[place.value], ScalarOp::Aggregate(0, Property::Index(0)));
}

/// Texts, the kind of what is wrong with them, and how the error begins.
const REFUSED: &[(&str, ErrorKind, &str)] = &[
    ("max(Uu) > 1", ErrorKind::NotFound, "column 5: stream 'fluid' has no field 'Uu'; it has U, V,"),
    ("max(Vorticity) > 1", ErrorKind::NotFound, "column 5: stream 'fluid' has no field 'Vorticity'"),
    (
        "max(fluidd.U) > 1",
        ErrorKind::NotFound,
        "column 5: stream 'fluidd' is another one than stream 'fluid', stream 'solid', and an expression that is evaluated once has \
         fields of one. Did you mean 'fluid'?",
    ),
    ("1 + maxx(U) > 1", ErrorKind::NotFound, "column 5: there is no function 'maxx'. Did you mean 'max'?"),
    (
        "arctan2(1, 2) > 1",
        ErrorKind::NotFound,
        "column 1: there is no function 'arctan2'. Did you mean 'atan2'?",
    ),
    (
        "U > 1",
        ErrorKind::TypeMismatch,
        "column 1: this is a condition for each element: say any(...) or all(...)",
    ),
    ("max(U)", ErrorKind::TypeMismatch, "column 1: what is watched is a condition; this is a number"),
    (
        "count(U) > 1",
        ErrorKind::TypeMismatch,
        "column 7: count() counts where a condition holds, as count(U > 1); size(U)",
    ),
    (
        "any(U)",
        ErrorKind::TypeMismatch,
        "column 5: any() is of a condition, as any(U > 1); this is a field of numbers",
    ),
    (
        "any(max(U) > 1)",
        ErrorKind::TypeMismatch,
        "column 5: any() is of a condition for each element; this one is the same for all",
    ),
    (
        "max(U > 1) > 0",
        ErrorKind::TypeMismatch,
        "column 5: max() takes numbers, and this is a condition: say count(...)",
    ),
    ("max(3) > 1", ErrorKind::TypeMismatch, "column 5: max() is of a field; this is a number"),
    (
        "any(U > 1 & V < 2)",
        ErrorKind::TypeMismatch,
        "column 9: 'and' takes conditions; this is a number: compare it, or put parentheses",
    ),
    ("any(not U)", ErrorKind::TypeMismatch, "column 9: 'not' takes conditions; this is a field"),
    (
        "any((U > 1) + 1 > 2)",
        ErrorKind::TypeMismatch,
        "column 5: '+' takes numbers; this is a condition for each element",
    ),
    (
        "any(U[0:32] + V > 1)",
        ErrorKind::TypeMismatch,
        "column 5: these elements do not lie at the same places: they are different regions",
    ),
    (
        "any(T + solid.T > 1)",
        ErrorKind::TypeMismatch,
        "column 5: these elements do not lie at the same places: one is of stream 'fluid'",
    ),
    (
        "any(U + plane > 1)",
        ErrorKind::TypeMismatch,
        "column 5: these elements do not lie at the same places: one has the shape [64, 64, 64]",
    ),
    (
        "any(U@1 > U)",
        ErrorKind::TypeMismatch,
        "column 5: these elements do not lie at the same places: they are of different",
    ),
    (
        "max(U, where=V[0:3] > 1) > 1",
        ErrorKind::TypeMismatch,
        "column 14: these elements do not lie at the same places",
    ),
    ("max(psi) > 1", ErrorKind::TypeMismatch, "column 5: complex numbers have no order: take abs(...)"),
    ("any(bitwise_and(U, 1) > 0)", ErrorKind::TypeMismatch, "column 5: bitwise_and() takes integers"),
    (
        "max(U[0:65]) > 1",
        ErrorKind::OutOfBounds,
        "column 5: field 'U': 65 in dimension 0 lies outside the shape [64, 64, 64]",
    ),
    ("max(U[64]) > 1", ErrorKind::OutOfBounds, "column 5: field 'U': 64 in dimension 0 lies outside"),
    (
        "max(U[3:3]) > 1",
        ErrorKind::OutOfBounds,
        "column 5: field 'U': the region has no elements in dimension 0",
    ),
    ("max(U[0, 0, 0, 0]) > 1", ErrorKind::OutOfBounds, "column 5: the region has 4 dimensions, field 'U' 3"),
    ("max(U[x=0, 0, 0, 0]) > 1", ErrorKind::Invalid, "column 5: dimension x is named twice"),
    ("max(U[w=0]) > 1", ErrorKind::NotFound, "column 5: field 'U' has no dimension 'w'; it has z, y, x"),
    ("max(px[0:3]) > 1", ErrorKind::Invalid, "column 5: field 'px' has no global shape"),
    ("max(gradient(px, x)) > 1", ErrorKind::Invalid, "column 14: gradient(): blocks without a place"),
    ("max(gradient(U, w)) > 1", ErrorKind::NotFound, "column 17: field 'U' has no dimension 'w'"),
    ("max(gradient(U, 1)) > 1", ErrorKind::TypeMismatch, "column 17: this is to be the name of a dimension"),
    (
        "max(gradient(thin, x)) > 1",
        ErrorKind::Invalid,
        "column 14: gradient() needs two elements in each dimension",
    ),
    (
        "max(gradient(gradient(U, x), x)) > 1",
        ErrorKind::Unsupported,
        "column 14: a function of neighbours of a function",
    ),
    (
        "max(curl_magnitude(U, V, rho)) > 1",
        ErrorKind::Invalid,
        "column 5: curl_magnitude() takes its fields by the names of dimensions",
    ),
    (
        "max(divergence(x=U)) > 1",
        ErrorKind::Invalid,
        "column 5: divergence() takes two or three fields; these are 1",
    ),
    ("sum(U@*) > 1", ErrorKind::Unsupported, "column 1: sum() of all levels would count twice"),
    ("components(U > 1).count > 1", ErrorKind::Unsupported, "column 1: components() is not built yet"),
    (
        "integral(U) > 1",
        ErrorKind::Invalid,
        "column 1: integral() needs the distance of elements: declare field 'U' with spacing=",
    ),
    ("percentile(U, 101) > 1", ErrorKind::Invalid, "column 15: a percentage is a number from 0 to 100"),
    ("percentile(U, max(V)) > 1", ErrorKind::Invalid, "column 15: a percentage is a number from 0 to 100"),
    ("percentile(U) > 1", ErrorKind::Invalid, "column 1: percentile() lacks q; it takes (x, q, where)"),
    (
        "entropy(U, bins=0) > 1",
        ErrorKind::Invalid,
        "column 17: the number of bins is an integer from 1 to 65536",
    ),
    (
        "max(U, 3, 4, 5) > 1",
        ErrorKind::Invalid,
        "column 1: max() takes 2 arguments at most, (x, where); these are 4",
    ),
    ("max(U, when=3) > 1", ErrorKind::Invalid, "column 1: max() has no argument when=; it takes (x, where)"),
    ("max(U, x=V) > 1", ErrorKind::Invalid, "column 1: max() is given x twice"),
    ("max(where=U > 1, U) > 1", ErrorKind::Invalid, "column 1: max(): arguments without a name stand first"),
    (
        "previous(U) > 1",
        ErrorKind::TypeMismatch,
        "column 10: previous() takes a number or a condition; this is a field",
    ),
    ("rising(max(U))", ErrorKind::TypeMismatch, "column 8: rising() takes a condition; this is a number"),
    (
        "held(max(U) > 1, 0)",
        ErrorKind::Invalid,
        "column 18: the number of evaluations is an integer from 1 to 4096",
    ),
    ("max(U).min > 1", ErrorKind::NotFound, "column 1: this aggregate has no attribute 'min'; it has nan"),
    ("argmax(U).w > 1", ErrorKind::NotFound, "column 1: field 'U' has no dimension 'w'"),
    (
        "argmax(px).x > 1",
        ErrorKind::NotFound,
        "column 1: a place in a block has no attribute 'x'; it has rank, block",
    ),
    (
        "argmax(U) > 1",
        ErrorKind::TypeMismatch,
        "column 1: a comparison takes numbers; this is a place: take one of its dimensions",
    ),
    ("step(1) > 1", ErrorKind::Invalid, "column 1: step() takes 0 arguments at most, (); these are 1"),
    ("1 // 0 > 1", ErrorKind::Invalid, "column 1: an integer is beyond 128 bits, or was divided by 0"),
    (
        "any(flags + 9223372036854775808 > 1)",
        ErrorKind::Invalid,
        "column 5: integers are computed in 64 bits, and 9223372036854775808 has more",
    ),
];

#[test]
fn what_does_not_fit_is_said_where_it_stands() {
    for (text, kind, expected) in REFUSED {
        let (found, line) = refused(text, Purpose::Watch);
        assert!(found == *kind && line.starts_with(expected), "{text}: {found:?} {line}");
    }
    for (text, expected) in [
        ("max(U) > 1 for 3 steps", "column 1: 'for' and 'until' look at several steps"),
        ("delta(max(U))", "column 1: delta() looks at steps before"),
        ("U * 2", "column 1: this has a value for each element: say which aggregate"),
        ("argmax(U).at", "column 1: a coordinate of which dimension?"),
    ] {
        let (_, line) = refused(text, Purpose::Once);
        assert!(line.starts_with(expected), "{text}: {line}");
    }
}

/// The lane of what an aggregate is of.
fn lane(plan: &Plan, aggregate: usize) -> Lane {
    let program = &plan.aggregates[aggregate].program;
    program.instructions[program.value.or(program.mask).unwrap().index()].lane
}

#[test]
fn kinds_are_those_of_numpy_but_that_integers_have_64_bits() {
    for (text, expected) in [
        ("max(T * 2)", Lane::F32),
        ("max(T * 0.1)", Lane::F32),
        ("max(T + U)", Lane::F64),
        ("max(T * mean(U))", Lane::F64),
        ("max(T * max(T))", Lane::F32),
        ("max(sqrt(T))", Lane::F32),
        ("max(flags + 1)", Lane::I64),
        ("max(flags + 1.0)", Lane::F64),
        ("max(flags / 2)", Lane::F64),
        ("max(T / flags)", Lane::F64),
        ("max(flags ** 2)", Lane::I64),
        ("max(flags ** -2)", Lane::F64),
        ("max(flags ** flags)", Lane::F64),
        ("max(sqrt(flags))", Lane::F64),
        ("max(ids)", Lane::U64),
        ("max(ids + 1)", Lane::I64),
        ("max(minimum(ids, ids))", Lane::U64),
        ("max(abs(psi))", Lane::F64),
        ("max(real(T))", Lane::F32),
        ("max(where(solid, T, 0))", Lane::F32),
        ("max(bitwise_and(flags, 3))", Lane::I64),
        ("max(round(flags))", Lane::I64),
        ("max(gradient(T, x))", Lane::F32),
        ("max(gradient(flags, x))", Lane::F64),
    ] {
        let plan = once(text);
        assert_eq!(lane(&plan, plan.aggregates.len() - 1), expected, "{text}");
    }
}

#[test]
fn written_numbers_take_the_type_of_what_they_meet() {
    let constants = |text: &str| {
        let plan = watch(text);
        let inputs = plan.aggregates.iter().flat_map(|aggregate| aggregate.program.inputs.clone());
        let constants = inputs.filter_map(|id| match &plan.scalars[id] {
            ScalarOp::Constant(Scalar::Number(number)) => Some(*number),
            _ => None,
        });
        constants.collect::<Vec<_>>()
    };
    assert_eq!(constants("any(T > 0.1)"), [Number::F32(0.1)]);
    assert_eq!(constants("any(0.1 < U)"), [Number::F64(0.1)]);
    // An integer that no element can be is compared with exactly.
    assert_eq!(constants("any(ids > 18446744073709551616)"), [Number::Integer(1 << 64)]);
    let plan = watch("max(T) > 0.1");
    let ScalarOp::Compare(_, _, constant) = plan.scalars[plan.value] else { panic!("no comparison") };
    assert_eq!(plan.scalars[constant], ScalarOp::Constant(Scalar::Number(Number::F32(0.1))));
    let folded = once("(2 + 3) * 4 ** 2 // 3");
    assert_eq!(folded.scalars[folded.value], ScalarOp::Constant(Scalar::Number(Number::Integer(26))));
}

#[test]
fn what_is_the_same_is_computed_once() {
    let plan =
        watch("max(U) > 1 and max( U ) < 3 and argmax(U).x > 2 and mean(U) > sum(U) and std(U) > var(U)");
    let measures: Vec<_> = plan.aggregates.iter().map(|aggregate| aggregate.measure).collect();
    assert_eq!(measures, [Measure::Max, Measure::Sum(Weights::None), Measure::Moments]);
    let labels: Vec<_> = plan.reported.iter().map(|reported| &reported.label[..]).collect();
    assert_eq!(labels, ["max(U)", "argmax(U)", "mean(U)", "sum(U)", "std(U)", "var(U)"]);
    let bound = watch("top = max(U); k = 3; top > k and max(U) < 9");
    let labels: Vec<_> = bound.reported.iter().map(|reported| &reported.label[..]).collect();
    assert_eq!(labels, ["top", "k"], "a binding's name takes the place of its text");
}

#[test]
fn differences_are_one_sided_at_the_ends_of_what_is_not_periodic() {
    let zones = |text: &str| once(text).aggregates[0].program.zoned_dims();
    assert_eq!(zones("max(gradient(U, y))"), [1]);
    assert_eq!(zones("max(gradient(phi, z))"), []);
    assert_eq!(zones("max(gradient_magnitude(phi))"), [1, 2]);
    assert_eq!(zones("max(curl_magnitude(x=U, y=V, z=rho))"), [0, 1, 2]);
    assert_eq!(zones("max(laplacian(phi))"), [1, 2]);
    let plan = once("max(gradient(U * V, x))");
    let program = plan.aggregates[0].program.in_zones(&[crate::plan::Zone::Middle; 3]);
    let shifts = program.instructions.iter().filter_map(|instruction| match instruction.op {
        Op::Load { shift, .. } => shift,
        _ => None,
    });
    let shifts: Vec<_> = shifts.collect();
    assert_eq!(shifts.len(), 4);
    assert!(shifts.contains(&Shift { dim: 2, by: 1 }) && shifts.contains(&Shift { dim: 2, by: -1 }));
}

#[test]
fn time_and_regions() {
    let many: Vec<_> = (0..17).map(|i| format!("held(max(U) > {i}, 4096)")).collect();
    let (_, line) = refused(&many.join(" and "), Purpose::Watch);
    assert!(line.contains("look back over more than 65536 evaluations together"), "{line}");
    let plan = watch("previous(max(U), k=3) > 1 and held(any(T > 1), 5) and latch(max(U) > 1, max(U) < 0)");
    let temporals: Vec<_> =
        plan.temporals().map(|(_, temporal)| (temporal.function, temporal.window)).collect();
    assert_eq!(temporals, [(TimeFunction::Previous, 4), (TimeFunction::Held, 5), (TimeFunction::Latch, 1)]);
    assert!(plan.looks_back() && !once("max(U)").looks_back());
    let selection = |text: &str| {
        let plan = once(text);
        let selection = plan.domains[0].selection(&plan.fields[0].field).unwrap().unwrap();
        (selection.offset.to_vec(), selection.shape.to_vec(), selection.step.to_vec())
    };
    assert_eq!(selection("max(U[x=3, z=10:20:2])"), (vec![10, 0, 3], vec![5, 64, 1], vec![2, 1, 1]));
    assert_eq!(selection("max(U[..., -1])"), (vec![0, 0, 63], vec![64, 64, 1], vec![1, 1, 1]));
    assert_eq!(selection("max(rho[z=1.0..2.0])"), (vec![2, 0, 0], vec![3, 64, 64], vec![1, 1, 1]));
    let scalar = once("max(scalar)");
    assert_eq!(scalar.domains[0].selection(&scalar.fields[0].field).unwrap().unwrap().volume(), 1);
    let integral = once("integral(nodes[x=0])");
    assert_eq!(integral.aggregates[0].measure, Measure::Sum(Weights::Trapezoid));
    let spacings = integral.scalars.iter().filter(|op| matches!(op, ScalarOp::Spacing(..))).count();
    assert_eq!(spacings, 2, "of the two dimensions that are left");
}

proptest! {
    /// What is read is planned, or refused where it stands: for watching, and for once.
    #[test]
    fn any_words_are_planned_or_refused(
        words in prop::collection::vec(prop::sample::select(vec![
            "U", "T", "flags", "ids", "solid", "psi", "plane", "scalar", "px", "rho", "solid.T", "U[0:4]", "T[x=3]", "nodes[1.5..2.5]", "U@*",
            "max(", "sum(", "mean(", "count(", "any(", "percentile(", "argmax(", "integral(", "gradient_magnitude(", "sqrt(", "where(",
            "previous(", "delta(", "rate(", "first(", "held(", "latch(", "covered(", "size(", ")", ")", ")", ",", "where=", "bins=", ".z",
            "+", "-", "*", "/", "//", "%", "**", "<", ">=", "==", "and", "or", "not", "&", "|", "~", "3", "0.5", "-1", "1e400", "99", "nan",
            "true", "for 3 steps", "for 0.5 time", "until", "m = ", ";", "m",
        ]), 0..16),
    ) {
        let text = words.join(" ");
        for purpose in [Purpose::Watch, Purpose::Once] {
            if let Err(error) = planned(&text, purpose) {
                prop_assert!(error.text.contains("column ") && error.text.lines().count() >= 2, "{text}: {}", error.text);
            }
        }
    }
}
