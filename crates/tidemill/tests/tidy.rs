//! Style as a test: what review would otherwise have to look for.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

const FILE_LINES_MAX: usize = 600;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_COLUMNS_MAX: usize = 100;
const BLOB_BYTES_MAX: u64 = 1 << 20;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the checkout exists")
}

fn walk(dir: &Path, found: &mut Vec<PathBuf>) {
    const SKIP: &[&str] = &[".git", "target", "node_modules", "tidemill-data", "corpus"];
    for entry in fs::read_dir(dir).expect("folders are readable") {
        let path = entry.expect("entries are readable").path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
            .to_owned();
        if !path.is_dir() {
            found.push(path);
        } else if !SKIP.contains(&name.as_str()) {
            walk(&path, found);
        }
    }
}

fn files() -> Vec<PathBuf> {
    let mut found = Vec::new();
    walk(&root(), &mut found);
    found.sort();
    found
}

fn with_extension(extension: &str) -> Vec<(PathBuf, String)> {
    files()
        .into_iter()
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .map(|path| {
            let text = fs::read_to_string(&path).expect("source files are UTF-8");
            (
                path.strip_prefix(root())
                    .expect("below the root")
                    .to_owned(),
                text,
            )
        })
        // The model is a workspace of its own with a layout of its own.
        .filter(|(path, _)| !path.starts_with("sim/model"))
        .collect()
}

fn is_test(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "tests")
}

fn report(faults: &[String]) {
    assert!(
        faults.is_empty(),
        "{} faults:\n{}",
        faults.len(),
        faults.join("\n")
    );
}

#[test]
fn files_and_lines_are_short() {
    let mut faults = Vec::new();
    for (path, text) in with_extension("rs") {
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX && !is_test(&path) {
            faults.push(format!("{}: {lines} lines", path.display()));
        }
        for (index, line) in text.lines().enumerate() {
            if line.chars().count() > LINE_COLUMNS_MAX {
                let at = index + 1;
                faults.push(format!(
                    "{}:{at}: over {LINE_COLUMNS_MAX} columns",
                    path.display()
                ));
            }
        }
    }
    report(&faults);
}

/// Functions by indentation: rustfmt closes a function at the column it began.
fn long_functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (start, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let words = [
            "fn ",
            "pub fn ",
            "async fn ",
            "pub async fn ",
            "const fn ",
            "pub const fn ",
        ];
        let scoped = trimmed.starts_with("pub(") && trimmed.contains(" fn ");
        let is_function = scoped || words.iter().any(|word| trimmed.starts_with(word));
        if !is_function || trimmed.ends_with(';') {
            continue;
        }
        let close = format!("{}}}", " ".repeat(line.len() - trimmed.len()));
        let body = lines[start..].iter().position(|line| **line == close);
        if let Some(length) = body.map(|last| last + 1)
            && length > FUNCTION_LINES_MAX
        {
            found.push((start + 1, length));
        }
    }
    found
}

#[test]
fn functions_are_short() {
    let mut faults = Vec::new();
    for (path, text) in with_extension("rs") {
        if is_test(&path) {
            continue;
        }
        for (line, length) in long_functions(&text) {
            faults.push(format!(
                "{}:{line}: function of {length} lines",
                path.display()
            ));
        }
    }
    report(&faults);
}

#[test]
fn nothing_is_left_unfinished() {
    let words = [
        "todo!(",
        "unimplemented!(",
        concat!("FIX", "ME"),
        concat!("X", "XX:"),
    ];
    let mut faults = Vec::new();
    for (path, text) in with_extension("rs") {
        if path.ends_with("tidy.rs") {
            continue;
        }
        for (index, line) in text.lines().enumerate() {
            if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                faults.push(format!("{}:{}: `{word}`", path.display(), index + 1));
            }
        }
    }
    report(&faults);
}

#[test]
fn no_blob_is_large() {
    let mut faults = Vec::new();
    for path in files() {
        let bytes = fs::metadata(&path).expect("files exist").len();
        let ignored = path.extension().is_some_and(|found| found == "log");
        if bytes > BLOB_BYTES_MAX && !ignored {
            faults.push(format!("{}: {bytes} bytes", path.display()));
        }
    }
    report(&faults);
}

#[test]
fn markdown_has_a_title() {
    let untitled = |(path, text): (PathBuf, String)| {
        (!text.starts_with("# ")).then(|| format!("{}: does not open with a title", path.display()))
    };
    let faults: Vec<String> = with_extension("md")
        .into_iter()
        .filter_map(untitled)
        .collect();
    report(&faults);
}

#[test]
fn tests_that_the_documentation_names_exist() {
    let doc = fs::read_to_string(root().join("docs/correctness.md")).expect("it exists");
    let sources = with_extension("rs");
    let mut faults = Vec::new();
    for name in doc.split('`').skip(1).step_by(2) {
        let is_name = name != "fsck"
            && name
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
        let declared = format!("fn {name}(");
        if is_name && !sources.iter().any(|(_, text)| text.contains(&declared)) {
            faults.push(format!("docs/correctness.md: no test `{name}`"));
        }
    }
    report(&faults);
}

#[test]
fn every_api_file_states_its_versions() {
    let mut faults = Vec::new();
    for (path, text) in with_extension("rs") {
        if !path.starts_with("crates/broker/src/api") || path.ends_with("mod.rs") {
            continue;
        }
        let top: String = text
            .lines()
            .take_while(|line| line.starts_with("//!"))
            .collect();
        if top.contains("(key ") && !top.to_lowercase().contains("version") {
            faults.push(format!(
                "{}: no versions in the top comment",
                path.display()
            ));
        }
    }
    report(&faults);
}

#[test]
fn every_source_file_is_reached() {
    let sources = with_extension("rs");
    let declared: BTreeSet<&str> = sources
        .iter()
        .flat_map(|(_, text)| text.lines())
        .filter_map(|line| Some(line.trim().strip_suffix(';')?.rsplit_once("mod ")?.1))
        .collect();
    let mut faults = Vec::new();
    for (path, _) in &sources {
        let stem = path
            .file_stem()
            .and_then(|stem| stem.to_str())
            .unwrap_or_default();
        let part = |name: &str| path.components().any(|part| part.as_os_str() == name);
        let entry = ["lib", "main", "mod", "build"].contains(&stem) || part("bin");
        if part("src") && !entry && !declared.contains(stem) {
            faults.push(format!("{}: no `mod {stem};` anywhere", path.display()));
        }
    }
    report(&faults);
}

/// The licences of all dependencies are in `deny.toml`'s list, and nothing banned there is used.
#[test]
fn dependencies_are_allowed() {
    let list = fs::read_to_string(root().join("deny.toml")).expect("deny.toml exists");
    let quoted = |line: &str| line.split('"').nth(1).map(str::to_owned);
    let allowed: BTreeSet<String> = list
        .lines()
        .skip_while(|line| !line.starts_with("allow = ["))
        .skip(1)
        .take_while(|line| !line.starts_with(']'))
        .filter_map(quoted)
        .collect();
    let banned: BTreeSet<String> = list
        .lines()
        .filter(|line| line.contains("{ name ="))
        .filter_map(quoted)
        .collect();
    assert!(
        allowed.contains("MIT") && banned.contains("anyhow"),
        "the lists were read"
    );
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--locked", "--offline"])
        .args(["--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()
        .expect("cargo runs");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).expect("cargo prints JSON");
    let test_only = oracle_only(&metadata);
    let mut faults = Vec::new();
    for package in metadata["packages"].as_array().expect("there are packages") {
        let name = package["name"].as_str().unwrap_or_default();
        let licence = package["license"]
            .as_str()
            .unwrap_or_default()
            .replace('/', " OR ");
        if !is_licence_allowed(&licence, &allowed) {
            faults.push(format!("{name}: licence `{licence}`"));
        }
        if banned.contains(name) && !test_only.contains(name) {
            faults.push(format!("{name}: banned in deny.toml"));
        }
    }
    report(&faults);
}

/// What only the test oracle brings in.
fn oracle_only(metadata: &serde_json::Value) -> BTreeSet<String> {
    let nodes = metadata["resolve"]["nodes"]
        .as_array()
        .expect("there is a graph");
    let users = |name: &str| -> Vec<&str> {
        let uses = |node: &&serde_json::Value| {
            node["deps"]
                .as_array()
                .is_some_and(|deps| deps.iter().any(|dep| dep["name"] == name))
        };
        nodes
            .iter()
            .filter(uses)
            .filter_map(|node| node["id"].as_str())
            .collect()
    };
    let from_oracle = |name: &&str| users(name).iter().all(|id| id.contains("kafka-protocol"));
    ["anyhow"]
        .into_iter()
        .filter(from_oracle)
        .map(str::to_owned)
        .collect()
}

/// `A OR B` needs one of both, `A AND B` both; brackets occur only around alternatives.
fn is_licence_allowed(licence: &str, allowed: &BTreeSet<String>) -> bool {
    let bare = |text: &str| {
        text.trim_matches(|c| c == '(' || c == ')' || c == ' ')
            .to_owned()
    };
    licence
        .split(" AND ")
        .all(|part| part.split(" OR ").any(|one| allowed.contains(&bare(one))))
}

/// Names in the section `[dependencies]` of a manifest.
fn dependencies(manifest: &str) -> BTreeSet<String> {
    let section = manifest.split("\n[dependencies]\n").nth(1);
    let lines = section.unwrap_or_default().lines();
    lines
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split(['.', ' ', '=']).next())
        .filter(|name| !name.is_empty() && !name.starts_with('#'))
        .map(str::to_owned)
        .collect()
}

/// The fuzz targets are a workspace of their own and are built with `--locked`.
#[test]
fn the_lock_file_of_the_fuzz_targets_knows_what_crates_depend_on() {
    let lock = fs::read_to_string(root().join("fuzz/Cargo.lock")).expect("it is checked in");
    let mut faults = Vec::new();
    let mut seen = 0;
    for package in lock.split("\n[[package]]\n") {
        let quoted = |line: &str| line.split('"').nth(1).map(str::to_owned);
        let name = package.lines().next().and_then(quoted).unwrap_or_default();
        let Some(folder) = name.strip_prefix("tidemill-") else {
            continue;
        };
        let manifest = root().join("crates").join(folder).join("Cargo.toml");
        let Ok(manifest) = fs::read_to_string(manifest) else {
            continue;
        };
        let listed = package.lines().filter(|line| line.starts_with(" \""));
        let listed = listed.filter_map(quoted);
        let listed: BTreeSet<_> = listed
            .filter_map(|entry| entry.split(' ').next().map(str::to_owned))
            .collect();
        seen += 1;
        for missing in dependencies(&manifest).difference(&listed) {
            faults.push(format!("{name}: `{missing}` is not in fuzz/Cargo.lock"));
        }
    }
    assert!(seen >= 5, "{seen}");
    report(&faults);
}
