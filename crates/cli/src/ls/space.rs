//! The arrays that the space keeps.

use crate::Common;
use crate::output::{Output, bytes};
use crate::table::Table;
use forebay_client::{Error, Result, Space, SpaceArray, SpaceOptions};
use serde_json::{Value, json};
use std::process::ExitCode;

/// Lists the arrays whose names match.
pub(super) fn list(common: &Common, pattern: Option<&str>, out: &Output) -> Result<ExitCode> {
    let options = SpaceOptions::new(common.group_options()?);
    let pattern = pattern.map(glob::Pattern::new).transpose();
    let pattern = pattern.map_err(|error| Error::invalid(format!("the pattern of names: {error}")))?;
    let matches = |name: &str| pattern.as_ref().is_none_or(|pattern| pattern.matches(name));
    let arrays: Vec<SpaceArray> =
        Space::open(&options)?.list()?.into_iter().filter(|array| matches(&array.field.name)).collect();
    let told: Vec<Value> = arrays.iter().map(SpaceArray::to_json).collect();
    out.result(&json!(told), |_| {
        let mut table = Table::new(["ARRAY", ">STEP", "DTYPE", "SHAPE", ">BLOCKS", ">SIZE"]);
        for SpaceArray { field, step, blocks, bytes: size } in &arrays {
            let shape = super::joined(field.shape.as_deref().unwrap_or_default(), ", ");
            table.row([
                field.name.clone(),
                step.to_string(),
                field.dtype.to_string(),
                format!("({shape})"),
                blocks.to_string(),
                bytes(*size),
            ]);
        }
        table.lines()
    });
    Ok(ExitCode::SUCCESS)
}
