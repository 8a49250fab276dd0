//! What the user recorded: values in SSA form, pure data, no GPU types.
//!
//! A [`Graph`] is a list of values and of nodes in recorded order, which is a
//! topological order: every node reads values that exist already. A value is
//! made once and never changes. Nodes recorded inside `checkpoint` carry their
//! segment; nodes recorded by differentiation carry the segment of the forward
//! node whose gradient they compute.

mod recorder;
mod tensor;
mod tree;

pub use recorder::Recorder;
pub(crate) use recorder::Scope;
pub use tensor::Tensor;
pub use tree::TensorTree;

use crate::dtype::TensorType;
use crate::fuse::program::{InputInfo, Mark, Phase, Segment, SegmentId, StateInfo};
use crate::ops::Op;
use crate::shared::Shared;

/// Index of a value in its [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// Index of a node in its [`Graph`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

impl ValueId {
    /// As a list index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
impl NodeId {
    /// As a list index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// What makes a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Handed over at each run; index into [`Graph::inputs`].
    Input(u32),
    /// Copied when recorded; index into [`Graph::constants`].
    Constant(u32),
    /// Read from state; index into [`Graph::states`].
    State(u32),
    /// An output of a node.
    Node {
        /// The node.
        node: NodeId,
        /// Which of its outputs.
        output: u32,
    },
}

/// One value.
#[derive(Debug, Clone)]
pub struct Value {
    /// Data type and shape.
    pub ty: TensorType,
    /// What makes it.
    pub source: Source,
    /// The name given by [`Tensor::named`], if any.
    pub name: Option<String>,
    /// The wish given by [`Tensor::must_save`] or [`Tensor::must_recompute`].
    pub mark: Option<Mark>,
    /// True for the gradient of a state, which reports count apart.
    pub is_parameter_gradient: bool,
}

/// One recorded operation.
#[derive(Debug, Clone)]
pub struct Node {
    /// The operation.
    pub op: Shared<dyn Op>,
    /// Values read, in operand order.
    pub inputs: Vec<ValueId>,
    /// Values made.
    pub outputs: Vec<ValueId>,
    /// Innermost segment that it belongs to.
    pub segment: Option<SegmentId>,
    /// Forward, backward or update.
    pub phase: Phase,
}

/// A recording.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// Values, in the order in which they were made.
    pub values: Vec<Value>,
    /// Nodes, in recorded order.
    pub nodes: Vec<Node>,
    /// Segments; a parent precedes its children.
    pub segments: Vec<Segment>,
    /// Inputs of a run.
    pub inputs: Vec<InputInfo>,
    /// Bytes of constants.
    pub constants: Vec<Shared<[u8]>>,
    /// States read or written.
    pub states: Vec<StateInfo>,
    /// Values that a run hands back, with a label each.
    pub outputs: Vec<(String, ValueId)>,
    /// The first node of each call of [`Recorder::gradients`], in recorded order.
    pub sweeps: Vec<NodeId>,
}

impl Value {
    /// True if it is written to memory whatever fusion would like.
    #[must_use]
    pub const fn is_pinned(&self) -> bool {
        self.name.is_some() || self.mark.is_some()
    }
}

impl Graph {
    /// The value with this id.
    #[must_use]
    pub fn value(&self, id: ValueId) -> &Value {
        &self.values[id.index()]
    }

    /// The node with this id.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The node that makes `id`, if a node does.
    #[must_use]
    pub fn producer(&self, id: ValueId) -> Option<NodeId> {
        match self.value(id).source {
            Source::Node { node, .. } => Some(node),
            _ => None,
        }
    }

    /// Marks the nodes that outputs and state writes depend on.
    #[must_use]
    pub fn live_nodes(&self) -> Vec<bool> {
        let mut live = vec![false; self.nodes.len()];
        let mut wanted = vec![false; self.values.len()];
        for (_, id) in &self.outputs {
            wanted[id.index()] = true;
        }
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if node.phase == Phase::Update || node.outputs.iter().any(|v| wanted[v.index()]) {
                live[index] = true;
                for v in &node.inputs {
                    wanted[v.index()] = true;
                }
            }
        }
        live
    }
}
