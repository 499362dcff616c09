//! How large rows may be, in any format.

/// Largest file, in bytes.
pub(super) const MOST_BYTES: u64 = 64 << 20;
/// Longest row, in bytes: longer than any header that a service accepts.
const LONGEST_ROW: usize = 64 << 10;
/// Most rows; connections beyond take them from the start again.
const MOST_ROWS: usize = 1_000_000;
const MOST_COLUMNS: usize = 256;

/// Checks the length of a row.
pub(super) fn row_bytes(length: usize) -> Result<(), String> {
    ensure(length <= LONGEST_ROW, || format!("it has more than {LONGEST_ROW} bytes; make its values shorter"))
}

/// Checks the number of rows.
pub(super) fn rows(count: usize) -> Result<(), String> {
    ensure(count <= MOST_ROWS, || format!("there are more than {MOST_ROWS} rows; leave some out"))
}

/// Checks the number of columns.
pub(super) fn columns(count: usize) -> Result<(), String> {
    ensure(count > 0, || "there are no columns; name at least one".into())?;
    ensure(count <= MOST_COLUMNS, || format!("there are more than {MOST_COLUMNS} columns; leave some out"))
}

fn ensure(holds: bool, problem: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem()) }
}
