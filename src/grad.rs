//! Reverse-mode differentiation over the graph.
//!
//! One sweep from the loss to the recording's start: every node between the
//! loss and the tensors asked for is given its outputs' gradients and records
//! its inputs'. The first contribution to a value is assigned, later ones are
//! added, in the order in which the sweep meets them. Gradients are recorded
//! values themselves, so they can be differentiated again.

use crate::dtype::TensorType;
use crate::error::{Error, Result};
use crate::fuse::program::Phase;
use crate::graph::{Node, NodeId, Recorder, Source, Tensor, ValueId};
use crate::ops::GradientCall;

/// Restores the recorder's scope, also when a rule fails.
struct ScopeGuard<'a> {
    recorder: &'a Recorder,
    before: crate::graph::Scope,
}

impl Drop for ScopeGuard<'_> {
    fn drop(&mut self) {
        self.recorder.set_scope(self.before);
    }
}

/// See [`Recorder::gradients`].
pub(crate) fn gradients(loss: &Tensor, wrt: &[&Tensor]) -> Result<Vec<Tensor>> {
    let recorder = loss.recorder();
    for (operand, tensor) in wrt.iter().enumerate() {
        if !recorder.is_same(tensor.recorder()) {
            return Err(Error::OtherRecording { op: "gradients", operand });
        }
        tensor.expect_float("gradients", operand)?;
    }
    loss.expect_float("gradients", 0)?;
    if loss.element_count() != 1 {
        return Err(Error::Shape {
            op: "gradients",
            shapes: vec![loss.shape().clone()],
            detail: "the loss must be a single number; reduce it with sum or mean first".into(),
        });
    }
    let guard = ScopeGuard { recorder, before: recorder.scope() };
    let mut sweep = Sweep::new(loss, wrt);
    recorder.set_scope(crate::graph::Scope { segment: sweep.segment_of(loss.id()), phase: Phase::Backward });
    sweep.grads[loss.id().index()] = Some(loss.filled(1.0)?);
    sweep.run(recorder)?;
    let mut result = Vec::with_capacity(wrt.len());
    for tensor in wrt {
        let gradient = match sweep.grads[tensor.id().index()].clone() {
            Some(gradient) => gradient,
            None => tensor.filled(0.0)?,
        };
        if sweep.is_state(tensor.id()) {
            recorder.mark_parameter_gradient(gradient.id());
        }
        result.push(gradient);
    }
    drop(guard);
    Ok(result)
}

struct Sweep {
    nodes: Vec<(NodeId, Node)>,
    sources: Vec<(Source, TensorType)>,
    /// Values that depend on one of `wrt`.
    dependent: Vec<bool>,
    grads: Vec<Option<Tensor>>,
}

impl Sweep {
    /// Nodes between `wrt` and the loss, in recorded order.
    fn new(loss: &Tensor, wrt: &[&Tensor]) -> Self {
        loss.recorder().with_graph(|graph| {
            let mut dependent = vec![false; graph.values.len()];
            for tensor in wrt {
                dependent[tensor.id().index()] = true;
            }
            for node in &graph.nodes {
                if node.inputs.iter().any(|v| dependent[v.index()]) {
                    for output in &node.outputs {
                        dependent[output.index()] = graph.value(*output).ty.dtype.is_float();
                    }
                }
            }
            let mut reaches = vec![false; graph.values.len()];
            reaches[loss.id().index()] = true;
            let mut nodes = Vec::new();
            for (index, node) in graph.nodes.iter().enumerate().rev() {
                let between = node.outputs.iter().any(|v| reaches[v.index()] && dependent[v.index()]);
                if between && node.inputs.iter().any(|v| dependent[v.index()]) {
                    for v in &node.inputs {
                        reaches[v.index()] = true;
                    }
                    nodes.push((NodeId(index as u32), node.clone()));
                }
            }
            let sources = graph.values.iter().map(|v| (v.source, v.ty.clone())).collect();
            Self { nodes, sources, dependent, grads: vec![None; graph.values.len()] }
        })
    }

    fn is_state(&self, id: ValueId) -> bool {
        matches!(self.sources[id.index()].0, Source::State(_))
    }

    fn segment_of(&self, id: ValueId) -> Option<crate::fuse::program::SegmentId> {
        let Source::Node { node, .. } = self.sources[id.index()].0 else { return None };
        self.nodes.iter().find(|(n, _)| *n == node).and_then(|(_, n)| n.segment)
    }

    fn run(&mut self, recorder: &Recorder) -> Result<()> {
        // Nodes were collected from the loss backwards.
        for (_, node) in std::mem::take(&mut self.nodes) {
            let grads: Vec<Option<Tensor>> = node.outputs.iter().map(|v| self.grads[v.index()].clone()).collect();
            if grads.iter().all(Option::is_none) {
                continue;
            }
            recorder.set_scope(crate::graph::Scope { segment: node.segment, phase: Phase::Backward });
            let tensor = |v: &ValueId| Tensor::new(recorder.clone(), *v, self.sources[v.index()].1.clone());
            let inputs: Vec<Tensor> = node.inputs.iter().map(tensor).collect();
            let outputs: Vec<Tensor> = node.outputs.iter().map(tensor).collect();
            let needed: Vec<bool> = node.inputs.iter().map(|v| self.dependent[v.index()]).collect();
            let call = GradientCall { inputs: &inputs, outputs: &outputs, grads: &grads, needed: &needed };
            let contributions = node.op.gradient(&call)?;
            for ((input, contribution), needed) in node.inputs.iter().zip(contributions).zip(needed) {
                let (Some(contribution), true) = (contribution, needed) else { continue };
                debug_assert_eq!(contribution.shape(), &self.sources[input.index()].1.shape, "{}", node.op.name());
                let slot = &mut self.grads[input.index()];
                *slot = Some(match slot.take() {
                    None => contribution,
                    Some(sum) => sum.add(&contribution)?,
                });
            }
        }
        Ok(())
    }
}
