//! How a service is built and packed into an image, and what entries for the same program share.
//!
//! `ladder` builds nothing. It only validates the values that tools read.

use std::collections::BTreeMap;

use bench_format::Name;
use serde::Deserialize;

use super::{Service, names};
use crate::spelling::closest;

/// How a service is built and tested. Each command is a shell command line that runs in the service's folder.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Build {
    /// Name of the toolchain; `tools/toolchains/<name>` installs it.
    pub toolchain: String,
    /// Command that builds the service.
    #[serde(default)]
    pub build: Option<String>,
    /// Command that runs the unit tests.
    #[serde(default)]
    pub test: Option<String>,
    /// Command that checks the formatting and lints.
    #[serde(default)]
    pub lint: Option<String>,
}

/// Values for the service's image, beside the Dockerfile.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Image {
    /// The base image: a key of `[images]` in `versions.lock.toml`.
    pub base: String,
    /// Paths copied into the image, relative to the service's folder; with a leading `/`, to the root of the checkout.
    pub files: Vec<String>,
    /// Memory request of the service's pods, as a Kubernetes quantity.
    pub memory: String,
    /// CPU request of the service's pods, as a Kubernetes quantity.
    pub cpu: String,
    /// The platforms for which a release builds the image; defaults to all of them.
    #[serde(default)]
    pub platforms: Option<Vec<Platform>>,
    /// Path of the Dockerfile; defaults to `Dockerfile` in the service's folder.
    #[serde(default)]
    pub dockerfile: Option<String>,
    /// The service's folder; defaults to `services/<name>`.
    #[serde(default)]
    pub folder: Option<String>,
}

/// A platform that images are released for, as image indexes name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Platform {
    /// Linux on x86-64 processors.
    #[serde(rename = "linux/amd64")]
    Amd64,
    /// Linux on 64-bit Arm processors.
    #[serde(rename = "linux/arm64")]
    Arm64,
}

/// Validates the values that tools read. The error is the field and what is wrong with it.
pub(super) fn check(service: &Service) -> Result<(), (String, String)> {
    let wrong = |field: &str, message: String| Err((field.to_owned(), message));
    if let Some(seconds) = service.warmup_seconds.filter(|seconds| !(seconds.is_finite() && *seconds > 0.0)) {
        return wrong(
            "warmup_seconds",
            format!("{seconds} is not a time to warm up; give seconds above 0, or leave it out"),
        );
    }
    if let Some((field, _)) = texts(service).into_iter().find(|(_, text)| text.trim().is_empty()) {
        return wrong(&field, "empty; give a value, or leave it out".into());
    }
    let mut quantities = service.image.iter().flat_map(|image| [("memory", &image.memory), ("cpu", &image.cpu)]);
    if service.image.as_ref().and_then(|image| image.platforms.as_ref()).is_some_and(Vec::is_empty) {
        return wrong("image.platforms", "empty; name one, or leave it out for all".into());
    }
    if let Some((field, text)) = quantities.find(|(_, text)| !is_quantity(text)) {
        let message = format!("\"{text}\" is not a quantity of Kubernetes; write it like \"256Mi\", \"1\" or \"500m\"");
        return wrong(&format!("image.{field}"), message);
    }
    Ok(())
}

/// The texts that must not be empty, with their fields.
fn texts(service: &Service) -> Vec<(String, &str)> {
    let mut texts: Vec<(String, &str)> = Vec::new();
    if let Some(Build { toolchain, build, test, lint }) = &service.build {
        texts.push(("build.toolchain".into(), toolchain));
        let lines = [("build", build), ("test", test), ("lint", lint)];
        texts.extend(lines.into_iter().filter_map(|(name, line)| Some((format!("build.{name}"), line.as_deref()?))));
    }
    if let Some(Image { base, files, dockerfile, folder, .. }) = &service.image {
        texts.push(("image.base".into(), base));
        texts.extend(files.iter().enumerate().map(|(at, file)| (format!("image.files[{at}]"), file.as_str())));
        let paths = [("dockerfile", dockerfile), ("folder", folder)];
        texts.extend(paths.into_iter().filter_map(|(name, path)| Some((format!("image.{name}"), path.as_deref()?))));
    }
    texts.extend(service.exceptions.iter().map(|(case, text)| (format!("exceptions.{case}"), text.as_str())));
    texts
}

/// Whether a text is a Kubernetes quantity: digits, an optional fraction, and an optional unit.
fn is_quantity(text: &str) -> bool {
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let units = ["", "m", "k", "M", "G", "Ki", "Mi", "Gi"];
    units.contains(&&text[number.len()..])
        && number.starts_with(|c: char| c.is_ascii_digit())
        && number.parse::<f64>().is_ok()
}

/// Fills entries with the values that they take from others. The error is the entry and why it can't take them.
pub(super) fn complete(services: &mut BTreeMap<Name, Service>) -> Result<(), (Name, String)> {
    let alike: Vec<(Name, String)> =
        services.iter().filter_map(|(name, service)| Some((name.clone(), service.like.clone()?))).collect();
    for (name, other) in alike {
        let Some(of) = services.get(other.as_str()).cloned() else {
            let hint = closest(&other, services.keys().map(Name::as_str));
            let hint = hint.map(|near| format!("; did you mean {near}?")).unwrap_or_default();
            return Err((name, format!("no service \"{other}\"{hint}; known: {}", names(services))));
        };
        if let Some(further) = of.like {
            let advice = if further == name || other == name { "leave it out" } else { "name that one" };
            return Err((name, format!("{other} is itself like {further}; {advice}")));
        }
        if let Some(service) = services.get_mut(&name) {
            service.build = service.build.take().or(of.build);
            service.image = service.image.take().or(of.image);
            if service.exceptions.is_empty() {
                service.exceptions = of.exceptions;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::parse;

    /// A service `a` with these lines, and a service `b` with every value that tools read.
    fn services(lines: &str) -> String {
        let entry =
            |name: &str| format!("[services.{name}]\ndescription = \"\"\nprotocol = \"wse\"\ncommand = [\"{name}\"]\n");
        let b = "warmup_seconds = 2.5\n[services.b.build]\ntoolchain = \"go\"\ntest = \"go test ./...\"\n\
                 [services.b.image]\nbase = \"debian\"\nfiles = [\"b\"]\nmemory = \"256Mi\"\ncpu = \"0.5\"\n\
                 [services.b.exceptions]\nunmasked = \"it ends\"\n";
        format!("{}{b}{}{lines}", entry("b"), entry("a"))
    }

    fn refusal(lines: &str) -> String {
        parse(&services(lines)).unwrap_err().to_string()
    }

    #[test]
    fn an_entry_with_like_inherits_build_image_and_exceptions_only() {
        let registry = parse(&services("like = \"b\"\n")).unwrap();
        let (a, b) = (&registry.services["a"], &registry.services["b"]);
        assert_eq!((&a.build, &a.image, &a.exceptions), (&b.build, &b.image, &b.exceptions));
        assert_eq!(b.build.as_ref().unwrap().toolchain, "go");
        assert_eq!((a.warmup_seconds, b.warmup().as_secs_f64()), (None, 2.5));
    }

    #[test]
    fn an_entrys_own_settings_win_over_inherited_ones() {
        let own = "like = \"b\"\n[services.a.build]\ntoolchain = \"java\"\n[services.a.exceptions]\nreserved = \"x\"\n";
        let registry = parse(&services(own)).unwrap();
        let a = &registry.services["a"];
        assert_eq!(a.build.as_ref().unwrap().toolchain, "java");
        assert_eq!(a.exceptions.keys().collect::<Vec<_>>(), ["reserved"]);
        assert!(a.image.is_some());
    }

    #[test]
    fn like_must_name_a_known_entry_that_has_no_like_itself() {
        assert_eq!(
            refusal("like = \"bb\""),
            "services.toml: services.a.like: no service \"bb\"; did you mean b?; known: a, b"
        );
        assert_eq!(refusal("like = \"a\""), "services.toml: services.a.like: a is itself like a; leave it out");
        let chain =
            "like = \"b\"\n[services.c]\ndescription = \"\"\nprotocol = \"wse\"\ncommand = [\"c\"]\nlike = \"a\"\n";
        assert_eq!(refusal(chain), "services.toml: services.c.like: a is itself like b; name that one");
    }

    #[test]
    fn values_that_make_no_sense_are_named_with_their_place() {
        for seconds in ["0", "-1.0", "nan", "inf"] {
            let description = refusal(&format!("warmup_seconds = {seconds}"));
            assert!(
                description.starts_with("services.toml: services.a.warmup_seconds: ")
                    && description.contains("above 0"),
                "{description}"
            );
        }
        let image = |rest: &str| refusal(&format!("[services.a.image]\nbase = \"x\"\n{rest}"));
        let description = image("files = []\nmemory = \"much\"\ncpu = \"1\"");
        assert!(description.contains("services.a.image.memory: \"much\" is not a quantity"), "{description}");
        assert!(image("files = [\"a\", \"\"]\nmemory = \"1Gi\"\ncpu = \"1\"").contains("image.files[1]: empty"));
        assert!(image("files = []\nmemory = \"1Gi\"\ncpu = \"1\"\nports = 1").contains("ports"));
        let platforms = |named: &str| image(&format!("files = []\nmemory = \"1Gi\"\ncpu = \"1\"\nplatforms = {named}"));
        assert!(platforms("[\"linux/x86\"]").contains("expected `linux/amd64` or `linux/arm64`"));
        assert!(platforms("[]").contains("services.a.image.platforms: empty; name one, or leave it out for all"));
        assert!(refusal("[services.a.build]\ntoolchain = \" \"").contains("services.a.build.toolchain: empty"));
        assert!(refusal("[services.a.build]\ntool = \"go\"").contains("tool"));
        assert!(refusal("[services.a.exceptions]\nunmasked = \"\"").contains("exceptions.unmasked: empty"));
    }
}
