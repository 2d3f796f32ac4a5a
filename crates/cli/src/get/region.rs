//! The part of a field that is read: as it is written on the command line.

use forebay_client::core::contract::Field;
use forebay_client::core::region::Dims;
use forebay_client::{Error, Result, Selection};

/// Parses `a:b:c, i, :` against a field's shape. A single index keeps its dimension, with extent 1.
pub(super) fn parse_region(field: &Field, text: Option<&str>) -> Result<Selection> {
    let global = field.shape.as_deref().ok_or_else(|| {
        Error::invalid(format!("field '{}' has no global shape; read its blocks from Python", field.name))
    })?;
    let bad = |part: &str| {
        Error::invalid(format!(
            "--region '{part}' is not understood: write a:b, a:b:step with a step from 1, i or :"
        ))
    };
    let outside = |index: i128, d: usize, extent: u64| {
        Error::out_of_bounds(format!(
            "--region: index {index} is outside dimension {d} of field '{}', which has {extent}",
            field.name
        ))
    };
    let text = text.unwrap_or("").trim().trim_start_matches('[').trim_end_matches(']');
    let parts: Vec<&str> =
        if text.is_empty() { Vec::new() } else { text.split(',').map(str::trim).collect() };
    if parts.len() > global.len() {
        return Err(Error::out_of_bounds(format!(
            "--region has {} dimensions, field '{}' {}",
            parts.len(),
            field.name,
            global.len()
        )));
    }
    let (mut offset, mut shape, mut step) = (Dims::new(), Dims::new(), Dims::new());
    for (d, extent) in global.iter().enumerate() {
        let part = parts.get(d).copied().unwrap_or(":");
        let fields: Vec<&str> = part.split(':').map(str::trim).collect();
        let index = |text: &str, default: u64| -> Result<u64> {
            if text.is_empty() {
                return Ok(default);
            }
            let value: i128 = text.parse().map_err(|_| bad(part))?;
            let counted = if value < 0 { value + i128::from(*extent) } else { value };
            u64::try_from(counted).map_err(|_| outside(value, d, *extent))
        };
        let single = |text: &str| match index(text, 0)? {
            found if found < *extent && !text.is_empty() => Ok(found),
            _ if text.is_empty() => Err(bad(part)),
            found => Err(outside(i128::from(found), d, *extent)),
        };
        let (first, end, every) = match fields[..] {
            [one] => (single(one)?, single(one)? + 1, 1),
            [first, end] => (index(first, 0)?, index(end, *extent)?.min(*extent), 1),
            [first, end, every] => {
                let every = if every.is_empty() { Ok(1) } else { every.parse() };
                (index(first, 0)?, index(end, *extent)?.min(*extent), every.map_err(|_| bad(part))?)
            }
            _ => return Err(bad(part)),
        };
        if every == 0 {
            return Err(bad(part));
        }
        offset.push(first);
        shape.push(end.saturating_sub(first).div_ceil(every));
        step.push(every);
    }
    Ok(Selection { offset, shape, step })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_client::ErrorKind;
    use forebay_client::core::dtype::Dtype;

    #[test]
    fn regions_are_parsed_as_in_numpy() {
        let field = Field::new("U", Dtype::F64, Some(&[10, 7, 5]), 3);
        let parse = |text: &str| {
            parse_region(&field, Some(text)).map(|s| (s.offset.to_vec(), s.shape.to_vec(), s.step.to_vec()))
        };
        assert_eq!(parse("2:4, :, -1").unwrap(), (vec![2, 0, 4], vec![2, 7, 1], vec![1, 1, 1]));
        assert_eq!(parse("1:100:4").unwrap(), (vec![1, 0, 0], vec![3, 7, 5], vec![4, 1, 1]));
        assert_eq!(parse("").unwrap().1, [10, 7, 5]);
        for bad in ["a", "1:2:0", "1:2:3:4", ":,:,:,:", "1,,2"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        for (outside, told) in [("-11", "index -11"), (":, 7", "index 7"), ("10", "dimension 0")] {
            let error = parse(outside).unwrap_err();
            assert!(error.kind == ErrorKind::OutOfBounds && error.text.contains(told), "{error}");
        }
    }
}
