//! Compares each file of a bundle with its list: altered, missing and additional ones, each by path.

use std::{fs::File, path::Path};

use super::report::{Check, Finding, counted};
use crate::store::{
    self,
    manifest::{MANIFEST, Manifest, Walk, digest},
};

pub(super) fn check(bundle: &Path, walk: &Walk) -> Check {
    let mut check = Check::new("files");
    let manifest = match store::read_list(bundle) {
        Ok(Some(manifest)) => manifest,
        Ok(None) => {
            check.not_checked.push(format!(
                "no file can be compared, because {MANIFEST} is missing: an older ladder or another program wrote the \
                 bundle, or the list was removed (`ladder sign` writes one of the files as they are now)"
            ));
            check.findings = foreign(walk);
            return check;
        }
        Err(error) => return Check::failed("files", MANIFEST, driver::http::chain(&error)),
    };
    check.findings = compare(bundle, &manifest, walk);
    check.summary = match check.findings.len() {
        0 => format!("{} unchanged", counted(manifest.0.len(), "file")),
        count => format!("{} listed, {}", counted(manifest.0.len(), "file"), counted(count, "difference")),
    };
    check
}

/// The differences between a bundle's files and its list, sorted by path.
pub fn compare(bundle: &Path, manifest: &Manifest, walk: &Walk) -> Vec<Finding> {
    let mut findings = foreign(walk);
    let mut find = |place: &str, reason: String| findings.push(Finding { place: place.into(), reason });
    for (path, listed) in &manifest.0 {
        if !walk.files.contains_key(path) {
            find(path, format!("missing, but {MANIFEST} lists it"));
            continue;
        }
        match File::open(bundle.join(path)).and_then(digest) {
            Ok((sha256, _)) if sha256 == *listed => {}
            Ok((sha256, bytes)) => {
                find(path, format!("altered: its {bytes} bytes have SHA-256 {sha256}, and {MANIFEST} has {listed}"));
            }
            Err(error) => find(path, format!("failed to read it: {error}")),
        }
    }
    for path in walk.files.keys().filter(|path| !manifest.0.contains_key(*path)) {
        let left = if path.ends_with(".tmp") { "; an interrupted write leaves such a file: remove it" } else { "" };
        find(path, format!("additional: {MANIFEST} doesn't list it{left}"));
    }
    findings.sort_by(|a, b| a.place.cmp(&b.place));
    findings
}

fn foreign(walk: &Walk) -> Vec<Finding> {
    let finding = |(place, reason): (&String, &&str)| Finding { place: place.clone(), reason: (*reason).into() };
    walk.foreign.iter().map(finding).collect()
}
