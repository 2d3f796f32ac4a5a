//! Pictures of all ranks are put together into one.

use super::given::{check_apart, part};
use super::memory::{Access, Part};
use crate::errors::{raise, waiting};
use forebay_client::Error;
use forebay_client::comm::{self, Bounds, Channel, Comm, Datatype, Layer, View};
use pyo3::prelude::*;

type Given<'a, 'py> = &'a Bound<'py, PyAny>;
/// Positions and colours.
type Layers<'py> = Vec<(u32, Bound<'py, PyAny>)>;
/// The lowest and the highest corner.
type Corners = ([f64; 3], [f64; 3]);

/// Fails unless elements are of one of these types.
fn check_type(name: &str, part: &Part, expected: &[Datatype]) -> PyResult<Datatype> {
    part.element.datatype.filter(|found| expected.contains(found)).ok_or_else(|| {
        let expected: Vec<String> = expected.iter().map(|expected| format!("{expected:?}")).collect();
        raise(Error::invalid(format!("{name} are {}, not {}", expected.join(" or "), part.element)))
    })
}

pub(super) fn nearest(
    py: Python<'_>,
    comm: &Comm,
    root: Option<u32>,
    (colors, depths): (Given<'_, '_>, Given<'_, '_>),
    (far, with_depths): (f32, bool),
) -> PyResult<()> {
    let (mut colors, mut depths) = (part(colors, Access::Writes)?, part(depths, Access::Writes)?);
    check_type("colors", &colors, &[Datatype::UInt8])?;
    check_type("depths", &depths, &[Datatype::Float32])?;
    check_apart(Some(&colors), &depths)?;
    waiting(py, || comm.composite_nearest(root, (colors.slice_mut(), depths.slice_mut()), far, with_depths))
}

pub(super) fn over(
    py: Python<'_>,
    comm: &Comm,
    root: Option<u32>,
    layers: Layers<'_>,
    into: Option<Given<'_, '_>>,
) -> PyResult<()> {
    let mut into = into.map(|into| part(into, Access::Writes)).transpose()?;
    let parts: Vec<(u32, Part)> = layers
        .into_iter()
        .map(|(position, colors)| Ok((position, part(&colors, Access::Reads)?)))
        .collect::<PyResult<_>>()?;
    for (_, part) in &parts {
        into.as_ref().map_or(Ok(()), |into| check_apart(Some(part), into))?;
    }
    let all: Vec<&Part> = parts.iter().map(|(_, part)| part).chain(&into).collect();
    let Some(first) = all.first() else {
        let text = "one that has no layer gives `into` all the same: it tells how large the picture is";
        return Err(raise(Error::invalid(text)));
    };
    let datatype = check_type("colors", first, &[Datatype::UInt8, Datatype::Float32])?;
    for part in &all {
        check_type("colors", part, &[datatype])?;
        if part.bytes() != first.bytes() {
            let text = "layers and what they are put together in are of one size";
            return Err(raise(Error::invalid(text)));
        }
    }
    let channel = if datatype == Datatype::UInt8 { Channel::UInt8 } else { Channel::Float32 };
    let pixels = first.bytes() / (4 * datatype.size());
    let into = into.as_mut().map(Part::slice_mut);
    let layers: Vec<Layer<'_>> =
        parts.iter().map(|(position, part)| Layer { position: *position, colors: part.slice() }).collect();
    waiting(py, || comm.composite_over(root, (pixels, channel), &layers, into))
}

#[pyfunction]
pub(crate) fn front_to_back(
    boxes: Vec<Corners>,
    point: [f64; 3],
    is_direction: bool,
) -> PyResult<Vec<usize>> {
    let boxes: Vec<Bounds> = boxes.into_iter().map(|(low, high)| Bounds { low, high }).collect();
    let view = if is_direction { View::Along(point) } else { View::From(point) };
    comm::front_to_back(&boxes, view).map_err(raise)
}
