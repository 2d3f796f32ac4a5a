//! What the name of a field means: its elements.

use crate::check::checker::Checker;
use crate::check::meaning::Elements;
use crate::plan::{Domain, Lane, Op, Part, PlannedField, Range};
use crate::schema::did_you_mean;
use crate::syntax::{FieldUse, Level, Place, PlaceKind, Problem, Span, nearest, quoted};
use forebay_core::ErrorKind;
use forebay_core::contract::{Field, Slice};
use forebay_core::dtype::Dtype;

impl Checker<'_> {
    /// The elements of a field of the tree.
    pub(super) fn elements(&mut self, index: usize, span: Span) -> Result<Elements, Problem> {
        let planned = self.planned(index)?;
        let dtype = self.builder.fields[planned].field.dtype;
        if !dtype.is_ordered() {
            let what = "complex numbers have no order: take abs(...), real(...) or imag(...) of them";
            return Err(Problem::new(ErrorKind::TypeMismatch, span, what));
        }
        self.load(planned, Part::Whole, lane_of(dtype), span)
    }

    /// A part of each element of a field of complex numbers; `None` if its numbers are real.
    pub(super) fn complex(
        &mut self,
        index: usize,
        part: Part,
        span: Span,
    ) -> Result<Option<Elements>, Problem> {
        let planned = self.planned(index)?;
        let lane = match self.builder.fields[planned].field.dtype {
            Dtype::C64 => Lane::F32,
            Dtype::C128 => Lane::F64,
            _ => return Ok(None),
        };
        self.load(planned, part, lane, span).map(Some)
    }

    fn load(&mut self, planned: usize, part: Part, lane: Lane, span: Span) -> Result<Elements, Problem> {
        let domain = self.builder.fields[planned].domain;
        let register =
            self.builder.element(Op::Load { field: planned as u16, part, shift: None }, lane, span)?;
        Ok(Elements { register, lane, domain })
    }

    /// The place of a field of the tree among those of the plan.
    pub(super) fn planned(&mut self, index: usize) -> Result<usize, Problem> {
        if let Some(planned) = self.planned[index] {
            return Ok(planned);
        }
        let named = &self.syntax.fields()[index];
        let (stream, field) = self.schema.find(named)?;
        let domain = Domain {
            stream: stream.to_owned(),
            level: named.level,
            ranges: ranges(named, field)?,
            shape: field.shape.clone(),
        };
        if field.shape.is_some() {
            domain
                .selection(field)
                .map_err(|why| Problem::new(ErrorKind::OutOfBounds, named.span, why.text))?;
        }
        let known = self.builder.domains.iter().position(|known| *known == domain);
        let domain = known.unwrap_or_else(|| {
            self.builder.domains.push(domain);
            self.builder.domains.len() - 1
        });
        self.builder.fields.push(PlannedField { field: field.clone(), domain });
        self.planned[index] = Some(self.builder.fields.len() - 1);
        Ok(self.builder.fields.len() - 1)
    }
}

/// The lane of elements of a dtype.
fn lane_of(dtype: Dtype) -> Lane {
    match dtype {
        Dtype::Bool => Lane::Mask,
        Dtype::I8 | Dtype::U8 | Dtype::I16 | Dtype::U16 | Dtype::I32 | Dtype::U32 | Dtype::I64 => Lane::I64,
        Dtype::U64 => Lane::U64,
        Dtype::F16 | Dtype::Bf16 | Dtype::F32 | Dtype::C64 => Lane::F32,
        Dtype::F64 | Dtype::C128 => Lane::F64,
    }
}

/// One range for each dimension of a field.
fn ranges(named: &FieldUse, field: &Field) -> Result<Option<Vec<Range>>, Problem> {
    let Some(places) = &named.region else { return Ok(None) };
    let invalid = |what: String| Problem::invalid(named.span, what);
    if named.level == Level::All {
        return Err(invalid(
            "a region of all levels: each has indexes of its own; name one level, as U@1[0:8]".into(),
        ));
    }
    let Some(shape) = &field.shape else {
        return Err(invalid(format!(
            "field '{}' has no global shape: there are no regions of it",
            field.name
        )));
    };
    let ndim = shape.len();
    let positional =
        places.iter().filter(|place| place.dim.is_none() && place.kind != PlaceKind::Ellipsis).count();
    if positional > ndim {
        let what = format!("the region has {positional} dimensions, field '{}' {ndim}", field.name);
        return Err(Problem::new(ErrorKind::OutOfBounds, named.span, what));
    }
    let mut ranges: Vec<Option<Range>> = vec![None; ndim];
    let mut at = 0;
    for place in places {
        let dim = match (&place.dim, place.kind) {
            (None, PlaceKind::Ellipsis) => {
                // What stands behind it is of the last dimensions.
                at += ndim - positional;
                continue;
            }
            (Some(name), _) => dim_of(field, name, named.span)?,
            (None, _) => {
                at += 1;
                at - 1
            }
        };
        if ranges[dim].replace(range(place)).is_some() {
            return Err(invalid(format!("dimension {} is named twice", dim_name(field, dim))));
        }
    }
    Ok(Some(ranges.into_iter().map(|range| range.unwrap_or(Range::Slice(Slice::ALL))).collect()))
}

fn range(place: &Place) -> Range {
    match place.kind {
        PlaceKind::Ellipsis => Range::Slice(Slice::ALL),
        PlaceKind::Index(index) => Range::Index(index),
        PlaceKind::Slice(slice) => Range::Slice(slice),
        PlaceKind::Coordinates(low, high) => Range::Coordinates(low, high),
    }
}

/// The dimension of this name.
pub(super) fn dim_of(field: &Field, name: &str, span: Span) -> Result<usize, Problem> {
    field.dims.iter().position(|dim| dim == name).ok_or_else(|| {
        let what = if field.dims.is_empty() {
            format!(
                "the dimensions of field '{}' have no names: name them where it is declared, with dims=",
                field.name
            )
        } else {
            let like = did_you_mean(nearest(name, field.dims.iter().map(|dim| &dim[..])));
            let dims: Vec<_> = field.dims.iter().map(|dim| quoted(dim)).collect();
            format!("field '{}' has no dimension '{name}'; it has {}{like}", field.name, dims.join(", "))
        };
        Problem::new(ErrorKind::NotFound, span, what)
    })
}

pub(super) fn dim_name(field: &Field, dim: usize) -> String {
    field.dims.get(dim).cloned().unwrap_or_else(|| dim.to_string())
}
