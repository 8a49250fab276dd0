//! Components and targets of the Rust toolchain in use.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::paths::{Paths, cargo, on_path};
use crate::process;

/// Fetching a component is tens of megabytes. Where nothing can be fetched it
/// may take minutes of retries to fail, and there is another way for most.
const TIME_LIMIT: Duration = Duration::from_secs(180);

/// Makes `cargo fmt` and `cargo clippy` available.
///
/// # Errors
/// The command to type, when they are missing and cannot be added.
pub(crate) fn ensure_lints(paths: &Paths) -> Result<(), String> {
    let missing: Vec<&str> = [("fmt", "rustfmt"), ("clippy", "clippy")]
        .into_iter()
        .filter(|(command, _)| !cargo_has(paths, command))
        .map(|(_, component)| component)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    println!("The toolchain lacks {names}, which check the style of the sources.");
    add(paths, "component", &missing)
        .map_err(|error| format!("{error}\nAdd them by hand: rustup component add {names}"))
}

/// Adds components or targets to the toolchain in use.
///
/// # Errors
/// rustup is not there, failed, or took too long.
pub(crate) fn add(paths: &Paths, what: &str, names: &[&str]) -> Result<(), String> {
    if on_path("rustup").is_none() {
        return Err(format!("no rustup to add the {what} {} with", names.join(" ")));
    }
    let mut rustup = Command::new("rustup");
    // In the repository's folder, so that an override for it is honoured.
    rustup.args([what, "add"]).args(names).current_dir(&paths.root);
    process::run(&rustup, Instant::now() + TIME_LIMIT)
}

fn cargo_has(paths: &Paths, command: &str) -> bool {
    let mut version = Command::new(cargo());
    version.args([command, "--version"]).current_dir(&paths.root);
    version.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}
