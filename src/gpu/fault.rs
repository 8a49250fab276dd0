//! What the device complained about, kept until somebody asks.

use std::sync::{Arc, Mutex};

use crate::error::{Error, Result};
use crate::shared::lock;

/// Errors that reach us outside of any call: they are kept and handed to the
/// next call. The handles are `Arc` on every target, since wgpu's callbacks
/// ask for `Send` even where there are no threads.
#[derive(Debug, Clone, Default)]
pub(super) struct Faults {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    lost: Option<String>,
    uncaptured: Option<Error>,
}

impl Faults {
    /// Notes that the device is gone; the first reason stays.
    pub(super) fn lose(&self, detail: String) {
        lock(&self.state).lost.get_or_insert(detail);
    }

    /// True once the device is gone.
    pub(super) fn is_lost(&self) -> bool {
        lock(&self.state).lost.is_some()
    }

    /// Notes an error that no scope caught; the first one stays until it is handed over.
    pub(super) fn uncaptured(&self, error: &wgpu::Error) {
        let error = match error {
            wgpu::Error::OutOfMemory { .. } => Error::OutOfMemory {
                what: "an allocation inside wgpu (staging of an upload, or a command buffer)".into(),
                size_bytes: 0,
                live_bytes: 0,
            },
            wgpu::Error::Validation { description, .. } | wgpu::Error::Internal { description, .. } => {
                Error::Validation { what: "an earlier call".into(), detail: description.trim().to_owned() }
            }
        };
        lock(&self.state).uncaptured.get_or_insert(error);
    }

    /// The loss, always; else the error kept, once.
    pub(super) fn check(&self) -> Result<()> {
        let mut state = lock(&self.state);
        if let Some(detail) = &state.lost {
            return Err(Error::DeviceLost { detail: detail.clone() });
        }
        state.uncaptured.take().map_or(Ok(()), Err)
    }
}

/// What a scope around a creation caught, as an error of ours. A lost device
/// makes every other error look like something else, so it is asked first.
pub(super) fn scoped(faults: &Faults, caught: Option<wgpu::Error>, what: &str) -> Result<()> {
    if faults.is_lost() {
        return faults.check();
    }
    match caught {
        None => Ok(()),
        Some(error) => Err(Error::Validation { what: what.to_owned(), detail: error.to_string().trim().to_owned() }),
    }
}
