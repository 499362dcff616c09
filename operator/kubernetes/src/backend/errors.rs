//! Errors of the API server and of the results volume, as the climb and users read them.

use std::io;

use operator::backend::Error;

use super::WATCH_TIMEOUT;
use crate::api;

/// Turns a "not found" error into `None`.
pub(super) fn found<T>(result: Result<T, api::Error>) -> Result<Option<T>, api::Error> {
    match result {
        Ok(found) => Ok(Some(found)),
        Err(api::Error::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// An object of the chart that is missing, or an API server that is away, is an interruption.
pub(super) fn remote_error(error: api::Error) -> Error {
    let text = error.to_string();
    match error {
        api::Error::NotFound { what } => return Error::Interrupted(deleted(&what)),
        api::Error::Refused { what, reason } if is_creation(&reason) => return Error::Interrupted(deleted(&what)),
        api::Error::Unavailable { .. } | api::Error::NoResponse { .. } => {
            return Error::Interrupted(format!("the API server is away: {text}"));
        }
        api::Error::Refused { .. } => {}
    }
    let (what, reason) =
        text.strip_prefix("failed to ").and_then(|text| text.split_once(": ")).unwrap_or(("do it", &text));
    Error::Remote { what: what.into(), reason: reason.into() }
}

/// The message about an object that another client deleted; `what` ends with its kind and name.
pub(super) fn deleted(what: &str) -> String {
    let object = ["Deployment ", "Job "].into_iter().find_map(|kind| Some(&what[what.find(kind)?..]));
    let object = object.map(|object| object.split_whitespace().take(2).collect::<Vec<_>>().join(" "));
    let object = object.unwrap_or_else(|| what.to_owned());
    format!("{object} was deleted; `helm upgrade` or the next reconcile of Flux or Argo CD creates it again")
}

/// The message about a change of ours that the API server has made but its watches don't show in time.
pub(super) fn watch_is_late(change: &str) -> String {
    format!("the API server's watches don't show {change} within {} s", WATCH_TIMEOUT.as_secs())
}

/// Whether a refusal is that of a server-side apply that would have created the object, which therefore is missing.
pub(super) fn is_creation(reason: &str) -> bool {
    reason.contains("spec.template")
}

/// An error of the results volume as text, with how to fix it if known.
pub fn describe_volume_error(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("the results volume is full ({error}): delete old runs or enlarge the claim")
        }
        io::ErrorKind::ReadOnlyFilesystem => format!("the results volume can't be written ({error})"),
        _ => error.to_string(),
    }
}
