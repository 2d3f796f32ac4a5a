//! Expressions by themselves.

use crate::errors::raise;
use forebay_client::core::contract::Field;
use forebay_client::core::dtype::Dtype;
use forebay_client::query::{Purpose, Schema, Syntax, check};
use pyo3::prelude::*;

/// Parses and checks an expression of these fields: their names, types and shapes.
#[pyfunction]
pub(crate) fn check_expression(text: &str, fields: Vec<(String, String, Vec<u64>)>) -> PyResult<()> {
    let field = |(name, dtype, shape): (String, String, Vec<u64>)| {
        let dtype = Dtype::parse(&dtype).map_err(raise)?;
        Ok(Field::new(&name, dtype, Some(&shape), shape.len()))
    };
    let fields = fields.into_iter().map(field).collect::<PyResult<Vec<Field>>>()?;
    let syntax = Syntax::parse(text).map_err(raise)?;
    let schema = Schema::new(Some("s")).with("s", fields);
    check(&syntax, &schema, Purpose::Watch).map_err(raise)?;
    Ok(())
}
