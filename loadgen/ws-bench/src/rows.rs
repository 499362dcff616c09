//! The rows of a file or of a command's output, one for each connection.
//!
//! Values may be tokens, so no error quotes one. A command is run by ladder; here are only its rows.

mod bounds;
mod json_lines;

use std::{fs::File, io::Read, path::Path};

use bench_format::websocket::{Connect, RowsCommand, RowsFormat};

/// A column with the length of its longest value in bytes.
type Column = (String, usize);
/// The values of one row, in the order of the columns.
type Row = Box<[Box<[u8]>]>;

/// How long a command that prints rows may take, in seconds.
const TIMEOUT_SECONDS: std::ops::RangeInclusive<f64> = 0.1..=600.0;

/// Rows with the names of their columns.
#[derive(Clone, Debug)]
pub struct Rows {
    /// Absent if the rows aren't known.
    columns: Option<Vec<Column>>,
    rows: Vec<Row>,
}

/// No rows: there are no columns.
impl Default for Rows {
    fn default() -> Self {
        Self { columns: Some(Vec::new()), rows: Vec::new() }
    }
}

impl Rows {
    /// Rows that can't be read, or whose command was not run: which columns there are isn't known.
    pub fn unread() -> Self {
        Self { columns: None, rows: Vec::new() }
    }

    /// The rows of a section. `printed` is what its command printed; without it, the rows of a command are unread.
    ///
    /// # Errors
    /// The place of the mistake in the section, and what is wrong.
    pub fn of(connect: &Connect, printed: Option<&str>) -> Result<Self, (String, String)> {
        match (&connect.rows, &connect.rows_command) {
            (None, None) => Ok(Self::default()),
            (Some(path), None) => Self::read(Path::new(path)).map_err(|error| ("connect.rows".into(), error)),
            (None, Some(command)) => {
                check(command)?;
                let Some(text) = printed else { return Ok(Self::unread()) };
                let wrong = |error| ("connect.rows_command".to_owned(), format!("its output: {error}"));
                Self::parse(text.as_bytes(), command.format).map_err(wrong)
            }
            (Some(_), Some(_)) => {
                let message = "rows come from a file or from a command; remove it, or connect.rows";
                Err(("connect.rows_command".into(), message.into()))
            }
        }
    }

    /// Reads a file, whose format the end of its name says.
    ///
    /// # Errors
    /// What is wrong with the file, and where.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let mut bytes = Vec::new();
        File::open(path)
            .and_then(|file| file.take(bounds::MOST_BYTES + 1).read_to_end(&mut bytes))
            .map_err(|error| format!("failed to read {shown}: {error}"))?;
        if bytes.len() as u64 > bounds::MOST_BYTES {
            return Err(format!("{shown} has more than {} MiB; leave rows out", bounds::MOST_BYTES >> 20));
        }
        let format = RowsFormat::of_file(&path.to_string_lossy());
        Self::parse(&bytes, format).map_err(|error| format!("{shown}: {error}"))
    }

    /// Parses rows.
    ///
    /// # Errors
    /// What is wrong with them, and where.
    pub fn parse(bytes: &[u8], format: RowsFormat) -> Result<Self, String> {
        let (columns, rows) = match format {
            RowsFormat::Csv => csv(bytes)?,
            RowsFormat::JsonLines => json_lines::parse(bytes)?,
        };
        if rows.is_empty() {
            return Err(match format {
                RowsFormat::Csv => "it has no rows below its header line".into(),
                RowsFormat::JsonLines => "it has no rows".into(),
            });
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
    pub fn of_connection(&self, connection: u32) -> &[Box<[u8]>] {
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

/// Checks a command without running it.
fn check(command: &RowsCommand) -> Result<(), (String, String)> {
    let wrong = |field: &str, message: String| Err((format!("connect.rows_command.{field}"), message));
    if command.command.first().is_none_or(String::is_empty) {
        return wrong("command", "it names no program; give the program and its arguments".into());
    }
    let seconds = command.timeout_seconds;
    if !TIMEOUT_SECONDS.contains(&seconds) {
        return wrong("timeout_seconds", format!("{seconds} s is not from 0.1 to 600 seconds"));
    }
    Ok(())
}

fn csv(bytes: &[u8]) -> Result<(Vec<Column>, Vec<Row>), String> {
    let failed = |error: csv::Error| error.to_string();
    let mut reader = csv::Reader::from_reader(bytes);
    let headers = reader.byte_headers().map_err(failed)?;
    let name = |bytes: &[u8]| (String::from_utf8_lossy(bytes).into_owned(), 0);
    let mut columns: Vec<Column> = headers.iter().map(name).collect();
    bounds::columns(columns.len())?;
    let mut rows = Vec::new();
    for record in reader.byte_records() {
        let record = record.map_err(failed)?;
        rows.push(record.iter().map(Into::into).collect::<Row>());
        bounds::rows(rows.len())?;
        bounds::row_bytes(record.as_slice().len()).map_err(|error| format!("row {}: {error}", rows.len()))?;
        columns.iter_mut().zip(&record).for_each(|((_, longest), value)| *longest = value.len().max(*longest));
    }
    Ok((columns, rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(ending: &str, text: &str) -> Result<Rows, String> {
        let file = tempfile::Builder::new().suffix(ending).tempfile().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Rows::read(file.path())
    }

    fn command(arguments: &[&str], timeout_seconds: f64) -> Connect {
        let command = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let command = RowsCommand { command, format: RowsFormat::Csv, timeout_seconds };
        Connect { rows_command: Some(command), ..Connect::default() }
    }

    #[test]
    fn connections_take_the_rows_in_turn() {
        let rows = rows(".csv", "user,token\nann,\"a,b\"\nbob,c\n").unwrap();
        assert_eq!(rows.columns().unwrap(), [("user".to_owned(), 3), ("token".to_owned(), 3)]);
        assert_eq!([0, 1, 2].map(|connection| &rows.of_connection(connection)[0][..]), [b"ann", b"bob", b"ann"]);
        assert_eq!(&rows.of_connection(2)[1][..], b"a,b");
        assert_eq!(rows.first_with_other(1, |byte| byte != b','), Some(1));
    }

    #[test]
    fn a_file_of_json_lines_is_known_by_its_ending() {
        let text = "{\"user\":\"ann\"}\n{\"user\":\"bob\"}\n";
        for ending in [".jsonl", ".ndjson"] {
            let rows = rows(ending, text).unwrap();
            assert_eq!([0, 1, 2].map(|connection| &rows.of_connection(connection)[0][..]), [b"ann", b"bob", b"ann"]);
        }
        let as_csv = rows(".csv", text).unwrap();
        assert_eq!(as_csv.columns().unwrap().len(), 1, "the first line names the columns");
    }

    #[test]
    fn a_file_that_cannot_be_used_is_reported() {
        assert!(rows("", "user\n").unwrap_err().ends_with(": it has no rows below its header line"));
        assert!(rows("", "").unwrap_err().contains("there are no columns"));
        assert!(rows("", "a,b\n1\n").unwrap_err().contains("record 1"), "a short row");
        assert!(rows("", &format!("a\n1\n{}\n", "x".repeat(65_537))).unwrap_err().contains("row 2: it has more than"));
        assert!(rows(".jsonl", "\n").unwrap_err().ends_with(": it has no rows"));
        assert!(Rows::read(Path::new("/does/not/exist")).unwrap_err().contains("/does/not/exist"));
    }

    #[test]
    fn the_columns_of_a_command_are_known_when_it_was_run() {
        let connect = command(&["tokens"], 30.0);
        assert_eq!(Rows::of(&connect, None).unwrap().columns(), None);
        assert_eq!(Rows::of(&connect, Some("user\nann\n")).unwrap().name(0), "user");
        let place = |connect: &Connect, printed| Rows::of(connect, printed).unwrap_err().0;
        assert_eq!(place(&connect, Some("user\n")), "connect.rows_command");
        assert_eq!(place(&Connect { rows: Some("a.csv".into()), ..connect }, None), "connect.rows_command");
        assert_eq!(place(&command(&[], 30.0), None), "connect.rows_command.command");
        for seconds in [0.0, 601.0, f64::NAN] {
            assert_eq!(place(&command(&["tokens"], seconds), None), "connect.rows_command.timeout_seconds");
        }
    }
}
