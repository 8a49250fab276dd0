//! The checks, in the order in which they run.

mod device;
mod errors;
mod ops;
mod random;
mod running;
mod training;

use std::pin::Pin;

use serde_json::Value;

use crate::report::Reporter;
use crate::training::MLPS;

/// What a check comes to: details worth printing, or what went wrong.
pub(crate) type Outcome = Result<Value, String>;

type Running = Pin<Box<dyn Future<Output = Outcome>>>;

/// A check that runs in the browser.
pub(crate) struct Check {
    /// Its name in reports, unique.
    pub(crate) name: &'static str,
    /// Starts it. Each check asks for a device of its own and drops it.
    pub(crate) run: Box<dyn Fn(Reporter) -> Running>,
}

fn check<F: Future<Output = Outcome> + 'static>(name: &'static str, run: impl Fn(Reporter) -> F + 'static) -> Check {
    Check { name, run: Box::new(move |report| Box::pin(run(report))) }
}

/// Every check there is. A new one is a line here and a function in a module of
/// its own.
pub(crate) fn all() -> Vec<Check> {
    let mut all = vec![
        check("device: dispatch", |_| device::dispatch()),
        check("device: flat memory", device::flat),
        check("errors: wrong inputs", |_| errors::wrong_inputs()),
        check("errors: budget", |_| errors::budget()),
        check("errors: allocation refused", |_| errors::allocation()),
        check("errors: validation", |_| errors::validation()),
        check("errors: device lost", |_| errors::device_loss()),
        check("no_blocking", |_| running::no_blocking()),
        check("verified run", |_| running::verified()),
        check("reference ops", |_| ops::every_case()),
        check("random numbers", |_| random::draws()),
    ];
    let mlp = |index: usize| check(MLPS[index].name, move |_| training::mlp(index));
    all.extend((0..MLPS.len()).map(mlp));
    all.push(check("gpt", |_| training::gpt()));
    all.push(check("ten_thousand_runs", running::ten_thousand_runs));
    all
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
