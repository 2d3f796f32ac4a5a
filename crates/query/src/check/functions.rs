//! All functions.

use crate::plan::{Reduction, TimeFunction};
use crate::syntax::{Node, Syntax, nearest};
use crate::value::arithmetic::{Binary, Test, Unary};

/// What a function is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Function {
    Unary(Unary),
    Binary(Binary),
    Test(Test),
    Where,
    Clip,
    Real,
    Imag,
    Gradient,
    GradientMagnitude,
    Divergence,
    CurlMagnitude,
    Laplacian,
    Reduce(Reduction),
    /// With the percentage as its second argument.
    PercentileApprox,
    ArgMin,
    ArgMax,
    Integral,
    Temporal(TimeFunction),
    Step,
    Time,
    /// What is not built yet.
    Later,
}

/// All of them by their names.
const ALL: [(&str, Function); 71] = [
    ("abs", Function::Unary(Unary::Abs)),
    ("sqrt", Function::Unary(Unary::Sqrt)),
    ("exp", Function::Unary(Unary::Exp)),
    ("log", Function::Unary(Unary::Log)),
    ("log2", Function::Unary(Unary::Log2)),
    ("log10", Function::Unary(Unary::Log10)),
    ("sin", Function::Unary(Unary::Sin)),
    ("cos", Function::Unary(Unary::Cos)),
    ("tan", Function::Unary(Unary::Tan)),
    ("asin", Function::Unary(Unary::Asin)),
    ("acos", Function::Unary(Unary::Acos)),
    ("atan", Function::Unary(Unary::Atan)),
    ("sinh", Function::Unary(Unary::Sinh)),
    ("cosh", Function::Unary(Unary::Cosh)),
    ("tanh", Function::Unary(Unary::Tanh)),
    ("floor", Function::Unary(Unary::Floor)),
    ("ceil", Function::Unary(Unary::Ceil)),
    ("round", Function::Unary(Unary::Round)),
    ("sign", Function::Unary(Unary::Sign)),
    ("atan2", Function::Binary(Binary::Atan2)),
    ("hypot", Function::Binary(Binary::Hypot)),
    ("minimum", Function::Binary(Binary::Minimum)),
    ("maximum", Function::Binary(Binary::Maximum)),
    ("bitwise_and", Function::Binary(Binary::BitwiseAnd)),
    ("isnan", Function::Test(Test::IsNan)),
    ("isinf", Function::Test(Test::IsInf)),
    ("isfinite", Function::Test(Test::IsFinite)),
    ("where", Function::Where),
    ("clip", Function::Clip),
    ("real", Function::Real),
    ("imag", Function::Imag),
    ("gradient", Function::Gradient),
    ("gradient_magnitude", Function::GradientMagnitude),
    ("divergence", Function::Divergence),
    ("curl_magnitude", Function::CurlMagnitude),
    ("laplacian", Function::Laplacian),
    ("min", Function::Reduce(Reduction::Min)),
    ("max", Function::Reduce(Reduction::Max)),
    ("sum", Function::Reduce(Reduction::Sum)),
    ("mean", Function::Reduce(Reduction::Mean)),
    ("var", Function::Reduce(Reduction::Var)),
    ("std", Function::Reduce(Reduction::Std)),
    ("norm", Function::Reduce(Reduction::Norm)),
    ("count", Function::Reduce(Reduction::Count)),
    ("any", Function::Reduce(Reduction::Any)),
    ("all", Function::Reduce(Reduction::All)),
    ("size", Function::Reduce(Reduction::Size)),
    ("percentile", Function::Reduce(Reduction::Percentile)),
    ("percentile_approx", Function::PercentileApprox),
    ("entropy", Function::Reduce(Reduction::Entropy)),
    ("covered", Function::Reduce(Reduction::Covered)),
    ("argmin", Function::ArgMin),
    ("argmax", Function::ArgMax),
    ("integral", Function::Integral),
    ("previous", Function::Temporal(TimeFunction::Previous)),
    ("delta", Function::Temporal(TimeFunction::Delta)),
    ("rate", Function::Temporal(TimeFunction::Rate)),
    ("first", Function::Temporal(TimeFunction::First)),
    ("max_over", Function::Temporal(TimeFunction::MaxOver)),
    ("min_over", Function::Temporal(TimeFunction::MinOver)),
    ("mean_over", Function::Temporal(TimeFunction::MeanOver)),
    ("count_over", Function::Temporal(TimeFunction::CountOver)),
    ("held", Function::Temporal(TimeFunction::Held)),
    ("rising", Function::Temporal(TimeFunction::Rising)),
    ("falling", Function::Temporal(TimeFunction::Falling)),
    ("changed", Function::Temporal(TimeFunction::Changed)),
    ("latch", Function::Temporal(TimeFunction::Latch)),
    ("step", Function::Step),
    ("time", Function::Time),
    ("components", Function::Later),
    ("tracked", Function::Later),
];

/// What other languages call them.
const ELSEWHERE: [(&str, &str); 15] = [
    ("arcsin", "asin"),
    ("arccos", "acos"),
    ("arctan", "atan"),
    ("arctan2", "atan2"),
    ("absolute", "abs"),
    ("fabs", "abs"),
    ("ln", "log"),
    ("average", "mean"),
    ("avg", "mean"),
    ("amax", "max"),
    ("amin", "min"),
    ("quantile", "percentile"),
    ("median", "percentile"),
    ("pow", "**"),
    ("len", "size"),
];

/// Whether a text names a function that takes neighbours of elements.
pub fn takes_neighbours(syntax: &Syntax) -> bool {
    let is_stencil = |name: &str| {
        matches!(
            find(name),
            Some(
                Function::Gradient
                    | Function::GradientMagnitude
                    | Function::Divergence
                    | Function::CurlMagnitude
                    | Function::Laplacian
            )
        )
    };
    syntax.nodes().any(|(_, node)| matches!(node, Node::Call(name, _) if is_stencil(name)))
}

/// The function of this name.
pub(super) fn find(name: &str) -> Option<Function> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, function)| *function)
}

/// The function that may have been meant.
pub(super) fn like(name: &str) -> Option<&'static str> {
    let elsewhere = ELSEWHERE.iter().find(|(known, _)| *known == name).map(|(_, own)| *own);
    elsewhere.or_else(|| nearest(name, ALL.iter().map(|(known, _)| *known)))
}
