//! Tables for people: columns as wide as what is in them.

use std::fmt;

const GAP: usize = 3;

#[derive(Debug)]
pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    /// What is empty is shown as a dash.
    pub fn row(&mut self, cells: impl IntoIterator<Item: Into<String>>) {
        // Whoever wrote it, it is one line of the table.
        let shown = |cell: String| if cell.is_empty() { "-".to_owned() } else { cell.replace(['\n', '\r', '\t'], " ") };
        self.rows.push(cells.into_iter().map(|cell| shown(cell.into())).collect());
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([self.head[column].chars().count()]).max().unwrap_or_default()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.head.len()).map(|column| self.width(column) + GAP).collect();
        let head: Vec<String> = self.head.iter().map(|&name| name.to_owned()).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            let padded = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            writeln!(out, "{}", padded.collect::<String>().trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let mut table = Table::new(&["NAME", "STATE"]);
        assert!(table.is_empty());
        table.row(["a-long-name", "well"]);
        table.row(["b", ""]);
        table.row(["c", "no\nd\twell"]);
        assert_eq!(
            table.to_string(),
            "NAME          STATE\na-long-name   well\nb             -\nc             no d well\n"
        );
    }
}
