//! `forebay pipeline ...`.

use crate::Common;
use crate::group::pause;
use crate::output::Output;
use crate::picture::picture;
use crate::status::of_reachable;
use clap::Subcommand;
use forebay_client::status::WorkerStatus;
use forebay_client::{Admin, Error, ErrorKind, GroupOptions, PipelineSpec, Result};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{Read, Seek};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How long a pipeline's code may take to be loaded unless somebody says otherwise.
const LOAD_PATIENCE: Duration = Duration::from_secs(120);

/// Pipelines run beside the data, in a worker process for each server.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum Pipeline {
    /// Create a pipeline and wait until its workers are ready
    ///
    /// Loading the code, and starting the workers after that, may take 120
    /// seconds each, or, if it is given, all of it as long as --timeout says.
    Create {
        /// Its name
        name: String,
        /// The code, as FILE.py:CLASS, or FILE.py:FUNCTION of a step
        code: String,
        /// The stream it runs on [default: the one that the class names, or the
        /// only one there is]
        #[arg(long)]
        stream: Option<String>,
        /// Its configuration: JSON, or @FILE with JSON
        #[arg(long, default_value = "{}", value_name = "JSON")]
        config: String,
        /// Run it when the simulation's ranks say so, through a handle, instead of
        /// on each closed step
        #[arg(long)]
        driven: bool,
        /// Run it at the events of this subscription of its stream alone
        #[arg(long, value_name = "SUBSCRIPTION", conflicts_with = "driven")]
        on: Option<String>,
        /// The Python to run it with [default: the one beside this command]
        #[arg(long, value_name = "PATH")]
        python: Option<PathBuf>,
    },
    /// End a pipeline and its workers
    Destroy {
        /// Its name
        name: String,
    },
    /// List pipelines
    List,
    /// Write the latest picture that a pipeline of forebay.viz has drawn
    ///
    /// It is taken from the space, while all runs: nobody waits for it.
    Picture {
        /// The pipeline's name
        name: String,
        /// Which of its pictures; of several cameras with the number of one, as
        /// in orbit-3 [default: the only one there is]
        picture: Option<String>,
        /// The file to write, or - for the standard output
        #[arg(long, short, value_name = "FILE")]
        output: PathBuf,
    },
    /// Show what the workers of a pipeline printed: the last 200 lines of each
    Log {
        /// Its name
        name: String,
    },
}

/// The Python beside this command, as in a virtual environment, or the first on the path.
pub(crate) fn python() -> PathBuf {
    let beside = std::env::current_exe().ok().and_then(|own| Some(own.parent()?.join("python3")));
    beside.filter(|python| python.exists()).unwrap_or_else(|| PathBuf::from("python3"))
}

pub(crate) fn pipeline(common: &Common, command: &Pipeline, output: &Output) -> Result<ExitCode> {
    let admin = Admin::open(&common.group_options()?)?;
    match command {
        Pipeline::Create { name, code, stream, config, driven, on, python: chosen } => {
            let python = chosen.clone().unwrap_or_else(python);
            let mut spec = spec(name, code, config, &python)?;
            (spec.driven, spec.on) = (*driven, on.clone());
            let started = Instant::now();
            spec.stream = match stream {
                Some(stream) => stream.clone(),
                None => stream_of(&admin, &spec, common.timeout.unwrap_or(LOAD_PATIENCE), output)?,
            };
            // What is left of a deadline that was given: it is one for all of this.
            let left = |timeout: Duration| timeout.saturating_sub(started.elapsed());
            let options = GroupOptions { timeout: common.timeout.map(left), ..common.group_options()? };
            Admin::open(&options)?.create_pipeline(&spec)?;
            output.result(&json!({ "created": name }), |_| vec![format!("Pipeline '{name}' is ready.")]);
        }
        Pipeline::Destroy { name } => {
            admin.destroy_pipeline(name)?;
            output.result(&json!({ "destroyed": name }), |_| vec![format!("Pipeline '{name}' has ended.")]);
        }
        Pipeline::List => {
            let status = of_reachable(&admin, output)?;
            output.result(&json!(status.pipelines), |_| crate::status::pipelines(&status.pipelines));
        }
        Pipeline::Picture { name, picture: chosen, output: path } => {
            return picture(common, (name, chosen.as_deref()), path, output);
        }
        Pipeline::Log { name } => {
            let status = of_reachable(&admin, output)?;
            let Some(pipeline) = status.pipelines.iter().find(|known| known.name == *name) else {
                let known: Vec<&str> = status.pipelines.iter().map(|known| &known.name[..]).collect();
                let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                return Err(Error::not_found(format!("there is no pipeline '{name}'; there are: {known}")));
            };
            if let Some(error) = pipeline.ended.as_ref().filter(|_| pipeline.workers.is_empty()) {
                return Err(Error::not_found(format!("pipeline '{name}' has ended: {error}")));
            }
            output.result(&json!(pipeline.workers), |_| printed(&pipeline.workers));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What workers printed, each line with the server that its worker is beside.
fn printed(workers: &[WorkerStatus]) -> Vec<String> {
    let of_worker = |worker: &WorkerStatus| {
        let server = worker.server;
        worker.log.iter().map(|line| format!("server{server}: {line}")).collect::<Vec<_>>()
    };
    workers.iter().flat_map(of_worker).collect()
}

fn spec(name: &str, code: &str, config: &str, python: &Path) -> Result<PipelineSpec> {
    let (file, class) = code.rsplit_once(':').ok_or_else(|| {
        Error::invalid(format!("'{code}' does not name a pipeline's code: write FILE.py:CLASS"))
    })?;
    let file = std::fs::canonicalize(file)
        .map_err(|e| Error::io(format!("cannot find the pipeline's file {file}"), &e))?;
    let config = match config.strip_prefix('@') {
        Some(path) => {
            std::fs::read_to_string(path).map_err(|e| Error::io(format!("cannot read {path}"), &e))?
        }
        None => config.to_owned(),
    };
    let parsed: Value =
        serde_json::from_str(&config).map_err(|e| Error::invalid(format!("--config is no JSON: {e}")))?;
    if !parsed.is_object() {
        return Err(Error::invalid("--config must be a JSON object, such as '{\"isovalue\": 0.3}'"));
    }
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let directory =
        std::env::current_dir().map_err(|e| Error::io("cannot tell the working directory", &e))?;
    Ok(PipelineSpec {
        name: name.to_owned(),
        stream: String::new(),
        command: vec![text(python), "-m".into(), "forebay.worker".into()],
        code: format!("{}:{class}", text(&file)),
        config,
        needs: None,
        driven: false,
        on: None,
        otherwise_needs: None,
        directory: text(&directory),
    })
}

/// What the code says of itself when it is loaded.
fn describe(spec: &PipelineSpec, patience: Duration) -> Result<String> {
    let Some((program, arguments)) = spec.command.split_first() else {
        return Err(Error::invalid("no command"));
    };
    let failed = |e| Error::io(format!("cannot run {program}"), &e);
    // Not pipes, which would have to be read meanwhile, and which what the code starts may keep open.
    let memory = |name| -> std::io::Result<File> {
        Ok(rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC)?.into())
    };
    let (mut out, mut errors) = (memory("stdout").map_err(failed)?, memory("stderr").map_err(failed)?);
    let mut command = Command::new(program);
    command.args(arguments).args(["--describe", "--code", &spec.code]).stdin(Stdio::null());
    command.stdout(out.try_clone().map_err(failed)?).stderr(errors.try_clone().map_err(failed)?);
    let mut child = command.spawn().map_err(failed)?;
    let deadline = Instant::now() + patience;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if Instant::now() >= deadline {
            child.kill().and_then(|()| child.wait()).map_err(failed)?;
            return Err(Error::timeout(format!(
                "{} was not loaded within {patience:.1?}: does it wait for something when it is imported? Say with \
                 --stream which stream it runs on, or give it longer with --timeout",
                spec.code
            )));
        }
        pause();
    };
    let text = |file: &mut File| {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).map_err(failed)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    if status.success() {
        return text(&mut out);
    }
    Err(Error::new(ErrorKind::PipelineFailed, text(&mut errors)?.trim()))
}

/// The stream that the pipeline's class names, or the only one that the group has. The code is loaded in a
/// process of its own.
fn stream_of(admin: &Admin, spec: &PipelineSpec, patience: Duration, output: &Output) -> Result<String> {
    let said = describe(spec, patience)?;
    let described: Value = serde_json::from_str(said.lines().last().unwrap_or("")).unwrap_or_default();
    if let Some(stream) = described["stream"].as_str() {
        return Ok(stream.to_owned());
    }
    let status = of_reachable(admin, output)?;
    let streams: Vec<&str> = status.streams.iter().map(|stream| &stream.name[..]).collect();
    match streams[..] {
        [only] => Ok(only.to_owned()),
        [] => {
            Err(Error::invalid("say which stream the pipeline runs on with --stream: the group has none yet"))
        }
        _ => Err(Error::invalid(format!(
            "say with --stream which the pipeline runs on: {}",
            streams.join(", ")
        ))),
    }
}
