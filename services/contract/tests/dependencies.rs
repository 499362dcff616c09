//! No service is built from the harness. The measuring and the measured programs share nothing but the contract.
//!
//! The services of `services/self-test` belong to the harness and may use it.

use std::{collections::BTreeMap, path::Path, process::Command};

use serde_json::Value;

const SERVICES: [&str; 6] = ["inference-sim", "rust-axum", "rust-axum-plain", "rust-sync", "wse-binding", "wse-engine"];
/// Folders of the harness.
const HARNESS: [&str; 2] = ["loadgen", "operator"];

/// A package of the workspace.
struct Package {
    /// Folder of the package, relative to the root of the checkout.
    folder: String,
    /// Packages of the workspace that it is built from, without those that only its tests use.
    built_from: Vec<String>,
}

/// All packages of the workspace. Only these can depend on the harness, so no registry needs to be read.
fn packages() -> BTreeMap<String, Package> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the root of the checkout");
    let options = ["metadata", "--format-version=1", "--no-deps", "--offline", "--locked"];
    let output = Command::new(env!("CARGO")).args(options).current_dir(root).output().expect("cargo starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).expect("metadata are JSON");
    let packages = metadata["packages"].as_array().expect("packages").iter();
    packages.map(|package| (text(&package["name"]), self::package(package, root))).collect()
}

fn package(package: &Value, root: &Path) -> Package {
    let manifest = text(&package["manifest_path"]);
    let folder = Path::new(&manifest).parent().and_then(|folder| folder.strip_prefix(root).ok());
    let dependencies = package["dependencies"].as_array().expect("dependencies").iter();
    let of_workspace = dependencies.filter(|dependency| dependency["path"].is_string() && dependency["kind"] != "dev");
    Package {
        folder: folder.expect("a member lies in the checkout").display().to_string(),
        built_from: of_workspace.map(|dependency| text(&dependency["name"])).collect(),
    }
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

/// The first dependency path from `package` to the harness.
fn path_to_harness(packages: &BTreeMap<String, Package>, package: &str) -> Option<String> {
    let Package { folder, built_from } = &packages[package];
    if HARNESS.iter().any(|harness| Path::new(folder).starts_with(harness)) {
        return Some(package.to_owned());
    }
    built_from.iter().find_map(|next| Some(format!("{package} -> {}", path_to_harness(packages, next)?)))
}

#[test]
fn no_service_is_built_from_the_harness() {
    let packages = packages();
    for service in SERVICES {
        assert_eq!(path_to_harness(&packages, service), None, "{service} depends on the harness");
    }
}

#[test]
fn a_path_to_the_harness_is_found_over_several_packages() {
    let packages = packages();
    // The harness's own gateway uses the harness's histograms.
    let path = path_to_harness(&packages, "self-test-service");
    assert_eq!(path.as_deref(), Some("self-test-service -> bench-format"));
    let package = |folder: &str, next: &str| Package { folder: folder.into(), built_from: vec![next.into()] };
    let packages_in_a_chain = BTreeMap::from([
        ("a".to_owned(), package("services/a", "b")),
        ("b".to_owned(), package("services/b", "c")),
        ("c".to_owned(), Package { folder: "loadgen/c".into(), built_from: Vec::new() }),
    ]);
    assert_eq!(path_to_harness(&packages_in_a_chain, "a").as_deref(), Some("a -> b -> c"));
}
