//! The Python extension: thin, private classes that the package `forebay` wraps.
//!
//! Arrays come and go by Python's buffer protocol, which keeps what it shows alive. The interpreter is let go during
//! every call that may wait or copy.
#![allow(missing_docs)] // the package documents what users see

mod arrays;
mod buffers;
mod comm;
mod consumer;
mod errors;
mod pipeline_handle;
mod producer;
mod space;
mod timeout;
mod worker;

use forebay_client::core::ids::ServerId;
use forebay_client::transport::group_file::ConnectionFile;
use forebay_client::{Admin, PipelineSpec};
use pyo3::prelude::*;
use std::path::Path;
use timeout::Timeout;

/// Options that every handle takes.
pub(crate) fn group_options(
    group: Option<String>,
    transport: &str,
    timeout: Option<Timeout>,
) -> PyResult<forebay_client::GroupOptions> {
    let transport = forebay_client::TransportChoice::parse(transport).map_err(errors::raise)?;
    let timeout = timeout.map(Timeout::patience).transpose()?;
    Ok(forebay_client::GroupOptions { group, transport, timeout })
}

/// The status of a group, as JSON.
#[pyfunction]
fn status(
    py: Python<'_>,
    group: Option<String>,
    transport: &str,
    timeout: Option<Timeout>,
) -> PyResult<String> {
    let options = group_options(group, transport, timeout)?;
    let status = errors::waiting(py, || Admin::open(&options)?.status())?;
    Ok(status.to_string())
}

/// Creates a pipeline and waits until its workers are ready.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn create_pipeline(
    py: Python<'_>,
    group: Option<String>,
    transport: &str,
    timeout: Option<Timeout>,
    name: String,
    stream: String,
    command: Vec<String>,
    code: String,
    config: String,
    directory: String,
    driven: bool,
) -> PyResult<()> {
    let options = group_options(group, transport, timeout)?;
    let spec = PipelineSpec { name, stream, command, code, config, needs: None, driven, directory };
    errors::waiting(py, || Admin::open(&options)?.create_pipeline(&spec))
}

/// Ends a pipeline.
#[pyfunction]
fn destroy_pipeline(
    py: Python<'_>,
    group: Option<String>,
    transport: &str,
    timeout: Option<Timeout>,
    name: String,
) -> PyResult<()> {
    let options = group_options(group, transport, timeout)?;
    errors::waiting(py, || Admin::open(&options)?.destroy_pipeline(&name))
}

/// Has a server leave its group.
#[pyfunction]
fn remove_server(
    py: Python<'_>,
    group: Option<String>,
    transport: &str,
    timeout: Option<Timeout>,
    name: String,
    discard: bool,
) -> PyResult<()> {
    let options = group_options(group, transport, timeout)?;
    errors::waiting(py, || Admin::open(&options)?.remove_server(&name, discard).map(drop))
}

/// The processes of a group's members by their numbers, as its connection file names them. Asks nobody.
#[pyfunction]
fn member_processes(py: Python<'_>, group: String) -> PyResult<Vec<u32>> {
    let mut file = errors::waiting(py, || ConnectionFile::read(Path::new(&group)))?;
    file.servers.sort_by_key(|server| server.id);
    Ok(file.servers.iter().map(|server| server.pid).collect())
}

/// Has a group go on without the servers that do not answer; which those are, and which do.
#[pyfunction]
fn heal(
    py: Python<'_>,
    group: Option<String>,
    transport: &str,
    timeout: Option<Timeout>,
    force: bool,
) -> PyResult<(Vec<u32>, Vec<u32>)> {
    let options = group_options(group, transport, timeout)?;
    let (kept, given_up) = errors::waiting(py, || Admin::open(&options)?.heal(force))?;
    let numbers = |servers: Vec<_>| servers.into_iter().map(|id: ServerId| id.0).collect();
    Ok((numbers(kept), numbers(given_up)))
}

/// Ends every server of a group.
#[pyfunction]
fn shutdown(
    py: Python<'_>,
    group: Option<String>,
    transport: &str,
    timeout: Option<Timeout>,
) -> PyResult<()> {
    let options = group_options(group, transport, timeout)?;
    errors::waiting(py, || Admin::open(&options)?.shutdown().map(drop))
}

/// Names and numbers of all error kinds.
#[pyfunction]
fn error_kinds() -> Vec<(String, i32)> {
    forebay_client::ErrorKind::ALL.iter().map(|kind| (kind.name(), kind.code())).collect()
}

#[pymodule]
fn _forebay(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::watch_signals();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<producer::Producer>()?;
    module.add_class::<consumer::Consumer>()?;
    module.add_class::<consumer::Step>()?;
    module.add_class::<pipeline_handle::PipelineHandle>()?;
    module.add_class::<pipeline_handle::PipelineRequest>()?;
    module.add_class::<space::Space>()?;
    module.add_class::<worker::Worker>()?;
    module.add_class::<comm::Comm>()?;
    module.add_class::<buffers::ReadBuffer>()?;
    module.add_class::<buffers::WriteBuffer>()?;
    module.add_function(wrap_pyfunction!(status, module)?)?;
    module.add_function(wrap_pyfunction!(create_pipeline, module)?)?;
    module.add_function(wrap_pyfunction!(pipeline_handle::find_pipeline, module)?)?;
    module.add_function(wrap_pyfunction!(destroy_pipeline, module)?)?;
    module.add_function(wrap_pyfunction!(remove_server, module)?)?;
    module.add_function(wrap_pyfunction!(member_processes, module)?)?;
    module.add_function(wrap_pyfunction!(heal, module)?)?;
    module.add_function(wrap_pyfunction!(shutdown, module)?)?;
    module.add_function(wrap_pyfunction!(error_kinds, module)?)?;
    Ok(())
}
