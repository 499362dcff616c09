//! Presets: `websocket` sections of well-known protocols. They are part of the program, so that it needs no checkout.

use std::{fs, path::Path};

use bench_format::websocket::{Connect, Framing, WireWebsocket};

use crate::spelling::closest;

/// The presets of `presets/` by name.
const PRESETS: &[(&str, &str)] = &[
    ("centrifugo", include_str!("../../../presets/centrifugo.yaml")),
    ("echo", include_str!("../../../presets/echo.yaml")),
    ("graphql-transport-ws", include_str!("../../../presets/graphql-transport-ws.yaml")),
    ("json-rpc", include_str!("../../../presets/json-rpc.yaml")),
    ("llm-tokens", include_str!("../../../presets/llm-tokens.yaml")),
    ("mqtt-3.1.1", include_str!("../../../presets/mqtt-3.1.1.yaml")),
    ("mqtt-5", include_str!("../../../presets/mqtt-5.yaml")),
    ("nats", include_str!("../../../presets/nats.yaml")),
    ("phoenix", include_str!("../../../presets/phoenix.yaml")),
    ("signalr", include_str!("../../../presets/signalr.yaml")),
    ("socket.io", include_str!("../../../presets/socket.io.yaml")),
    ("stomp-1.2", include_str!("../../../presets/stomp-1.2.yaml")),
    ("wamp", include_str!("../../../presets/wamp.yaml")),
];

/// The names of all presets, sorted.
pub fn names() -> Vec<&'static str> {
    PRESETS.iter().map(|(name, _)| *name).collect()
}

/// The preset with this name, or in the file with this path: a name with a `/`, relative to `folder`.
///
/// # Errors
/// Why there is no such preset.
pub fn preset(name: &str, folder: &Path) -> Result<WireWebsocket, String> {
    if name.contains('/') {
        let path = folder.join(name);
        let text = fs::read_to_string(&path).map_err(|error| format!("failed to read {}: {error}", path.display()))?;
        return parse(&text).map_err(|error| format!("{}: {error}", path.display()));
    }
    match PRESETS.iter().find(|(known, _)| *known == name) {
        Some((_, text)) => parse(text).map_err(|error| format!("preset {name}: {error}")),
        None => {
            let hint = match closest(name, names()) {
                Some(meant) => format!("did you mean \"{meant}\"?"),
                None => format!("known: {}; or a path such as ./{name}.yaml", names().join(", ")),
            };
            Err(format!("no preset \"{name}\"; {hint}"))
        }
    }
}

fn parse(text: &str) -> Result<WireWebsocket, String> {
    let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
    let preset: WireWebsocket =
        serde_saphyr::from_str_with_options(text, options).map_err(|error| error.to_string())?;
    if !preset.services.is_empty() || preset.extends.is_some() {
        return Err("a preset has no `services` and no `extends`; a plan has them".into());
    }
    Ok(preset)
}

/// Takes from the preset what the section doesn't set.
///
/// # Errors
/// Why its preset can't be had; relative paths start from `folder`.
pub fn extend(section: &mut WireWebsocket, folder: &Path) -> Result<(), String> {
    let Some(name) = &section.extends else { return Ok(()) };
    let preset = preset(name, folder)?;
    let Connect { headers, subprotocols, deflate, tls, rows, rows_command, source_addresses } = preset.connect;
    let connect = &mut section.connect;
    for (name, value) in headers {
        connect.headers.entry(name).or_insert(value);
    }
    fill(&mut connect.subprotocols, subprotocols);
    fill(&mut connect.source_addresses, source_addresses);
    // Rows have one source.
    if connect.rows.is_none() && connect.rows_command.is_none() {
        (connect.rows, connect.rows_command) = (rows, rows_command);
    }
    connect.deflate = connect.deflate.or(deflate);
    connect.tls = connect.tls.take().or(tls);
    fill(&mut section.open, preset.open);
    fill(&mut section.messages, preset.messages);
    fill(&mut section.respond, preset.respond);
    section.reply = section.reply.take().or(preset.reply);
    section.fanout = section.fanout.take().or(preset.fanout);
    section.keepalive = section.keepalive.take().or(preset.keepalive);
    section.close = section.close.take().or(preset.close);
    if section.framing == Framing::default() {
        section.framing = preset.framing;
    }
    Ok(())
}

fn fill<T>(own: &mut Vec<T>, preset: Vec<T>) {
    if own.is_empty() {
        *own = preset;
    }
}

#[cfg(test)]
mod tests {
    use bench_format::websocket::MessageTemplate;

    use super::*;

    #[test]
    fn the_program_has_every_preset_of_the_checkout() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../presets");
        let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut of_checkout: Vec<String> =
            files.filter_map(|file| Some(file.strip_suffix(".yaml")?.to_owned())).collect();
        of_checkout.sort();
        assert_eq!(names(), of_checkout);
        for name in names() {
            preset(name, Path::new(".")).unwrap();
        }
    }

    #[test]
    fn what_a_plan_sets_comes_before_its_preset() {
        let own =
            MessageTemplate { weight: 1, text: Some("mine {{sequence}}".into()), binary: vec![], attachments: vec![] };
        let mut section =
            WireWebsocket { extends: Some("socket.io".into()), messages: vec![own.clone()], ..Default::default() };
        section.connect.headers.insert("X-Mine".into(), "1".into());
        extend(&mut section, Path::new(".")).unwrap();
        assert_eq!(section.messages, [own]);
        assert!(!section.open.is_empty() && section.reply.is_some(), "{section:?}");
        assert_eq!(section.connect.headers["X-Mine"], "1");
        assert_eq!(section.extends.as_deref(), Some("socket.io"), "the bundle says what it was made from");
    }

    #[test]
    fn an_unknown_preset_is_answered_with_the_one_that_was_meant() {
        assert_eq!(
            preset("socketio", Path::new(".")).unwrap_err(),
            "no preset \"socketio\"; did you mean \"socket.io\"?"
        );
        assert!(preset("./no.yaml", Path::new("/")).unwrap_err().starts_with("failed to read /./no.yaml"));
    }

    #[test]
    fn a_preset_file_has_no_services() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a.yaml"), "services: { a: { url: \"ws://a\" } }").unwrap();
        assert!(preset("./a.yaml", folder.path()).unwrap_err().contains("a preset has no `services`"));
    }
}
