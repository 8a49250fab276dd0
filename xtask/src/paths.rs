//! Where the repository and its build output are.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The folders that every task works with, all absolute.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    /// The repository's root.
    pub(crate) root: PathBuf,
    /// Cargo's target directory, wherever the environment or a configuration puts it.
    pub(crate) target: PathBuf,
}

impl Paths {
    /// Asks Cargo, which alone knows about `CARGO_TARGET_DIR` and `build.target-dir`.
    pub(crate) fn find() -> Result<Self, String> {
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
        let output = Command::new(cargo())
            .args(["metadata", "--no-deps", "--format-version", "1"])
            .args(["--manifest-path", manifest])
            .output()
            .map_err(|error| format!("cannot start cargo: {error}"))?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(format!("cargo metadata failed:\n{stderr}"));
        }
        let metadata: Value =
            serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
        let folder =
            |key: &str| metadata[key].as_str().map(PathBuf::from).ok_or_else(|| format!("cargo metadata has no {key}"));
        Ok(Self { root: folder("workspace_root")?, target: folder("target_directory")? })
    }

    /// Where a native test writes every shader for the browsers to compile.
    pub(crate) fn shader_dump(&self) -> PathBuf {
        self.target.join("shaders-dump")
    }

    /// Where a native test writes the losses that the browsers' are compared with.
    pub(crate) fn native_runs(&self) -> PathBuf {
        self.target.join("native-runs.json")
    }

    /// The reference's values, served to the browser as `/reference/`.
    pub(crate) fn reference(&self) -> PathBuf {
        self.root.join("tests/reference")
    }

    /// The folder that is served to the browser.
    pub(crate) fn web_out(&self) -> PathBuf {
        self.target.join("web-checks")
    }

    /// Where the browsers' reports are kept, a file of JSON lines for each browser.
    pub(crate) fn web_reports(&self) -> PathBuf {
        self.target.join("web-reports")
    }
}

/// The Cargo that started this program, or whichever is on the path.
pub(crate) fn cargo() -> std::ffi::OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// The first file of that name on `PATH`.
pub(crate) fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|candidate| is_executable(candidate))
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_executable(path: &Path) -> bool {
    path.is_file() || path.with_extension("exe").is_file()
}
