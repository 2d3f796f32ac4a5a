//! `forebay doctor`: what is missing on this machine, and the remedy.
//!
//! - [`machine`]: what the kernel and its limits refuse; [`versions`]: what is installed, and what runs; [`programs`]: what else
//!   there is.

mod machine;
mod programs;
mod versions;

use crate::Common;
use crate::output::Output;
use forebay_client::Result;
use programs::{DRAWING, compiler, mpi, run_python};
use serde_json::{Value, json};
use std::process::ExitCode;

/// One thing that was looked at.
struct Check {
    name: &'static str,
    /// Whether Forebay cannot work without it.
    needed: bool,
    result: std::result::Result<String, String>,
    remedy: &'static str,
}

/// Looks at everything.
fn checks(common: &Common) -> Result<Vec<Check>> {
    let group = common.group.as_deref();
    let machine = [
        ("system", machine::system(), "Linux 5.3 or newer is needed"),
        (
            "shared memory",
            machine::shared_memory(),
            "needs /proc, and a container's filter that lets memfd_create and file seals through; check `ulimit -v` and `ulimit -f`",
        ),
        ("memory", machine::memory(), "free memory, or give servers a small --budget"),
        ("open files", machine::open_files(), "raise the limit: `ulimit -n 4096`"),
        (
            "runtime directory",
            machine::place(),
            "set XDG_RUNTIME_DIR to a directory of yours (mode 700), or use --group with a path",
        ),
        (
            "locks and links",
            machine::locks(group),
            "put the connection file on another file system: --group with a path",
        ),
    ];
    let machine = machine.map(|(name, result, remedy)| Check { name, needed: true, result, remedy });
    let installed = Check {
        name: "versions",
        needed: true,
        result: versions::installed(),
        remedy: "install one release: the command, the package and the library come together",
    };
    let running = Check {
        name: "group",
        needed: false,
        result: versions::group(&common.group_options()?),
        remedy: "`forebay up` starts a group; one of another release is started again with this one, or used with its own",
    };
    Ok(machine.into_iter().chain([installed, running]).chain(others()).collect())
}

/// What only some need.
fn others() -> Vec<Check> {
    vec![
        Check {
            name: "watching processes",
            needed: false,
            result: machine::watching(),
            remedy: "needs Linux 5.3, and a container's filter that lets pidfd_open through; without it processes are looked at five times a second",
        },
        Check {
            name: "limits",
            needed: false,
            result: machine::limits(),
            remedy: "raise them where servers start: they bound what servers can hold and readers can map",
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

pub(crate) fn doctor(common: &Common, output: &Output) -> Result<ExitCode> {
    let checks = checks(common)?;
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
