//! Services that only a plan describes, in its `websocket` section: `presets` has the sections that a plan may extend,
//! `entries` makes them services of the registry, `environment` fills in what ladder's environment has, `hosts` refuses
//! load on public hosts that the command line doesn't allow, and `printed_rows` runs the command that prints rows.

use std::path::{Path, PathBuf};

use bench_format::websocket::{Counter, PrintedRows, WebsocketService, WebsocketTarget, WebsocketTask, WireWebsocket};
use driver::counters::{MappedCounters, MappingError};
use reqwest::Url;

use crate::outside::authority;

pub use entries::{PROTOCOL, add};
pub use environment::{MissingVariable, filled};
pub use hosts::{ForeignHost, check_hosts};
pub use presets::{extend, names as preset_names, preset};
pub use printed_rows::{RowsError, printed_rows};

mod entries;
mod environment;
mod hosts;
mod presets;
mod printed_rows;

/// The placeholder for the port of a service that ladder starts.
pub const PORT: &str = "{port}";
/// The placeholder for a second port of such a service, for its counters.
pub const METRICS_PORT: &str = "{metrics_port}";
/// What an address looks like, for messages.
const EXAMPLE: &str = "ws://HOST:PORT/PATH";

/// The address of a service; `port` stands in place of [`PORT`].
///
/// # Errors
/// Why it is not the address of a WebSocket service.
pub fn address(service: &WebsocketService, port: u16) -> Result<Url, String> {
    parse(&service.url.replace(PORT, &port.to_string()))
}

/// The further addresses of a service; `port` stands in place of [`PORT`].
///
/// # Errors
/// The first that is not the address of a WebSocket service, and why.
pub fn more_addresses(service: &WebsocketService, port: u16) -> Result<Vec<Url>, String> {
    service.more_urls.iter().map(|url| parse(&url.replace(PORT, &port.to_string()))).collect()
}

/// Parses the address of a WebSocket service.
///
/// # Errors
/// Why it is none.
pub fn parse(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("\"{text}\" is not an address ({error}); give {EXAMPLE}"))?;
    match url.scheme() {
        "ws" | "wss" => {}
        other => return Err(format!("\"{other}\" is not WebSocket's scheme; give {EXAMPLE}")),
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(format!("\"{text}\" has no host; give {EXAMPLE}"));
    }
    if !url.username().is_empty() || url.password().is_some() || url.fragment().is_some() {
        return Err("user, password and fragment are no part of it; give credentials as headers in `connect`".into());
    }
    Ok(url)
}

/// A URL with another host and port, `authority`. Scheme, path and query stay as they are written, with their placeholders;
/// a text without a scheme stays whole.
pub fn with_authority(url: &str, authority: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.into() };
    let path = rest.find(['/', '?']).map_or("", |start| &rest[start..]);
    format!("{scheme}://{authority}{path}")
}

/// The folder in which a service's command runs; `root` is that of the checkout.
pub fn folder(root: &Path, service: &WebsocketService) -> PathBuf {
    service.folder.as_ref().map_or_else(|| root.to_path_buf(), |folder| root.join(folder))
}

/// Where the counters of a service are that run at these ports; `None` if its plan maps none.
///
/// # Errors
/// The field of `counters` that can't be used, and why.
pub fn mapped_counters(
    service: &WebsocketService,
    [port, metrics_port]: [u16; 2],
) -> Result<Option<MappedCounters>, (String, String)> {
    let Some(counters) = &service.counters else { return Ok(None) };
    let url = counters.url.replace(PORT, &port.to_string()).replace(METRICS_PORT, &metrics_port.to_string());
    check_page(&url).map_err(|message| ("url".to_owned(), message))?;
    let refused = |(counter, error): (Counter, MappingError)| (counter.to_string(), error.to_string());
    MappedCounters::new(&url, counters).map(Some).map_err(refused)
}

/// Checks the address of a page of counters.
fn check_page(text: &str) -> Result<(), String> {
    let example = "give http://HOST:PORT/metrics";
    let url = Url::parse(text).map_err(|error| format!("\"{text}\" is not an address ({error}); {example}"))?;
    match url.scheme() {
        "http" if url.host_str().is_some_and(|host| !host.is_empty()) => Ok(()),
        "http" => Err(format!("\"{text}\" has no host; {example}")),
        other => Err(format!("counters are read by http, not by {other}; {example}")),
    }
}

/// What an assignment says about a service of the section that runs at this address, `host:port`; `None` if the section
/// doesn't have it. The section's variables must be [`filled`].
pub fn task(
    section: &WireWebsocket,
    (service, address): (&str, &str),
    printed_rows: Option<&PrintedRows>,
) -> Option<WebsocketTask> {
    // As it is written: the path may have placeholders, which a URL's parser would encode.
    let path_and_name =
        |url: &str| Some((ws_bench::path_of(url).ok()?.to_owned(), ws_bench::tls_name(url).map(str::to_owned)));
    let described = section.services.get(service)?;
    let (path, tls_name) = path_and_name(&described.url)?;
    let port = address.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or_default();
    let target = |(url, address): (&String, Url)| {
        let (path, tls_name) = path_and_name(url)?;
        Some(WebsocketTarget { address: authority(&address), path, tls_name })
    };
    let more = described.more_urls.iter().zip(more_addresses(described, port).ok()?);
    let more_targets = more.map(target).collect::<Option<_>>()?;
    let section = WireWebsocket { extends: None, services: Default::default(), ..section.clone() };
    Some(WebsocketTask { path, tls_name, more_targets, printed_rows: printed_rows.cloned(), section })
}

/// The assignment with further addresses of the same URL, which connections take in turn with the first.
pub fn with_more_addresses(mut task: WebsocketTask, addresses: &[String]) -> WebsocketTask {
    let (path, tls_name) = (task.path.clone(), task.tls_name.clone());
    let target =
        |address: &String| WebsocketTarget { address: address.clone(), path: path.clone(), tls_name: tls_name.clone() };
    task.more_targets.extend(addresses.iter().map(target));
    task
}

#[cfg(test)]
mod tests {
    use bench_format::websocket::Counters;

    use super::*;

    fn service(url: &str) -> WebsocketService {
        WebsocketService {
            url: url.into(),
            more_urls: vec![],
            command: vec![],
            folder: None,
            env: Default::default(),
            version: Some("1".into()),
            version_command: vec![],
            warmup_seconds: None,
            counters: None,
            usage: None,
        }
    }

    #[test]
    fn an_address_keeps_its_query_and_gets_its_port() {
        let url = address(&service("ws://127.0.0.1:{port}/socket.io/?EIO=4"), 8080).unwrap();
        assert_eq!(url.as_str(), "ws://127.0.0.1:8080/socket.io/?EIO=4");
        let more_urls = vec!["ws://127.0.0.2:{port}/b/{{connection}}".to_owned(), "ws://[::1]:7/c".into()];
        let service = WebsocketService { more_urls, ..service("ws://127.0.0.1:{port}/socket.io/?EIO=4") };
        let services = [("chat".to_owned(), service)].into();
        let section = WireWebsocket { extends: Some("x".into()), services, ..WireWebsocket::default() };
        let rows = PrintedRows::from("user\nann\n".to_owned());
        let task = task(&section, ("chat", "127.0.0.1:8080"), Some(&rows)).unwrap();
        let more: Vec<_> = task.more_targets.iter().map(|target| (&target.address[..], &target.path[..])).collect();
        assert_eq!(more, [("127.0.0.2:8080", "/b/{{connection}}"), ("[::1]:7", "/c")]);
        assert_eq!(task.printed_rows, Some(rows));
        assert_eq!(task.path, "/socket.io/?EIO=4");
        assert_eq!(task.section, WireWebsocket::default(), "a worker needs no services");
        assert_eq!(super::task(&section, ("other", "127.0.0.1:8080"), None), None);
        let task = with_more_addresses(task, &["10.0.0.7:1".into()]);
        let last = &task.more_targets[2];
        assert_eq!((last.address.as_str(), &last.path), ("10.0.0.7:1", &task.path), "the URL of the first");
    }

    #[test]
    fn a_url_moves_to_another_host_with_its_scheme_path_and_placeholders() {
        let moved = |url: &str| with_authority(url, "chat.shop.svc:80");
        assert_eq!(
            moved("ws://127.0.0.1:{port}/room/{{connection}}?v=4"),
            "ws://chat.shop.svc:80/room/{{connection}}?v=4"
        );
        assert_eq!(moved("wss://[::1]:3000?a=b"), "wss://chat.shop.svc:80?a=b");
        assert_eq!(moved("ws://a:1"), "ws://chat.shop.svc:80");
        assert_eq!(moved("a:1"), "a:1");
    }

    #[test]
    fn counters_are_found_at_the_ports_of_the_service() {
        let mapped = |url: &str, ports| {
            let counters = Counters { url: url.into(), received: Some("m_total".into()), ..Counters::default() };
            let service = WebsocketService { counters: Some(counters), ..service("ws://127.0.0.1:{port}/") };
            mapped_counters(&service, ports).map(|mapped| mapped.unwrap().url().to_owned())
        };
        assert_eq!(mapped("http://127.0.0.1:{port}/m", [1, 2]).unwrap(), "http://127.0.0.1:1/m");
        assert_eq!(mapped("http://127.0.0.1:{metrics_port}/m", [1, 2]).unwrap(), "http://127.0.0.1:2/m");
        for (url, why) in [
            ("https://a/m", "counters are read by http, not by https; give http://HOST:PORT/metrics"),
            (
                "a/metrics",
                "\"a/metrics\" is not an address (relative URL without a base); give http://HOST:PORT/metrics",
            ),
        ] {
            assert_eq!(mapped(url, [1, 2]).unwrap_err(), ("url".to_owned(), why.to_owned()));
        }
        assert!(mapped_counters(&service("ws://a:1/"), [1, 2]).unwrap().is_none());
    }

    #[test]
    fn what_is_no_address_is_refused_with_an_example() {
        for (url, why) in [
            ("http://a:1/", "\"http\" is not WebSocket's scheme; give ws://HOST:PORT/PATH"),
            ("localhost:1", "\"localhost\" is not WebSocket's scheme"),
            ("127.0.0.1:1", "is not an address"),
            ("ws://me:word@a:1", "give credentials as headers"),
        ] {
            let message = parse(url).unwrap_err();
            assert!(message.contains(why), "{url}: {message}");
        }
    }
}
