//! Connections that present a token each, which a command prints for the run: the service refuses all others.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{SystemTime, UNIX_EPOCH},
};

use jsonwebtoken::{EncodingKey, Header, encode};
use serde_json::json;

use crate::run::{Run, checkout, programs, start_with};

const SECRET: &str = "a-secret-of-this-test-of-32-bytes-";

/// The contents of all files below a folder, each with its path.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let content = |path: PathBuf| match path.is_dir() {
        true => files(&path),
        false => vec![(path.display().to_string(), fs::read(&path).unwrap())],
    };
    entries.flat_map(content).collect()
}

/// A token of a user that the service admits.
fn token(user: usize) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims =
        json!({ "sub": format!("user-{user}"), "iss": "wse-bench", "aud": "wse-bench", "exp": now + 3600, "iat": now });
    encode(&Header::default(), &claims, &EncodingKey::from_secret(SECRET.as_bytes())).unwrap()
}

/// The plan in a folder that has the tokens; the command leaves a line in `calls` whenever it runs.
fn plan(folder: &Path, script: &str) -> String {
    let script = format!("echo called >> {0}/calls; {script}", folder.display());
    let text = format!(
        r#"schema: 3
name: rows
why: each connection presents a token of its own, which a command prints
seed: 1
services: [guarded]
repeats: 2
workers: 2
warmup_seconds: 0
window_seconds: 1
drain_seconds: 1
websocket:
  services:
    guarded:
      url: ws://127.0.0.1:{{port}}/wse
      command: ["{{bin}}/self-test-service", --port, "{{port}}"]
      env: {{ JWT_SECRET: {SECRET} }}
      version_command: ["{{bin}}/self-test-service", --version]
  connect:
    headers: {{ X-User: "Bearer {{{{row.user}}}}", Authorization: "Bearer {{{{row.token}}}}" }}
    rows_command: {{ command: [sh, -c, "{script}"], format: json-lines }}
  open:
    - expect:
        when: {{ json: {{ /t: server_ready }} }}
        refused: {{ json: {{ /t: error }} }}
        capture: {{ id: {{ json: /p/details/connection_id }} }}
  messages:
    - text: '{{"p":{{"id":"{{{{captured.id}}}}","timestamp":{{{{sequence}}}}}},"t":"ping"}}'
  reply:
    when: {{ contains: '"t":"PONG"' }}
    by: sequence
    value: {{ json: /p/client_timestamp }}
ladders:
  - workload: request-reply
    tiers: [10]
    load: {{ model: closed }}
"#
    );
    let path = folder.join("rows.yaml");
    fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

fn calls(folder: &Path) -> usize {
    fs::read_to_string(folder.join("calls")).unwrap_or_default().lines().count()
}

fn climb(plan: &str) -> Run {
    start_with(&checkout(), plan, &[], &[]).finish()
}

#[test]
fn the_rows_of_a_command_reach_every_worker_and_no_file_of_the_bundle() {
    let folder = tempfile::tempdir().unwrap();
    let tokens: Vec<String> = (0..10).map(token).collect();
    let lines: String =
        tokens.iter().enumerate().map(|(n, token)| format!("{{\"user\":{n},\"token\":\"{token}\"}}\n")).collect();
    fs::write(folder.path().join("tokens.jsonl"), lines).unwrap();
    let plan = plan(folder.path(), &format!("cat {}/tokens.jsonl", folder.path().display()));
    let check = Command::new(programs().join("ladder"))
        .args(["plan", "check", &plan])
        .current_dir(checkout())
        .output()
        .unwrap();
    assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    assert_eq!(calls(folder.path()), 0, "a check runs no command");

    let run = climb(&plan);
    assert_eq!(run.states().len(), 2, "{}", run.output);
    assert_eq!(calls(folder.path()), 1, "it runs once, for two trials of two workers\n{}", run.output);
    let results = files(run.folder()).into_iter().filter(|(path, _)| path.ends_with("result.json"));
    let opened: Vec<_> = results
        .map(|(_, bytes)| serde_json::from_slice::<serde_json::Value>(&bytes).unwrap()["connections"]["open"].clone())
        .collect();
    assert_eq!(opened, [json!(10), json!(10)], "{}", run.output);
    for (path, bytes) in files(run.folder()) {
        let has = |token: &String| bytes.windows(token.len()).any(|window| window == token.as_bytes());
        assert!(!tokens.iter().any(has), "{path} has a token");
    }
    assert!(!tokens.iter().any(|token| run.output.contains(token)), "{}", run.output);
}

#[test]
fn a_command_without_rows_begins_no_trial_and_is_quoted_by_its_error() {
    let folder = tempfile::tempdir().unwrap();
    let run = climb(&plan(folder.path(), "echo the token service is down >&2; exit 4"));
    assert_eq!(run.exit, Some(2), "{}", run.output);
    let expected = "websocket.connect.rows_command: failed to get rows from `sh`: it ended with exit status: 4: the token service is down";
    assert!(run.output.contains(expected), "{}", run.output);
    assert!(run.states().iter().all(|state| *state == bench_format::run::TrialState::Pending), "{:?}", run.states());
}
