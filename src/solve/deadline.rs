//! An end by the clock, for those who asked for one.

use std::time::Duration;

#[cfg(not(target_arch = "wasm32"))]
use std::time::Instant;
#[cfg(target_arch = "wasm32")]
use web_time::Instant;

/// When a search has to end. Without one it never looks at the clock, so that its
/// result is the same on every machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// Never.
    pub const NEVER: Self = Self(None);

    /// So much later than now; never, if that is beyond what the clock can say.
    #[must_use]
    pub fn after(limit: Duration) -> Self {
        Self(Instant::now().checked_add(limit))
    }

    /// Whether it is over.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.0.is_some_and(|end| Instant::now() >= end)
    }
}
