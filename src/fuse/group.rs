//! Which values are computed inside their readers' pass.
//!
//! The recording is walked from its end. An elementwise node whose every reader
//! stands in one group joins it, so a group has one value that is stored, its
//! root, and no path leaves a group and comes back. What forbids joining is
//! told from the recording alone: another segment or phase, a name, an output
//! of the run, a reader outside, too many nodes or bindings.
//!
//! Fusing must not cost memory. A node with several operands that waits, as one
//! value, for a reader far below would keep them all alive instead; it joins
//! only if no kernel runs in between.

use super::MAX_FUSED_NODES;
use crate::dtype::{DType, Layout, Shape};
use crate::graph::{Graph, NodeId, Value, ValueId};
use crate::ops::{KernelOp, Lowering, TO_F32};
use crate::profile::DeviceProfile;

/// What becomes of each value.
#[derive(Debug)]
pub(super) struct Groups {
    /// Computed inside its readers' pass.
    pub(super) inline: Vec<bool>,
    /// The value without operands, such as a constant, that this value is or
    /// views: whoever reads it computes it, and nothing is stored.
    pub(super) generated: Vec<Option<ValueId>>,
}

pub(super) fn group(graph: &Graph, profile: &DeviceProfile, live: &[bool]) -> Groups {
    let mut grouping = Grouping::new(graph, profile, live);
    grouping.look_through_views();
    grouping.find_readers();
    for index in (0..graph.nodes.len()).rev() {
        if live[index] {
            grouping.place(NodeId(index as u32));
        }
    }
    Groups { inline: grouping.inline, generated: grouping.generated }
}

/// True for the conversion of `f16` to `f32`: what a kernel computes is `f32`, so
/// that any kernel can store it so.
pub(super) fn is_widening(graph: &Graph, node: NodeId) -> bool {
    let node = graph.node(node);
    node.op.name() == TO_F32 && node.inputs.iter().all(|v| graph.value(*v).ty.dtype == DType::F16)
}

/// Nodes that become one pass.
#[derive(Debug)]
struct Group {
    root: NodeId,
    nodes: usize,
    /// Values that are read from memory.
    leaves: Vec<ValueId>,
    /// The kernel into whose store the group is fused.
    kernel: Option<NodeId>,
}

struct Grouping<'a> {
    graph: &'a Graph,
    live: &'a [bool],
    bindings: usize,
    /// Per value: the value whose storage it looks at, and how.
    base: Vec<(ValueId, Layout)>,
    generated: Vec<Option<ValueId>>,
    readers: Vec<Vec<NodeId>>,
    /// Handed back by the run, named or marked.
    kept: Vec<bool>,
    inline: Vec<bool>,
    groups: Vec<Group>,
    group_of: Vec<Option<usize>>,
    /// Per node: live kernels recorded before it.
    kernels_before: Vec<u32>,
}

impl<'a> Grouping<'a> {
    fn new(graph: &'a Graph, profile: &DeviceProfile, live: &'a [bool]) -> Self {
        let mut kept: Vec<bool> = graph.values.iter().map(Value::is_pinned).collect();
        for (_, id) in &graph.outputs {
            kept[id.index()] = true;
        }
        let mut kernels = 0;
        let kernels_before = graph
            .nodes
            .iter()
            .zip(live)
            .map(|(node, live)| {
                let before = kernels;
                kernels += u32::from(*live && matches!(node.op.lowering(), Lowering::Kernel(_)));
                before
            })
            .collect();
        Self {
            graph,
            live,
            bindings: profile.usable_storage_buffers(),
            base: Vec::with_capacity(graph.values.len()),
            generated: vec![None; graph.values.len()],
            readers: vec![Vec::new(); graph.values.len()],
            kept,
            inline: vec![false; graph.values.len()],
            groups: Vec::new(),
            group_of: vec![None; graph.nodes.len()],
            kernels_before,
        }
    }

    /// Resolves views, as drafting will.
    fn look_through_views(&mut self) {
        for (index, value) in self.graph.values.iter().enumerate() {
            let id = ValueId(index as u32);
            let own = (id, Layout::contiguous(&value.ty.shape));
            let Some(producer) = self.graph.producer(id) else {
                self.base.push(own);
                continue;
            };
            let node = self.graph.node(producer);
            let resolved = match node.op.lowering() {
                Lowering::View(view) => {
                    let from = node.inputs[0].index();
                    // Iotas are told from the index, which a view changes.
                    self.generated[index] = self.generated[from].filter(|v| self.is_constant(*v));
                    let output = node.outputs.iter().position(|v| *v == id).unwrap_or(0);
                    view.view_output(output, &self.base[from].1).map(|layout| (self.base[from].0, layout))
                }
                Lowering::Elementwise(_) if node.inputs.is_empty() => {
                    self.generated[index] = Some(id);
                    None
                }
                _ => None,
            };
            self.base.push(resolved.unwrap_or(own));
        }
    }

    fn is_constant(&self, value: ValueId) -> bool {
        self.graph
            .producer(value)
            .is_some_and(|n| matches!(self.graph.node(n).op.lowering(), Lowering::Elementwise(op) if op.is_constant()))
    }

    /// Lists every value's readers, and stores generated values that something
    /// other than an elementwise node reads.
    fn find_readers(&mut self) {
        let mut stored = vec![false; self.graph.values.len()];
        for (index, kept) in self.kept.iter().enumerate() {
            if let (true, Some(generated)) = (kept, self.generated[index]) {
                stored[generated.index()] = true;
            }
        }
        for (index, node) in self.graph.nodes.iter().enumerate().filter(|(i, _)| self.live[*i]) {
            let lowering = node.op.lowering();
            for v in &node.inputs {
                let list = &mut self.readers[v.index()];
                if list.last() != Some(&NodeId(index as u32)) {
                    list.push(NodeId(index as u32));
                }
                let Some(generated) = self.generated[v.index()] else { continue };
                let computed_there = match lowering {
                    Lowering::Elementwise(_) => node.outputs.len() == 1,
                    Lowering::View(_) => self.generated[node.outputs[0].index()] == Some(generated),
                    Lowering::Kernel(_) => false,
                };
                stored[generated.index()] |= !computed_there;
            }
        }
        for entry in &mut self.generated {
            *entry = entry.filter(|v| !stored[v.index()]);
        }
    }

    /// Puts a node into its readers' group, or opens one.
    fn place(&mut self, id: NodeId) {
        let node = self.graph.node(id);
        let [value] = node.outputs[..] else { return };
        if self.generated[value.index()].is_some() {
            return;
        }
        match node.op.lowering() {
            Lowering::View(_) => {}
            Lowering::Elementwise(_) => {
                let joined = self.candidate(id, value).is_some_and(|group| self.join(id, value, group));
                if !joined {
                    self.group_of[id.index()] = Some(self.groups.len());
                    let (leaves, generated) = self.operands(id);
                    self.groups.push(Group { root: id, nodes: 1 + generated, leaves, kernel: None });
                }
                self.inline[value.index()] = joined;
            }
            Lowering::Kernel(kernel) => {
                if let Some(group) = self.candidate(id, value) {
                    self.inline[value.index()] = self.join_kernel(id, kernel, value, group);
                }
            }
        }
    }

    /// The one group that all readers of `value` stand in, if it may be computed there.
    fn candidate(&self, id: NodeId, value: ValueId) -> Option<usize> {
        let readers = &self.readers[value.index()];
        let group = self.group_of[readers.first()?.index()]?;
        let (node, root) = (self.graph.node(id), self.graph.node(self.groups[group].root));
        let fits = !self.kept[value.index()]
            && readers.iter().all(|r| self.group_of[r.index()] == Some(group))
            && root.segment == node.segment
            && root.phase == node.phase
            && self.graph.value(value).ty.shape.element_count() > 0;
        fits.then_some(group)
    }

    /// What an elementwise node reads from memory, each once, and how many
    /// generated values it reads.
    fn operands(&self, id: NodeId) -> (Vec<ValueId>, usize) {
        let mut leaves: Vec<ValueId> = Vec::new();
        let mut generated = 0;
        for &v in &self.graph.node(id).inputs {
            if self.generated[v.index()].is_some() {
                generated += 1;
            } else if !leaves.contains(&v) {
                leaves.push(v);
            }
        }
        (leaves, generated)
    }

    fn join(&mut self, id: NodeId, value: ValueId, group: usize) -> bool {
        let (operands, generated) = self.operands(id);
        let target = &self.groups[group];
        let mut leaves: Vec<ValueId> = target.leaves.iter().copied().filter(|v| *v != value).collect();
        let bytes = |v: ValueId| self.graph.value(self.base[v.index()].0).ty.size_bytes();
        let mut large = 0;
        for v in operands {
            if !leaves.contains(&v) {
                // A bias or a scale does not count.
                large += usize::from(bytes(v) > bytes(value) / 8);
                leaves.push(v);
            }
        }
        let waits = self.kernels_before[target.root.index()] > self.kernels_before[id.index()];
        let nodes = target.nodes + 1 + generated;
        if nodes > MAX_FUSED_NODES || (waits && large > 1) || !self.fits(&leaves, target.kernel) {
            return false;
        }
        self.group_of[id.index()] = Some(group);
        let target = &mut self.groups[group];
        target.nodes = nodes;
        target.leaves = leaves;
        true
    }

    fn join_kernel(&mut self, id: NodeId, kernel: &dyn KernelOp, value: ValueId, group: usize) -> bool {
        let node = self.graph.node(id);
        let types: Vec<_> = node.inputs.iter().map(|v| &self.graph.value(*v).ty).collect();
        let target = &self.groups[group];
        let leaves: Vec<ValueId> = target.leaves.iter().copied().filter(|v| *v != value).collect();
        let root = self.graph.node(target.root).outputs[0];
        let floats = [value, root].iter().all(|v| self.graph.value(*v).ty.dtype.is_float());
        let takes_epilogue = || kernel.epilogue_shape(&types).is_some() && self.fits(&leaves, Some(id));
        let widens = target.nodes == 1 && is_widening(self.graph, target.root);
        if target.kernel.is_some() || !floats || !(widens || takes_epilogue()) {
            return false;
        }
        let target = &mut self.groups[group];
        target.kernel = Some(id);
        target.leaves = leaves;
        true
    }

    /// Whether a pass can bind these leaves, with its output and its kernel's operands.
    fn fits(&self, leaves: &[ValueId], kernel: Option<NodeId>) -> bool {
        let mut storages: Vec<ValueId> = leaves.iter().map(|v| self.base[v.index()].0).collect();
        storages.sort_unstable();
        storages.dedup();
        let Some(kernel) = kernel else { return storages.len() < self.bindings };
        let node = self.graph.node(kernel);
        let Lowering::Kernel(op) = node.op.lowering() else { return false };
        let types: Vec<_> = node.inputs.iter().map(|v| &self.graph.value(*v).ty).collect();
        let Some(shape) = op.epilogue_shape(&types).map(|s| Shape(s.to_vec())) else { return false };
        // A storage is bound once only, and an epilogue addresses by batch, row and column.
        storages.len() + node.inputs.len() < self.bindings
            && node.inputs.iter().all(|v| !storages.contains(&self.base[v.index()].0))
            && leaves.iter().all(|v| self.base[v.index()].1.reshaped(&shape).is_some())
    }
}
