//! Values become passes: fusion, decided by the recording alone.
//!
//! 1. Nodes that nothing depends on are left out.
//! 2. Views are resolved to a storage and a strided layout; where strides do
//!    not suffice a copy is made.
//! 3. An elementwise value whose every reader is computed in one pass is
//!    computed there too (`group`), within one segment and phase and as long as
//!    that costs no memory; every other one is the output of a pass. So every
//!    value that backward reads, that crosses a segment's edge or that has a
//!    name is written to memory, and passes are the same under every policy.
//!    Constants and counters are computed by whoever reads them, never stored.
//! 4. A group that reads one matrix product is fused into the product's store.
//! 5. A pass writes in place over an operand that nothing else in the whole
//!    recording reads and that was made in the same segment.

mod codegen;
mod draft;
mod elementwise;
mod epilogue;
mod finish;
mod group;
mod half;
mod kernels;
pub mod program;

pub(crate) use half::HALF;

use crate::error::{Error, Result};
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
    check_sizes(graph, profile)?;
    let drafts = draft::draft(graph, profile)?;
    let program = finish::finish(graph, profile, drafts)?;
    if cfg!(debug_assertions) {
        program.validate()?;
    }
    Ok(program)
}

/// Kernels count elements in 32 bits. The surplus invocations of a split grid
/// are counted too: one row of workgroups of 256.
pub(crate) const MAX_ELEMENTS: u64 = (1 << 32) - (1 << 25);

/// Refuses values that no kernel can address, before any number is narrowed.
fn check_sizes(graph: &Graph, profile: &DeviceProfile) -> Result<()> {
    let live = graph.live_nodes();
    let mut used = vec![false; graph.values.len()];
    for (node, _) in graph.nodes.iter().zip(live).filter(|(_, live)| *live) {
        for v in node.inputs.iter().chain(&node.outputs) {
            used[v.index()] = true;
        }
    }
    for (index, value) in graph.values.iter().enumerate() {
        if used[index] && value.ty.shape.element_count() > MAX_ELEMENTS {
            let name = value.name.clone().unwrap_or_else(|| format!("value {index}"));
            return Err(Error::Limit {
                what: format!("{name}, {},", value.ty),
                size_bytes: value.ty.size_bytes(),
                limit: "32-bit element index",
                limit_bytes: MAX_ELEMENTS * 4,
                adapter: profile.name.clone(),
            });
        }
    }
    Ok(())
}
