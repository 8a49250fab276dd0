//! Runs the checks one after the other and tells the page about each.

use js_sys::{Function, Promise};
use serde_json::{Value, json};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_time::Instant;

use crate::checks;
use crate::page::text_of;

/// A check's way to speak while it runs. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    send: Function,
}

impl Reporter {
    /// Prints a line.
    ///
    /// # Errors
    /// The server did not take it.
    #[expect(dead_code, reason = "for checks to come")]
    pub(crate) async fn note(&self, text: &str) -> Result<(), String> {
        self.send(&json!({ "note": text })).await.map(drop)
    }

    /// Marks the start of a stretch over which the browser's memory must not grow
    /// by more than `limit_bytes`, and returns the resident bytes now.
    ///
    /// # Errors
    /// A stretch is under way already, or the server did not take the mark.
    pub(crate) async fn start_flat(&self, name: &str, limit_bytes: u64) -> Result<u64, String> {
        let message = json!({ "phase": "start-flat", "name": name, "limit_bytes": limit_bytes });
        self.send(&message).await.map(resident_bytes)
    }

    /// Marks its end, which the server judges; returns the resident bytes now.
    ///
    /// # Errors
    /// No stretch is under way, or the server did not take the mark.
    pub(crate) async fn end_flat(&self) -> Result<u64, String> {
        self.send(&json!({ "phase": "end-flat" })).await.map(resident_bytes)
    }

    async fn send(&self, message: &Value) -> Result<Value, String> {
        let answer = JsFuture::from(self.post(message)?).await.map_err(|error| text_of(&error))?;
        let text = js_sys::JSON::stringify(&answer).map_err(|error| text_of(&error))?;
        serde_json::from_str(&String::from(text)).map_err(|error| error.to_string())
    }

    fn post(&self, message: &Value) -> Result<Promise, String> {
        let message = js_sys::JSON::parse(&message.to_string()).map_err(|error| text_of(&error))?;
        let answer = self.send.call1(&JsValue::NULL, &message).map_err(|error| text_of(&error))?;
        answer.dyn_into().map_err(|other| format!("report returned {}", text_of(&other)))
    }
}

fn resident_bytes(answer: Value) -> u64 {
    answer["resident_bytes"].as_u64().unwrap_or(0)
}

/// Runs the checks whose names begin with `only` (all, if it is empty).
///
/// `report` takes a message as docs/testing.md has them and returns a promise of
/// the server's answer. Resolves to `{"passed":N,"failed":N}` as text.
///
/// # Errors
/// A report did not get through.
#[wasm_bindgen]
pub async fn run_tests(report: Function, only: String) -> Result<String, String> {
    let reporter = Reporter { send: report };
    report_panics(reporter.clone());
    let (mut passed, mut failed) = (0, 0);
    for check in checks::all() {
        if !check.name.starts_with(&only) {
            continue;
        }
        reporter.send(&json!({ "start": check.name })).await?;
        let start = Instant::now();
        let result = (check.run)(reporter.clone()).await;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let message = match result {
            Ok(detail) => {
                passed += 1;
                json!({ "check": check.name, "ok": true, "ms": ms, "detail": detail })
            }
            Err(error) => {
                failed += 1;
                json!({ "check": check.name, "ok": false, "ms": ms, "error": error })
            }
        };
        reporter.send(&message).await?;
    }
    Ok(json!({ "passed": passed, "failed": failed }).to_string())
}

/// A panic leaves its promise unsettled for ever: without this a run would only
/// end at its time limit, and not say why.
fn report_panics(reporter: Reporter) {
    std::panic::set_hook(Box::new(move |info| {
        // Nobody is left to hear that the report failed.
        drop(reporter.post(&json!({ "fatal": format!("panic: {info}") })));
    }));
}
