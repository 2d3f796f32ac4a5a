//! What texts mean, and what is refused.

use super::*;
use forebay_core::ErrorKind;
use proptest::prelude::*;

fn printed(text: &str) -> String {
    Syntax::parse(text).unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
}

/// The column and what is wrong there.
fn refused(text: &str) -> String {
    let error = Syntax::parse(text).expect_err(text);
    assert_eq!(error.kind, ErrorKind::Invalid, "{error}");
    let line = error.text.lines().next().unwrap_or_default();
    line.strip_prefix("column ").unwrap_or(line).to_owned()
}

#[test]
fn the_ten_questions() {
    for (text, expected) in [
        ("max(vorticity[10:40, :, 8:24]) > 9 for 3 steps", ""),
        ("any(isnan(U) or isinf(U))", ""),
        ("m = sum(rho); abs(m - first(m)) > 1e-6 * abs(first(m))", ""),
        (
            "components(T > 1500, neighbours=26).max_size > 1_000",
            "components(T > 1500, neighbours=26).max_size > 1000",
        ),
        ("percentile(gradient_magnitude(U), 99) > 0.2", ""),
        ("e = entropy(p, bins=256); delta(e) <= 0", ""),
        ("argmax(p).z", ""),
        ("count(sqrt(u**2 + v**2 + w**2) > 3) / size(u) > 0.01", ""),
        ("max(T) > 1500 for 3 steps until max(T) < 1400 for 0.5 time", ""),
        ("abs(mean(fluid.T[x=0]) - mean(solid.T[x=-1])) > 1", ""),
    ] {
        assert_eq!(printed(text), if expected.is_empty() { text } else { expected });
    }
}

#[test]
fn precedence_is_that_of_python() {
    for (text, expected) in [
        ("-x**2", "-x**2"),
        ("(-x)**2", "(-x)**2"),
        ("2**-x**2", "2**-x**2"),
        ("(2**3)**2", "(2**3)**2"),
        ("a-(b-c)-d", "a - (b - c) - d"),
        ("a*(b/c)", "a * (b / c)"),
        ("((a*b))/c", "a * b / c"),
        ("not a == b", "not a == b"),
        ("not (a or b) and c", "not (a or b) and c"),
        ("a < b < c", "a < b < c"),
        ("(a < b) < c", "(a < b) < c"),
        ("(a > 1) & (b < 2) | ~(c > 3)", "a > 1 and b < 2 or not c > 3"),
        ("a > 1 & b < 2", "a > (1 and b) < 2"),
        ("- - +x // 3 % 2", "--+x // 3 % 2"),
    ] {
        assert_eq!(printed(text), expected);
        assert_eq!(printed(expected), expected);
    }
}

#[test]
fn names_regions_and_numbers() {
    for (text, expected) in [
        ("`gray scott/π`.`T.max-2`", ""),
        ("`3d` + `a``b` + `and`", ""),
        ("größe@2[..., -3::2] + U@*[x=1:-1, `the y`=4, :]", ""),
        ("U[0.5..1.5, -2..3]", "U[0.5..1.5, -2.0..3.0]"),
        ("U[:, ::2, 1:, :-1]", ""),
        ("U[-0]", "U[0]"),
        ("1_000.5e+3 + 0 + nan + inf + 1e-7", "1000500.0 + 0 + nan + inf + 1e-7"),
        ("f(a, x=2,)\n# a comment\n + 1 # and another", "f(a, x=2) + 1"),
        ("max(U).at.x + max(U).nan", ""),
        ("step() > 3 and time < 5 or until_now", ""),
        ("true or false", ""),
    ] {
        let expected = if expected.is_empty() { text } else { expected };
        assert_eq!(printed(text), expected);
        assert_eq!(printed(expected), expected);
    }
    let syntax = Syntax::parse("max(U[0:3]) > min(U[0:3]) + U").unwrap();
    assert_eq!(syntax.fields().len(), 2, "each once");
}

#[test]
fn what_is_wrong_is_said_where_it_stands() {
    for (text, expected) in [
        ("", "1: found the end, expected a number, a field, a function or '('"),
        ("max(U) > > 9", "10: found '>', expected a number"),
        ("max(U) > 9)", "11: found ')', expected an operator, 'for', 'until' or the end"),
        ("max(U > 9", "10: found the end, expected an operator, ',' or ')'"),
        ("max(U) = 9", "8: found '=', expected an operator, 'for', 'until' or the end; to compare write =="),
        ("u ^ 2", "3: '^' has no meaning here: write ** for a power"),
        ("a && b", "3: '&&' has no meaning here: write and"),
        ("!a", "1: '!' has no meaning here: write not"),
        ("name == 'x'", "9: there are no texts here"),
        ("3d > 1", "1: '3d' begins with digits and goes on with letters"),
        ("1. + 2", "1: '1.': a number has a digit on both sides of its point; write 1.0"),
        (".5 + 2", "1: a number has a digit on both sides of its point: write 0 before it"),
        ("1__0", "1: '1__0' begins with digits"),
        ("a.b.c", "4: found a third name"),
        ("(a).b", "4: found '.': attributes stand behind functions and bindings alone"),
        ("max(U)[1]", "7: found '[': regions stand behind the names of fields alone"),
        ("U[1:2:0]", "7: the distance between elements is 1 or more"),
        ("U[::-1]", "5: the distance between elements is 1 or more"),
        ("U[]", "2: a region without a place"),
        ("U[1.5]", "3: found 1.5, expected an index; coordinates are given as a range, a..b"),
        ("U[3..1]", "3: coordinates a..b go from the smaller to the larger one"),
        ("U[..., ...]", "8: a second '...'"),
        ("U[x=1, x=2]", "8: dimension x is named twice"),
        ("U[x=...]", "5: found '...', expected an index"),
        ("U@-1", "3: found '-', expected the number of a refinement level"),
        ("a and", "6: found the end, expected a number"),
        ("a + not b", "5: 'not' binds less tightly"),
        ("for 3 steps", "1: found 'for', expected a number"),
        ("a for 3", "8: found the end, expected 'steps' or 'time'"),
        ("a for 0 steps", "7: something holds for 1 to 4096 steps"),
        ("a for 1.5 steps", "7: steps are counted whole"),
        ("a for 0 time", "7: something holds for a time above 0"),
        ("a for 3 steps for 2 steps", "15: found 'for', expected 'until' or the end"),
        ("m = 1; m = 2; m", "8: 'm' is bound twice"),
        ("m = 1", "6: found the end, expected an operator or ';'"),
        ("max(U) > 3; min(U)", "11: found ';', which ends bindings alone"),
        ("`abc", "1: this backtick has no other one"),
        ("``", "1: a name has at least one character"),
        ("`a\nb`", "line 1, column 1: a name has no control characters"),
        ("and.x", "1: found 'and', expected a number"),
        ("s.and", "3: 'and' is a reserved word: as a name it stands in backticks, `and`"),
        ("99999999999999999999999999999999999999999", "1: this integer is too large"),
        ("a ? b", "3: the character '?' has no meaning here"),
    ] {
        let found = refused(text);
        assert!(found.starts_with(expected), "{text}: {found}");
    }
}

#[test]
fn sizes_are_bounded() {
    let deep = |count: usize| format!("{}x{}", "(".repeat(count), ")".repeat(count));
    assert!(Syntax::parse(&deep(255)).is_ok());
    for text in
        [deep(256), deep(30_000), "-".repeat(1000) + "x", "x**".repeat(1000) + "x", "not ".repeat(1000) + "x"]
    {
        assert!(refused(&text).contains("more than 256 deep"));
    }
    let calls = |count: usize| format!("{}x{}", "f(".repeat(count), ")".repeat(count));
    assert!(refused(&calls(10_000)).contains("more than 256 deep"));
    // A long sum is not deep.
    let sum = |count: usize| vec!["x"; count].join("+");
    assert_eq!(printed(&sum(2048)), vec!["x"; 2048].join(" + "));
    assert!(refused(&sum(2049)).contains("more than 4096 numbers"));
    assert!(refused(&"x".repeat(65_537)).contains("at most 65536"));
    assert!(refused(&"x".repeat(65_536)).contains("a name has at most 255 bytes"));
    let bindings = |count: usize| (0..count).map(|i| format!("b{i} = 1; ")).collect::<String>() + "1";
    assert!(Syntax::parse(&bindings(64)).is_ok() && refused(&bindings(65)).contains("more than 64 bindings"));
    let fields = |count: usize| (0..count).map(|i| format!("f{i}")).collect::<Vec<_>>().join(" + ");
    assert!(Syntax::parse(&fields(64)).is_ok() && refused(&fields(65)).contains("more than 64 fields"));
}

/// Texts of the language, with more parentheses than they need.
fn texts() -> impl Strategy<Value = String> {
    let place = prop::sample::select(vec!["...", "3", "-2", "1:5", "::2", "x=4", "0.5..2.5", "`a b`=1:"]);
    let field =
        (prop::sample::select(vec!["U", "s.U", "`a ``b`", "U@2", "größe@*"]), prop::option::of(place))
            .prop_map(|(name, place)| place.map_or(name.to_string(), |place| format!("{name}[{place}]")));
    let number = prop::sample::select(vec!["0", "17", "0.5", "1e300", "nan", "inf", "true", "1_0"])
        .prop_map(String::from);
    let leaf = prop_oneof![field, number];
    leaf.prop_recursive(6, 64, 3, |inner| {
        let operators = vec!["+", "-", "*", "/", "//", "%", "**", "and", "or", "<", "<=", "==", "!="];
        let pair = (inner.clone(), prop::sample::select(operators), inner.clone());
        prop_oneof![
            pair.prop_map(|(left, op, right)| format!("({left}) {op} ({right})")),
            (prop::sample::select(vec!["-", "+", "~", "not "]), inner.clone())
                .prop_map(|(op, x)| format!("{op}({x})")),
            (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("f({a}, where={b}).x")),
            (inner.clone(), inner.clone(), inner).prop_map(|(a, b, c)| format!("({a}) < ({b}) >= ({c})")),
        ]
    })
}

proptest! {
    /// What is printed means the same, and is printed as itself.
    #[test]
    fn what_is_printed_is_read_as_the_same(text in texts()) {
        // Fields in parentheses have no attributes, or regions: none are written here.
        let first = Syntax::parse(&text).unwrap();
        let again = Syntax::parse(&first.to_string()).unwrap();
        prop_assert_eq!(first.to_string(), again.to_string());
        let nodes = |syntax: &Syntax| syntax.nodes().map(|(_, node)| format!("{node:?}")).collect::<Vec<_>>();
        prop_assert_eq!(nodes(&first), nodes(&again));
        for (id, node) in first.nodes() {
            let parts: Vec<NodeId> = match node {
                Node::Unary(_, a) | Node::Attribute(a, _) => vec![*a],
                Node::Binary(_, a, b) => vec![*a, *b],
                Node::Chain(a, rest) => [*a].into_iter().chain(rest.iter().map(|(_, b)| *b)).collect(),
                Node::Call(_, arguments) => arguments.iter().map(|argument| argument.value).collect(),
                _ => vec![],
            };
            prop_assert!(parts.iter().all(|part| *part < id));
        }
    }

    /// No text does harm, and what is wrong is said.
    #[test]
    fn any_text_is_read_or_refused(text in "[ a-z0-9.()\\[\\]`@:;,=<>!*/%&|~^#\"\n+\\-µ_]{0,80}") {
        if let Err(error) = Syntax::parse(&text) {
            prop_assert!(error.text.contains("column ") && error.text.lines().count() >= 2, "{}", error.text);
        }
    }

    #[test]
    fn any_words_are_read_or_refused(
        words in prop::collection::vec(prop::sample::select(vec![
            "a", "max(", ")", "(", "[", "]", ":", "..", "...", "and", "or", "not", "for", "until", "3", "0.5", "steps", "time",
            "=", "==", "<", "-", "**", "*", ".", "@", ";", ",", "`b`", "nan", "m = a;", "m",
        ]), 0..24),
    ) {
        let text = words.join(" ");
        if let Ok(syntax) = Syntax::parse(&text) {
            let again = syntax.to_string();
            prop_assert_eq!(Syntax::parse(&again).map(|syntax| syntax.to_string()), Ok(again.clone()), "{}", text);
        }
    }
}

#[test]
fn names_of_dimensions_are_no_fields() {
    let taken = |text: &str| {
        let syntax = Syntax::parse(text).unwrap();
        syntax.taken_fields().map(|field| field.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(taken("max(gradient(T, z)) > 1"), ["T"]);
    assert_eq!(taken("max(gradient(s.T, x)) > max(x)"), ["T", "x"]);
    assert_eq!(taken("max(divergence(x=U, y=V)) > 1"), ["U", "V"]);
}
