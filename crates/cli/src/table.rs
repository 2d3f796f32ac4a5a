//! Tables for people: each column as wide as what stands in it, so that long names do not break them.

/// How many characters stand between columns.
const GAP: &str = "  ";

/// A table of N columns. Lines that belong to a row may stand beneath it.
pub(crate) struct Table<const N: usize> {
    header: [&'static str; N],
    /// Whether a column holds numbers, which stand at its right.
    right: [bool; N],
    rows: Vec<Row<N>>,
}

enum Row<const N: usize> {
    Cells([String; N]),
    Line(String),
}

impl<const N: usize> Table<N> {
    /// A table with these columns; the title of one that holds numbers begins with '>'.
    pub(crate) fn new(titles: [&'static str; N]) -> Table<N> {
        let right = titles.map(|title| title.starts_with('>'));
        Table { header: titles.map(|title| title.trim_start_matches('>')), right, rows: Vec::new() }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: [String; N]) {
        self.rows.push(Row::Cells(cells));
    }

    /// Adds lines that belong to the row before them.
    pub(crate) fn beneath(&mut self, lines: impl IntoIterator<Item = String>) {
        self.rows.extend(lines.into_iter().map(Row::Line));
    }

    /// The table, with its header.
    pub(crate) fn lines(&self) -> Vec<String> {
        let header = self.header.map(str::to_owned);
        let cells = self.rows.iter().filter_map(|row| match row {
            Row::Cells(cells) => Some(cells),
            Row::Line(_) => None,
        });
        let mut widths = [0; N];
        for row in cells.chain([&header]) {
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let shown = |row: &[String; N]| {
            let cells = row.iter().zip(widths).zip(self.right).map(|((cell, width), right)| match right {
                true => format!("{cell:>width$}"),
                false => format!("{cell:<width$}"),
            });
            cells.collect::<Vec<_>>().join(GAP).trim_end().to_owned()
        };
        let rows = self.rows.iter().map(|row| match row {
            Row::Cells(cells) => shown(cells),
            Row::Line(line) => line.clone(),
        });
        std::iter::once(shown(&header)).chain(rows).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn long_names_do_not_break_it() {
        let mut table = Table::new(["NAME", ">STEPS"]);
        table.row(["a".repeat(40), "1".into()]);
        table.beneath(["    beneath, however long it may be, and that is longer than the table".to_owned()]);
        table.row(["b".into(), "100".into()]);
        let lines = table.lines();
        assert_eq!(lines[0], format!("NAME{}STEPS", " ".repeat(38)));
        assert_eq!(lines[3], format!("b{}100", " ".repeat(43)));
    }
}
