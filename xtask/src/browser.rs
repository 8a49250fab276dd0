//! Runs a page in a browser without a window, a driver or Node: the page reports
//! to the server that it came from, and the browser is ended when it has.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::paths::Paths;
use crate::prepare::browsers::Browser;
use crate::prepare::vulkan;
use crate::process::{Supervised, line_of};
use crate::report::{Outcome, Session};

/// A browser that has not even asked for the page by then never will.
const OPENING_LIMIT: Duration = Duration::from_secs(90);
const SAMPLE_EVERY: Duration = Duration::from_millis(250);
const TAIL_LINES: usize = 30;

const CHROMIUM_FLAGS: [&str; 13] = [
    "--headless",
    // The sandbox needs rights that root in a container does not have; the only
    // page that is opened is this repository's own.
    "--no-sandbox",
    "--enable-unsafe-webgpu",
    "--use-webgpu-adapter=swiftshader",
    "--disable-quic",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    // Containers often have a /dev/shm that is far too small.
    "--disable-dev-shm-usage",
    "--window-size=1280,900",
];

/// WebGPU on, everything that talks to the outside or starts processes off.
const FIREFOX_PREFERENCES: [(&str, &str); 26] = [
    ("dom.webgpu.enabled", "true"),
    ("gfx.webgpu.ignore-blocklist", "true"),
    ("dom.max_script_run_time", "0"),
    ("dom.ipc.processPrelaunch.enabled", "false"),
    ("app.update.enabled", "false"),
    ("app.update.auto", "false"),
    ("app.normandy.enabled", "false"),
    ("app.shield.optoutstudies.enabled", "false"),
    ("browser.aboutwelcome.enabled", "false"),
    ("browser.shell.checkDefaultBrowser", "false"),
    ("browser.startup.homepage_override.mstone", "\"ignore\""),
    ("browser.startup.page", "0"),
    ("browser.newtabpage.enabled", "false"),
    ("browser.sessionstore.resume_from_crash", "false"),
    ("browser.safebrowsing.malware.enabled", "false"),
    ("browser.safebrowsing.phishing.enabled", "false"),
    ("browser.region.update.enabled", "false"),
    ("browser.tabs.remote.separatePrivilegedContentProcess", "false"),
    ("datareporting.policy.dataSubmissionEnabled", "false"),
    ("datareporting.healthreport.uploadEnabled", "false"),
    ("toolkit.telemetry.enabled", "false"),
    ("toolkit.telemetry.unified", "false"),
    ("toolkit.telemetry.reportingpolicy.firstRun", "false"),
    ("extensions.update.enabled", "false"),
    ("network.captive-portal-service.enabled", "false"),
    ("network.connectivity-service.enabled", "false"),
];

/// A folder of the browser's own, gone when the run is over.
#[derive(Debug)]
struct Profile(PathBuf);

impl Profile {
    fn new(browser: Browser) -> Result<Self, String> {
        let unique = format!("remat-{}-{}", browser.name(), std::process::id());
        let folder = std::env::temp_dir().join(unique);
        let made = fs::create_dir(&folder).and_then(|()| {
            if browser == Browser::Firefox {
                fs::write(folder.join("user.js"), firefox_preferences())?;
            }
            Ok(())
        });
        made.map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        Ok(Self(folder))
    }

    fn stderr(&self) -> PathBuf {
        self.0.join("stderr.log")
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn firefox_preferences() -> String {
    let line = |(name, value): &(&str, &str)| format!("user_pref(\"{name}\", {value});\n");
    FIREFOX_PREFERENCES.iter().map(line).collect()
}

/// Opens `url` and waits for the page's verdict.
///
/// # Errors
/// The browser is missing, ended early, never opened the page or took longer
/// than `limit`; with the last lines that it printed.
pub(crate) fn run(
    paths: &Paths,
    browser: Browser,
    url: &str,
    session: &Session,
    limit: Duration,
) -> Result<Outcome, String> {
    let profile = Profile::new(browser)?;
    let command = command(paths, browser, &profile, &[], url)?;
    println!("$ {}", line_of(&command));
    let mut running = start(&command, &profile)?;
    session.watch(running.group());
    let verdict = watch(&mut running, session, limit);
    let left = running.stop();
    let verdict = verdict.map_err(|error| {
        let name = browser.name();
        format!("{name}: {error}\n{}\n{}", session.progress(), tail(name, &profile.stderr()))
    })?;
    if left > 0 {
        return Err(format!("{left} processes of {} would not end", browser.name()));
    }
    Ok(verdict)
}

fn watch(running: &mut Supervised, session: &Session, limit: Duration) -> Result<Outcome, String> {
    let start = Instant::now();
    loop {
        if let Some(outcome) = session.outcome() {
            return Ok(outcome);
        }
        if let Some(status) = running.try_wait()? {
            return Err(format!("ended before the page was done: {status}"));
        }
        let elapsed = start.elapsed();
        if elapsed >= limit {
            return Err(format!("stopped at the time limit of {} s", limit.as_secs()));
        }
        if elapsed >= OPENING_LIMIT && !session.was_opened() {
            return Err(format!("never opened the page in {} s", OPENING_LIMIT.as_secs()));
        }
        session.sample();
        std::thread::sleep(SAMPLE_EVERY);
    }
}

/// Takes a picture of a page with Chromium as soon as it has loaded, which the page
/// should do after about `settle`.
///
/// # Errors
/// As [`run`], or no picture was made.
pub(crate) fn screenshot(paths: &Paths, url: &str, picture: &Path, settle: Duration) -> Result<(), String> {
    let profile = Profile::new(Browser::Chromium)?;
    let extra = [format!("--screenshot={}", picture.display()), "--hide-scrollbars".to_owned()];
    let command = command(paths, Browser::Chromium, &profile, &extra, url)?;
    println!("$ {}", line_of(&command));
    drop(fs::remove_file(picture));
    let mut running = start(&command, &profile)?;
    let status = running.wait_until(Instant::now() + settle + OPENING_LIMIT)?;
    if picture.is_file() {
        return Ok(());
    }
    let status = status.map_or_else(|| "stopped at its time limit".to_owned(), |s| s.to_string());
    Err(format!("no picture: {status}\n{}", tail("chromium", &profile.stderr())))
}

fn start(command: &Command, profile: &Profile) -> Result<Supervised, String> {
    let stderr = File::create(profile.stderr()).map_err(|error| error.to_string())?;
    Supervised::start(command, Stdio::null(), stderr.into())
}

fn command(paths: &Paths, browser: Browser, profile: &Profile, extra: &[String], url: &str) -> Result<Command, String> {
    let program = browser.program().ok_or_else(|| format!("no {} on the path", browser.name()))?;
    let mut command = Command::new(program);
    match browser {
        Browser::Chromium => {
            let mut user_data = std::ffi::OsString::from("--user-data-dir=");
            user_data.push(&profile.0);
            command.args(CHROMIUM_FLAGS).arg(user_data);
        }
        Browser::Firefox => {
            command.args(["--headless", "--no-remote", "--profile"]).arg(&profile.0);
            command.env("MOZ_CRASHREPORTER_DISABLE", "1");
            if let Some((name, value)) = vulkan::software_driver() {
                command.env(name, value);
            }
        }
    }
    // Neither leaves a trace in the user's home, and Firefox refuses to run as
    // root in a home that is somebody else's.
    command.env("HOME", &profile.0).args(extra).arg(url);
    if let Some(folder) = vulkan::runtime_dir(paths)? {
        command.env("XDG_RUNTIME_DIR", folder);
    }
    Ok(command)
}

fn tail(name: &str, file: &Path) -> String {
    let text = fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let text = text.unwrap_or_default();
    // Without a desktop Chromium complains about the message bus, again and again.
    let lines: Vec<&str> = text.lines().filter(|line| !line.contains(":ERROR:dbus/")).collect();
    let last = &lines[lines.len().saturating_sub(TAIL_LINES)..];
    if last.is_empty() {
        return format!("{name} printed nothing");
    }
    format!("the last lines that {name} printed:\n  {}", last.join("\n  "))
}
