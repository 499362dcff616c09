//! Cookie headers: no token is accepted by chance, and a good one is found behind all cookies of other names.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wse_engine::{JwtConfig, JwtKey, jwt::Gate};

/// A token of the key below that expires in the year 3000.
const TOKEN: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJhbm4iLCJleHAiOjMyNTAzNjgwMDAwfQ.kVhuiXeJdnDp_yyKb1TrulXNlUKYnfMw9zyZ6bKAqTM";
const NAME: &str = "access_token";

fuzz_target!(|header: &str| {
    let key = JwtKey::secret(b"a secret that no input can know!").expect("it is long enough");
    let gate = Gate::new(&JwtConfig::new(vec![key]));
    if header.contains(TOKEN) {
        return;
    }
    assert!(gate.admit([header], None).is_err());
    assert!(gate.admit([], Some(header)).is_err());
    let behind = format!("{header}; {NAME}={TOKEN}");
    // A cookie of the same name in front of it counts, even if its value is wrong.
    if !header.contains(NAME) {
        assert!(gate.admit([behind.as_str()], None).is_ok());
        assert!(gate.admit([header, &format!("{NAME}={TOKEN}")], None).is_ok());
    }
});
