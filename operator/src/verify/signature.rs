//! Checks the signature of a bundle's list of files.

use std::{io, path::Path};

use super::report::Check;
use crate::{
    signing::PublicKey,
    store::{
        files::read,
        manifest::{LARGEST_LIST, MANIFEST, PUBLIC_KEY, SIGNATURE},
    },
};

/// Largest signature that is read, in bytes.
const LARGEST_SIGNATURE: u64 = 1024;

/// Checks the signature if there is one; with `key` there must be one, by that key.
pub(super) fn check(bundle: &Path, key: Option<&PublicKey>) -> Check {
    let mut check = Check::new("signature");
    let present = |name: &str| bundle.join(name).exists();
    if !present(SIGNATURE) && !present(PUBLIC_KEY) {
        match key {
            Some(key) => check.find(SIGNATURE, format!("missing; a signature by {} is asked for", key.fingerprint())),
            None => check.summary = "none: nothing says who made the list of files".into(),
        }
        return check;
    }
    match signer(bundle) {
        Err((place, reason)) => check.find(place, reason),
        Ok(signer) => match key {
            Some(key) if *key != signer => {
                let (signer, key) = (signer.fingerprint(), key.fingerprint());
                check.find(SIGNATURE, format!("signed by another key: {signer}, and {key} is asked for"));
            }
            Some(_) => check.summary = format!("signed by {}, the given key", signer.fingerprint()),
            None => {
                check.summary = format!(
                    "signed by {}, key not checked: give the key that you know with --public-key",
                    signer.fingerprint()
                );
            }
        },
    }
    check
}

/// The key by which the list is signed; or the place and the reason why it is not signed.
fn signer(bundle: &Path) -> Result<PublicKey, (&'static str, String)> {
    let text = |name: &'static str, most| read(&bundle.join(name), most).map_err(|error| (name, unreadable(&error)));
    let key = PublicKey::read(&bundle.join(PUBLIC_KEY)).map_err(|error| (PUBLIC_KEY, driver::http::chain(&error)))?;
    if text(PUBLIC_KEY, LARGEST_SIGNATURE)? != key.pem().into_bytes() {
        return Err((PUBLIC_KEY, "not written by `ladder sign`, which has one form for each key".into()));
    }
    let signature = String::from_utf8(text(SIGNATURE, LARGEST_SIGNATURE)?).unwrap_or_default();
    if !key.has_signed(&text(MANIFEST, LARGEST_LIST)?, &signature) {
        let reason = format!("no signature of {MANIFEST} by the key in {PUBLIC_KEY}: one of the three was altered");
        return Err((SIGNATURE, reason));
    }
    Ok(key)
}

fn unreadable(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "missing".into(),
        _ => format!("failed to read it: {error}"),
    }
}
