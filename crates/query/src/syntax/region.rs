//! The part of a field that stands in brackets.

use crate::syntax::parser::{Parser, Result};
use crate::syntax::problem::{Problem, Span};
use crate::syntax::token::{Kind, Sign};
use crate::syntax::tree::{Literal, Place, PlaceKind};
use forebay_core::contract::{Index, Slice};
use forebay_core::region::MAX_NDIM;

impl Parser<'_> {
    pub(super) fn region(&mut self) -> Result<Vec<Place>> {
        let open = self.advance();
        let mut places: Vec<Place> = Vec::new();
        while !self.is(Sign::CloseRegion) {
            let token = self.token();
            let place = self.place()?;
            if place.kind == PlaceKind::Ellipsis
                && places.iter().any(|other| other.kind == PlaceKind::Ellipsis)
            {
                return Err(Problem::invalid(
                    token.span,
                    "a second '...': one stands for all dimensions that are not named",
                ));
            }
            if place.dim.is_some() && places.iter().any(|other| other.dim == place.dim) {
                return Err(Problem::invalid(
                    token.span,
                    format!("dimension {} is named twice", token.span.of(self.text)),
                ));
            }
            // The ellipsis may stand for none.
            if places.len() > MAX_NDIM {
                return Err(Problem::invalid(
                    token.span,
                    format!("an array has at most {MAX_NDIM} dimensions"),
                ));
            }
            places.push(place);
            if !self.accept(Sign::Comma) {
                break;
            }
        }
        let close = self.expect(Sign::CloseRegion, "',' or ']'")?;
        if places.is_empty() {
            return Err(Problem::invalid(
                open.span.to(close.span),
                "a region without a place: leave the brackets out for all of the field",
            ));
        }
        Ok(places)
    }

    fn place(&mut self) -> Result<Place> {
        let dim = match self.token().kind {
            Kind::Name | Kind::Quoted => {
                let name = self.name("a dimension")?;
                self.expect(Sign::Is, "'=', and the place in this dimension")?;
                Some(name)
            }
            _ => None,
        };
        if self.is(Sign::Ellipsis) {
            if dim.is_some() {
                return Err(self.unexpected("an index, a range a:b or coordinates a..b"));
            }
            self.advance();
            return Ok(Place { dim, kind: PlaceKind::Ellipsis });
        }
        let first = match self.is(Sign::Colon) {
            true => None,
            false => Some(self.bound_of_place()?),
        };
        let kind = match first {
            Some(first) if self.accept(Sign::Range) => {
                let last = self.bound_of_place()?;
                self.coordinates(first, last)?
            }
            first if self.accept(Sign::Colon) => self.slice(first)?,
            Some(first) => PlaceKind::Index(first.index(self)?),
            None => return Err(self.unexpected("':'")),
        };
        Ok(Place { dim, kind })
    }

    fn coordinates(&self, first: Bound, last: Bound) -> Result<PlaceKind> {
        let (low, high) = (first.coordinate(), last.coordinate());
        let span = first.span.to(last.span);
        match low <= high && low.is_finite() && high.is_finite() {
            true => Ok(PlaceKind::Coordinates(low, high)),
            false => Err(Problem::invalid(span, "coordinates a..b go from the smaller to the larger one")),
        }
    }

    fn slice(&mut self, first: Option<Bound>) -> Result<PlaceKind> {
        let ends =
            |parser: &Self| parser.is(Sign::Colon) || parser.is(Sign::Comma) || parser.is(Sign::CloseRegion);
        let start = first.map(|bound| bound.index(self)).transpose()?;
        let stop = if ends(self) { None } else { Some(self.bound_of_place()?.index(self)?) };
        let mut step = 1;
        if self.accept(Sign::Colon) && !ends(self) {
            let bound = self.bound_of_place()?;
            step = match bound.index(self)? {
                Index::FromStart(step @ 1..) => step,
                _ => return Err(Problem::invalid(bound.span, "the distance between elements is 1 or more")),
            };
        }
        Ok(PlaceKind::Slice(Slice { start, stop, step }))
    }

    fn bound_of_place(&mut self) -> Result<Bound> {
        let first = self.token();
        let is_negative = self.accept(Sign::Minus);
        if !matches!(self.token().kind, Kind::Integer | Kind::Float) {
            return Err(self.unexpected("an index, a range a:b, coordinates a..b or '...'"));
        }
        let last = self.token();
        Ok(Bound { is_negative, number: self.literal()?, span: first.span.to(last.span) })
    }
}

/// A number in a region.
#[derive(Clone, Copy)]
struct Bound {
    is_negative: bool,
    number: Literal,
    span: Span,
}

impl Bound {
    fn coordinate(&self) -> f64 {
        let size = self.number.to_f64();
        if self.is_negative { -size } else { size }
    }

    fn index(&self, parser: &Parser<'_>) -> Result<Index> {
        let Literal::Integer(number) = self.number else {
            let what = format!(
                "found {}, expected an index; coordinates are given as a range, a..b",
                self.span.of(parser.text)
            );
            return Err(Problem::invalid(self.span, what));
        };
        let Ok(number) = u64::try_from(number) else {
            return Err(Problem::invalid(self.span, "no array has such an index"));
        };
        Ok(if self.is_negative && number > 0 { Index::FromEnd(number) } else { Index::FromStart(number) })
    }
}
