//! A way to compile for WebAssembly.
//!
//! The first choice is the target of the toolchain in use, which rustup adds.
//! Where it cannot be fetched, Debian 12 has another compiler with its standard
//! library's source, in packages made for building browsers; the library is
//! then compiled along with the crate. Both give the same module.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::apt::Wanted;
use super::rustup;
use crate::paths::{Paths, on_path};

/// The target's name.
pub(crate) const TARGET: &str = "wasm32-unknown-unknown";

const DEBIAN_RUSTC: &str = "/usr/bin/rustc";
const DEBIAN_PACKAGES: [&str; 2] = ["rustc-web", "rust-web-src"];

/// How this machine compiles for WebAssembly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Toolchain {
    /// The toolchain in use has the target.
    Target,
    /// Debian's compiler builds the standard library too.
    Debian {
        /// A linker for WebAssembly.
        linker: PathBuf,
    },
}

/// Adds the target if need be; names Debian's packages where that failed.
///
/// # Errors
/// Neither way is open on this machine.
pub(crate) fn missing(paths: &Paths) -> Result<Option<Wanted>, String> {
    if has_target(paths) || asked_for_target_in_vain(paths).is_none() {
        return Ok(None);
    }
    if !cfg!(target_os = "linux") {
        return Err(format!("add the target by hand: rustup target add {TARGET}"));
    }
    Ok(missing_packages(paths))
}

/// The packages of the second way that are still missing; none if the first is open.
pub(crate) fn missing_packages(paths: &Paths) -> Option<Wanted> {
    if has_target(paths) {
        return None;
    }
    let mut packages: Vec<&'static str> = Vec::new();
    if debian_sources().is_none() {
        packages.extend(DEBIAN_PACKAGES);
    }
    if linker(paths).is_none() {
        packages.push("lld");
    }
    (!packages.is_empty()).then(|| Wanted {
        packages,
        why: format!("the toolchain's target {TARGET} could not be added; Debian's compiler can build for it"),
    })
}

/// The way that is open after [`missing`] was satisfied.
///
/// # Errors
/// Neither is.
pub(crate) fn toolchain(paths: &Paths) -> Result<Toolchain, String> {
    if has_target(paths) {
        return Ok(Toolchain::Target);
    }
    match (debian_sources(), linker(paths)) {
        (Some(_), Some(linker)) => Ok(Toolchain::Debian { linker }),
        _ => Err(format!("cannot compile for {TARGET}: rustup target add {TARGET}")),
    }
}

/// The error of the only attempt to add the target; asking twice would only
/// wait twice.
fn asked_for_target_in_vain(paths: &Paths) -> Option<&'static String> {
    static ATTEMPT: OnceLock<Option<String>> = OnceLock::new();
    let attempt = ATTEMPT.get_or_init(|| {
        println!("The toolchain lacks the target {TARGET}, which the browser build needs.");
        let error = rustup::add(paths, "target", &[TARGET]).err()?;
        println!("{error}\nFalling back to Debian's compiler for WebAssembly.");
        Some(error)
    });
    attempt.as_ref()
}

fn has_target(paths: &Paths) -> bool {
    let libraries = rustc(paths, &["--print", "target-libdir", "--target", TARGET]);
    let entries = libraries.and_then(|folder| std::fs::read_dir(folder).ok());
    entries.into_iter().flatten().flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("libcore-"))
}

/// Debian's compiler is only of use with the sources of its own version.
fn debian_sources() -> Option<PathBuf> {
    let output = Command::new(DEBIAN_RUSTC).args(["--print", "sysroot"]).output().ok()?;
    let sysroot = String::from_utf8(output.stdout).ok()?;
    let sources = Path::new(sysroot.trim()).join("lib/rustlib/src/rust/library/Cargo.toml");
    sources.exists().then_some(sources)
}

fn linker(paths: &Paths) -> Option<PathBuf> {
    let host = rustc(paths, &["--print", "host-tuple"])?;
    let sysroot = rustc(paths, &["--print", "sysroot"])?;
    let bundled = sysroot.join("lib/rustlib").join(host).join("bin/rust-lld");
    if bundled.is_file() {
        return Some(bundled);
    }
    on_path("wasm-ld").or_else(|| newest_wasm_ld(Path::new("/usr/bin")))
}

/// Debian also installs linkers under names with LLVM's version only.
fn newest_wasm_ld(folder: &Path) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let versions = entries.filter_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.strip_prefix("wasm-ld-")?.parse::<u32>().ok()
    });
    versions.max().map(|version| folder.join(format!("wasm-ld-{version}")))
}

/// What the toolchain's compiler prints.
fn rustc(paths: &Paths, args: &[&str]) -> Option<PathBuf> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).args(args).current_dir(&paths.root).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| PathBuf::from(text.trim()))
}
