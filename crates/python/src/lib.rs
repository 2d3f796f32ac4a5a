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
mod expressions;
mod given;
mod options;
mod pipeline_handle;
mod producer;
mod space;
mod stream;
mod subscription;
mod timeout;
mod worker;

use forebay_client::core::ids::ServerId;
use forebay_client::transport::connection_file::ConnectionFile;
use forebay_client::{Admin, Group, GroupOptions, PipelineSpec};
use options::AdminGiven;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;

/// The status of a group, as JSON.
#[pyfunction]
fn status(py: Python<'_>, options: AdminGiven) -> PyResult<String> {
    let options = options.options()?;
    let status = errors::waiting(py, || Admin::open(&options)?.status())?;
    Ok(status.to_json().to_string())
}

/// What is needed of a stream, as JSON.
#[pyfunction]
fn contracts(py: Python<'_>, options: AdminGiven, stream: String) -> PyResult<String> {
    let options = options.options()?;
    let contracts = errors::waiting(py, || Admin::open(&options)?.contracts(&stream))?;
    Ok(contracts.to_json().to_string())
}

/// Creates a pipeline and waits until its workers are ready.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
fn create_pipeline(
    py: Python<'_>,
    options: AdminGiven,
    name: String,
    stream: String,
    command: Vec<String>,
    code: String,
    config: String,
    directory: String,
    driven: bool,
    on: Option<String>,
) -> PyResult<()> {
    let options = options.options()?;
    let spec = PipelineSpec {
        name,
        stream,
        command,
        code,
        config,
        needs: None,
        otherwise_needs: None,
        driven,
        on,
        directory,
    };
    errors::waiting(py, || Admin::open(&options)?.create_pipeline(&spec))
}

/// Ends a pipeline.
#[pyfunction]
fn destroy_pipeline(py: Python<'_>, options: AdminGiven, name: String) -> PyResult<()> {
    let options = options.options()?;
    errors::waiting(py, || Admin::open(&options)?.destroy_pipeline(&name))
}

/// Looks whether there is such a group, waiting for one that is forming. Connects to nothing.
#[pyfunction]
fn find_group(py: Python<'_>, options: AdminGiven) -> PyResult<()> {
    let options = options.options()?;
    errors::waiting(py, || Group::find(&options).map(drop))
}

/// Has a server leave its group.
#[pyfunction]
fn remove_server(py: Python<'_>, options: AdminGiven, server: u32, discard: bool) -> PyResult<()> {
    let options = options.options()?;
    errors::waiting(py, || Admin::open(&options)?.remove_server(ServerId(server), discard).map(drop))
}

/// The processes of a group's members, by their numbers, as its connection file names them. Asks nobody.
#[pyfunction]
fn member_processes(py: Python<'_>, group: String) -> PyResult<BTreeMap<u32, u32>> {
    let file = errors::waiting(py, || ConnectionFile::read(Path::new(&group)))?;
    Ok(file.servers.iter().map(|server| (server.id.0, server.pid)).collect())
}

/// The text of a group's connection file.
#[pyfunction]
fn group_text(py: Python<'_>, group: Option<String>) -> PyResult<String> {
    let options = GroupOptions { group, ..GroupOptions::default() };
    errors::waiting(py, || Group::text_for_others(&options))
}

/// The job of this process, as its launcher names it; empty if it does not.
#[pyfunction]
fn job_name() -> String {
    forebay_client::job_name()
}

/// A name that no other job has.
#[pyfunction]
fn new_job_name() -> String {
    forebay_client::new_job_name()
}

/// Has a group go on without the servers that do not answer; which those are, and which do.
#[pyfunction]
fn heal(py: Python<'_>, options: AdminGiven, force: bool) -> PyResult<(Vec<u32>, Vec<u32>)> {
    let options = options.options()?;
    let (kept, given_up) = errors::waiting(py, || Admin::open(&options)?.heal(force))?;
    let numbers = |servers: Vec<_>| servers.into_iter().map(|id: ServerId| id.0).collect();
    Ok((numbers(kept), numbers(given_up)))
}

/// Ends every server of a group.
#[pyfunction]
fn shutdown(py: Python<'_>, options: AdminGiven) -> PyResult<()> {
    let options = options.options()?;
    errors::waiting(py, || Admin::open(&options)?.shutdown().map(drop))
}

/// Names and numbers of all error kinds, and whether trying again may help.
#[pyfunction]
fn error_kinds() -> Vec<(String, i32, bool)> {
    forebay_client::ErrorKind::ALL
        .iter()
        .map(|kind| (kind.name(), kind.code(), kind.is_retryable()))
        .collect()
}

#[pymodule]
fn _forebay(module: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::watch_signals();
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<producer::Producer>()?;
    module.add_class::<consumer::Consumer>()?;
    module.add_class::<consumer::Step>()?;
    module.add_class::<stream::Looked>()?;
    module.add_class::<stream::HeldSteps>()?;
    module.add_class::<subscription::Subscriber>()?;
    module.add_class::<subscription::Subscription>()?;
    module.add_class::<pipeline_handle::PipelineHandle>()?;
    module.add_class::<pipeline_handle::PipelineRequest>()?;
    module.add_class::<space::Space>()?;
    module.add_class::<worker::Worker>()?;
    module.add_class::<comm::Comm>()?;
    module.add_class::<comm::Datatype>()?;
    module.add_class::<comm::Op>()?;
    module.add_class::<comm::Request>()?;
    module.add_class::<buffers::ReadBuffer>()?;
    module.add_class::<buffers::WriteBuffer>()?;
    module.add_function(wrap_pyfunction!(find_group, module)?)?;
    module.add_function(wrap_pyfunction!(expressions::check_expression, module)?)?;
    module.add_function(wrap_pyfunction!(status, module)?)?;
    module.add_function(wrap_pyfunction!(contracts, module)?)?;
    module.add_function(wrap_pyfunction!(subscription::subscriptions, module)?)?;
    module.add_function(wrap_pyfunction!(subscription::change_subscription, module)?)?;
    module.add_function(wrap_pyfunction!(create_pipeline, module)?)?;
    module.add_function(wrap_pyfunction!(pipeline_handle::find_pipeline, module)?)?;
    module.add_function(wrap_pyfunction!(destroy_pipeline, module)?)?;
    module.add_function(wrap_pyfunction!(remove_server, module)?)?;
    module.add_function(wrap_pyfunction!(member_processes, module)?)?;
    module.add_function(wrap_pyfunction!(heal, module)?)?;
    module.add_function(wrap_pyfunction!(shutdown, module)?)?;
    module.add_function(wrap_pyfunction!(group_text, module)?)?;
    module.add_function(wrap_pyfunction!(comm::compositing::front_to_back, module)?)?;
    module.add_function(wrap_pyfunction!(job_name, module)?)?;
    module.add_function(wrap_pyfunction!(new_job_name, module)?)?;
    module.add_function(wrap_pyfunction!(errors::end_waits_at_exit, module)?)?;
    module.add_function(wrap_pyfunction!(errors::end_waits, module)?)?;
    module.add_function(wrap_pyfunction!(error_kinds, module)?)?;
    Ok(())
}
