//! Debian packages, installed through the system's package manager.

use std::io::ErrorKind;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::paths::on_path;
use crate::process;

/// Packages that are missing, and what for.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Debian's names.
    pub(crate) packages: Vec<&'static str>,
    /// What was looked for in vain and what it is needed for.
    pub(crate) why: String,
}

/// How this process may call the package manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Permission {
    Root,
    Sudo,
    No,
}

/// Installing takes minutes on a slow line; a dead one should not hang forever.
const TIME_LIMIT: Duration = Duration::from_secs(15 * 60);

const SETTINGS: [&str; 6] = [
    "-o",
    "Acquire::Retries=2",
    "-o",
    "Acquire::http::Timeout=60",
    // Another installation may be under way, as on a freshly started machine.
    "-o",
    "DPkg::Lock::Timeout=120",
];

/// Installs all that is wanted; does nothing at all when nothing is.
///
/// # Errors
/// The command to type, where there is no permission, or what went wrong.
pub(crate) fn install(wanted: &[Wanted]) -> Result<(), String> {
    if wanted.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> = Vec::new();
    let mut reasons = String::new();
    for want in wanted {
        reasons += &format!("  {}: {}\n", want.packages.join(", "), want.why);
        packages.extend(want.packages.iter().filter(|name| !packages.contains(name)).collect::<Vec<_>>());
    }
    let names = packages.join(" ");
    if on_path("apt-get").is_none() {
        return Err(format!(
            "this machine lacks, under the names that Debian has for them:\n{reasons}\
             There is no apt-get here. Install them with this system's package manager: {names}"
        ));
    }
    let permission = permission();
    if permission == Permission::No {
        let line = format!("apt-get update && apt-get install -y --no-install-recommends {names}");
        let typed = if on_path("sudo").is_some() { format!("sudo sh -c '{line}'") } else { format!("su -c '{line}'") };
        return Err(format!(
            "this machine lacks:\n{reasons}\
             Installing needs root, and this user is neither root nor allowed to use sudo \
             without a password. Type:\n\n    {typed}\n"
        ));
    }
    println!("Installing Debian packages:\n{reasons}");
    let deadline = Instant::now() + TIME_LIMIT;
    process::run(&apt_get(permission, &["update", "-qq"]), deadline)?;
    let mut install = vec!["install", "-y", "-qq", "--no-install-recommends"];
    install.extend(packages);
    process::run(&apt_get(permission, &install), deadline)
}

fn apt_get(permission: Permission, args: &[&str]) -> Command {
    // `env` carries the setting through sudo, which clears the environment.
    let words = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"];
    let mut command = match permission {
        Permission::Sudo => {
            let mut command = Command::new("sudo");
            command.arg("-n").args(words);
            command
        }
        Permission::Root | Permission::No => {
            let mut command = Command::new(words[0]);
            command.args(&words[1..]);
            command
        }
    };
    command.args(SETTINGS).args(args);
    command
}

fn permission() -> Permission {
    if is_root() {
        return Permission::Root;
    }
    let mut sudo = Command::new("sudo");
    sudo.args(["-n", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    match sudo.status() {
        Ok(status) if status.success() => Permission::Sudo,
        Err(error) if error.kind() != ErrorKind::NotFound => {
            eprintln!("cannot start sudo: {error}");
            Permission::No
        }
        _ => Permission::No,
    }
}

/// Whether this process has root's rights.
pub(crate) fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
