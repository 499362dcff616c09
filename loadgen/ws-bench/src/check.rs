//! Lists the mistakes of a section, for those who write plans.

use std::iter;

use bench_format::websocket::WireWebsocket;

use crate::{
    mistakes::Mistakes,
    request::path_template,
    rows::Rows,
    section::{Section, Trial},
};

/// Size of a `{{payload}}` while a plan is checked; each ladder sets its own.
const PAYLOAD_BYTES: usize = 175;

/// The mistakes of a section or a preset: each as its place, for example `open[1].expect.when.regex`, and what to do
/// about it. What a workload needs beyond that is in [`crate::workloads::Workload::missing`]. A command for rows isn't
/// run.
pub fn check(section: &WireWebsocket) -> Vec<(String, String)> {
    check_all(section, None)
}

/// The mistakes of a section whose command for rows has printed this.
pub fn check_printed(section: &WireWebsocket, printed_rows: &str) -> Vec<(String, String)> {
    check_all(section, Some(printed_rows))
}

fn check_all(section: &WireWebsocket, printed_rows: Option<&str>) -> Vec<(String, String)> {
    let with_tls = section.services.values().find_map(|service| tls_name(&service.url));
    let trial = Trial {
        path: ("/", "path"),
        tls_name: with_tls,
        more_targets: &[],
        printed_rows,
        seed: 0,
        worker: 0,
        payload_bytes: PAYLOAD_BYTES,
    };
    let mut all = Section::compile(section, &trial).err().unwrap_or_default();
    // That rows can't be read is reported once, by the section.
    let rows = Rows::of(&section.connect, printed_rows).unwrap_or_else(|_| Rows::unread());
    let mut mistakes = Mistakes::default();
    for (name, service) in &section.services {
        let more = service.more_urls.iter().enumerate();
        let more = more.map(|(index, url)| (format!("services.{name}.more_urls[{index}]"), url));
        for (place, url) in iter::once((format!("services.{name}.url"), &service.url)).chain(more) {
            match path_of(url) {
                Ok(path) => {
                    path_template(path, &place, &rows, &mut mistakes);
                    if tls_name(url).is_some() != tls_name(&service.url).is_some() {
                        mistakes
                            .add(place, "ws and wss are mixed; give it the scheme of `url`, or describe two services");
                    }
                }
                Err(advice) => mistakes.add(place, advice),
            }
        }
    }
    all.extend(mistakes.into_list());
    all
}

/// The name that the certificate of a service at a `wss` URL must have: its host; `None` without TLS.
pub fn tls_name(url: &str) -> Option<&str> {
    let rest = url.strip_prefix("wss://")?;
    let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    Some(host.trim_start_matches('[').trim_end_matches(']'))
}

/// Path and query of a service's URL.
///
/// # Errors
/// What is wrong with the URL.
pub fn path_of(url: &str) -> Result<&str, String> {
    let Some(rest) = url.strip_prefix("ws://").or_else(|| url.strip_prefix("wss://")) else {
        return Err(format!("{url:?} begins with neither ws:// nor wss://; write ws://HOST:PORT/PATH"));
    };
    let host_length = rest.find(['/', '?']).unwrap_or(rest.len());
    let (host, path) = rest.split_at(host_length);
    if host.rsplit_once(':').is_none_or(|(name, port)| name.is_empty() || port.is_empty()) {
        return Err(format!("{url:?} has no port; write ws://HOST:PORT/PATH"));
    }
    if path.is_empty() {
        return Ok("/");
    }
    if path.starts_with('?') {
        return Err(format!("{url:?} has no path; write a slash before the question mark"));
    }
    Ok(path)
}
