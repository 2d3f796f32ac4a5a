//! Times as people write them: 20, 20s, 1.5m.

use std::time::Duration;

/// What a number may be followed by, and how many seconds that is.
const UNITS: [(&str, f64); 5] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0), ("d", 86400.0)];

/// A time: a number of seconds, or one with its unit.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let bad = || format!("'{text}' is no duration: write 20, 20s, 1.5m, 2h or 500ms");
    let text_of_number = text.trim_end_matches(['m', 's', 'h', 'd']);
    let unit = &text[text_of_number.len()..];
    let factor = match unit {
        "" => 1.0,
        unit => UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?.1,
    };
    let number: f64 = text_of_number.trim().parse().map_err(|_| bad())?;
    forebay_client::seconds(number * factor, "the duration").map_err(|error| error.text)
}

/// A time that something may take: more than none.
pub(crate) fn patience(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => forebay_client::patience(0.0, "the timeout").map_err(|error| error.text),
        patience => Ok(patience),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_as_people_write_them() {
        for (text, milliseconds) in [
            ("20", 20_000),
            ("0.5", 500),
            ("20s", 20_000),
            ("500ms", 500),
            ("1.5m", 90_000),
            ("2h", 7_200_000),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for bad in ["", "s", "-1", "5x", "1m30s", "nan", "5sm"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
        assert!(duration("inf").is_ok_and(|forever| forever > Duration::from_secs(1_000_000_000)));
        assert!(patience("0").is_err() && patience("0s").is_err());
    }
}
