//! The rows of a CSV file, one for each connection.

use std::path::Path;

/// Rows with the names of their columns.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The columns, each with the length of its longest value in bytes.
    /// Absent if the file can't be read.
    columns: Option<Vec<(String, usize)>>,
    rows: Vec<Box<[Box<[u8]>]>>,
}

/// No file: there are no columns.
impl Default for Rows {
    fn default() -> Self {
        Self { columns: Some(Vec::new()), rows: Vec::new() }
    }
}

impl Rows {
    /// Rows whose file can't be read: which columns there are isn't known.
    pub fn unread() -> Self {
        Self { columns: None, rows: Vec::new() }
    }

    /// Reads a file with a header line.
    ///
    /// # Errors
    /// What is wrong with the file, and where.
    pub fn read(path: &Path) -> Result<Self, String> {
        let failed = |error: csv::Error| format!("failed to read {}: {error}", path.display());
        let mut reader = csv::Reader::from_path(path).map_err(failed)?;
        let headers = reader.byte_headers().map_err(failed)?;
        let name = |bytes: &[u8]| (String::from_utf8_lossy(bytes).into_owned(), 0);
        let mut columns: Vec<_> = headers.iter().map(name).collect();
        let mut rows = Vec::new();
        for record in reader.byte_records() {
            let row: Box<[Box<[u8]>]> = record.map_err(failed)?.iter().map(Into::into).collect();
            columns.iter_mut().zip(&row).for_each(|((_, longest), value)| *longest = value.len().max(*longest));
            rows.push(row);
        }
        if rows.is_empty() {
            return Err(format!("{} has no rows below its header line", path.display()));
        }
        Ok(Self { columns: Some(columns), rows })
    }

    /// The columns, each with the length of its longest value in bytes; `None` if they aren't known.
    pub fn columns(&self) -> Option<&[(String, usize)]> {
        self.columns.as_deref()
    }

    /// The name of a column.
    pub fn name(&self, column: usize) -> &str {
        self.columns().and_then(|columns| columns.get(column)).map_or("", |(name, _)| name)
    }

    /// The row of a connection; after the last row the first one follows.
    pub fn of(&self, connection: u32) -> &[Box<[u8]>] {
        match self.rows.len() {
            0 => &[],
            count => &self.rows[connection as usize % count],
        }
    }

    /// The first value of a column that has another byte than those of `allowed`, with the number of its row from 1.
    pub fn first_with_other(&self, column: usize, allowed: impl Fn(u8) -> bool) -> Option<usize> {
        let has_other =
            |row: &[Box<[u8]>]| row.get(column).is_some_and(|value| !value.iter().all(|byte| allowed(*byte)));
        self.rows.iter().position(|row| has_other(row)).map(|at| at + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str) -> Result<Rows, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Rows::read(file.path())
    }

    #[test]
    fn connections_take_the_rows_in_turn() {
        let rows = rows("user,token\nann,\"a,b\"\nbob,c\n").unwrap();
        assert_eq!(rows.columns().unwrap(), [("user".to_owned(), 3), ("token".to_owned(), 3)]);
        assert_eq!([0, 1, 2].map(|connection| &rows.of(connection)[0][..]), [b"ann", b"bob", b"ann"]);
        assert_eq!(&rows.of(2)[1][..], b"a,b");
        assert_eq!(rows.first_with_other(1, |byte| byte != b','), Some(1));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_reported() {
        assert!(rows("user\n").unwrap_err().contains("no rows"));
        assert!(rows("a,b\n1\n").unwrap_err().contains("record 1"), "a short row");
        assert!(Rows::read(Path::new("/does/not/exist")).unwrap_err().contains("/does/not/exist"));
    }
}
