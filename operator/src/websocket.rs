//! Services that only a plan describes, in its `websocket` section: their addresses, and the entries that stand for them
//! in the registry.

use bench_format::websocket::{WebsocketService, WebsocketTask, WireWebsocket};
use reqwest::Url;

/// The placeholder for the port of a service that ladder starts.
pub const PORT: &str = "{port}";

/// The address of a service; `port` stands in place of [`PORT`].
///
/// # Errors
/// Why it is not the address of a WebSocket service.
pub fn address(service: &WebsocketService, port: u16) -> Result<Url, String> {
    let text = service.url.replace(PORT, &port.to_string());
    let url =
        Url::parse(&text).map_err(|error| format!("\"{text}\" is no address ({error}); give ws://HOST:PORT/PATH"))?;
    match url.scheme() {
        "ws" => {}
        "wss" => return Err("TLS is not supported yet; give ws://HOST:PORT/PATH".into()),
        other => return Err(format!("\"{other}\" is not WebSocket's scheme; give ws://HOST:PORT/PATH")),
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(format!("\"{text}\" has no host; give ws://HOST:PORT/PATH"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err("user, password and fragment are no part of it; give credentials as headers in `connect`".into());
    }
    Ok(url)
}

/// What a worker is told about a service of the section; `None` if the section doesn't have it.
pub fn task(section: &WireWebsocket, service: &str) -> Option<WebsocketTask> {
    let url = address(section.services.get(service)?, 1).ok()?;
    let path = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_owned(),
    };
    let section = WireWebsocket { extends: None, services: Default::default(), ..section.clone() };
    Some(WebsocketTask { path, section })
}
