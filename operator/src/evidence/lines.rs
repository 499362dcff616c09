//! Counts the lines of code of a service.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// File extensions of source code, with the prefixes that mark a line as a comment.
const LANGUAGES: [(&[&str], &[&str]); 3] = [
    (&["rs", "go", "js", "mjs", "ts", "java", "cc", "cpp", "hpp", "h", "scala"], &["//", "/*", "*"]),
    (&["py", "ex", "exs"], &["#"]),
    (&["ml", "mli"], &["(*"]),
];
/// Folders that are not counted: tests, fetched dependencies and build output.
const LEFT_OUT: [&str; 12] = [
    "test",
    "tests",
    "testdata",
    "bench",
    "benches",
    "examples",
    "fuzz",
    "build",
    "target",
    "node_modules",
    "deps",
    "_build",
];

/// The lines of code in a service's folder: lines of its source files that are neither blank nor only a comment,
/// without tests, dependencies and build output. Zero if there are none.
pub fn of_folder(folder: &Path) -> u64 {
    files(folder).iter().filter_map(|path| Some(of_text(&fs::read_to_string(path).ok()?, comments(path)?))).sum()
}

/// The source files below a folder, without test files and symbolic links.
fn files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() {
            if !name.starts_with('.') && !LEFT_OUT.contains(&name) {
                found.extend(files(&path));
            }
        } else if !is_test(name) && !path.is_symlink() {
            found.push(path);
        }
    }
    found
}

/// Whether a file contains tests, by the naming conventions of the languages.
fn is_test(name: &str) -> bool {
    let stem = name.split_once('.').map_or(name, |(stem, _)| stem);
    stem == "tests"
        || stem.starts_with("test_")
        || stem.ends_with("_test")
        || stem.ends_with("Test")
        || name.contains(".test.")
}

/// The prefixes of comment lines in a file; `None` for a file that is not code.
fn comments(path: &Path) -> Option<&'static [&'static str]> {
    let ending = path.extension()?.to_str()?;
    LANGUAGES.iter().find(|(endings, _)| endings.contains(&ending)).map(|(_, comments)| *comments)
}

/// Lines of code of one file. Unit tests in Rust are at the end of a file.
fn of_text(text: &str, comments: &[&str]) -> u64 {
    let lines = text.lines().map(str::trim).take_while(|line| *line != "#[cfg(test)]");
    let code = lines.filter(|line| !line.is_empty() && !comments.iter().any(|comment| line.starts_with(comment)));
    u64::try_from(code.count()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blank_lines_comments_and_unit_tests_are_not_counted() {
        let text = "//! What.\n\nuse a;\n/// Does.\nfn b() {}\n\n#[cfg(test)]\nmod tests {}\n";
        assert_eq!(of_text(text, &["//"]), 2);
    }

    #[test]
    fn tests_dependencies_and_build_output_are_not_counted() {
        let folder = tempfile::tempdir().unwrap();
        for file in ["main.go", "main_test.go", "build/gen.go", "src/a.rs", "node_modules/x/i.js", "README.md"] {
            let path = folder.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "one\ntwo\n").unwrap();
        }
        assert_eq!(of_folder(folder.path()), 4);
    }

    #[test]
    fn a_service_without_a_folder_has_no_lines() {
        assert_eq!(of_folder(Path::new("/nowhere")), 0);
    }
}
