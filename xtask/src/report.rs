//! What a page under test says about itself.
//!
//! The page posts one JSON object at a time to `/report` and gets one back, and
//! waits for it: what the answer says, the resident memory at a mark, was thus
//! read while the page stood still. docs/testing.md lists the messages.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Value, json};

use crate::memory;

/// The reports of one run of one page.
#[derive(Debug)]
pub(crate) struct Session {
    label: String,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// The browser's process group, once it has been started.
    group: Option<u32>,
    log: Option<File>,
    opened: bool,
    running: Option<String>,
    passed: usize,
    failed: usize,
    failures: Vec<String>,
    flat: Option<Flat>,
    done: bool,
    fatal: Option<String>,
}

/// A stretch of the run over which memory is not to grow.
#[derive(Debug)]
struct Flat {
    name: String,
    start_bytes: u64,
    peak_bytes: u64,
    limit_bytes: Option<u64>,
}

/// What became of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// How many checks passed.
    pub(crate) passed: usize,
    /// Each failed check with its error.
    pub(crate) failures: Vec<String>,
}

impl Session {
    /// A session whose printed lines start with `label`, and which keeps every
    /// message in the file `log`, if one is given.
    ///
    /// # Errors
    /// The log cannot be written.
    pub(crate) fn new(label: &str, log: Option<&Path>) -> Result<Self, String> {
        let log = match log {
            Some(path) => Some(create(path).map_err(|error| format!("{}: {error}", path.display()))?),
            None => None,
        };
        let inner = Mutex::new(Inner { log, ..Inner::default() });
        Ok(Self { label: label.to_owned(), inner })
    }

    /// Tells which process group's memory is meant.
    pub(crate) fn watch(&self, group: u32) {
        self.lock().group = Some(group);
    }

    /// Notes that the browser has asked for something, and so has come up.
    pub(crate) fn opened(&self) {
        self.lock().opened = true;
    }

    /// Whether it ever asked for anything.
    pub(crate) fn was_opened(&self) -> bool {
        self.lock().opened
    }

    /// Takes a message in and answers it.
    ///
    /// # Errors
    /// It is none of the messages known; the page is then in error, and so is the run.
    pub(crate) fn receive(&self, body: &[u8]) -> Result<Value, String> {
        let mut inner = self.lock();
        let message = serde_json::from_slice::<Value>(body).map_err(|error| error.to_string());
        if let (Ok(message), Some(log)) = (&message, &mut inner.log) {
            writeln!(log, "{message}").map_err(|error| error.to_string())?;
        }
        let answer = message.and_then(|message| self.take(&mut inner, &message));
        if let Err(why) = &answer {
            let text = String::from_utf8_lossy(body);
            inner.failures.push(format!("report not understood ({why}): {text:.200}"));
        }
        answer
    }

    fn take(&self, inner: &mut Inner, message: &Value) -> Result<Value, String> {
        if let Some(name) = message["start"].as_str() {
            inner.running = Some(name.to_owned());
        } else if let Some(name) = message["check"].as_str() {
            self.check(inner, name, message)?;
        } else if let Some(phase) = message["phase"].as_str() {
            return self.phase(inner, phase, message);
        } else if let Some(note) = message["note"].as_str() {
            self.say(note);
        } else if let Some(error) = message["fatal"].as_str() {
            // The first says why; a panic also ends as an uncaught error.
            inner.fatal.get_or_insert_with(|| error.to_owned());
        } else if message["done"] == true {
            finish(inner, message);
        } else {
            return Err("no key says what it is".to_owned());
        }
        Ok(json!({}))
    }

    fn check(&self, inner: &mut Inner, name: &str, message: &Value) -> Result<(), String> {
        let ok = message["ok"].as_bool().ok_or("a check needs ok")?;
        let ms = message["ms"].as_f64().unwrap_or(0.0);
        inner.running = None;
        if ok {
            inner.passed += 1;
            let detail = &message["detail"];
            let detail = if detail.is_null() { String::new() } else { format!("  {detail}") };
            self.say(&format!("ok    {name} ({ms:.0} ms){detail:.1000}"));
        } else {
            let error = message["error"].as_str().unwrap_or("it did not say why");
            self.say(&format!("FAIL  {name} ({ms:.0} ms): {error}"));
            inner.failed += 1;
            inner.failures.push(format!("{name}: {error}"));
        }
        Ok(())
    }

    fn phase(&self, inner: &mut Inner, phase: &str, message: &Value) -> Result<Value, String> {
        let Some(group) = inner.group else {
            // A browser that somebody else opened: no processes of ours to look at.
            self.say(&format!("{phase}: memory is not measured here"));
            return Ok(json!({ "resident_bytes": 0 }));
        };
        let resident_bytes = memory::resident_bytes(group);
        let limit_bytes = message["limit_bytes"].as_u64();
        match phase {
            "start-flat" => {
                if let Some(open) = &inner.flat {
                    return Err(format!("{} has not ended", open.name));
                }
                let name = message["name"].as_str().or(inner.running.as_deref()).unwrap_or("memory");
                let name = name.to_owned();
                self.say(&format!("memory at the start of {name}: {}", mib(resident_bytes)));
                let (start_bytes, peak_bytes) = (resident_bytes, resident_bytes);
                inner.flat = Some(Flat { name, start_bytes, peak_bytes, limit_bytes });
            }
            "end-flat" => {
                let mut flat = inner.flat.take().ok_or("no phase was started")?;
                flat.peak_bytes = flat.peak_bytes.max(resident_bytes);
                flat.limit_bytes = limit_bytes.or(flat.limit_bytes);
                let verdict = flat.judge(resident_bytes);
                self.say(&verdict.clone().unwrap_or_else(|error| format!("FAIL  {error}")));
                inner.failures.extend(verdict.err());
            }
            _ => return Err("the phases are start-flat and end-flat".to_owned()),
        }
        Ok(json!({ "resident_bytes": resident_bytes }))
    }

    /// Looks at the memory once more, for the peak between two marks.
    pub(crate) fn sample(&self) {
        let mut inner = self.lock();
        let group = inner.group;
        if let (Some(flat), Some(group)) = (&mut inner.flat, group) {
            flat.peak_bytes = flat.peak_bytes.max(memory::resident_bytes(group));
        }
    }

    /// How the run went, once the page has said so. A page that ran no check has failed.
    pub(crate) fn outcome(&self) -> Option<Outcome> {
        let inner = self.lock();
        if !inner.done && inner.fatal.is_none() {
            return None;
        }
        let mut failures = inner.failures.clone();
        failures.extend(inner.fatal.iter().map(|error| match &inner.running {
            Some(name) => format!("{name}: {error}"),
            None => error.clone(),
        }));
        Some(Outcome { passed: inner.passed, failures })
    }

    /// What a run that came to no end had done, in words.
    pub(crate) fn progress(&self) -> String {
        let inner = self.lock();
        let mut text = format!("{} checks had passed", inner.passed);
        if let Some(name) = &inner.running {
            text += &format!(", {name} was running");
        }
        for failure in &inner.failures {
            text += &format!("\n  {failure}");
        }
        text
    }

    fn say(&self, line: &str) {
        println!("  [{}] {line}", self.label);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Plain data: a thread that panicked while holding it left nothing half done.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flat {
    fn judge(&self, end_bytes: u64) -> Result<String, String> {
        let grown = mib_signed(end_bytes, self.start_bytes);
        let text = format!(
            "memory over {}: {} -> {}, grown by {grown}, at most {} in between",
            self.name,
            mib(self.start_bytes),
            mib(end_bytes),
            mib(self.peak_bytes)
        );
        match self.limit_bytes {
            Some(_) if self.start_bytes == 0 || end_bytes == 0 => {
                Err(format!("memory over {}: cannot be read on this machine", self.name))
            }
            Some(limit) if end_bytes > self.start_bytes.saturating_add(limit) => {
                Err(format!("{text}; the limit is {}", mib(limit)))
            }
            _ => Ok(text),
        }
    }
}

/// The page's own counts must be those that arrived: a report that was lost on
/// the way would otherwise turn a failure into a pass.
fn finish(inner: &mut Inner, message: &Value) {
    inner.done = true;
    if let Some(flat) = inner.flat.take() {
        inner.failures.push(format!("memory over {}: the phase was never ended", flat.name));
    }
    let said = (message["passed"].as_u64(), message["failed"].as_u64());
    let (Some(passed), Some(failed)) = said else {
        inner.failures.push("the page did not count its checks".to_owned());
        return;
    };
    let got = (inner.passed as u64, inner.failed as u64);
    if (passed, failed) != got {
        inner.failures.push(format!(
            "the page passed {passed} checks and failed {failed}; {} and {} were reported",
            got.0, got.1
        ));
    }
    if got == (0, 0) && inner.failures.is_empty() {
        inner.failures.push("the page ran no check".to_owned());
    }
}

fn create(path: &Path) -> std::io::Result<File> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    File::create(path)
}

fn mib(bytes: u64) -> String {
    // One decimal without floating point.
    let tenths = bytes.saturating_mul(10) >> 20;
    format!("{}.{} MiB", tenths / 10, tenths % 10)
}

fn mib_signed(to: u64, from: u64) -> String {
    if to >= from { mib(to - from) } else { format!("-{}", mib(from - to)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Result<Session, String> {
        Session::new("test", None)
    }

    fn failures(session: &Session) -> Vec<String> {
        session.outcome().map(|outcome| outcome.failures).unwrap_or_default()
    }

    #[test]
    fn a_run_is_judged_when_it_is_done() -> Result<(), String> {
        let session = session()?;
        session.receive(br#"{"start":"a"}"#)?;
        assert_eq!(session.outcome(), None);
        session.receive(br#"{"check":"a","ok":true,"ms":1.5,"detail":{"x":1}}"#)?;
        session.receive(br#"{"check":"b","ok":false,"ms":2,"error":"no"}"#)?;
        session.receive(br#"{"done":true,"passed":1,"failed":1}"#)?;
        let expected = Outcome { passed: 1, failures: vec!["b: no".to_owned()] };
        assert_eq!(session.outcome(), Some(expected));
        Ok(())
    }

    #[test]
    fn silence_is_no_success() -> Result<(), String> {
        for (body, word) in [
            (r#"{"done":true,"passed":0,"failed":0}"#, "no check"),
            (r#"{"done":true,"passed":3,"failed":0}"#, "passed 3"),
            (r#"{"done":true,"passed":0,"failed":2}"#, "failed 2"),
            (r#"{"done":true}"#, "did not count"),
            (r#"{"fatal":"panicked"}"#, "panicked"),
        ] {
            let session = session()?;
            session.receive(body.as_bytes())?;
            assert!(failures(&session).concat().contains(word), "{body}");
        }
        Ok(())
    }

    #[test]
    fn a_message_that_is_none_fails_the_run() -> Result<(), String> {
        let session = session()?;
        assert!(session.receive(b"{").is_err());
        assert!(session.receive(b"{}").is_err());
        session.watch(std::process::id());
        assert!(session.receive(br#"{"phase":"end-flat"}"#).is_err());
        session.receive(br#"{"done":true,"passed":0,"failed":0}"#)?;
        assert_eq!(failures(&session).len(), 3);
        Ok(())
    }

    #[test]
    fn growth_is_held_against_the_limit() {
        let flat =
            |limit_bytes| Flat { name: "steps".to_owned(), start_bytes: 100 << 20, peak_bytes: 130 << 20, limit_bytes };
        assert!(flat(Some(20 << 20)).judge(120 << 20).is_ok());
        assert!(flat(Some(20 << 20)).judge(121 << 20).is_err());
        assert!(flat(None).judge(1 << 40).is_ok());
        assert!(flat(Some(20 << 20)).judge(0).is_err());
        assert!(flat(Some(0)).judge(90 << 20).is_ok_and(|text| text.contains("-10.0 MiB")));
    }
}
