//! What aggregates mean.

use crate::check::calls::Arguments;
use crate::check::checker::{Checker, Result, described};
use crate::check::functions::Function;
use crate::check::meaning::{Elements, Logical, Meaning, Numeric};
use crate::plan::{Aggregate, Lane, Measure, Op, Program, Property, Reduction, ScalarOp, Weights};
use crate::syntax::{Level, NodeId, Problem};
use crate::value::Kind;
use crate::value::arithmetic::Binary;
use forebay_core::ErrorKind;
use forebay_core::contract::Association;

/// The most bins of a histogram.
const BINS_MAX: u64 = 65_536;
/// How many there are if none are said.
const BINS: u32 = 256;

impl Checker<'_> {
    pub(super) fn aggregate(&mut self, function: Function, arguments: &Arguments<'_>) -> Result<Meaning> {
        match function {
            Function::Reduce(Reduction::Percentile) | Function::PercentileApprox => {
                self.percentile(function, arguments)
            }
            Function::Reduce(Reduction::Entropy) => self.entropy(arguments),
            Function::Reduce(Reduction::Count | Reduction::Any | Reduction::All) => {
                self.of_conditions(function, arguments)
            }
            Function::Reduce(Reduction::Covered) => self.covered(arguments),
            Function::Reduce(Reduction::Size) => self.size(arguments),
            Function::Integral => self.integral(arguments),
            Function::ArgMin => self.place(Measure::Min, Reduction::Min, arguments),
            Function::ArgMax => self.place(Measure::Max, Reduction::Max, arguments),
            Function::Reduce(reduction) => {
                let ([of], [filter]) = arguments.take(["x"], ["where"])?;
                let measure = match reduction {
                    Reduction::Min => Measure::Min,
                    Reduction::Max => Measure::Max,
                    Reduction::Sum | Reduction::Mean => Measure::Sum(Weights::None),
                    _ => Measure::Moments,
                };
                self.of_numbers(arguments, of, filter, measure, reduction)
            }
            _ => {
                let what = format!("{}() is no aggregate", arguments.function());
                Err(Problem::new(ErrorKind::Internal, arguments.span(), what))
            }
        }
    }

    fn percentile(&mut self, function: Function, arguments: &Arguments<'_>) -> Result<Meaning> {
        let ([of, q], [filter]) = arguments.take(["x", "q"], ["where"])?;
        let percent = self.written_number(q).filter(|q| (0.0..=100.0).contains(q)).ok_or_else(|| {
            let what = "a percentage is a number from 0 to 100 that stands in the text";
            Problem::invalid(self.syntax.span(q), what)
        })?;
        let (measure, reduction) = match function {
            Function::PercentileApprox => (Measure::Sketch, Reduction::Approximate(percent)),
            _ => (Measure::Percentile(percent), Reduction::Percentile),
        };
        self.of_numbers(arguments, of, filter, measure, reduction)
    }

    fn entropy(&mut self, arguments: &Arguments<'_>) -> Result<Meaning> {
        let ([of], [bins, filter]) = arguments.take(["x"], ["bins", "where"])?;
        let bins = match bins {
            Some(bins) => self.written_integer(bins, "the number of bins", 1..=BINS_MAX)? as u32,
            None => BINS,
        };
        self.of_numbers(arguments, of, filter, Measure::Histogram(bins), Reduction::Entropy)
    }

    fn covered(&mut self, arguments: &Arguments<'_>) -> Result<Meaning> {
        let ([of], []) = arguments.take(["field"], [])?;
        let Meaning::Field(index) = self.of(of) else {
            return Err(self.mismatch(of, "covered() takes a field or a region of one, as covered(U[0:32])"));
        };
        let planned = self.planned(index)?;
        let domain = self.builder.fields[planned].domain;
        let aggregate =
            Aggregate { domain, field: planned, measure: Measure::Covered, program: Program::default() };
        self.property(aggregate, Reduction::Covered, arguments, Kind::Integer)
    }

    fn size(&mut self, arguments: &Arguments<'_>) -> Result<Meaning> {
        let ([of], [filter]) = arguments.take(["x"], ["where"])?;
        let elements = self.elements_for(of, "size()")?;
        let mask = self.filter(filter, elements)?;
        let measure = if mask.is_some() { Measure::Count } else { Measure::Size };
        let program = Program::of(self.builder.instructions(), None, mask.map(|mask| mask.register));
        let aggregate = self.gathered_of(elements, measure, program);
        self.property(aggregate, Reduction::Size, arguments, Kind::Integer)
    }

    /// Where an extreme lies.
    fn place(
        &mut self,
        measure: Measure,
        reduction: Reduction,
        arguments: &Arguments<'_>,
    ) -> Result<Meaning> {
        let ([of], [filter]) = arguments.take(["x"], ["where"])?;
        self.of_numbers(arguments, of, filter, measure, reduction)?;
        let elements = self.elements_for(of, arguments.function())?;
        let aggregate = self.numbers(elements, filter, measure)?;
        // The same as that of the value.
        let aggregate = self.builder.aggregate(aggregate);
        let place = ScalarOp::Aggregate(aggregate, Property::Place);
        Ok(Meaning::Place(self.builder.scalar(place, arguments.span())?, aggregate))
    }

    /// An aggregate of numbers.
    fn of_numbers(
        &mut self,
        arguments: &Arguments<'_>,
        of: NodeId,
        filter: Option<NodeId>,
        measure: Measure,
        reduction: Reduction,
    ) -> Result<Meaning> {
        let name = arguments.function();
        let elements = self.elements_for(of, &format!("{name}()"))?;
        if elements.lane == Lane::Mask {
            let what = format!(
                "{name}() takes numbers, and this is a condition: say count(...), any(...) or all(...)"
            );
            return Err(self.mismatch(of, &what));
        }
        self.check_level(elements, measure, arguments)?;
        let kind = match (reduction, elements.lane) {
            (
                Reduction::Min | Reduction::Max | Reduction::Percentile | Reduction::Approximate(_),
                Lane::F32,
            ) => Kind::F32,
            (Reduction::Min | Reduction::Max | Reduction::Sum, Lane::I64 | Lane::U64) => Kind::Integer,
            _ => Kind::F64,
        };
        let aggregate = self.numbers(elements, filter, measure)?;
        self.property(aggregate, reduction, arguments, kind)
    }

    fn numbers(&mut self, elements: Elements, filter: Option<NodeId>, measure: Measure) -> Result<Aggregate> {
        let mask = self.filter(filter, elements)?.map(|mask| mask.register);
        let program = Program::of(self.builder.instructions(), Some(elements.register), mask);
        Ok(self.gathered_of(elements, measure, program))
    }

    /// An aggregate of these elements.
    fn gathered_of(&self, elements: Elements, measure: Measure, program: Program) -> Aggregate {
        let field = program.fields().first().copied().unwrap_or_else(|| {
            // All of them are counted, whatever they are.
            let all = Program::of(self.builder.instructions(), Some(elements.register), None);
            all.fields().first().copied().unwrap_or(0)
        });
        Aggregate { domain: elements.domain, field: field.into(), measure, program }
    }

    /// An aggregate of conditions.
    fn of_conditions(&mut self, function: Function, arguments: &Arguments<'_>) -> Result<Meaning> {
        let (name, span) = (arguments.function(), arguments.span());
        let ([of], [filter]) = arguments.take(["condition"], ["where"])?;
        let elements = self.conditions_for(of, name)?;
        let (measure, reduction) = match function {
            Function::Reduce(Reduction::Any) => (Measure::Any, Reduction::Any),
            Function::Reduce(Reduction::All) => (Measure::All, Reduction::All),
            _ => (Measure::Count, Reduction::Count),
        };
        let mut mask = elements;
        if let Some(filter) = self.filter(filter, elements)? {
            let op = if measure == Measure::All {
                // Those that do not count do not matter.
                let excepted = self.each(Op::Not(filter.register), Lane::Mask, elements.domain, span)?;
                Op::Or(excepted.register, elements.register)
            } else {
                Op::And(elements.register, filter.register)
            };
            mask = self.each(op, Lane::Mask, elements.domain, span)?;
        }
        let program = Program::of(self.builder.instructions(), None, Some(mask.register));
        let aggregate = self.gathered_of(elements, measure, program);
        self.property(aggregate, reduction, arguments, Kind::Integer)
    }

    /// The conditions that an aggregate is of.
    fn conditions_for(&mut self, of: NodeId, name: &str) -> Result<Elements> {
        let what = match self.used(of)? {
            Meaning::Elements(elements) if elements.lane == Lane::Mask => return Ok(elements),
            Meaning::Condition(_) => format!(
                "{name}() is of a condition for each element; this one is the same for all: leave {name}() out"
            ),
            Meaning::Elements(_) if name == "count" => {
                "count() counts where a condition holds, as count(U > 1); size(U) is the number of elements"
                    .into()
            }
            Meaning::Elements(_) => {
                format!("{name}() is of a condition, as {name}(U > 1); this is a field of numbers")
            }
            other => format!("{name}() is of a field; this is {}", described(&other)),
        };
        Err(self.mismatch(of, &what))
    }

    /// Which elements count.
    fn filter(&mut self, filter: Option<NodeId>, elements: Elements) -> Result<Option<Elements>> {
        let Some(node) = filter else { return Ok(None) };
        let span = self.syntax.span(node);
        let logical = self.logical(node, "where=")?;
        if let Logical::Each(mask) = logical {
            self.common_domain(&[Some(elements), Some(mask)], span)?;
        }
        self.mask(logical, elements.domain, span).map(Some)
    }

    /// Forebay knows which elements of a level lie below finer ones in no case.
    fn check_level(&self, elements: Elements, measure: Measure, arguments: &Arguments<'_>) -> Result<()> {
        let is_of_all = self.builder.domains[elements.domain].level == Level::All;
        if !is_of_all || matches!(measure, Measure::Min | Measure::Max) {
            return Ok(());
        }
        let what = format!(
            "{}() of all levels would count twice what a finer level covers: name one level, as U@0",
            arguments.function()
        );
        Err(Problem::new(ErrorKind::Unsupported, arguments.span(), what))
    }

    /// The value of an aggregate.
    fn property(
        &mut self,
        aggregate: Aggregate,
        reduction: Reduction,
        arguments: &Arguments<'_>,
        kind: Kind,
    ) -> Result<Meaning> {
        let aggregate = self.builder.aggregate(aggregate);
        let id = self
            .builder
            .scalar(ScalarOp::Aggregate(aggregate, Property::Value(reduction)), arguments.span())?;
        Ok(match reduction {
            Reduction::Any | Reduction::All | Reduction::Covered => Meaning::Condition(id),
            _ => Meaning::Number(id, kind),
        })
    }

    /// The sum times the volume of a cell; of vertices by the trapezoidal rule.
    fn integral(&mut self, arguments: &Arguments<'_>) -> Result<Meaning> {
        let span = arguments.span();
        let ([of], [filter]) = arguments.take(["x"], ["where"])?;
        let elements = self.elements_for(of, "integral()")?;
        let Some(planned) = self.builder.fields.iter().position(|field| field.domain == elements.domain)
        else {
            return Err(self.mismatch(of, "integral() is of a field"));
        };
        let field = self.builder.fields[planned].field.clone();
        let Some(shape) = field.shape.as_ref().filter(|_| !field.spacing.is_empty()) else {
            let what = format!(
                "integral() needs the distance of elements: declare field '{}' with spacing=",
                field.name
            );
            return Err(Problem::invalid(span, what));
        };
        let weights =
            if field.association == Association::Vertex { Weights::Trapezoid } else { Weights::None };
        let sum = self.of_numbers(arguments, of, filter, Measure::Sum(weights), Reduction::Sum)?;
        let Meaning::Number(id, kind) = sum else { return Ok(sum) };
        let mut integral = Numeric::One(id, kind);
        let domain = &self.builder.domains[elements.domain];
        let dims: Vec<usize> = (0..shape.len()).filter(|dim| !domain.leaves_out(*dim)).collect();
        for dim in dims {
            let spacing = self.builder.scalar(ScalarOp::Spacing(planned, dim as u8), span)?;
            integral = self.arithmetic(Binary::Times, integral, Numeric::One(spacing, Kind::F64), span)?;
        }
        Ok(integral.into())
    }
}
