//! `forebay doctor`: what is missing on this machine, and the remedy.

use crate::output::{Output, bytes};
use crate::pipeline::python;
use forebay_client::Result;
use forebay_client::store::budget::available_memory;
use forebay_client::store::{Access, Arena};
use forebay_client::transport::connection_file::runtime_directory;
use serde_json::{Value, json};
use std::process::{Command, ExitCode, Stdio};

/// One thing that was looked at.
struct Check {
    name: &'static str,
    /// Whether Forebay cannot work without it.
    needed: bool,
    result: std::result::Result<String, String>,
    remedy: &'static str,
}

/// Looks at everything.
fn checks() -> Vec<Check> {
    vec![
        Check {
            name: "shared memory",
            needed: true,
            result: shared_memory(),
            remedy: "needs Linux 3.17 or newer with /proc mounted; check `ulimit -v`",
        },
        Check {
            name: "memory",
            needed: true,
            result: memory(),
            remedy: "free memory, or give servers a small --budget",
        },
        Check {
            name: "runtime directory",
            needed: true,
            result: runtime_directory().map(|path| path.display().to_string()).map_err(|e| e.text),
            remedy: "set XDG_RUNTIME_DIR to a directory of yours (mode 700), or use --group with a path",
        },
        Check {
            name: "open files",
            needed: true,
            result: open_files(),
            remedy: "raise the limit: `ulimit -n 4096`",
        },
        Check {
            name: "Python package",
            needed: false,
            result: run_python(
                "import forebay, numpy; print('forebay', forebay.__version__, 'numpy', numpy.__version__)",
            ),
            remedy: "make build, or pip install forebay: needed for pipelines and benchmarks",
        },
        Check {
            name: "VTK",
            needed: false,
            result: run_python("import vtkmodules; print('VTK', vtkmodules.__version__)"),
            remedy: "pip install vtk: needed for pipelines that draw",
        },
        Check {
            name: "drawing",
            needed: false,
            result: run_python(DRAWING),
            remedy: "apt-get install libegl1 libgl1-mesa-dri: needed for drawing off screen",
        },
        Check {
            name: "MPI",
            needed: false,
            result: mpi(),
            remedy: "pip install mpich: needed for the demo; simulations use their own",
        },
        Check {
            name: "C compiler",
            needed: false,
            result: compiler(&["cc", "gcc", "clang"]),
            remedy: "apt-get install gcc: needed for simulations in C, and for `forebay bench`",
        },
        Check {
            name: "Fortran compiler",
            needed: false,
            result: compiler(&["gfortran", "flang", "ifx"]),
            remedy: "apt-get install gfortran: needed for simulations in Fortran",
        },
    ]
}

pub(crate) fn doctor(output: &Output) -> Result<ExitCode> {
    let checks = checks();
    let value: Vec<Value> = checks
        .iter()
        .map(|check| {
            json!({
                "check": check.name, "ok": check.result.is_ok(), "needed": check.needed,
                "found": check.result.as_deref().unwrap_or_else(|error| error),
                "remedy": check.result.is_err().then_some(check.remedy),
            })
        })
        .collect();
    output.result(&json!(value), |_| {
        let mut lines = Vec::new();
        for check in &checks {
            match &check.result {
                Ok(found) => lines.push(format!("ok       {:<18} {found}", check.name)),
                Err(error) => {
                    let mark = if check.needed { "MISSING" } else { "absent" };
                    lines.push(format!("{mark:<8} {:<18} {error}", check.name));
                    lines.push(format!("         {:<18} remedy: {}", "", check.remedy));
                }
            }
        }
        lines
    });
    let well = checks.iter().all(|check| check.result.is_ok() || !check.needed);
    Ok(if well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Draws one triangle off screen, in a process of its own: a driver that is missing kills it.
const DRAWING: &str = "
import os
os.environ.setdefault('VTK_DEFAULT_OPENGL_WINDOW', 'vtkEGLRenderWindow')
import vtkmodules.vtkRenderingOpenGL2
from vtkmodules.vtkRenderingCore import vtkRenderWindow
window = vtkRenderWindow(); window.SetOffScreenRendering(1); window.SetSize(16, 16); window.Render()
text = window.ReportCapabilities()
print(next(line.split(':', 1)[1].strip() for line in text.splitlines() if 'renderer string' in line))
";

fn shared_memory() -> std::result::Result<String, String> {
    let mut arena = Arena::create(1 << 20).map_err(|e| e.text)?;
    let range = arena.reserve(4096).ok_or("no room in a new arena")?;
    arena.mapping().and_then(|mapping| mapping.write(range.offset, b"forebay")).map_err(|e| e.text)?;
    let file = arena.readable_descriptor().map_err(|e| e.text)?;
    let mapping = forebay_client::store::Mapping::new(std::os::fd::AsFd::as_fd(&file), 4096, Access::Read);
    let mut bytes = [0; 7];
    mapping.and_then(|mapping| mapping.read(range.offset, &mut bytes)).map_err(|e| e.text)?;
    Ok("memory files can be shared".into())
}

fn memory() -> std::result::Result<String, String> {
    let free = available_memory();
    if free < 256 << 20 {
        Err(format!("only {} are free", bytes(free)))
    } else {
        Ok(format!("{} are free", bytes(free)))
    }
}

fn open_files() -> std::result::Result<String, String> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    if limit < 256 {
        Err(format!("only {limit} files may be open"))
    } else {
        Ok(format!("{limit} files may be open"))
    }
}

fn run_python(code: &str) -> std::result::Result<String, String> {
    let run = Command::new(python()).args(["-c", code]).stdin(Stdio::null()).output();
    let run = run.map_err(|e| format!("python3 cannot be run: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().last().unwrap_or("").trim().to_owned();
    match (run.status.success(), run.status.code()) {
        (true, _) => Ok(text(&run.stdout)),
        (false, None) => Err("it ended by a signal: there is no usable OpenGL driver".into()),
        _ => Err(text(&run.stderr)),
    }
}

fn mpi() -> std::result::Result<String, String> {
    let beside = python().with_file_name("mpiexec");
    let program = if beside.exists() { beside } else { "mpiexec".into() };
    let run = Command::new(&program).arg("--version").stdin(Stdio::null()).output();
    let run = run.map_err(|_| "there is no mpiexec".to_owned())?;
    let text = String::from_utf8_lossy(&run.stdout);
    // MPICH's mpiexec prints a table with its version, Open MPI's a line.
    let version = text.lines().find_map(|line| line.trim_start().strip_prefix("Version:"));
    let first = || text.lines().find(|line| !line.trim().is_empty()).unwrap_or("mpiexec");
    let told = version.map_or_else(|| first().to_owned(), |version| format!("MPICH {version}"));
    Ok(told.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The first of these programs that there is, and what it says of its version.
fn compiler(names: &[&str]) -> std::result::Result<String, String> {
    let version = |name: &&str| {
        let run = Command::new(name).arg("--version").stdin(Stdio::null()).output().ok()?;
        String::from_utf8_lossy(&run.stdout).lines().next().map(|line| line.trim().to_owned())
    };
    names.iter().find_map(version).ok_or_else(|| format!("there is no {}", names.join(", no ")))
}
