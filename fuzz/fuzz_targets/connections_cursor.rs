//! Cursors of `/stats/connections?since=`: an accepted one is printed as a cursor of the same meaning.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wse_engine::fuzzed;

fuzz_target!(|text: &str| {
    if let Some(printed) = fuzzed::cursor(text) {
        assert_eq!(fuzzed::cursor(&printed).as_deref(), Some(printed.as_str()), "{text:?}");
        assert!(printed.len() <= 37, "two numbers of 64 bits: {printed}");
    }
});
