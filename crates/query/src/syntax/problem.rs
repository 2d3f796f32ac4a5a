//! What is wrong with a text, and where.

use forebay_core::{Error, ErrorKind};

/// A part of a text, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Span {
    /// Its first byte.
    pub start: u32,
    /// One past its last byte.
    pub end: u32,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }

    /// From the first byte of one part to the last of a later one.
    pub(crate) fn to(self, last: Span) -> Span {
        Span { start: self.start, end: last.end }
    }

    /// What stands there.
    pub(crate) fn of(self, text: &str) -> &str {
        text.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// What is wrong with a text: its kind, where, and what to write instead.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// The kind, by which programs decide.
    pub kind: ErrorKind,
    /// Where.
    pub span: Span,
    /// What was found, and what was expected.
    pub what: String,
}

/// How much of a long line is shown, in characters.
const SHOWN: usize = 72;

impl Problem {
    pub(crate) fn new(kind: ErrorKind, span: Span, what: impl Into<String>) -> Problem {
        Problem { kind, span, what: what.into() }
    }

    pub(crate) fn invalid(span: Span, what: impl Into<String>) -> Problem {
        Problem::new(ErrorKind::Invalid, span, what)
    }

    /// The same as an error: the column, counted from 1 in characters, what is wrong, and the line with carets below the place.
    pub fn in_text(&self, text: &str) -> Error {
        let start = floor(text, self.span.start as usize);
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = text[line_start..].lines().next().unwrap_or_default();
        let column = text[line_start..start].chars().count();
        let width = self.span.of(text).lines().next().unwrap_or_default().chars().count().max(1);
        let number = before.matches('\n').count() + 1;
        let of_line = if text.trim_end().contains('\n') { format!("line {number}, ") } else { String::new() };
        let (shown, at) = window(line, column);
        let left = shown.chars().count().saturating_sub(at).max(1);
        let carets = "^".repeat(width.min(left));
        let text = format!(
            "{of_line}column {}: {}\n    {shown}\n    {}{carets}",
            column + 1,
            self.what,
            " ".repeat(at)
        );
        Error::new(self.kind, text)
    }
}

/// The last place not behind this one at which a character begins.
fn floor(text: &str, at: usize) -> usize {
    let at = at.min(text.len());
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// What of a line is shown, one sign for each character, and the place of a column in that.
fn window(line: &str, column: usize) -> (String, usize) {
    let count = line.chars().count();
    let first = if count <= SHOWN { 0 } else { column.saturating_sub(SHOWN / 2).min(count - SHOWN) };
    let shown = line.chars().skip(first).take(SHOWN);
    let mut shown: String = shown.map(|c| if c.is_control() { ' ' } else { c }).collect();
    let mut at = column - first;
    if first > 0 {
        shown.insert_str(0, "... ");
        at += 4;
    }
    if first + SHOWN < count {
        shown.push_str(" ...");
    }
    (shown, at)
}

/// The one of some names that is most like another, if any is: with the fewest letters to change, add, leave out or swap.
pub(crate) fn nearest<'n>(name: &str, known: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let most = (name.chars().count() / 3).max(1);
    let near = known.into_iter().map(|other| (distance(name, other), other));
    near.filter(|(distance, _)| *distance <= most).min().map(|(_, other)| other)
}

/// How many letters differ, case aside, where two that are swapped count as one: the optimal string alignment of F. J. Damerau,
/// "A technique for computer detection and correction of spelling errors" (1964). Of names that are too long, none is like another.
fn distance(a: &str, b: &str) -> usize {
    const LONGEST: usize = 64;
    let letters = |name: &str| name.to_lowercase().chars().take(LONGEST + 1).collect::<Vec<_>>();
    let (a, b) = (letters(a), letters(b));
    if a.len() > LONGEST || b.len() > LONGEST {
        return usize::MAX;
    }
    let (mut earlier, mut above): (Vec<usize>, Vec<usize>) = (Vec::new(), (0..=b.len()).collect());
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let mut least =
                (above[j] + 1).min(row[j - 1] + 1).min(above[j - 1] + usize::from(a[i - 1] != b[j - 1]));
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(earlier[j - 2] + 1);
            }
            row.push(least);
        }
        (earlier, above) = (above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name() {
        let known = ["max", "mean", "min", "gradient", "gradient_magnitude", "vorticity"];
        let of = |name| nearest(name, known);
        assert_eq!(of("maxx"), Some("max"));
        assert_eq!(of("Vorticty"), Some("vorticity"));
        assert_eq!(of("gradient_magnitdue"), Some("gradient_magnitude"));
        assert_eq!((of("pressure"), of(""), of(&"x".repeat(1000))), (None, None, None));
    }

    #[test]
    fn the_place_is_marked() {
        let text = "m = max(U);\nm > µ µµ";
        let at = text.rfind("µµ").unwrap();
        let error = Problem::invalid(Span::new(at, text.len()), "found a name").in_text(text);
        assert_eq!(error.text, "line 2, column 7: found a name\n    m > µ µµ\n          ^^");
        let long = format!("{}?{}", "a".repeat(500), "b".repeat(500));
        let error = Problem::invalid(Span::new(500, 501), "found '?'").in_text(&long).text;
        let lines: Vec<_> = error.lines().collect();
        assert!(
            lines[0].starts_with("column 501:")
                && lines[1].contains("... aa")
                && lines[1].ends_with("bb ...")
        );
        assert_eq!(lines[1].find('?'), lines[2].find('^'));
        let end = Problem::invalid(Span::new(3, 3), "found the end").in_text("m >");
        assert!(end.text.ends_with("    m >\n       ^"), "{}", end.text);
        for (start, end) in [(0, 0), (1, 900), (5, 2)] {
            Problem::invalid(Span::new(start, end), "").in_text("µ\n");
        }
    }
}
