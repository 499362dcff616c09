//! Rows as JSON lines: in each line an object of texts and numbers. Pure.
//!
//! Values may be tokens, so no error quotes one.

use serde_json::Value;

use super::{Column, Row, bounds};

/// The columns, which are those of the first object, and the rows. Empty lines are none.
///
/// # Errors
/// The first line that is no row, with its number from 1.
pub(super) fn parse(bytes: &[u8]) -> Result<(Vec<Column>, Vec<Row>), String> {
    let (mut columns, mut rows) = (Vec::new(), Vec::new());
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).enumerate();
    for (index, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let row = row(line, &mut columns).map_err(|error| format!("line {}: {error}", index + 1))?;
        rows.push(row);
        bounds::rows(rows.len())?;
    }
    Ok((columns, rows))
}

/// One row; the first one names the columns.
fn row(line: &[u8], columns: &mut Vec<Column>) -> Result<Row, String> {
    bounds::row_bytes(line.len())?;
    let value: Value =
        serde_json::from_slice(line).map_err(|error| format!("it is not JSON at column {}", error.column()))?;
    let Value::Object(mut object) = value else {
        return Err("it is not an object; write one object of texts and numbers in each line".into());
    };
    if columns.is_empty() {
        *columns = object.keys().map(|name| (name.clone(), 0)).collect();
        bounds::columns(columns.len())?;
    }
    let values = columns.iter_mut().map(|(name, longest)| {
        let value = object.remove(name).ok_or_else(|| format!("it has no {name:?}, which the first row has"))?;
        let text = text(value).map_err(|problem| format!("{name:?} is {problem}"))?;
        *longest = text.len().max(*longest);
        Ok(text.into_bytes().into_boxed_slice())
    });
    let row = values.collect::<Result<Row, String>>()?;
    match object.keys().next() {
        Some(other) => Err(format!("it has {other:?}, which the first row doesn't have")),
        None => Ok(row),
    }
}

/// The value as text; the error is what it is instead.
fn text(value: Value) -> Result<String, &'static str> {
    match value {
        Value::String(text) => Ok(text),
        // A number that fits no float exactly would be another one in the message.
        Value::Number(number) if number.as_f64().is_some_and(|value| value.abs() < 9e15) => Ok(number.to_string()),
        Value::Number(number) if !number.is_f64() => Ok(number.to_string()),
        Value::Number(_) => Err("a number of more digits than are kept; write it as a text"),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            Err("neither a text nor a number; write it as a text, or leave it out of every row")
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err()
    }

    #[test]
    fn texts_and_numbers_are_values_as_they_are_written() {
        let text =
            "{\"user\":\"ann\",\"id\":18446744073709551615}\n\n{\"id\":-1.5,\"user\":\"b\\u00e9 \\\"x\\\"\"}\r\n";
        let (columns, rows) = parse(text.as_bytes()).unwrap();
        assert_eq!(columns, [("id".to_owned(), 20), ("user".to_owned(), 7)]);
        let rows: Vec<Vec<&str>> =
            rows.iter().map(|row| row.iter().map(|value| std::str::from_utf8(value).unwrap()).collect()).collect();
        assert_eq!(rows, [["18446744073709551615", "ann"], ["-1.5", "bé \"x\""]]);
    }

    #[test]
    fn what_is_no_row_is_named_by_its_line_and_not_quoted() {
        assert_eq!(error("{\"a\":1}\n{\"a\":s3cret}"), "line 2: it is not JSON at column 6");
        assert!(error("\"s3cret\"").starts_with("line 1: it is not an object; write one object"));
        assert_eq!(error("{\"a\":1}\n\n{\"b\":2}"), "line 3: it has no \"a\", which the first row has");
        assert_eq!(error("{\"a\":1}\n{\"a\":1,\"b\":2}"), "line 2: it has \"b\", which the first row doesn't have");
        assert!(error("{\"a\":[\"s3cret\"]}").starts_with("line 1: \"a\" is neither a text nor a number"));
        assert!(error("{\"a\":123456789012345678901234567890}").contains("more digits than are kept"));
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(65_536));
        assert!(error(&long).starts_with("line 1: it has more than 65536 bytes"), "{}", error(&long));
        let columns: Vec<_> = (0..257).map(|n| format!("\"{n}\":1")).collect();
        assert!(error(&format!("{{{}}}", columns.join(","))).contains("more than 256 columns"));
    }

    proptest! {
        #[test]
        fn no_bytes_cause_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn texts_come_back_as_they_were(texts in prop::collection::vec(".*", 1..20)) {
            let lines: String = texts.iter().map(|text| serde_json::json!({ "a": text }).to_string() + "\n").collect();
            let (_, rows) = parse(lines.as_bytes()).unwrap();
            let values: Vec<_> = rows.iter().map(|row| String::from_utf8(row[0].to_vec()).unwrap()).collect();
            prop_assert_eq!(values, texts);
        }
    }
}
