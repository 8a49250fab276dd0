//! The project's tasks: `cargo xtask demo | test | web | bench`.
//!
//! There is no other set-up step. Each task finds out what this machine lacks,
//! installs it through the system's package manager where it may, and prints the
//! command to type where it may not.

mod blocking;
mod browser;
mod http;
mod memory;
mod paths;
mod prepare;
mod process;
mod programs;
mod report;
mod shaders;
mod stages;
mod test;
mod web;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, Subcommand};

use paths::Paths;
use prepare::browsers::Browser;
use prepare::{Need, prepare};
use report::Session;
use stages::Stage;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The tasks of this project")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Train the demonstration model on this machine's adapter
    Demo {
        /// Arguments of the program
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Run all checks and tests, natively and in two browsers
    Test {
        /// Run only this stage, and what it depends on (may be repeated)
        #[arg(long, value_enum)]
        only: Vec<Stage>,
        /// List the stages and end
        #[arg(long)]
        list: bool,
    },
    /// Build the WebAssembly crate and serve its pages
    Web(WebArgs),
    /// Run a benchmark of benches/, or the program examples/bench.rs
    Bench {
        /// The benchmark's name, then arguments of the program
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

#[derive(clap::Args)]
struct WebArgs {
    /// The port on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Open the page in this browser, without a window, and end with its verdict
    #[arg(long, value_enum)]
    browser: Option<Browser>,
    /// Save a picture of the page, taken with Chromium
    #[arg(long, value_name = "FILE")]
    screenshot: Option<PathBuf>,
    /// The page, with its query if need be
    #[arg(long)]
    page: Option<String>,
    /// Compile the module as the tests do, with assertions and overflow checks
    #[arg(long)]
    dev: bool,
    /// When the picture is taken, after the page began to load
    #[arg(long, value_name = "MS", default_value_t = 3000)]
    settle_ms: u64,
    /// When a page that has not ended is given up
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    time_limit: u64,
}

fn main() -> ExitCode {
    let result = match Cli::parse().task {
        Task::Demo { args } => programs::demo(&args),
        Task::Test { list: true, .. } => {
            stages::list();
            Ok(ExitCode::SUCCESS)
        }
        Task::Test { only, .. } => test::run(&only),
        Task::Web(args) => web(&args),
        Task::Bench { args } => programs::bench(&args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn web(args: &WebArgs) -> Result<ExitCode, String> {
    let paths = Paths::find()?;
    let mut needs = vec![Need::Wasm];
    needs.extend(args.browser.map(test::need_of));
    needs.extend(args.screenshot.as_ref().map(|_| Need::Chromium));
    prepare(&paths, &needs)?;
    let deadline = Instant::now() + Duration::from_secs(3600);
    let profile = if args.dev { web::Profile::Dev } else { web::Profile::Release };
    web::Build::new(&paths, profile)?.run(&paths, deadline)?;
    let label = args.browser.map_or("page", Browser::name);
    let session = Arc::new(Session::new(label, None)?);
    let address = web::serve(&paths, args.port, &session)?;
    let default = "test.html";
    let page = args.page.as_deref().unwrap_or(default);
    if let Some(picture) = &args.screenshot {
        let picture = std::path::absolute(picture).map_err(|error| error.to_string())?;
        let url = web::picture_page(address, page, args.settle_ms)?;
        browser::screenshot(&paths, &url, &picture, Duration::from_millis(args.settle_ms))?;
        println!("Saved {}", picture.display());
        return Ok(ExitCode::SUCCESS);
    }
    let Some(browser) = args.browser else {
        web::forever(address, page);
    };
    let url = format!("http://{address}/{page}");
    let limit = Duration::from_secs(args.time_limit);
    let outcome = browser::run(&paths, browser, &url, &session, limit)?;
    for failure in &outcome.failures {
        println!("FAILED {failure}");
    }
    println!("{} passed, {} failed", outcome.passed, outcome.failures.len());
    Ok(if outcome.failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
