//! Cases about plain HTTP requests to the WebSocket's port.

use reqwest::{Client, Method, StatusCode, header::HeaderMap};
use serde_json::Value;

use crate::conformance::{
    finding::{NotPassed, Verdict, ensure, failed, passed},
    scene::Scene,
};

async fn ask(
    scene: &Scene,
    method: Method,
    path: &str,
    headers: &[(&'static str, &str)],
) -> Result<(StatusCode, String), NotPassed> {
    let url = format!("http://{}{path}", scene.gateway.address);
    let client = Client::builder().timeout(std::time::Duration::from_secs(5)).no_proxy().build();
    let client = client.expect("a client without TLS has no needs");
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(*name, value.parse().expect("the cases' own headers"));
    }
    let expectation = || format!("{method} {path} is answered");
    let response = client.request(method.clone(), &url).headers(map).send().await;
    let response = response.map_err(|error| failed(expectation(), format!("{error:?}")))?;
    let status = response.status();
    Ok((status, response.text().await.unwrap_or_default()))
}

/// Case `health`: `GET /health` returns `ok` and the name of the runtime.
pub(super) async fn health(scene: Scene) -> Verdict {
    let expectation = r#"200 {"ok":true,"runtime":"<name>"}"#;
    let (status, text) = ask(&scene, Method::GET, "/health", &[]).await?;
    let body: Value = serde_json::from_str(&text).unwrap_or_default();
    let is_correct = body["ok"] == true && body["runtime"].as_str().is_some_and(|name| !name.is_empty());
    ensure(status == StatusCode::OK && is_correct, expectation, format!("{status} {text}"))?;
    passed(expectation, text)
}

/// Case `unknown-path`: an unknown path returns 404.
pub(super) async fn unknown_path(scene: Scene) -> Verdict {
    let (status, _) = ask(&scene, Method::GET, "/no-such-path", &[]).await?;
    ensure(status == StatusCode::NOT_FOUND, "GET /no-such-path: 404", status)?;
    passed("404", status.to_string())
}

/// Case `wrong-method`: POST to a known path returns 405.
pub(super) async fn wrong_method(scene: Scene) -> Verdict {
    for path in ["/ws/stt", "/health"] {
        let (status, _) = ask(&scene, Method::POST, path, &[]).await?;
        ensure(status == StatusCode::METHOD_NOT_ALLOWED, format!("POST {path}: 405"), status)?;
    }
    passed("405 to POST /ws/stt and POST /health", "405 to both")
}

/// Case `bad-upgrade`: a request that is not an upgrade, has no key or has another WebSocket version returns 400 or
/// 426.
pub(super) async fn bad_upgrade(scene: Scene) -> Verdict {
    const WITHOUT_KEY: [(&str, &str); 3] =
        [("connection", "Upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13")];
    const OLD: [(&str, &str); 4] = [
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "8"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ];
    let mut observed = Vec::new();
    for (request, headers) in [("a plain GET", &[][..]), ("no key", &WITHOUT_KEY), ("version 8", &OLD)] {
        let (status, _) = ask(&scene, Method::GET, "/ws/stt", headers).await?;
        let refused = [StatusCode::BAD_REQUEST, StatusCode::UPGRADE_REQUIRED].contains(&status);
        ensure(refused, format!("400 or 426 to {request}"), status)?;
        observed.push(format!("{request}: {}", status.as_u16()));
    }
    passed("400 or 426", observed.join(", "))
}
