//! What the tasks need of the machine, found out and installed.
//!
//! All that is missing is collected first and then asked for at once, so that a
//! machine where nothing may be installed gets one command to type, not three
//! in a row.

pub(crate) mod apt;
pub(crate) mod browsers;
pub(crate) mod rustup;
pub(crate) mod vulkan;
pub(crate) mod wasm;

use crate::paths::Paths;
use apt::Wanted;

/// The parts of the machine that a task may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Need {
    /// A Vulkan driver, for programs that run on this machine's adapter.
    Vulkan,
    /// Chromium.
    Chromium,
    /// Firefox.
    Firefox,
    /// `cargo fmt` and `cargo clippy`.
    Lints,
    /// A way to compile for WebAssembly.
    Wasm,
}

/// Makes all `needs` available or says what to type.
///
/// # Errors
/// The exact command that would help, where this program may not run it.
pub(crate) fn prepare(paths: &Paths, needs: &[Need]) -> Result<(), String> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for need in needs {
        match need {
            Need::Vulkan => wanted.extend(vulkan::missing()),
            Need::Chromium => wanted.extend(browsers::Browser::Chromium.missing()),
            Need::Firefox => wanted.extend(browsers::Browser::Firefox.missing()),
            Need::Lints => rustup::ensure_lints(paths)?,
            Need::Wasm => wanted.extend(wasm::missing(paths)?),
        }
    }
    apt::install(&wanted)?;
    // An installation that succeeded and yet left something missing must not
    // come back as a puzzling failure of a later stage.
    for need in needs {
        let still = match need {
            Need::Vulkan => vulkan::missing(),
            Need::Chromium => browsers::Browser::Chromium.missing(),
            Need::Firefox => browsers::Browser::Firefox.missing(),
            Need::Lints => None,
            Need::Wasm => wasm::missing_packages(paths),
        };
        if let Some(still) = still {
            let packages = still.packages.join(" ");
            return Err(format!("installed {packages}, and yet: {}", still.why));
        }
    }
    Ok(())
}
