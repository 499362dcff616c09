//! What a program printed, without what depends on the machine and the moment: numbers, names of machines, who bound a load.
//!
//! What is left is kept beside a test, one file for each thing printed. To write the files again:
//! `PRINTED=write cargo test -p wse-bench --test printed` (the same with `-p stt-bench`).

// Each test file uses its own part of this.
#![allow(dead_code, unreachable_pub)]

#[path = "../busy/mod.rs"]
pub mod busy;
pub mod json;
pub mod table;

use std::{env, fs, path::Path};

pub use busy::is_the_machines;

/// Compares what is left with what is kept, or keeps it.
pub fn check(name: &str, masked: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/printed").join(name);
    if env::var_os("PRINTED").is_some_and(|value| value == "write") {
        return fs::write(&path, masked).unwrap();
    }
    let kept = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(masked, kept, "{name} is printed otherwise; to keep it so, see tests/masked/mod.rs");
}

/// Numbers become `#`, with the signs, commas, points and prefixes that belong to them.
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
