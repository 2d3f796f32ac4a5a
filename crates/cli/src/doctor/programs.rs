//! Other programs that users of Forebay may need.

use crate::pipeline::python;
use std::process::{Command, Stdio};

/// Draws one triangle off screen, in a process of its own: a driver that is missing kills it.
pub(super) const DRAWING: &str = "
import os
os.environ.setdefault('VTK_DEFAULT_OPENGL_WINDOW', 'vtkEGLRenderWindow')
import vtkmodules.vtkRenderingOpenGL2
from vtkmodules.vtkRenderingCore import vtkRenderWindow
window = vtkRenderWindow(); window.SetOffScreenRendering(1); window.SetSize(16, 16); window.Render()
text = window.ReportCapabilities()
print(next(line.split(':', 1)[1].strip() for line in text.splitlines() if 'renderer string' in line))
";

/// Runs a line of Python; what it prints last.
pub(super) fn run_python(code: &str) -> std::result::Result<String, String> {
    let run = Command::new(python()).args(["-c", code]).stdin(Stdio::null()).output();
    let run = run.map_err(|e| format!("python3 cannot be run: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).lines().last().unwrap_or("").trim().to_owned();
    match (run.status.success(), run.status.code()) {
        (true, _) => Ok(text(&run.stdout)),
        (false, None) => Err("it ended by a signal: there is no usable OpenGL driver".into()),
        _ => Err(text(&run.stderr)),
    }
}

/// Which MPI there is.
pub(super) fn mpi() -> std::result::Result<String, String> {
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
pub(super) fn compiler(names: &[&str]) -> std::result::Result<String, String> {
    let version = |name: &&str| {
        let run = Command::new(name).arg("--version").stdin(Stdio::null()).output().ok()?;
        String::from_utf8_lossy(&run.stdout).lines().next().map(|line| line.trim().to_owned())
    };
    names.iter().find_map(version).ok_or_else(|| format!("there is no {}", names.join(", no ")))
}
