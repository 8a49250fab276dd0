//! Programs of the project that run on this machine's adapter.

use std::ffi::OsString;
use std::process::{Command, ExitCode};

use crate::paths::{Paths, cargo};
use crate::prepare::{Need, prepare, vulkan};
use crate::process::line_of;

/// Builds and runs `examples/demo.rs`.
///
/// # Errors
/// There is no driver and none may be installed, or Cargo cannot be started.
pub(crate) fn demo(args: &[OsString]) -> Result<ExitCode, String> {
    let paths = Paths::find()?;
    prepare(&paths, &[Need::Vulkan])?;
    // Built first and visibly: a stranger's first build takes minutes, and
    // the demonstration's own output should not start below it unannounced.
    println!("Building the demonstration; the first time this compiles all dependencies.");
    let built = run(&paths, &["build", "--release", "--example", "demo"], &[])?;
    if built != ExitCode::SUCCESS {
        return Ok(built);
    }
    run(&paths, &["run", "--release", "--quiet", "--example", "demo"], args)
}

/// The tests that print figures and assert nothing about them, which `test` leaves out.
const FIGURES: [&str; 8] = ["test", "--release", "--test", "fusion", "--test", "gpu_cost", "--test", "planner"];

/// Runs `benches/NAME.rs` if the first argument names one, the tests that print figures
/// for `figures`, else `examples/bench.rs`.
///
/// # Errors
/// As [`demo`].
pub(crate) fn bench(args: &[OsString]) -> Result<ExitCode, String> {
    let paths = Paths::find()?;
    prepare(&paths, &[Need::Vulkan])?;
    let name = args.first().and_then(|name| name.to_str()).filter(|name| {
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
        plain && paths.root.join("benches").join(format!("{name}.rs")).is_file()
    });
    if args.first().is_some_and(|name| name == "figures") {
        let shown = ["--ignored", "--nocapture", "--test-threads=1"].map(OsString::from);
        return run(&paths, &FIGURES, &shown);
    }
    match name {
        Some(name) => run(&paths, &["bench", "--bench", name], &args[1..]),
        None => run(&paths, &["run", "--release", "--example", "bench"], args),
    }
}

/// Runs Cargo in the caller's folder and terminal, so that the program finds
/// files where the caller means them.
fn run(paths: &Paths, cargo_args: &[&str], args: &[OsString]) -> Result<ExitCode, String> {
    let mut command = Command::new(cargo());
    command.args(cargo_args).arg("--manifest-path").arg(paths.root.join("Cargo.toml"));
    if !args.is_empty() {
        command.arg("--").args(args);
    }
    if let Some(folder) = vulkan::runtime_dir(paths)? {
        command.env("XDG_RUNTIME_DIR", folder);
    }
    println!("$ {}", line_of(&command));
    let status = command.status().map_err(|error| format!("cannot start cargo: {error}"))?;
    Ok(match status.code().map(u8::try_from) {
        Some(Ok(code)) => ExitCode::from(code),
        _ => ExitCode::FAILURE,
    })
}
