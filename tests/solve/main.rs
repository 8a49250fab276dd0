//! The abstract solver: graphs, schedules, chains.

#![expect(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]
#![expect(unreachable_pub, reason = "modules of one test crate")]

mod chains;
mod load;
mod random;
mod schedules;
mod solver;

use std::path::{Path, PathBuf};

use remat::solve::Graph;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/solve/graphs")
}

/// One of the synthetic graphs.
fn committed(name: &str) -> Graph {
    load::graph(&folder(), name).unwrap().0
}

/// What is known of it, by budget.
fn known(name: &str) -> Vec<load::Point> {
    load::points(&folder(), name).unwrap()
}
