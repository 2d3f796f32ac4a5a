//! `forebay status`.

use crate::Common;
use crate::output::{Output, bytes};
use forebay_client::{Admin, Result};
use serde_json::Value;
use std::process::ExitCode;

pub(crate) fn status(common: &Common, output: &Output) -> Result<ExitCode> {
    let status = Admin::open(&common.group_options()?)?.status()?;
    output.result(&status, text);
    Ok(ExitCode::SUCCESS)
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(status: &Value) -> Vec<String> {
    let mut lines = vec![format!(
        "{:<9} {:>8} {:>22} {:>11} {:>11}",
        "SERVER", "PROCESS", "STAGED / BUDGET", "PEAK", "RSS"
    )];
    for server in list(&status["servers"]) {
        let name = format!("server{}", number(&server["server"]));
        if let Some(error) = server["error"].as_str() {
            lines.push(format!("{name:<9} {:>8} {error}", number(&server["pid"])));
            continue;
        }
        let staged = format!(
            "{} / {}",
            bytes(number(&server["staged_bytes"])),
            bytes(number(&server["budget_bytes"]))
        );
        lines.push(format!(
            "{name:<9} {:>8} {staged:>22} {:>11} {:>11}",
            number(&server["pid"]),
            bytes(number(&server["peak_staged_bytes"])),
            bytes(number(&server["rss_bytes"]))
        ));
    }
    let streams: Vec<&Value> = list(&status["servers"]).flat_map(|server| list(&server["streams"])).collect();
    if !streams.is_empty() {
        lines.push(String::new());
        lines.push(format!(
            "{:<16} {:>4} {:>7} {:>9} {:>8} {:>8} {:>10} {:>8}",
            "STREAM", "RUN", "RANKS", "CLOSED", "DROPPED", "LATEST", "HELD", "READERS"
        ));
    }
    for stream in streams {
        lines.push(format!(
            "{:<16} {:>4} {:>7} {:>9} {:>8} {:>8} {:>10} {:>8}",
            word(&stream["name"]),
            number(&stream["run"]),
            format!("{}/{}", number(&stream["ranks"][1]), number(&stream["ranks"][0])),
            number(&stream["steps"][0]),
            number(&stream["steps"][1]),
            stream["latest"].as_u64().map_or("-".to_owned(), |step| step.to_string()),
            bytes(number(&stream["held"][0])),
            number(&stream["attached"])
        ));
    }
    let left_out: u64 = list(&status["servers"]).map(|server| number(&server["streams_left_out"])).sum();
    if left_out > 0 {
        lines.push(format!("and {left_out} more streams"));
    }
    let pipelines: Vec<&Value> =
        list(&status["servers"]).flat_map(|server| list(&server["pipelines"]["coordinated"])).collect();
    if !pipelines.is_empty() {
        lines.push(String::new());
        lines.push(format!(
            "{:<12} {:<14} {:>7} {:>8} {:>7} {:>7} {:>9} {:>9}",
            "PIPELINE", "STREAM", "WORKERS", "EXECUTED", "FAILED", "MISSED", "LAST STEP", "SECONDS"
        ));
    }
    for pipeline in pipelines {
        lines.push(format!(
            "{:<12} {:<14} {:>7} {:>8} {:>7} {:>7} {:>9} {:>9.3}",
            word(&pipeline["name"]),
            word(&pipeline["stream"]),
            format!("{}/{}", number(&pipeline["workers_ready"]), number(&pipeline["workers"])),
            number(&pipeline["executed"]),
            number(&pipeline["failed"]),
            number(&pipeline["missed"]),
            pipeline["last_step"].as_u64().map_or("-".to_owned(), |step| step.to_string()),
            pipeline["last_seconds"].as_f64().unwrap_or(0.0)
        ));
        if let Some(error) = pipeline["last_error"].as_str() {
            lines.push("  last error:".into());
            lines.extend(error.lines().map(|line| format!("    {line}")));
        }
    }
    let ended = list(&status["servers"]).flat_map(|server| list(&server["pipelines"]["ended"]));
    for pipeline in ended {
        lines.push(String::new());
        lines.push(format!("Pipeline '{}' has ended: {}", word(&pipeline["name"]), word(&pipeline["error"])));
    }
    lines
}
