//! `forebay config`: what compilers and build systems need, and where it is.

use crate::output::Output;
use forebay_client::{Error, Result};
use serde_json::{Map, Value, json};
use std::env;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Say what to compile and link programs with
///
///     cc program.c $(forebay config --cflags --libs)
///
/// What is asked for is printed on one line; without options all of it.
#[derive(Debug, Clone, clap::Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct Config {
    /// Flags for the compiler
    #[arg(long)]
    cflags: bool,
    /// Flags for the linker
    #[arg(long)]
    libs: bool,
    /// The source of the Fortran module, to be compiled with yours
    #[arg(long)]
    fortran: bool,
    /// The directory that Forebay is installed in
    #[arg(long)]
    prefix: bool,
    /// The directory of the headers
    #[arg(long)]
    includedir: bool,
    /// The directory of the library
    #[arg(long)]
    libdir: bool,
    /// The directory of the CMake package
    #[arg(long)]
    cmakedir: bool,
    /// The directory of the pkg-config file
    #[arg(long)]
    pkgconfigdir: bool,
    /// The version
    #[arg(long)]
    version: bool,
}

pub(crate) fn config(asked: &Config, output: &Output) -> Result<ExitCode> {
    let prefix = prefix()?;
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    for needed in [include.join("forebay.h"), lib.join("libforebay.so.0")] {
        if !needed.exists() {
            return Err(Error::not_found(format!(
                "{} is not there: this command was installed without the library and its headers, as `pip install \
                 --target` does; install Forebay with `pip install` into an environment, or with `make install`",
                needed.display()
            )));
        }
    }
    let shown = |path: &Path| path.display().to_string();
    let all = [
        ("cflags", asked.cflags, format!("-I{}", shown(&include))),
        ("libs", asked.libs, libs(&lib)),
        ("fortran", asked.fortran, shown(&include.join("forebay/forebay.f90"))),
        ("prefix", asked.prefix, shown(&prefix)),
        ("includedir", asked.includedir, shown(&include)),
        ("libdir", asked.libdir, shown(&lib)),
        ("cmakedir", asked.cmakedir, shown(&lib.join("cmake/forebay"))),
        ("pkgconfigdir", asked.pkgconfigdir, shown(&lib.join("pkgconfig"))),
        ("version", asked.version, env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let table: Map<String, Value> =
        all.iter().map(|(name, _, text)| ((*name).to_owned(), json!(text))).collect();
    output.result(&Value::Object(table), |_| {
        let wanted: Vec<&str> =
            all.iter().filter(|(_, wanted, _)| *wanted).map(|(_, _, text)| &text[..]).collect();
        match wanted.is_empty() {
            true => all.iter().map(|(name, _, text)| format!("{name:<12}  {text}")).collect(),
            false => vec![wanted.join(" ")],
        }
    });
    Ok(ExitCode::SUCCESS)
}

/// A linker finds what is in a system's own directories by itself.
fn libs(lib: &Path) -> String {
    let is_system = ["/usr/lib", "/lib"].iter().any(|system| lib == Path::new(system));
    if is_system { "-lforebay".into() } else { format!("-L{0} -Wl,-rpath,{0} -lforebay", lib.display()) }
}

/// Where this command is installed: the directory above its `bin`.
fn prefix() -> Result<PathBuf> {
    let this = env::current_exe().map_err(|e| Error::io("cannot find out where this command is", &e))?;
    let this = this.canonicalize().unwrap_or(this);
    let above = this.parent().and_then(Path::parent);
    above.map(Path::to_path_buf).ok_or_else(|| Error::not_found(format!("{} is in no `bin`", this.display())))
}
