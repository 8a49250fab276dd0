//! A Vulkan driver, and the folder that drivers expect at start-up.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use super::apt::Wanted;
use crate::paths::Paths;

/// Mesa's software driver, where Debian puts it.
const LAVAPIPE: &str = "/usr/share/vulkan/icd.d/lvp_icd.x86_64.json";
const LAVAPIPE_ARM: &str = "/usr/share/vulkan/icd.d/lvp_icd.aarch64.json";

/// Mesa's driver, if this machine has no Vulkan at all. Other systems than Linux
/// bring a graphics API of their own.
pub(crate) fn missing() -> Option<Wanted> {
    if !cfg!(target_os = "linux") {
        return None;
    }
    let (loader, driver) = (has_loader(), has_driver());
    if loader && driver {
        return None;
    }
    let lack = match (loader, driver) {
        (false, false) => "neither a Vulkan loader (libvulkan.so.1) nor a driver was found",
        (false, true) => "no Vulkan loader (libvulkan.so.1) was found",
        _ => "no Vulkan driver (an ICD file) was found",
    };
    Some(Wanted {
        packages: vec!["mesa-vulkan-drivers", "libvulkan1"],
        why: format!("{lack}; Mesa's driver runs on any GPU it knows and on the CPU where there is none"),
    })
}

/// Adds to `set` what a Vulkan program needs in its environment: an existing
/// private `XDG_RUNTIME_DIR`, without which start-up prints errors on a bare
/// machine.
pub(crate) fn runtime_dir(paths: &Paths) -> Result<Option<PathBuf>, String> {
    let given = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    if given.is_some_and(|folder| folder.is_dir()) || !cfg!(target_os = "linux") {
        return Ok(None);
    }
    // Below the target directory and not in /tmp, where somebody else could
    // have made a folder of the same name.
    let folder = paths.target.join("xdg-runtime");
    make_private(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    Ok(Some(folder))
}

/// Settings that make a browser run on Mesa's software driver, so that a test of
/// a page is the same on every machine. A driver that the user chose is kept.
pub(crate) fn software_driver() -> Option<(&'static str, &'static str)> {
    if chosen("VK_DRIVER_FILES").is_some() || chosen("VK_ICD_FILENAMES").is_some() {
        return None;
    }
    [LAVAPIPE, LAVAPIPE_ARM].into_iter().find(|file| Path::new(file).is_file()).map(|file| ("VK_DRIVER_FILES", file))
}

fn chosen(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

#[cfg(unix)]
fn make_private(folder: &Path) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
}

#[cfg(not(unix))]
fn make_private(folder: &Path) -> std::io::Result<()> {
    fs::create_dir_all(folder)
}

fn has_driver() -> bool {
    for name in ["VK_DRIVER_FILES", "VK_ICD_FILENAMES"] {
        if let Some(files) = chosen(name) {
            return std::env::split_paths(&files).any(|file| file.exists());
        }
    }
    let mut bases: Vec<PathBuf> =
        ["/etc", "/usr/share", "/usr/local/share", "/usr/local/etc"].iter().map(PathBuf::from).collect();
    if let Some(home) = std::env::home_dir() {
        bases.push(home.join(".local/share"));
    }
    if let Some(list) = chosen("XDG_DATA_DIRS") {
        bases.extend(std::env::split_paths(&list));
    }
    bases.iter().any(|base| holds(&base.join("vulkan/icd.d"), |name| name.ends_with(".json")))
}

fn has_loader() -> bool {
    let mut folders = vec![PathBuf::from("/usr/local/lib")];
    if let Some(list) = chosen("LD_LIBRARY_PATH") {
        folders.extend(std::env::split_paths(&list));
    }
    for base in ["/usr/lib", "/lib", "/usr/lib64", "/lib64"] {
        folders.push(base.into());
        // Debian keeps libraries one level further down, by architecture.
        let below = fs::read_dir(base).into_iter().flatten().flatten();
        folders.extend(
            below
                .map(|entry| entry.path())
                .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().contains("-linux-gnu"))),
        );
    }
    folders.iter().any(|folder| folder.join("libvulkan.so.1").exists())
}

fn holds(folder: &Path, wanted: impl Fn(&str) -> bool) -> bool {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.into_iter().any(|entry| wanted(&entry.file_name().to_string_lossy()))
}
