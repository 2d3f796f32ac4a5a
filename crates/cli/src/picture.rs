//! `forebay pipeline picture`: the latest picture that a pipeline has drawn.

use crate::Common;
use crate::output::Output;
use forebay_client::core::ids::StepNumber;
use forebay_client::core::region::Region;
use forebay_client::core::selection::Selection;
use forebay_client::store::strided::Target;
use forebay_client::{Admin, Error, ErrorKind, Result, Space, SpaceOptions};
use serde_json::json;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Where pipelines keep their latest pictures: always at this step, so that each takes the place of the one before.
const STEP: StepNumber = 0;
/// How often a picture may turn out to be another one while it is fetched.
const CHANGES_MAX: u32 = 8;

/// Writes a picture to a file, or to the standard output.
pub(crate) fn picture(
    common: &Common,
    (pipeline, chosen): (&str, Option<&str>),
    path: &Path,
    output: &Output,
) -> Result<ExitCode> {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_lowercase());
    if ending.is_some_and(|ending| ending != "png") {
        let path = path.display();
        return Err(Error::invalid(format!("{path}: pictures are PNG: choose a name that ends in .png")));
    }
    let group = common.group_options()?;
    let patience = group.patience();
    let space = Space::open(&SpaceOptions::new(group))?;
    let prefix = format!("pictures/{pipeline}/");
    let listed = space.list()?;
    let pictures: Vec<&str> =
        listed.iter().filter_map(|array| array.field.name.strip_prefix(&prefix)).collect();
    let name = match (chosen, &pictures[..]) {
        (Some(chosen), _) if pictures.contains(&chosen) => chosen,
        (None, [only]) => only,
        (_, []) => return Err(none_yet(common, pipeline)),
        (Some(chosen), _) => {
            let known = pictures.join(", ");
            return Err(Error::not_found(format!(
                "pipeline '{pipeline}' has drawn no picture '{chosen}'; there are: {known}"
            )));
        }
        (None, _) => {
            let known = pictures.join(", ");
            return Err(Error::invalid(format!(
                "pipeline '{pipeline}' has drawn several pictures: say which one, as in `forebay pipeline picture {pipeline} {}`; there \
                 are: {known}",
                pictures.first().unwrap_or(&"")
            )));
        }
    };
    let bytes = fetch(&space, &format!("{prefix}{name}"), patience)?;
    let shown = path.display().to_string();
    if shown == "-" {
        std::io::stdout().write_all(&bytes).map_err(|e| Error::io("cannot write the picture", &e))?;
        return Ok(ExitCode::SUCCESS);
    }
    write(path, &bytes)?;
    let told = json!({ "pipeline": pipeline, "picture": name, "bytes": bytes.len(), "file": shown });
    output.result(&told, |_| vec![format!("{shown}: the latest '{name}' of pipeline '{pipeline}'")]);
    Ok(ExitCode::SUCCESS)
}

/// Why there is no picture.
fn none_yet(common: &Common, pipeline: &str) -> Error {
    let status = common.group_options().and_then(|group| Admin::open(&group)?.status());
    let known = status.map(|status| status.pipelines).unwrap_or_default();
    if let Some(known) = known.iter().find(|known| known.name == pipeline) {
        return Error::not_found(match (&known.ended, &known.last_error) {
            (Some(why), _) => format!("pipeline '{pipeline}' has ended, and has drawn no picture: {why}"),
            (None, Some(error)) => {
                // Of a traceback what it ends with.
                let last = error.trim_end().lines().last().unwrap_or_default();
                let times = match known.failed.unwrap_or_default() {
                    1 => "once".to_owned(),
                    times => format!("{times} times"),
                };
                format!("pipeline '{pipeline}' has drawn no picture, and failed {times}: {last}")
            }
            (None, None) => format!(
                "pipeline '{pipeline}' has drawn no picture yet: it does at the steps that its pictures are for"
            ),
        });
    }
    let known: Vec<&str> = known.iter().map(|known| &known.name[..]).collect();
    let known = if known.is_empty() { "none".into() } else { known.join(", ") };
    Error::not_found(format!("there is no pipeline '{pipeline}', and no picture of one; there are: {known}"))
}

/// All bytes of an array of bytes, as it is now.
fn fetch(space: &Space, name: &str, patience: Duration) -> Result<Vec<u8>> {
    for _ in 0..CHANGES_MAX {
        let field = space.field(name, STEP, patience)?;
        let [bytes] = field.shape.as_deref().unwrap_or_default() else {
            return Err(Error::new(ErrorKind::TypeMismatch, format!("'{name}' in the space is no picture")));
        };
        let whole = Region::new(&[0], &[*bytes])?;
        let found = match space.find(name, STEP, &whole, patience) {
            Ok(found) if found.field() == &field => found,
            // Another one took its place meanwhile.
            Ok(_) => continue,
            Err(error) if error.is_retryable() => return Err(error),
            Err(_) => continue,
        };
        let mut data = vec![0; usize::try_from(*bytes).unwrap_or(usize::MAX)];
        let selection = Selection::region(&whole);
        let target = Target::from_slice(&mut data, &selection.shape, 1)?;
        found.read(&selection, &mut target.typed(field.dtype)?)?;
        return Ok(data);
    }
    Err(Error::new(
        ErrorKind::Conflict,
        format!("'{name}' is drawn anew faster than it can be fetched: try again"),
    ))
}

/// Writes a file as a whole: who looks at it never sees half a picture.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let cannot = |e| Error::io(format!("cannot write {}", path.display()), &e);
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{}", std::process::id()));
    let partial = PathBuf::from(partial);
    let done = std::fs::write(&partial, bytes).and_then(|()| std::fs::rename(&partial, path));
    done.inspect_err(|_| drop(std::fs::remove_file(&partial))).map_err(cannot)
}
