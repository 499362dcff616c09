//! Masks a program's output: removes what depends on the machine and the run, which is numbers, names of machines, and
//! which side limited a load.
//!
//! The rest is kept in files beside a test, one for each output. To write the files again: `PRINTED=write cargo test -p
//! wse-bench --test printed` (the same with `-p stt-bench`).

// Each test file uses only a part of this module.
#![allow(dead_code, unreachable_pub)]

#[path = "../busy/mod.rs"]
pub mod busy;
pub mod json;
pub mod table;

use std::{env, fs, path::Path};

pub use busy::is_the_machines;

/// Compares masked output with its file, or writes the file.
pub fn check(name: &str, masked: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/printed").join(name);
    if env::var_os("PRINTED").is_some_and(|value| value == "write") {
        return fs::write(&path, masked).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(masked, expected, "{name} is printed otherwise; to keep it so, see tests/masked/mod.rs");
}

/// Replaces numbers by `#`, together with their signs, commas, points and prefixes.
pub fn numbers(text: &str) -> String {
    let mut masked = String::new();
    let characters: Vec<char> = text.chars().collect();
    let digit = |at: usize| characters.get(at).is_some_and(char::is_ascii_digit);
    let mut at = 0;
    while at < characters.len() {
        if !digit(at) {
            masked.push(characters[at]);
            at += 1;
            continue;
        }
        if masked.ends_with(['+', '-']) {
            masked.pop();
        }
        while digit(at) || (matches!(characters.get(at), Some(',' | '.')) && digit(at + 1)) {
            at += 1;
        }
        at += usize::from(characters.get(at) == Some(&'M'));
        masked.push('#');
    }
    masked
}
