//! What calls of functions mean.

use crate::check::checker::{Checker, Result};
use crate::check::functions::Function;
use crate::check::meaning::{Elements, Meaning, Numeric};
use crate::plan::{Part, ScalarOp};
use crate::syntax::{Argument, NodeId, Problem, Span};
use crate::value::arithmetic::{Binary, Unary};
use crate::value::{Kind, Number, Scalar};
use forebay_core::ErrorKind;

/// The arguments of a call, as its function names them.
pub(super) struct Arguments<'a> {
    function: &'a str,
    span: Span,
    positional: Vec<NodeId>,
    named: Vec<(&'a str, NodeId)>,
}

impl<'a> Arguments<'a> {
    fn of(function: &'a str, given: &'a [Argument], span: Span) -> Result<Arguments<'a>> {
        let (mut positional, mut named): (Vec<NodeId>, Vec<(&str, NodeId)>) = (Vec::new(), Vec::new());
        for argument in given {
            match &argument.name {
                None if named.is_empty() => positional.push(argument.value),
                None => {
                    return Err(Problem::invalid(
                        span,
                        format!("{function}(): arguments without a name stand first"),
                    ));
                }
                Some(name) if named.iter().any(|(known, _)| known == name) => {
                    return Err(Problem::invalid(span, format!("{function}(): {name}= is given twice")));
                }
                Some(name) => named.push((name, argument.value)),
            }
        }
        Ok(Arguments { function, span, positional, named })
    }

    /// The values of these arguments, and of those that may lack; there are no others.
    pub(super) fn take<const N: usize, const M: usize>(
        &self,
        required: [&str; N],
        optional: [&str; M],
    ) -> Result<([NodeId; N], [Option<NodeId>; M])> {
        let names: Vec<&str> = required.iter().chain(&optional).copied().collect();
        let signature = names.join(", ");
        let fail = |what: String| Err(Problem::invalid(self.span, format!("{}() {what}", self.function)));
        let (most, given) = (names.len(), self.positional.len());
        if given > most {
            return fail(format!("takes {most} arguments at most, ({signature}); these are {given}"));
        }
        let mut taken: Vec<Option<NodeId>> = self.positional.iter().copied().map(Some).collect();
        taken.resize(most, None);
        for (name, value) in &self.named {
            match names.iter().position(|known| known == name) {
                Some(index) if taken[index].is_none() => taken[index] = Some(*value),
                Some(_) => return fail(format!("is given {name} twice")),
                None => return fail(format!("has no argument {name}=; it takes ({signature})")),
            }
        }
        let mut found = [NodeId::default(); N];
        for (index, place) in found.iter_mut().enumerate() {
            let Some(value) = taken[index] else {
                return fail(format!("lacks {}; it takes ({signature})", names[index]));
            };
            *place = value;
        }
        Ok((found, std::array::from_fn(|index| taken[N + index])))
    }

    /// The arguments of a function all of whose arguments are named by dimensions.
    pub(super) fn by_name(&self) -> Result<&[(&'a str, NodeId)]> {
        match self.positional.is_empty() && !self.named.is_empty() {
            true => Ok(&self.named),
            false => {
                let what = format!(
                    "{}() takes its fields by the names of dimensions, as {}(x=u, y=v): an order would be easy to get wrong",
                    self.function, self.function
                );
                Err(Problem::invalid(self.span, what))
            }
        }
    }

    pub(super) fn function(&self) -> &'a str {
        self.function
    }

    pub(super) fn span(&self) -> Span {
        self.span
    }
}

impl Checker<'_> {
    pub(super) fn call(
        &mut self,
        name: &str,
        function: Function,
        given: &[Argument],
        span: Span,
    ) -> Result<Meaning> {
        let arguments = Arguments::of(name, given, span)?;
        let by = &format!("{name}()");
        match function {
            Function::Unary(op) => {
                let ([x], []) = arguments.take(["x"], [])?;
                if let (Unary::Abs, Some(elements)) = (op, self.part_of_complex(x, Part::Abs)?) {
                    return Ok(Meaning::Elements(elements));
                }
                let x = self.numeric(x, by)?;
                self.function(op, x, span).map(Meaning::from)
            }
            Function::Binary(op) => {
                let ([a, b], []) = arguments.take(["a", "b"], [])?;
                let (a, b) = (self.numeric(a, by)?, self.numeric(b, by)?);
                self.arithmetic(op, a, b, span).map(Meaning::from)
            }
            Function::Test(test) => {
                let ([x], []) = arguments.take(["x"], [])?;
                let x = self.numeric(x, by)?;
                self.test(test, x, span).map(Meaning::from)
            }
            Function::Where => {
                let ([condition, a, b], []) = arguments.take(["condition", "a", "b"], [])?;
                let condition = self.logical(condition, by)?;
                let (a, b) = (self.numeric(a, by)?, self.numeric(b, by)?);
                self.selected(condition, a, b, span).map(Meaning::from)
            }
            Function::Clip => {
                let ([x, low, high], []) = arguments.take(["x", "low", "high"], [])?;
                let (x, low, high) = (self.numeric(x, by)?, self.numeric(low, by)?, self.numeric(high, by)?);
                let raised = self.arithmetic(Binary::Maximum, x, low, span)?;
                self.arithmetic(Binary::Minimum, raised, high, span).map(Meaning::from)
            }
            Function::Real => self.part(&arguments, Part::Real),
            Function::Imag => self.part(&arguments, Part::Imag),
            Function::Gradient
            | Function::GradientMagnitude
            | Function::Divergence
            | Function::CurlMagnitude
            | Function::Laplacian => self.stencil(function, &arguments),
            Function::Reduce(_)
            | Function::PercentileApprox
            | Function::ArgMin
            | Function::ArgMax
            | Function::Integral => self.aggregate(function, &arguments),
            Function::Temporal(function) => self.temporal(function, &arguments),
            Function::Step => {
                let ([], []) = arguments.take([], [])?;
                Ok(Meaning::Number(self.builder.scalar(ScalarOp::Step, span)?, Kind::Integer))
            }
            Function::Time => {
                let ([], []) = arguments.take([], [])?;
                Ok(Meaning::Number(self.builder.scalar(ScalarOp::Time, span)?, Kind::F64))
            }
            Function::Later => {
                Err(Problem::new(ErrorKind::Unsupported, span, format!("{name}() is not built yet")))
            }
        }
    }

    /// `real` and `imag`, which every number has.
    fn part(&mut self, arguments: &Arguments<'_>, part: Part) -> Result<Meaning> {
        let ([z], []) = arguments.take(["z"], [])?;
        if let Some(elements) = self.part_of_complex(z, part)? {
            return Ok(Meaning::Elements(elements));
        }
        let number = self.numeric(z, &format!("{}()", arguments.function()))?;
        match part {
            Part::Real => Ok(number.into()),
            _ => {
                let zero = Numeric::One(
                    self.builder.constant(Number::Integer(0), arguments.span())?,
                    Kind::WrittenInteger,
                );
                self.arithmetic(Binary::Times, number, zero, arguments.span()).map(Meaning::from)
            }
        }
    }

    /// A part of a field of complex numbers; `None` if it is none.
    fn part_of_complex(&mut self, node: NodeId, part: Part) -> Result<Option<Elements>> {
        match self.of(node) {
            Meaning::Field(index) => self.complex(index, part, self.syntax.span(node)),
            _ => Ok(None),
        }
    }

    /// An integer that stands in the text, within a range.
    pub(super) fn written_integer(
        &self,
        node: NodeId,
        what: &str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<u64> {
        let number = match self.of(node) {
            Meaning::Number(id, _) => match self.builder.constant_of(id) {
                Some(Scalar::Number(Number::Integer(number))) => u64::try_from(*number).ok(),
                _ => None,
            },
            _ => None,
        };
        number.filter(|number| range.contains(number)).ok_or_else(|| {
            let text = format!(
                "{what} is an integer from {} to {} that stands in the text",
                range.start(),
                range.end()
            );
            Problem::invalid(self.syntax.span(node), text)
        })
    }

    /// A number that stands in the text.
    pub(super) fn written_number(&self, node: NodeId) -> Option<f64> {
        match self.of(node) {
            Meaning::Number(id, _) => match self.builder.constant_of(id) {
                Some(Scalar::Number(number)) => Some(number.to_f64()),
                _ => None,
            },
            _ => None,
        }
    }
}
