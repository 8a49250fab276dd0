//! `cargo xtask test`: every check there is, natively and in two browsers.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::browser;
use crate::paths::{Paths, cargo};
use crate::prepare::browsers::Browser;
use crate::prepare::wasm::{TARGET, Toolchain, toolchain};
use crate::prepare::{Need, prepare, vulkan};
use crate::process::{self, Supervised, check, line_of};
use crate::report::Session;
use crate::shaders;
use crate::stages::{self, ADAPTER_TESTS, Stage};
use crate::web;

/// A run that takes longer, on two cores, is one that nobody will wait for.
const WHOLE_LIMIT: Duration = Duration::from_secs(45 * 60);
const BROWSER_LIMIT: Duration = Duration::from_secs(10 * 60);

/// How a stage ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    /// Passed, with what was counted if anything was.
    Passed(String),
    /// Could not be run here, with the reason.
    Skipped(String),
    Failed(String),
}

struct Run {
    paths: Paths,
    deadline: Instant,
}

/// Runs the stages asked for (all, if none is) and sums them up.
///
/// # Errors
/// Something is missing on this machine and could not be installed.
pub(crate) fn run(only: &[Stage]) -> Result<ExitCode, String> {
    let paths = Paths::find()?;
    let start = Instant::now();
    let chosen = stages::chosen(only);
    prepare(&paths, &stages::needs(&chosen))?;
    println!("Machine ready after {}", seconds(start.elapsed()));
    let run = Run { paths, deadline: Instant::now() + WHOLE_LIMIT };
    let mut done: Vec<(Stage, Verdict, Duration)> = Vec::new();
    for stage in chosen {
        println!("\n== {}", stage.name());
        let begun = Instant::now();
        let broken = stage.after().filter(|needed| {
            done.iter().any(|(stage, verdict, _)| stage == needed && matches!(verdict, Verdict::Failed(_)))
        });
        let verdict = match broken {
            Some(needed) => Verdict::Failed(format!("not run, as {} failed", needed.name())),
            None if Instant::now() >= run.deadline => {
                Verdict::Failed(format!("not run: {} are over", seconds(WHOLE_LIMIT)))
            }
            None => run.stage(stage).unwrap_or_else(Verdict::Failed),
        };
        let took = begun.elapsed();
        println!("== {}: {} in {}", stage.name(), verdict.word(), seconds(took));
        if let Verdict::Failed(why) | Verdict::Skipped(why) = &verdict {
            println!("{why}");
        }
        done.push((stage, verdict, took));
    }
    Ok(summary(&done, start.elapsed()))
}

/// The package that a browser's stage needs.
pub(crate) fn need_of(browser: Browser) -> Need {
    match browser {
        Browser::Chromium => Need::Chromium,
        Browser::Firefox => Need::Firefox,
    }
}

fn summary(done: &[(Stage, Verdict, Duration)], took: Duration) -> ExitCode {
    println!("\n== summary, {}", seconds(took));
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (stage, verdict, took) in done {
        let (count, note) = match verdict {
            Verdict::Passed(note) => (&mut passed, note),
            Verdict::Skipped(note) => (&mut skipped, note),
            Verdict::Failed(note) => (&mut failed, note),
        };
        *count += 1;
        let first_line = note.lines().next().unwrap_or_default();
        println!("{:8}{:16}{:>8}  {first_line}", verdict.word(), stage.name(), seconds(*took));
    }
    let skipped = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
    println!("\n{passed} passed, {failed} failed{skipped}");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Verdict {
    fn word(&self) -> &'static str {
        match self {
            Self::Passed(_) => "passed",
            Self::Skipped(_) => "skipped",
            Self::Failed(_) => "FAILED",
        }
    }
}

impl Run {
    fn stage(&self, stage: Stage) -> Result<Verdict, String> {
        match stage {
            Stage::Fmt => self.plain(&self.cargo(&["fmt", "--all", "--check"])),
            Stage::Clippy => {
                let args = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
                self.plain(&self.cargo(&args))
            }
            Stage::ClippyWasm => self.clippy_wasm(),
            Stage::Doc => {
                let mut doc = self.cargo(&["doc", "--workspace", "--no-deps"]);
                self.plain(doc.env("RUSTDOCFLAGS", "-D warnings"))
            }
            Stage::Native => self.native(),
            Stage::NativeAdapter => self.native_adapter(),
            Stage::Examples => self.plain(&self.cargo(&["build", "--workspace", "--examples"])),
            Stage::Wasm => {
                let build = web::Build::new(&self.paths, web::Profile::Dev)?;
                build.run(&self.paths, self.deadline)?;
                Ok(Verdict::Passed(String::new()))
            }
            Stage::Chromium => self.browser(Browser::Chromium),
            Stage::Firefox => self.browser(Browser::Firefox),
        }
    }

    fn cargo(&self, args: &[&str]) -> Command {
        let mut command = Command::new(cargo());
        command.args(args).current_dir(&self.paths.root);
        command
    }

    fn plain(&self, command: &Command) -> Result<Verdict, String> {
        process::run(command, self.deadline)?;
        Ok(Verdict::Passed(String::new()))
    }

    fn clippy_wasm(&self) -> Result<Verdict, String> {
        if toolchain(&self.paths)? != Toolchain::Target {
            return Ok(Verdict::Skipped(format!(
                "clippy reads only libraries of its own version, and {TARGET} could not be added \
                 to its toolchain; the wasm stage compiles the same code with another compiler"
            )));
        }
        let mut clippy = self.cargo(&["clippy", "--package", "remat", "--package", "remat-web-checks"]);
        clippy.args(["--lib", "--target", TARGET, "--", "-D", "warnings"]);
        self.plain(&clippy)
    }

    /// The development profile: overflow checks, assertions and `plan::check` are
    /// on, and all dependencies are optimised nevertheless.
    fn native(&self) -> Result<Verdict, String> {
        let dump = self.paths.shader_dump();
        // What a test no longer writes must not be tested any longer.
        drop(std::fs::remove_dir_all(&dump));
        std::fs::create_dir_all(&dump).map_err(|error| format!("{}: {error}", dump.display()))?;
        let mut test = self.cargo(&["test", "--workspace", "--no-fail-fast"]);
        test.env("REMAT_TEST_LIMITS", "default").env("REMAT_POISON", "1");
        let runs = self.paths.native_runs();
        drop(std::fs::remove_file(&runs));
        test.env("REMAT_SHADER_DUMP", &dump).env("REMAT_NATIVE_RUNS", &runs);
        self.tests(test)
    }

    fn native_adapter(&self) -> Result<Verdict, String> {
        if ADAPTER_TESTS.is_empty() {
            return Ok(Verdict::Skipped("no test is listed for it".to_owned()));
        }
        let mut total = 0;
        for (binary, filter) in ADAPTER_TESTS {
            let mut test = self.cargo(&["test", "--package", "remat", "--test", binary]);
            test.arg("--").args(Some(filter).filter(|filter| !filter.is_empty()));
            test.env("REMAT_TEST_LIMITS", "adapter").env("REMAT_POISON", "0");
            let line = line_of(&test);
            match self.count(test)? {
                0 => return Err(format!("no test bears that name: {line}")),
                count => total += count,
            }
        }
        Ok(Verdict::Passed(format!("{total} tests")))
    }

    fn tests(&self, test: Command) -> Result<Verdict, String> {
        let line = line_of(&test);
        match self.count(test)? {
            0 => Err(format!("no test was run: {line}")),
            count => Ok(Verdict::Passed(format!("{count} tests"))),
        }
    }

    /// Runs tests, shows what they print and counts those that passed.
    fn count(&self, mut test: Command) -> Result<usize, String> {
        // Several threads that dispatch on one device crash some drivers.
        test.env("RUST_TEST_THREADS", "1");
        if let Some(folder) = vulkan::runtime_dir(&self.paths)? {
            test.env("XDG_RUNTIME_DIR", folder);
        }
        println!("$ {}", line_of(&test));
        let mut running = Supervised::start(&test, Stdio::piped(), Stdio::inherit())?;
        let output = running.take_stdout().ok_or("no pipe to the tests")?;
        let counter = std::thread::spawn(move || show_and_count(output, std::io::stdout()));
        let status = running.wait_until(self.deadline)?;
        // A process that a test left behind would keep the pipe open.
        running.stop();
        let count = counter.join().map_err(|_| "the counting thread panicked")?;
        check(&test, status)?;
        Ok(count)
    }

    fn browser(&self, browser: Browser) -> Result<Verdict, String> {
        let shaders = shaders::collect(&self.paths.shader_dump())?.len();
        let sources = shaders::count_sources(&self.paths.root.join("shaders"));
        if shaders == 0 && sources > 0 {
            return Err(format!(
                "shaders/ has {sources} files and {} has none: a native test writes them there, \
                 so run the stage {} first",
                self.paths.shader_dump().display(),
                Stage::Native.name()
            ));
        }
        let log = self.paths.web_reports().join(format!("{}.jsonl", browser.name()));
        let session = Arc::new(Session::new(browser.name(), Some(&log))?);
        let address = web::serve(&self.paths, 0, &session)?;
        let url = format!("http://{address}/test.html");
        let left = self.deadline.saturating_duration_since(Instant::now());
        let outcome = browser::run(&self.paths, browser, &url, &session, left.min(BROWSER_LIMIT))?;
        if outcome.failures.is_empty() {
            return Ok(Verdict::Passed(format!("{} checks, {shaders} shaders", outcome.passed)));
        }
        Err(format!(
            "{} of {} checks failed:\n{}",
            outcome.failures.len(),
            outcome.failures.len() + outcome.passed,
            outcome.failures.join("\n")
        ))
    }
}

/// Passes lines on as they come and sums up `test result: ok. N passed; ...`.
fn show_and_count(output: impl Read, mut screen: impl Write) -> usize {
    let mut input = BufReader::new(output);
    let (mut line, mut count) = (Vec::new(), 0);
    while matches!(input.read_until(b'\n', &mut line), Ok(1..)) {
        // With nobody to read them the tests still count.
        drop(screen.write_all(&line).and_then(|()| screen.flush()));
        count += passed_in(&String::from_utf8_lossy(&line));
        line.clear();
    }
    count
}

fn passed_in(line: &str) -> usize {
    let number = line.strip_prefix("test result: ").and_then(|rest| {
        let (before, _) = rest.split_once(" passed")?;
        before.rsplit(' ').next()?.parse().ok()
    });
    number.unwrap_or(0)
}

fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_counted() {
        let output = "running 2 tests\n..\ntest result: ok. 12 passed; 0 failed; 0 ignored\n\
                      test result: FAILED. 3 passed; 1 failed\n";
        assert_eq!(show_and_count(output.as_bytes(), std::io::sink()), 15);
        assert_eq!(passed_in("test result: odd"), 0);
    }
}
