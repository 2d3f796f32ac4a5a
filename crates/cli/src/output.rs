//! Printing, as text for people or JSON for programs.
#![allow(clippy::print_stdout, clippy::print_stderr)] // this is the command line's face

use forebay_client::Error;
use serde_json::{Value, json};
use std::io::Write;

/// Where results go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) fn new(json: bool) -> Output {
        Output { json }
    }

    /// Whether results are printed as JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.json
    }

    /// Prints a result: as JSON, or as the lines that `text` makes of it.
    pub(crate) fn result(&self, value: &Value, text: impl FnOnce(&Value) -> Vec<String>) {
        let mut out = std::io::stdout().lock();
        // A closed pipe (`| head`) is no failure.
        if self.json {
            let _ = writeln!(out, "{value:#}");
        } else {
            for line in text(value) {
                let _ = writeln!(out, "{}", line.trim_end());
            }
        }
    }

    /// Prints what people should know beside a result.
    pub(crate) fn remark(&self, text: &str) {
        eprintln!("forebay: {text}");
    }

    /// Prints an error.
    pub(crate) fn error(&self, error: &Error) {
        if self.json {
            let mut value = json!({ "error": error.kind.name(), "text": error.text });
            if let Some(server) = error.server() {
                value["server"] = json!(server.0);
            }
            // On one line, as what is printed again and again has its lines.
            let _ = writeln!(std::io::stdout().lock(), "{value}");
        }
        eprintln!("forebay: {}", error.text);
    }
}

/// A value for people, complex ones as NumPy shows them.
pub(crate) fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(pair) => {
            let parts: Vec<String> = pair.iter().map(text).collect();
            let sign = if parts.last().is_some_and(|im| im.starts_with('-')) { "" } else { "+" };
            format!("{}j", parts.join(sign))
        }
        number => number.to_string(),
    }
}

/// Bytes for people.
pub(crate) fn bytes(n: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = n as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{n} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_are_readable() {
        assert_eq!(super::bytes(17), "17 B");
        assert_eq!(super::bytes(3 << 20), "3.0 MiB");
    }
}
