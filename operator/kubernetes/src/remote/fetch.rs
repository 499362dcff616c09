//! `ladder fetch`: copies a bundle from a cluster into `results/`, checks every file, and replaces the local bundle
//! only when it is complete.

use std::{
    fs::{self, File},
    io::Write,
    path::{Component, Path, PathBuf},
};

use anyhow::{Context, bail, ensure};
use clap::Args;
use operator::{report, store::manifest::digest};

use super::{options::ReleaseOptions, reach::Operator};
use crate::{
    cluster_file::check_run_id,
    web::files::{BundleFile, RunSummary},
};

/// Arguments of `ladder fetch`.
#[derive(Debug, Args)]
pub struct Fetch {
    /// Id of the run; by default the newest.
    run: Option<String>,
    #[command(flatten)]
    location: ReleaseOptions,
    /// Folder in which bundles are written.
    #[arg(long, default_value = "results")]
    results: PathBuf,
    /// The registry of services; the report is made in the parent of its folder.
    #[arg(long, default_value = "services/services.toml")]
    registry: PathBuf,
    /// Don't make a report.
    #[arg(long)]
    no_report: bool,
    /// The command that makes the report; the bundle is appended as its last argument.
    #[arg(long, default_value = ".venv/bin/python -m ws_ladder_analysis", value_name = "COMMAND")]
    report_command: String,
}

/// Fetches a bundle, and prints the paths of the bundle and its report.
///
/// # Errors
/// When the operator can't be reached, the bundle can't be written, or a file is missing or differs from the operator's
/// list.
pub async fn fetch(arguments: &Fetch) -> anyhow::Result<u8> {
    let operator = Operator::reach(&arguments.location.location()).await?;
    let id = match &arguments.run {
        Some(id) => id.clone(),
        None => newest(&operator).await?,
    };
    ensure!(!id.is_empty(), "the run's id is empty");
    check_run_id(&id).map_err(anyhow::Error::msg)?;
    fs::create_dir_all(&arguments.results)
        .with_context(|| format!("failed to make {}", arguments.results.display()))?;
    let results = fs::canonicalize(&arguments.results)?;
    let bundle = results.join(&id);
    bundle_into(&operator, &id, &bundle, |_| true).await?;
    println!("{}", bundle.display());
    if !arguments.no_report {
        make_report(arguments, &bundle);
    }
    Ok(0)
}

async fn newest(operator: &Operator) -> anyhow::Result<String> {
    let runs: Vec<RunSummary> = operator.get("/api/runs").await?;
    let run = runs.into_iter().next().context("the operator has no run yet; set run.id to climb")?;
    Ok(run.id)
}

fn make_report(arguments: &Fetch, bundle: &Path) {
    let registry = fs::canonicalize(&arguments.registry).ok();
    let Some(root) = registry.as_deref().and_then(Path::parent).and_then(Path::parent) else {
        eprintln!(
            "ladder: no report: {} isn't here; run it in a checkout, or give --no-report",
            arguments.registry.display()
        );
        return;
    };
    match report::make(&arguments.report_command, root, bundle) {
        Ok(report) => println!("{}{}", report.printed, report.path.display()),
        // The bundle is complete without a report.
        Err(error) => eprintln!("ladder: failed to make the report: {error:#}"),
    }
}

/// Fetches the files of a run that `is_selected` selects, and moves them into place when all are there and checked. Files
/// that exist locally with the same digest are copied instead of fetched.
///
/// # Errors
/// When a file is missing, differs from the operator's list or can't be written; the local bundle is then unchanged.
pub(super) async fn bundle_into(
    operator: &Operator,
    id: &str,
    bundle: &Path,
    is_selected: impl Fn(&str) -> bool,
) -> anyhow::Result<()> {
    let listed: Vec<BundleFile> = operator.get(&format!("/api/runs/{id}/files")).await?;
    let parent = bundle.parent().context("the bundle has no folder above it")?;
    let fresh =
        tempfile::Builder::new().prefix(&format!(".{id}-")).tempdir_in(parent).context("failed to make a folder")?;
    for file in listed.iter().filter(|file| is_selected(&file.path)) {
        let relative = checked_path(&file.path)?;
        let path = fresh.path().join(relative);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let known = bundle.join(relative);
        let same =
            File::open(&known).ok().and_then(|known| digest(known).ok()).is_some_and(|(found, _)| found == file.sha256);
        if same {
            fs::copy(&known, &path).with_context(|| format!("failed to copy {}", known.display()))?;
        } else {
            one_file(operator, id, file, &path).await?;
        }
    }
    swap(fresh.keep().as_path(), bundle)
}

async fn one_file(operator: &Operator, id: &str, file: &BundleFile, path: &Path) -> anyhow::Result<()> {
    let mut response = operator.open(&format!("/results/{id}/{}", file.path)).await?;
    let mut to = File::create(path).with_context(|| format!("failed to make {}", path.display()))?;
    let mut room = file.bytes;
    while let Some(chunk) = response.chunk().await.with_context(|| format!("failed to read {}", file.path))? {
        // What goes beyond the list is neither read nor written.
        room = room.checked_sub(chunk.len() as u64).with_context(|| longer(file))?;
        to.write_all(&chunk).with_context(|| format!("failed to write {}", path.display()))?;
    }
    to.sync_all()?;
    let (found, bytes) = digest(File::open(path)?)?;
    let BundleFile { path, sha256, .. } = file;
    ensure!(
        found == *sha256,
        "{path} has {bytes} bytes and sha256 {found}, but the operator listed {} bytes and {sha256}; \
         the files of a run change while it is climbed: fetch again",
        file.bytes
    );
    Ok(())
}

fn longer(file: &BundleFile) -> String {
    let BundleFile { path, bytes, .. } = file;
    format!(
        "{path} has more than the {bytes} bytes that the operator listed; while a run is under way its files change: fetch \
         again"
    )
}

/// Replaces the local bundle by the new one.
fn swap(fresh: &Path, bundle: &Path) -> anyhow::Result<()> {
    let before = fresh.with_added_extension("before");
    let replaced = bundle.exists();
    if replaced {
        fs::rename(bundle, &before).with_context(|| format!("failed to move {} aside", bundle.display()))?;
    }
    fs::rename(fresh, bundle).with_context(|| format!("failed to put the bundle at {}", bundle.display()))?;
    if replaced {
        fs::remove_dir_all(&before).with_context(|| format!("failed to remove {}", before.display()))?;
    }
    Ok(())
}

/// Checks that a path in the operator's list stays inside the bundle.
fn checked_path(path: &str) -> anyhow::Result<&Path> {
    let path = Path::new(path);
    let inside = path.components().all(|part| matches!(part, Component::Normal(_)));
    if !inside || path.as_os_str().is_empty() {
        bail!("the operator lists a file that is in no bundle: {}", path.display());
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::{Json, Router, extract::Path as UrlPath, routing::get};
    use tokio::net::TcpListener;

    use super::*;
    use crate::{
        live::Live,
        remote::reach::OperatorAddress,
        web::{self, Web},
    };

    async fn operator_of(results: &Path) -> Operator {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(web::serve(listener, Web::new(Live::new(), results.into())));
        Operator::reach(&OperatorAddress::Url(url)).await.unwrap()
    }

    fn write(folder: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    #[tokio::test]
    async fn a_bundle_is_fetched_completely_and_replaces_the_previous_one() {
        let (source, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        write(source.path(), &[("r1/run.json", "{\"new\":1}"), ("r1/trials/a/result.json", "{}")]);
        write(
            target.path(),
            &[("r1/run.json", "{\"old\":1}"), ("r1/gone.json", "{}"), ("r1/trials/a/result.json", "{}")],
        );
        let operator = operator_of(source.path()).await;
        bundle_into(&operator, "r1", &target.path().join("r1"), |_| true).await.unwrap();
        assert_eq!(fs::read_to_string(target.path().join("r1/run.json")).unwrap(), "{\"new\":1}");
        assert!(
            target.path().join("r1/trials/a/result.json").is_file() && !target.path().join("r1/gone.json").exists()
        );
        assert_eq!(fs::read_dir(target.path()).unwrap().count(), 1, "something was left beside the bundle");
    }

    #[tokio::test]
    async fn a_file_with_a_wrong_digest_leaves_the_old_bundle_unchanged() {
        static REQUESTS: AtomicU32 = AtomicU32::new(0);
        let listed = || async { Json(serde_json::json!([{"path": "run.json", "bytes": 2, "sha256": "00"}])) };
        let file = |UrlPath((_, _)): UrlPath<(String, String)>| async {
            REQUESTS.fetch_add(1, Ordering::Relaxed);
            "{}"
        };
        let routes = Router::new().route("/api/runs/{id}/files", get(listed)).route("/results/{id}/{*path}", get(file));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, routes).await });
        let target = tempfile::tempdir().unwrap();
        write(target.path(), &[("r1/run.json", "old")]);
        let operator = Operator::reach(&OperatorAddress::Url(url)).await.unwrap();
        let error = bundle_into(&operator, "r1", &target.path().join("r1"), |_| true).await.unwrap_err();
        assert!(error.to_string().contains("and sha256 44136fa"), "{error:#}");
        assert_eq!(fs::read_to_string(target.path().join("r1/run.json")).unwrap(), "old");
        assert_eq!((REQUESTS.load(Ordering::Relaxed), fs::read_dir(target.path()).unwrap().count()), (1, 1));
    }

    #[tokio::test]
    async fn a_file_that_is_longer_than_listed_is_given_up_at_the_listed_size() {
        let listed = || async { Json(serde_json::json!([{"path": "run.json", "bytes": 2, "sha256": "00"}])) };
        let file = |UrlPath((_, _)): UrlPath<(String, String)>| async { "x".repeat(1 << 20) };
        let routes = Router::new().route("/api/runs/{id}/files", get(listed)).route("/results/{id}/{*path}", get(file));
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async { axum::serve(listener, routes).await });
        let target = tempfile::tempdir().unwrap();
        let operator = Operator::reach(&OperatorAddress::Url(url)).await.unwrap();
        let error = bundle_into(&operator, "r1", &target.path().join("r1"), |_| true).await.unwrap_err();
        assert!(error.to_string().starts_with("run.json has more than the 2 bytes"), "{error:#}");
        assert_eq!(fs::read_dir(target.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_listed_path_never_leaves_the_bundle() {
        for path in ["../a", "/etc/passwd", "a/../../b", "", "./a"] {
            assert!(checked_path(path).is_err(), "{path}");
        }
        assert!(checked_path("trials/a/result.json").is_ok());
    }
}
