//! `docs/ops.md` names what the library has: nothing more, nothing less.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// What a source file defines for users: methods and functions of ops, also those
/// that a macro makes from `name => CURVE;` or `name, name_scalar => Kind;`.
fn operations(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in text.lines() {
        let Some(line) = line.strip_prefix("    ") else { continue };
        if let Some(rest) = line.strip_prefix("pub fn ") {
            names.insert(rest.chars().take_while(|&c| c.is_alphanumeric() || c == '_').collect());
        } else if let Some((left, right)) = line.split_once(" => ") {
            let listed =
                right.ends_with(';') && right.trim_end_matches(';').chars().all(|c| c.is_alphanumeric() || c == '_');
            let named = left
                .split(", ")
                .all(|n| !n.is_empty() && n.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
            if listed && named {
                names.extend(left.split(", ").map(str::to_owned));
            }
        }
    }
    // Constructors of options and what an op's own rule is given are no operations.
    for other in ["new", "bits", "grad"] {
        names.remove(other);
    }
    names
}

/// The names that a module hands on by `pub use file::..;`, and its own public types.
fn types(text: &str) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for line in text.lines() {
        if let Some((_, used)) = line.strip_prefix("pub use ").and_then(|rest| rest.split_once("::")) {
            names.extend(used.trim_matches(['{', '}', ';']).split(", ").map(str::to_owned));
        }
        for kind in ["pub struct ", "pub trait ", "pub enum "] {
            if let Some(rest) = line.strip_prefix(kind) {
                names.insert(rest.chars().take_while(|&c| c.is_alphanumeric()).collect());
            }
        }
    }
    names
}

/// First cells of the table under a heading, with the whole row.
fn table(document: &str, heading: &str) -> BTreeMap<String, String> {
    let section = document.split("\n## ").find(|part| part.starts_with(heading)).unwrap();
    let rows = section.lines().filter_map(|line| {
        let name = line.strip_prefix("| `")?.split('`').next()?;
        Some((name.to_owned(), line.to_owned()))
    });
    rows.collect()
}

fn assert_same(what: &str, documented: &BTreeSet<String>, defined: &BTreeSet<String>) {
    assert!(!defined.is_empty(), "no {what} found in the sources");
    let missing: Vec<_> = defined.difference(documented).collect();
    let gone: Vec<_> = documented.difference(defined).collect();
    assert!(missing.is_empty(), "{what} missing in docs/ops.md: {missing:?}");
    assert!(gone.is_empty(), "{what} in docs/ops.md that are not in the sources: {gone:?}");
}

#[test]
fn the_table_of_operations_layers_and_optimisers_is_complete() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    let document = read("docs/ops.md");
    let mut defined = BTreeSet::new();
    let rows = table(&document, "Operations");
    for entry in std::fs::read_dir(root.join("src/ops")).unwrap() {
        let file = entry.unwrap().file_name().into_string().unwrap();
        for name in operations(&read(&format!("src/ops/{file}"))) {
            let row = rows.get(&name).unwrap_or_else(|| panic!("`{name}` of src/ops/{file} is missing in docs/ops.md"));
            assert!(row.contains(&format!("`src/ops/{file}`")), "`{name}` is in src/ops/{file}, not as said: {row}");
            defined.insert(name);
        }
    }
    assert_same("operations", &rows.into_keys().collect(), &defined);
    for (heading, file) in
        [("Layers", "src/nn/mod.rs"), ("Optimisers", "src/optim/mod.rs"), ("Schedules", "src/optim/schedule.rs")]
    {
        assert_same(heading, &table(&document, heading).into_keys().collect(), &types(&read(file)));
    }
}
