//! Which values may be kept for backward, and what is replayed for the rest.
//!
//! ```text
//! policy -> decisions (segment paths, evicted values) -> replayed order
//! ```
//!
//! Pure data, like everything before `gpu/`. A *decision* says which passes
//! form a region and which single values are dropped besides; `replay` walks
//! the passes under a decision and encodes a pass again wherever a backward
//! pass reads a value that is no longer there. Passes themselves never change:
//! a replay is the same pass at other offsets, so a decision cannot change bits.

pub(crate) mod candidates;
pub(crate) mod facts;
pub(crate) mod paths;
pub mod policy;
pub(crate) mod replay;
pub(crate) mod revolve;
pub(crate) mod search;
pub(crate) mod select;

pub use crate::fuse::program::Mark;
pub use policy::{ByteSize, Policy, split_evenly};

use crate::fuse::program::StorageId;
use paths::Paths;

/// What may be dropped after the forward pass.
#[derive(Debug, Clone)]
pub(crate) struct Decision {
    /// The region of each pass.
    pub(crate) paths: Paths,
    /// Values outside all regions that are dropped and replayed all the same, sorted.
    pub(crate) evicted: Vec<StorageId>,
    /// Values that are kept although the region they lie in is dropped.
    pub(crate) kept: Vec<StorageId>,
    /// Which of the planner's orders of passes it is for.
    pub(crate) order: usize,
}

impl Decision {
    /// A decision by regions alone.
    pub(crate) fn of_paths(paths: Paths) -> Self {
        Self { paths, evicted: Vec::new(), kept: Vec::new(), order: 0 }
    }

    /// The same in another order of passes.
    pub(crate) fn in_order(&self, order: usize) -> Self {
        Self { order, ..self.clone() }
    }
}
