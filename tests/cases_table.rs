//! `docs/cases.md` names a test for every behaviour and case, and each exists.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::path::Path;

/// Words in backticks that name a test.
fn named(row: &str) -> Vec<&str> {
    row.split('`').skip(1).step_by(2).filter(|word| word.contains("::")).collect()
}

#[test]
fn every_behaviour_and_case_has_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(root.join("docs/cases.md")).unwrap();
    let checks = std::fs::read_to_string(root.join("web/checks/src/checks/mod.rs")).unwrap();
    let rows: Vec<&str> = document.lines().filter(|l| l.starts_with("| ") && !l.starts_with("| behav")).collect();
    let rows = rows.into_iter().filter(|l| !l.starts_with("| case |"));
    let (mut cases, mut behaviours) = (BTreeSet::new(), 0);
    for row in rows {
        let first = row[2..].split(" |").next().unwrap();
        match first.parse::<u32>() {
            Ok(case) => assert!(cases.insert(case), "case {case} stands twice"),
            Err(_) => behaviours += 1,
        }
        let tests = named(row);
        assert!(!tests.is_empty(), "no test: {row}");
        for test in tests {
            let (file, name) = test.split_once("::").unwrap();
            if file == "checks" {
                assert!(checks.contains(&format!("check(\"{name}\"")), "there is no check {name:?}");
                continue;
            }
            let text = std::fs::read_to_string(root.join("tests").join(file)).unwrap_or_default();
            let found = text.split("#[test]").skip(1).any(|after| {
                let signature = after.lines().find(|line| line.trim_start().starts_with("fn ")).unwrap_or_default();
                signature.trim_start() == format!("fn {name}() {{")
            });
            assert!(found, "tests/{file} has no test {name}");
        }
    }
    assert_eq!(cases, (1..=48).collect(), "each case once");
    assert_eq!(behaviours, 19);
}
