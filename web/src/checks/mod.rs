//! The checks, in the order in which they run.

mod device;

use std::pin::Pin;

use serde_json::Value;

use crate::report::Reporter;

/// What a check comes to: details worth printing, or what went wrong.
pub(crate) type Outcome = Result<Value, String>;

/// A check that runs in the browser.
pub(crate) struct Check {
    /// Its name in reports, unique.
    pub(crate) name: &'static str,
    /// Starts it. Each check asks for a device of its own and drops it.
    pub(crate) run: fn(Reporter) -> Pin<Box<dyn Future<Output = Outcome>>>,
}

/// Every check there is. A new one is a line here and a function in a module of
/// its own.
pub(crate) fn all() -> Vec<Check> {
    vec![
        Check { name: "device: dispatch", run: |_| Box::pin(device::dispatch()) },
        Check { name: "device: flat memory", run: |report| Box::pin(device::flat(report)) },
    ]
}
