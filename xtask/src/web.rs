//! Builds the WebAssembly crate and its pages, and serves them.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::blocking;
use crate::http::{self, Request, Response};
use crate::paths::{Paths, cargo};
use crate::prepare::wasm::{TARGET, Toolchain, toolchain};
use crate::process;
use crate::report::Session;
use crate::shaders;

/// The module's name, as the pages import it.
const MODULE: &str = "remat_web_checks";

const LONGEST_HOLD_MS: u64 = 10 * 60 * 1000;

/// How the module is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Profile {
    /// With overflow checks and assertions, for tests: `usize` has 32 bits there.
    Dev,
    /// For use.
    Release,
}

/// The folder of one build.
#[derive(Debug)]
pub(crate) struct Build {
    target: PathBuf,
    command: Command,
}

impl Build {
    /// How to compile `remat-web-checks` on this machine.
    ///
    /// # Errors
    /// There is no way to, see [`toolchain`].
    pub(crate) fn new(paths: &Paths, profile: Profile) -> Result<Self, String> {
        let mut command = Command::new(cargo());
        command.args(["build", "--package", "remat-web-checks", "--lib", "--target", TARGET]);
        command.current_dir(&paths.root);
        if profile == Profile::Release {
            command.arg("--release");
        }
        let mut target = paths.target.clone();
        if let Toolchain::Debian { linker } = toolchain(paths)? {
            // Another compiler: in one folder the two would undo each other's work.
            target = paths.target.join("wasm-debian");
            command
                .arg("-Zbuild-std=std,panic_abort")
                .env("CARGO_TARGET_DIR", &target)
                .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", linker)
                .env("RUSTC", "/usr/bin/rustc")
                .env("RUSTC_BOOTSTRAP", "1");
        }
        let folder = if profile == Profile::Release { "release" } else { "debug" };
        let target = target.join(TARGET).join(folder);
        Ok(Self { target, command })
    }

    /// Compiles, writes the glue and copies the pages; the folder served is then complete.
    ///
    /// # Errors
    /// The command that failed.
    pub(crate) fn run(&self, paths: &Paths, deadline: Instant) -> Result<(), String> {
        process::run(&self.command, deadline)?;
        let out = paths.web_out();
        let module = self.target.join(format!("{MODULE}.wasm"));
        let mut bindgen = Command::new(cargo());
        bindgen.args(["run", "--package", "remat-bindgen", "--"]);
        bindgen.arg(module).arg(&out).current_dir(&paths.root);
        process::run(&bindgen, deadline)?;
        blocking::check(&out, MODULE)?;
        copy_pages(&paths.root.join("web/checks"), &out)
    }
}

/// Pages, their scripts and styles lie beside the crate's manifest.
fn copy_pages(from: &Path, to: &Path) -> Result<(), String> {
    let at = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(to).map_err(|error| at(to, error))?;
    for entry in fs::read_dir(from).map_err(|error| at(from, error))?.flatten() {
        let path = entry.path();
        let page = path.extension().is_some_and(|e| ["html", "js", "css", "svg"].iter().any(|x| e == *x));
        if page && path.is_file() {
            let copy = to.join(entry.file_name());
            fs::copy(&path, &copy).map_err(|error| at(&copy, error))?;
        }
    }
    Ok(())
}

/// Serves the built folder, the shaders and the reports of one session.
///
/// # Errors
/// The port cannot be had.
pub(crate) fn serve(paths: &Paths, port: u16, session: &Arc<Session>) -> Result<SocketAddr, String> {
    let paths = paths.clone();
    let session = Arc::clone(session);
    http::serve(port, move |request| answer(&paths, &session, request))
}

fn answer(paths: &Paths, session: &Session, request: &Request) -> Response {
    session.opened();
    match (request.method.as_str(), request.path.as_str()) {
        ("POST", "/report") => match session.receive(&request.body) {
            Ok(answer) => Response::json(answer.to_string()),
            Err(why) => Response::error("400 Bad Request", &why),
        },
        ("GET", "/shaders.json") => match shaders::collect(&paths.shader_dump()) {
            Ok(shaders) => Response::json(serde_json::Value::from(shaders).to_string()),
            Err(why) => Response::error("500 Internal Server Error", &why),
        },
        ("GET", "/native.json") => match fs::read_to_string(paths.native_runs()) {
            Ok(text) => Response::json(text),
            Err(error) => {
                let file = paths.native_runs();
                let why = format!(
                    "{}: {error}; a native test writes it, so run cargo xtask test --only native",
                    file.display()
                );
                Response::error("404 Not Found", &why)
            }
        },
        (_, path) if path.starts_with("/reference/") => {
            let inner = Request {
                method: request.method.clone(),
                path: path["/reference".len()..].to_owned(),
                body: Vec::new(),
            };
            http::file(&paths.reference(), &inner)
        }
        ("GET", path) if path.starts_with("/hold/") => hold(path),
        // Browsers ask for one without being told to.
        ("GET", "/favicon.ico") => Response::error("404 Not Found", "no icon"),
        _ => http::file(&paths.web_out(), request),
    }
}

/// Answers late, so that a page is not loaded before, see web/checks/picture.html.
fn hold(path: &str) -> Response {
    match path.trim_start_matches("/hold/").parse() {
        Ok(ms) if ms <= LONGEST_HOLD_MS => {
            std::thread::sleep(Duration::from_millis(ms));
            Response::error("404 Not Found", "no picture: only a delay")
        }
        _ => Response::error("400 Bad Request", "no number of milliseconds, or too large a one"),
    }
}

/// The address of the page that shows `page` and is loaded only after `settle_ms`.
///
/// # Errors
/// The delay is longer than the server will hold a request.
pub(crate) fn picture_page(address: SocketAddr, page: &str, settle_ms: u64) -> Result<String, String> {
    if settle_ms > LONGEST_HOLD_MS {
        return Err(format!("--settle-ms is {LONGEST_HOLD_MS} at most"));
    }
    let escaped = page.replace('%', "%25").replace('&', "%26").replace('#', "%23").replace('+', "%2B");
    Ok(format!("http://{address}/picture.html?ms={settle_ms}&page={escaped}"))
}

/// Serves until the process is ended.
pub(crate) fn forever(address: SocketAddr, page: &str) -> ! {
    println!("Serving http://{address}/{page}; Ctrl-C ends it.");
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}
