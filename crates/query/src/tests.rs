//! Whole evaluations, against what NumPy says, and what holds whatever the numbers.

use crate::interval::{Interval, Registers, Truth, bounds};
use crate::testing::{PlainArray, evaluate};
use crate::time::{Episode, Moment, Outcome, Turn, WatchState};
use crate::value::{Number, Scalar, UnknownKind};
use crate::{Evaluation, Plan, Purpose, Schema, StepFacts, Syntax, check};
use forebay_core::contract::Field;
use forebay_core::dtype::Dtype;
use forebay_core::region::Region;
use proptest::prelude::*;
use std::sync::Arc;

const SHAPE: [u64; 3] = [6, 7, 8];

fn field(name: &str, dtype: Dtype, shape: &[u64]) -> Field {
    let mut field = Field::new(name, dtype, Some(shape), shape.len());
    field.dims = ["z", "y", "x"][3 - shape.len()..].iter().map(|dim| dim.to_string()).collect();
    field.spacing = vec![0.25; shape.len()];
    field
}

/// The arrays of which NumPy computed what stands below.
fn arrays() -> Vec<PlainArray> {
    let count = SHAPE.iter().product::<u64>();
    let value = |i: u64| (i * 2_654_435_761) % 100_003;
    let double = |i: u64| value(i) as f64 / 7.0 - 5000.0;
    let of = |name, dtype, number: &dyn Fn(u64) -> Number| {
        PlainArray::new(field(name, dtype, &SHAPE), (0..count).map(number).collect())
    };
    vec![
        of("U", Dtype::F64, &|i| Number::F64(double(i))),
        of("T", Dtype::F32, &|i| Number::F32(double(i) as f32)),
        of("K", Dtype::I32, &|i| Number::Integer(i128::from(value(i) % 1000) - 500)),
    ]
}

fn plan_of(text: &str, arrays: &[PlainArray], purpose: Purpose) -> Arc<Plan> {
    let schema = Schema::new(Some("s")).with("s", arrays.iter().map(|array| array.field.clone()).collect());
    let syntax = Syntax::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
    Arc::new(check(&syntax, &schema, purpose).unwrap_or_else(|error| panic!("{text}: {error}")))
}

/// The arrays of a plan, in its order.
fn of_plan(plan: &Plan, arrays: &[PlainArray]) -> Vec<PlainArray> {
    let of = |name: &str| arrays.iter().find(|array| array.field.name == name).unwrap().clone();
    plan.fields.iter().map(|planned| of(&planned.field.name)).collect()
}

fn facts(plan: &Plan, step: u64) -> StepFacts {
    let fields = plan.fields.iter().map(|planned| Ok(planned.field.clone())).collect();
    StepFacts { moment: Moment { step, time: step as f64 * 0.5 }, fields }
}

fn once(text: &str, arrays: &[PlainArray], blocks: &[Region]) -> Evaluation {
    let plan = plan_of(text, arrays, Purpose::Once);
    let evaluation = evaluate(&plan, facts(&plan, 3), &of_plan(&plan, arrays), blocks, None);
    assert!(evaluation.is_done(), "{text}");
    evaluation
}

/// The array in blocks: all of it, or cut in two in some dimensions.
fn divisions(shape: &[u64]) -> Vec<Vec<Region>> {
    let whole = Region::whole(shape).unwrap();
    let cut = |regions: &[Region], d: usize, at: u64| {
        let parts = regions.iter().flat_map(|region| {
            if region.shape()[d] <= at {
                return vec![region.clone()];
            }
            let (mut low, mut high) = (region.shape().to_vec(), region.shape().to_vec());
            let mut offset = region.offset().to_vec();
            (low[d], high[d]) = (at, region.shape()[d] - at);
            let first = Region::new(&offset, &low).unwrap();
            offset[d] += at;
            vec![first, Region::new(&offset, &high).unwrap()]
        });
        parts.collect::<Vec<_>>()
    };
    let one = vec![whole];
    let two = cut(&one, 0, 1);
    let many = cut(&cut(&two, shape.len() - 1, 1), shape.len() / 2, 1);
    let mut backwards = many.clone();
    backwards.reverse();
    vec![one, two, many, backwards]
}

/// What NumPy 2.4 gives.
const NUMPY: &[(&str, f64)] = &[
    ("min(U)", -5000.0),
    ("max(T)", 9232.857421875),
    ("sum(K)", -1309.0),
    ("mean(U)", 2106.5863095238096),
    ("var(U)", 17102648.966190122),
    ("std(T)", 4135.534905711949),
    ("norm(U)", 85073.84573500164),
    ("count(U > 0.5)", 218.0),
    ("count(T > 0.1)", 218.0),
    ("percentile(U, 99)", 9104.064285714285),
    ("percentile(T, 12.5)", -3255.089111328125),
    ("percentile(K, 50)", -3.5),
    ("percentile(U, 0)", -5000.0),
    ("percentile(U, 100)", 9232.857142857143),
    ("max(gradient(U, y))", 28025.142857142862),
    ("sum(U[1:5, ::2, -1])", 30366.85714285715),
    ("max(gradient_magnitude(U))", 54098.82030023901),
    ("percentile(gradient_magnitude(U), 90)", 43490.72473950448),
    ("min(U // 7 + U % 3)", -714.0),
    ("max(K // -7 * 2)", 142.0),
    ("count(U > mean(U))", 168.0),
    ("argmin(U).x", 0.0),
    ("sum(where(K > 0, K, -1))", 41116.0),
    ("max(clip(U, -10, 10.5))", 10.5),
    ("entropy(U, bins=32)", 3.4625964087228294),
    ("max(abs(K) ** 2)", 250000.0),
    ("min(round(U / 3))", -1667.0),
    ("max(T * 0.1 + T)", 10156.1435546875),
    ("mean(U, where=U > 100)", 4685.760132890366),
    ("max(laplacian(U[2, 3, 4]))", -685734.8571428573),
    ("size(U[0:2])", 112.0),
    ("size(U, where=K > 0)", 167.0),
    ("integral(U)", 2106.5863095238096 * 336.0 / 64.0),
    ("argmin(U).at.z", 0.0),
];

#[test]
fn values_are_those_of_numpy_however_the_array_is_divided() {
    let arrays = arrays();
    for (text, expected) in NUMPY {
        let mut values = Vec::new();
        for blocks in divisions(&SHAPE) {
            let Scalar::Number(value) = once(text, &arrays, &blocks).value() else { panic!("{text}") };
            values.push(value.to_f64());
        }
        assert!(values.iter().all(|value| value.to_bits() == values[0].to_bits()), "{text}: {values:?}");
        // Sums of NumPy are rounded at each addition.
        let is_exact = !["mean", "var", "std", "norm", "entropy", "sum(U", "integral"]
            .iter()
            .any(|sum| text.starts_with(sum));
        let most = if is_exact { 0.0 } else { 4.0 * f64::EPSILON * expected.abs() };
        assert!((values[0] - expected).abs() <= most, "{text}: {} and not {expected}", values[0]);
    }
}

#[test]
fn nan_is_left_out_and_counted_and_infinities_are_values() {
    let numbers = [1.0, f64::NAN, f64::NEG_INFINITY, 4.0, f64::NAN];
    let arrays = [PlainArray::new(field("U", Dtype::F64, &[5]), numbers.map(Number::F64).to_vec())];
    let of = |text: &str| once(text, &arrays, &divisions(&[5])[1]).value();
    let number = |text: &str| of(text).number().unwrap().to_f64();
    assert_eq!((number("min(U)"), number("max(U)"), number("max(U).nan")), (f64::NEG_INFINITY, 4.0, 2.0));
    assert_eq!(
        (number("argmax(U).x"), number("percentile(U, 50)"), number("count(U != U)")),
        (3.0, 1.0, 2.0)
    );
    assert_eq!((number("sum(U, where=isfinite(U))"), number("count(U < 3)")), (5.0, 2.0));
    // Of the two that are finite.
    assert_eq!(number("entropy(U, bins=2)"), 2f64.ln());
    for nothing in [
        "max(U, where=U > 9)",
        "mean(U, where=U > 9)",
        "std(U, where=U > 9)",
        "percentile(U, 9, where=U > 9)",
    ] {
        assert!(number(nothing).is_nan(), "{nothing}");
    }
    assert_eq!((number("sum(U, where=U > 9)"), number("norm(U, where=U > 9)")), (0.0, 0.0));
    assert_eq!(of("all(U > 5, where=U > 9)"), Scalar::Condition(true));
    assert_eq!(of("any(U > 5, where=U > 9)"), Scalar::Condition(false));
    assert_eq!(of("argmax(U, where=U > 9)"), Scalar::Place(None));
    assert_eq!(of("all(isnan(U) or U < 5)"), Scalar::Condition(true));
}

#[test]
fn integers_that_are_too_large_make_it_unknown() {
    let numbers = [1, i64::MAX, 3].map(|number| Number::Integer(number.into()));
    let arrays = [PlainArray::new(field("I", Dtype::I64, &[3]), numbers.to_vec())];
    let of = |text: &str| once(text, &arrays, &divisions(&[3])[1]).value();
    for text in ["max(I + 1)", "max(I * I)", "max(1 // (I - 1))", "count(I + 1 > 0)"] {
        let Scalar::Unknown(why) = of(text) else { panic!("{text}") };
        assert_eq!(why.kind, UnknownKind::Overflow, "{text}");
    }
    assert_eq!(of("sum(I)"), Scalar::Number(Number::Integer(i128::from(i64::MAX) + 4)));
    assert_eq!(of("count(I == 9223372036854775807)"), Scalar::Number(Number::Integer(1)));
    assert_eq!(of("count(I < 9223372036854775808)"), Scalar::Number(Number::Integer(3)));
}

#[test]
fn what_lacks_is_not_covered() {
    let arrays = arrays();
    let mut blocks = divisions(&SHAPE)[1].clone();
    blocks.pop();
    let Scalar::Unknown(why) = once("max(U) > 3 or min(K) < 0", &arrays, &blocks).value() else {
        panic!("known")
    };
    assert_eq!(why.kind, UnknownKind::NotCovered);
    assert!(why.text.contains("of 336 elements of field 'U' 56 were put and are held"), "{}", why.text);
    assert_eq!(once("max(U[0]) > 3", &arrays, &blocks).value(), Scalar::Condition(true));
    // A layout that shrinks under a region.
    let plan = plan_of("max(U[0:6]) > 3", &arrays, Purpose::Watch);
    let mut shrunk = facts(&plan, 4);
    shrunk.fields = vec![Ok(field("U", Dtype::F64, &[5, 7, 8]))];
    let evaluation = Evaluation::new(plan.clone(), shrunk, None);
    let Scalar::Unknown(why) = evaluation.value() else { panic!("known") };
    assert!(
        evaluation.is_done() && why.text.contains("6 in dimension 0 lies outside the shape [5, 7, 8]"),
        "{why:?}"
    );
    let mut other = facts(&plan, 5);
    other.fields = vec![Ok(field("U", Dtype::F32, &SHAPE))];
    let Scalar::Unknown(why) = Evaluation::new(plan, other, None).value() else { panic!("known") };
    assert_eq!(why.kind, UnknownKind::Mismatch);
}

/// One number at each step; `None`: torn.
fn series(text: &str, numbers: &[Option<f64>]) -> Vec<Outcome> {
    let array = |number: f64| vec![PlainArray::new(field("U", Dtype::F64, &[1]), vec![Number::F64(number)])];
    let plan = plan_of(text, &array(0.0), Purpose::Watch);
    let mut state = WatchState::new(&plan);
    let outcomes =
        numbers.iter().enumerate().map(|(step, number)| at(&plan, &mut state, step as u64, *number));
    outcomes.collect()
}

fn at(plan: &Arc<Plan>, state: &mut WatchState, step: u64, number: Option<f64>) -> Outcome {
    let array = PlainArray::new(field("U", Dtype::F64, &[1]), vec![Number::F64(number.unwrap_or_default())]);
    let blocks = if number.is_some() {
        vec![Region::whole(&[1]).unwrap()]
    } else {
        vec![Region::new(&[0], &[0]).unwrap()]
    };
    let arrays = vec![array; plan.fields.len()];
    let evaluation = evaluate(plan, facts(plan, step), &arrays, &blocks, Some(state));
    evaluation.outcome(state, false)
}

/// One letter for each outcome: rose, goes, fell, nothing, unknown.
fn letters(outcomes: &[Outcome]) -> String {
    let letter = |outcome: &Outcome| match outcome {
        Outcome::Event(Turn::Rose, _) => 'R',
        Outcome::Event(Turn::Holds, _) => 'g',
        Outcome::Event(Turn::Fell, _) => 'F',
        Outcome::Nothing => '.',
        Outcome::Unknown(_) => '?',
    };
    outcomes.iter().map(letter).collect()
}

fn of_digits(text: &str, digits: &str) -> String {
    let numbers: Vec<_> = digits.chars().map(|c| c.to_digit(10).map(f64::from)).collect();
    letters(&series(text, &numbers))
}

#[test]
fn what_holds_for_a_while_and_until() {
    for (text, digits, expected) in [
        ("max(U) > 5", "1788?71", ".Rgg?gF"),
        ("max(U) > 5 for 3 steps", "7777177777", "..RgF..Rgg"),
        ("max(U) > 5 for 3 steps", "77?7717", "..?RgF."),
        // Steps lie 0.5 apart.
        ("max(U) > 5 for 1 time", "7777177", "..RgF.."),
        ("max(U) > 5 until max(U) < 3", "1644?4215", ".Rgg?gF.."),
        ("max(U) > 5 until max(U) < 3 for 2 steps", "6442242216", "RgggF....R"),
        ("max(U) > 5 until max(U) > 7", "68677", "RFRgg"),
        ("rising(max(U) > 5)", "7717?77", "RF.R?F."),
        ("falling(max(U) > 5)", "17711", "...RF"),
        ("held(max(U) > 5, 3)", "777717777", "??RgF..Rg"),
        ("count_over(max(U) > 5, 3) >= 2", "7171777", "??RFRgg"),
        ("max_over(max(U), 3) - min_over(max(U), 3) > 4", "1236944", "??..Rgg"),
        ("mean_over(max(U), 2) > 3", "15?53", "?.?Rg"),
        ("delta(max(U)) > 0", "1232?4", "?RgF?R"),
        ("rate(max(U)) >= 4", "13357", "?RFRg"),
        ("previous(max(U), k=2) > 5", "171711", "??.RFR"),
        ("max(U) > first(max(U))", "2?3124", ".?RF.R"),
        ("changed(max(U))", "1122", "?.RF"),
        ("latch(max(U) > 5, max(U) < 2)", "1637?41", ".Rgg?gF"),
        ("step() > 2 and time() < 2.5", "00000000", "...RgF.."),
    ] {
        assert_eq!(of_digits(text, digits), expected, "{text} of {digits}");
    }
}

#[test]
fn episodes_are_counted_with_what_is_missing_in_them() {
    let numbers = [7.0, 1.0, 7.0].map(Some);
    let with_holes = [numbers[0], None, numbers[0], None, numbers[1], numbers[2]];
    let outcomes = series("max(U) > 5", &with_holes);
    let episode = |number, first, missing| Episode { number, first, missing };
    assert_eq!(outcomes[0], Outcome::Event(Turn::Rose, episode(1, 0, 0)));
    assert_eq!(outcomes[2], Outcome::Event(Turn::Holds, episode(1, 0, 1)));
    assert_eq!(outcomes[4], Outcome::Event(Turn::Fell, episode(1, 0, 2)));
    assert_eq!(outcomes[5], Outcome::Event(Turn::Rose, episode(2, 5, 0)));
}

#[test]
fn a_run_that_goes_on_earlier_forgets_what_came_after() {
    let text = "max(U) > first(max(U)) and held(max(U) > 5, 2) and latch(max(U) > 8, max(U) < 1) for 2 steps";
    let numbers = [1.0, 9.0, 9.0, 9.0, 6.0, 9.0, 0.0, 9.0, 9.0, 9.0];
    let plan = plan_of(
        text,
        &[PlainArray::new(field("U", Dtype::F64, &[1]), vec![Number::F64(0.0)])],
        Purpose::Watch,
    );
    let mut state = WatchState::new(&plan);
    let mut before = Vec::new();
    let mut outcomes = Vec::new();
    for (step, number) in numbers.into_iter().enumerate() {
        before.push(state.clone());
        outcomes.push(at(&plan, &mut state, step as u64, Some(number)));
    }
    assert_eq!(letters(&outcomes), "...RggF..R");
    for (step, known) in before.iter().enumerate() {
        let mut back = state.clone();
        back.forget_from(step as u64);
        let again = numbers.iter().enumerate().skip(step);
        let again: Vec<_> =
            again.map(|(step, number)| at(&plan, &mut back, step as u64, Some(*number))).collect();
        assert_eq!(again, outcomes[step..], "from step {step} on");
        let mut same = state.clone();
        same.forget_from(step as u64);
        assert_eq!(&same, known);
    }
}

/// Texts of one field.
fn texts() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec!["U", "V", "2", "0.5", "-3", "1e3"]).prop_map(String::from);
    let number = leaf.prop_recursive(4, 24, 2, |inner| {
        let operators = vec!["+", "-", "*", "/", "//", "%", "**"];
        let functions =
            vec!["abs", "sqrt", "exp", "log", "sin", "floor", "sign", "-", "tanh", "cosh", "acos", "log10"];
        let binary = vec!["minimum", "maximum", "hypot", "atan2"];
        prop_oneof![
            (inner.clone(), prop::sample::select(operators), inner.clone())
                .prop_map(|(a, op, b)| format!("({a} {op} {b})")),
            (prop::sample::select(functions), inner.clone()).prop_map(|(f, a)| format!("{f}({a})")),
            (prop::sample::select(binary), inner.clone(), inner.clone())
                .prop_map(|(f, a, b)| format!("{f}({a}, {b})")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("where({a} > {b}, {a}, {b})")),
        ]
    });
    (number.clone(), prop::sample::select(vec![">", "<=", "==", "!="]), number)
        .prop_map(|(a, op, b)| format!("count(({a} + 0 * U) {op} {b}) >= 0 and max({a} + 0 * V) != 7 and any(isnan({b} + U * 0) or not {a} < U)"))
}

fn numbers() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => -10.0f64..10.0,
        1 => prop::sample::select(vec![0.0, -0.0, 1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e300, 2.5]),
        1 => (-4i32..5).prop_map(f64::from),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// What bounds decide is what every element gives.
    #[test]
    fn bounds_hold_all_that_elements_give(
        text in texts(),
        u in prop::collection::vec(numbers(), 6),
        v in prop::collection::vec(numbers(), 6),
        dtype in prop::sample::select(vec![Dtype::F64, Dtype::F32, Dtype::I32]),
    ) {
        let number = |x: f64| match dtype {
            Dtype::F64 => Number::F64(x),
            Dtype::F32 => Number::F32(x as f32),
            _ => Number::Integer((x as i32).into()),
        };
        let array = |name: &str, values: &[f64]| {
            PlainArray::new(field(name, dtype, &[6]), values.iter().copied().map(number).collect())
        };
        let arrays = [array("U", &u), array("V", &v)];
        let schema = Schema::new(Some("s")).with("s", arrays.iter().map(|array| array.field.clone()).collect());
        let Ok(plan) = check(&Syntax::parse(&text).unwrap(), &schema, Purpose::Watch) else {
            // Integers that lie beside each other with none between.
            return Ok(());
        };
        let of = of_plan(&plan, &arrays);
        let interval = |index: u16| {
            let values = of[usize::from(index)].values.iter().map(|number| Interval::of(number.to_f64()));
            values.reduce(|a, b| Interval { low: a.low.min(b.low), high: a.high.max(b.high), nan: a.nan || b.nan })
        };
        for aggregate in &plan.aggregates {
            let inputs: Vec<Scalar> = aggregate.program.inputs.iter().map(|id| match &plan.scalars[*id] {
                crate::plan::ScalarOp::Constant(scalar) => scalar.clone(),
                other => panic!("{other:?}"),
            }).collect();
            let Some(found) = bounds(&aggregate.program, &inputs, interval, &mut Registers::default()) else { continue };
            for index in 0..6 {
                let element = crate::testing::element(&aggregate.program, &inputs, &of, &[index]);
                let Some((value, counts)) = element else {
                    return Err(TestCaseError::fail(format!("{text}: an integer was beyond its type within bounds")));
                };
                match found.mask {
                    Truth::Always => prop_assert!(counts, "{} always", text),
                    Truth::Never => prop_assert!(!counts, "{} never", text),
                    Truth::Sometimes => {}
                }
                if let (Some(value), Some(within)) = (value, found.value) {
                    let value = value.to_f64();
                    let is_within = if value.is_nan() { within.nan } else { within.low <= value && value <= within.high };
                    prop_assert!(is_within, "{}: {} not in {:?}", text, value, within);
                }
            }
        }
    }

    /// Percentiles are those of all numbers in their order.
    #[test]
    fn percentiles_of_any_numbers(
        values in prop::collection::vec(prop_oneof![numbers(), any::<f64>(), (0u64..50).prop_map(f64::from_bits)], 1..40),
        percent in 0.0f64..100.0,
    ) {
        let shape = [values.len() as u64];
        let arrays = [PlainArray::new(field("U", Dtype::F64, &shape), values.iter().copied().map(Number::F64).collect())];
        let found = once(&format!("percentile(U, {percent:?})"), &arrays, &[Region::whole(&shape).unwrap()]).value();
        let mut sorted: Vec<f64> = values.into_iter().filter(|x| !x.is_nan()).collect();
        sorted.sort_by(f64::total_cmp);
        let found = found.number().unwrap().to_f64();
        if sorted.is_empty() {
            prop_assert!(found.is_nan());
            return Ok(());
        }
        let place = (sorted.len() - 1) as f64 * (percent / 100.0);
        let (low, part) = (place.floor() as usize, place - place.floor());
        let (a, b) = (sorted[low], sorted[(low + 1).min(sorted.len() - 1)]);
        let expected = if part < 0.5 { a + (b - a) * part } else { b - (b - a) * (1.0 - part) };
        prop_assert!(found == expected || (found.is_nan() && expected.is_nan()), "{} and not {}", found, expected);
    }
}
