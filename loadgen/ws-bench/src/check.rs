//! Lists the mistakes of a section, for those who write plans.

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
/// about it. What a workload needs beyond that is in [`crate::workloads::Workload::missing`].
pub fn check(section: &WireWebsocket) -> Vec<(String, String)> {
    let trial = Trial { path: ("/", "path"), seed: 0, worker: 0, payload_bytes: PAYLOAD_BYTES };
    let mut all = Section::compile(section, &trial).err().unwrap_or_default();
    // That a file can't be read is reported once, by the section.
    let read = |path: &String| Rows::read(path.as_ref()).unwrap_or_else(|_| Rows::unread());
    let rows = section.connect.rows.as_ref().map(read).unwrap_or_default();
    let mut mistakes = Mistakes::default();
    for (name, service) in &section.services {
        let place = format!("services.{name}.url");
        match path_of(&service.url) {
            Ok(path) => {
                path_template(path, &place, &rows, &mut mistakes);
            }
            Err(advice) => mistakes.add(place, advice),
        }
    }
    all.extend(mistakes.into_list());
    all
}

/// Path and query of a service's URL.
///
/// # Errors
/// What is wrong with the URL.
pub fn path_of(url: &str) -> Result<&str, String> {
    let Some(rest) = url.strip_prefix("ws://") else {
        return Err(format!("{url:?} doesn't begin with ws://; services are measured without TLS"));
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
