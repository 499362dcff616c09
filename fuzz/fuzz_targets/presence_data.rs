//! Presence data of users: it is rejected, or sent to all members unchanged, as JSON within the size limit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use wse_engine::fuzzed;

const MAXIMUM: usize = 256;

fuzz_target!(|input: (&str, &str)| {
    let (user, data) = input;
    let given = serde_json::from_str::<Value>(data);
    match fuzzed::join(user, data, MAXIMUM) {
        Err(_) => assert!(given.is_err() || data.len() > 4 * MAXIMUM || given.unwrap().to_string().len() > MAXIMUM),
        Ok((message, detail)) => {
            let given = given.expect("reported data is JSON");
            assert!(given.to_string().len() <= MAXIMUM);
            assert!(serde_json::from_str::<Value>(&message).is_ok() && serde_json::from_str::<Value>(&detail).is_ok());
            // Texts are compared, because parsing a float again may give the adjacent value.
            let user = Value::from(user);
            let expected = format!(r#"{{"c":"WSE","p":{{"data":{given},"user_id":{user}}},"t":"presence_join"}}"#);
            assert_eq!(message, expected);
            assert_eq!(detail, format!(r#"{{"topic":"topic","user_id":{user},"data":{given}}}"#));
        }
    }
});
