//! Values become passes: fusion, decided by the recording alone.
//!
//! 1. Nodes that nothing depends on are left out.
//! 2. Views are resolved to a storage and a strided layout; where strides do
//!    not suffice a copy is made.
//! 3. An elementwise value that is read by exactly one other elementwise node
//!    of the same segment, phase and shape is computed inside that node's
//!    pass; every other one is the output of a pass of its own. So every value
//!    that backward reads, that crosses a segment's edge or that has a name is
//!    written to memory, and passes are the same under every policy.
//! 4. A chain that reads one matrix product only once is fused into the
//!    product's store.
//! 5. A pass writes in place over an operand that nothing else in the whole
//!    recording reads and that was made in the same segment.

mod codegen;
mod draft;
mod epilogue;
mod finish;
pub mod program;

use crate::error::Result;
use crate::graph::Graph;
use crate::profile::DeviceProfile;
use program::Program;

/// Most nodes of one fused expression: longer chains are cut, so that no
/// shader grows with the model.
pub(crate) const MAX_FUSED_NODES: usize = 32;

/// Fuses a recording into passes for a device with `profile`.
///
/// # Errors
/// [`crate::error::Error::Limit`] if a kernel cannot run within the limits.
pub fn fuse(graph: &Graph, profile: &DeviceProfile) -> Result<Program> {
    let drafts = draft::draft(graph, profile)?;
    let program = finish::finish(graph, profile, drafts)?;
    if cfg!(debug_assertions) {
        program.validate()?;
    }
    Ok(program)
}
