use jsonwebtoken::{Algorithm, EncodingKey, encode};
use serde_json::json;

use super::*;

const SECRET: &[u8] = b"bench-secret-key-for-testing-only";
const OTHER: &[u8] = b"another-secret-key-of-32-bytes-or-more";

fn now() -> i64 {
    (crate::clock::now_millis() / 1000) as i64
}

fn secret(secret: &[u8]) -> JwtKey {
    JwtKey::secret(secret).unwrap()
}

fn token(secret: &[u8], header: &Header, claims: &Value) -> String {
    encode(header, claims, &EncodingKey::from_secret(secret)).unwrap()
}

fn signed(claims: Value) -> String {
    token(SECRET, &Header::default(), &claims)
}

fn good() -> Value {
    json!({"sub": "bench-user", "iss": "wse-bench", "aud": "wse-bench", "exp": now() + 3600, "iat": now()})
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = good();
    claims[name] = value;
    claims
}

fn gate() -> Gate {
    Gate::new(&config())
}

fn config() -> JwtConfig {
    let name = Some("wse-bench".to_owned());
    JwtConfig { issuer: name.clone(), audience: name, ..JwtConfig::new(vec![secret(SECRET)]) }
}

fn admit(gate: &Gate, token: &str) -> Result<String, AuthError> {
    gate.admit([], Some(&format!("Bearer {token}"))).map(|admitted| admitted.user)
}

fn user(admitted: &Result<Admitted, AuthError>) -> Result<&str, AuthError> {
    admitted.as_ref().map(|admitted| admitted.user.as_str()).map_err(|error| *error)
}

#[test]
fn a_token_s_topic_rules_apply_and_invalid_ones_allow_no_topic() {
    let topics = |claim: Value| {
        let bearer = format!("Bearer {}", signed(with("wse_topics", claim)));
        gate().admit([], Some(&bearer)).unwrap().topics
    };
    assert_eq!(topics(Value::Null), None);
    let rules = topics(json!({"allow": ["a.*"], "deny": ["a.b"]})).unwrap();
    assert!(rules.permits("a.c").unwrap() && !rules.permits("a.b").unwrap() && !rules.permits("c").unwrap());
    for senseless in [json!("a.*"), json!({"allow": "a.*"}), json!({"allows": ["a"]}), json!({"deny": [""]})] {
        assert!(!topics(senseless.clone()).unwrap().permits("a.c").unwrap(), "{senseless}");
    }
}

#[test]
fn a_token_that_allows_an_empty_list_allows_nothing() {
    let topics = |claim: Value| rules(claim).unwrap();
    for claim in [json!({"allow": []}), json!({"allow": [], "deny": ["a"]}), json!({"allow": null})] {
        let topics = topics(claim.clone());
        assert!(!topics.permits("secret.payroll").unwrap() && !topics.permits("*").unwrap(), "{claim}");
    }
    assert!(topics(json!({})).permits("a").unwrap() && topics(json!({"deny": ["b"]})).permits("a").unwrap());
}

#[test]
fn a_token_with_critical_extensions_is_refused() {
    let header = Header { crit: Some(vec!["x".into()]), ..Header::default() };
    let with_crit = token(SECRET, &header, &good());
    assert_eq!(admit(&gate(), &with_crit), Err(AuthError::Failed));
    let keys = vec![secret(SECRET), secret(OTHER)];
    assert_eq!(admit(&Gate::new(&JwtConfig { keys, ..config() }), &with_crit), Err(AuthError::Failed));
}

#[test]
fn a_user_id_with_control_characters_is_refused() {
    for user in ["a\r\nb", "a\0", "\u{7f}", "a\u{85}b"] {
        assert_eq!(admit(&gate(), &signed(with("sub", json!(user)))), Err(AuthError::Failed), "{user:?}");
    }
    assert!(admit(&gate(), &signed(with("sub", json!("Zoë O'Neil / 3")))).is_ok());
}

#[test]
fn a_token_admits_until_its_expiry_and_the_leeway() {
    let bearer = format!("Bearer {}", signed(with("exp", json!(4_000_000_000_u64))));
    assert_eq!(gate().admit([], Some(&bearer)).unwrap().expires_millis, 4_000_000_030_000);
}

#[test]
fn a_valid_token_is_accepted_as_cookie_and_as_bearer() {
    let token = signed(good());
    let cookie = format!("a=b; access_token={token}; c=d");
    assert_eq!(user(&gate().admit([cookie.as_str()], None)), Ok("bench-user"));
    assert_eq!(user(&gate().admit([], Some(&format!("bEARER  {token}")))), Ok("bench-user"));
}

#[test]
fn the_cookie_comes_first_unless_it_is_empty() {
    let bearer = format!("Bearer {}", signed(good()));
    assert_eq!(gate().admit(["access_token=forged"], Some(&bearer)), Err(AuthError::Failed));
    for empty in ["access_token=", "access_token=undefined", "access_token=null", "xaccess_token=forged", "x"] {
        assert_eq!(user(&gate().admit([empty], Some(&bearer))), Ok("bench-user"), "{empty}");
    }
}

#[test]
fn without_a_token_one_is_required() {
    assert_eq!(gate().admit([], None), Err(AuthError::Missing));
    assert_eq!(gate().admit(["a=b"], Some("Basic abc")), Err(AuthError::Missing));
}

#[test]
fn expired_premature_foreign_and_forged_tokens_are_refused() {
    for claims in [
        with("exp", json!(now() - 40)),
        with("nbf", json!(now() + 40)),
        with("iss", json!("someone")),
        with("aud", json!("someone")),
        with("aud", json!(["a", "b"])),
        with("exp", Value::Null),
        json!({"sub": "x", "exp": now() + 60}),
    ] {
        assert_eq!(admit(&gate(), &signed(claims.clone())), Err(AuthError::Failed), "{claims}");
    }
    let forged = token(OTHER, &Header::default(), &good());
    assert_eq!(admit(&gate(), &forged), Err(AuthError::Failed));
}

#[test]
fn tokens_are_accepted_with_30_seconds_of_clock_difference() {
    assert!(admit(&gate(), &signed(with("exp", json!(now() - 20)))).is_ok());
    assert!(admit(&gate(), &signed(with("nbf", json!(now() + 20)))).is_ok());
    assert!(admit(&gate(), &signed(with("aud", json!(["other", "wse-bench"])))).is_ok());
}

#[test]
fn another_algorithm_fails_even_with_the_right_secret() {
    let token = token(SECRET, &Header::new(Algorithm::HS512), &good());
    assert_eq!(admit(&gate(), &token), Err(AuthError::Failed));
    // {"alg":"none"}, the same claims, no signature.
    let claims = signed(good()).split('.').nth(1).unwrap().to_owned();
    assert_eq!(admit(&gate(), &format!("eyJhbGciOiJub25lIn0.{claims}.")), Err(AuthError::Failed));
}

#[test]
fn a_token_must_name_its_user() {
    for user in [json!(""), json!(5), Value::Null] {
        assert_eq!(admit(&gate(), &signed(with("sub", user))), Err(AuthError::NoUser));
    }
}

#[test]
fn a_token_beyond_8_kib_is_not_decoded() {
    let token = signed(with("padding", json!("x".repeat(8192))));
    assert_eq!(admit(&gate(), &token), Err(AuthError::Failed));
}

#[test]
fn the_previous_secret_matches_any_key_id_and_the_current_one_only_its_own() {
    let named = |kid: &str| Header { kid: Some(kid.into()), ..Header::default() };
    let keys = vec![secret(SECRET).with_id(Some("new".into())), secret(OTHER)];
    let gate = Gate::new(&JwtConfig { keys, ..config() });
    assert!(admit(&gate, &token(SECRET, &named("new"), &good())).is_ok());
    assert!(admit(&gate, &token(OTHER, &named("old"), &good())).is_ok());
    assert!(admit(&gate, &token(OTHER, &named("new"), &good())).is_ok());
    assert_eq!(admit(&gate, &token(SECRET, &named("old"), &good())), Err(AuthError::Failed));
    assert_eq!(admit(&gate, &token(SECRET, &Header::default(), &good())), Err(AuthError::Failed));
    let expired = with("exp", json!(now() - 100));
    assert_eq!(admit(&gate, &token(OTHER, &named("old"), &expired)), Err(AuthError::Failed));
}
