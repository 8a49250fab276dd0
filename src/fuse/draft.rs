//! From nodes to drafts of passes: which values get memory, which are fused.

use super::group::{Groups, group, is_widening};
use super::program::{Category, PassId, Phase, SegmentId, Storage, StorageId, StorageKind};
use crate::dtype::{DType, Layout, TensorType};
use crate::error::{Error, Result};
use crate::graph::{Graph, NodeId, Source, ValueId};
use crate::ops::{KernelCall, Lowering, ViewOp};
use crate::profile::{AdapterClass, DeviceProfile};
use crate::shared::Shared;

/// Most operations per element that are fused into a product's store on a software adapter.
const SOFTWARE_EPILOGUE_FLOPS: f64 = 4.0;

/// A value in memory, seen through strides.
#[derive(Debug, Clone)]
pub(super) struct Placed {
    /// `None` for values without elements.
    pub(super) storage: Option<StorageId>,
    pub(super) layout: Layout,
    pub(super) ty: TensorType,
}

/// A fused expression: nodes in evaluation order and the leaves they read.
#[derive(Debug, Clone)]
pub(super) struct Expression {
    pub(super) leaves: Vec<Placed>,
    pub(super) steps: Vec<Step>,
    pub(super) ty: TensorType,
}

impl Expression {
    /// The value itself, stored as `ty`.
    fn copy(from: &Placed, ty: &TensorType) -> Self {
        let step = Step { node: None, operands: vec![StepOperand::Leaf(0)], ty: ty.clone() };
        Self { leaves: vec![from.clone()], steps: vec![step], ty: ty.clone() }
    }
}

/// One elementwise node of an expression.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) node: Option<NodeId>,
    pub(super) operands: Vec<StepOperand>,
    pub(super) ty: TensorType,
}

/// What a step reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StepOperand {
    Leaf(usize),
    Step(usize),
    /// The value that a kernel hands to its epilogue.
    Accumulator,
}

/// An expression while it is gathered.
struct Gathered {
    expression: Expression,
    kernel: Option<NodeId>,
    /// What each value met so far became.
    known: Vec<(ValueId, StepOperand)>,
}

/// A pass before its text is written.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) segment: Option<SegmentId>,
    pub(super) phase: Phase,
    pub(super) body: Body,
}

#[derive(Debug)]
pub(super) enum Body {
    Elementwise { expression: Expression, output: StorageId },
    Kernel { kind: &'static str, name: String, call: KernelCall, operands: Vec<DraftOperand> },
}

/// A kernel's binding.
#[derive(Debug, Clone, Copy)]
pub(super) enum DraftOperand {
    Read(StorageId),
    Write(StorageId),
    State(StorageId),
}

#[derive(Debug, Default)]
pub(super) struct Drafts {
    pub(super) storages: Vec<Storage>,
    pub(super) passes: Vec<Draft>,
    /// Where each output value lies; contiguous from its storage's start.
    pub(super) outputs: Vec<Option<StorageId>>,
    /// The first pass of each of the graph's sweeps.
    pub(super) sweeps: Vec<PassId>,
}

pub(super) fn draft(graph: &Graph, profile: &DeviceProfile) -> Result<Drafts> {
    let mut builder = Builder::new(graph, profile);
    builder.sources();
    for index in 0..graph.nodes.len() {
        builder.begin_sweeps(index);
        if builder.live[index] {
            builder.node(NodeId(index as u32))?;
        }
    }
    builder.begin_sweeps(graph.nodes.len());
    builder.outputs()?;
    Ok(builder.drafts)
}

pub(super) struct Builder<'a> {
    pub(super) graph: &'a Graph,
    pub(super) profile: &'a DeviceProfile,
    live: Vec<bool>,
    groups: Groups,
    placed: Vec<Option<Placed>>,
    pub(super) drafts: Drafts,
}

impl<'a> Builder<'a> {
    fn new(graph: &'a Graph, profile: &'a DeviceProfile) -> Self {
        let live = graph.live_nodes();
        Self {
            graph,
            profile,
            groups: group(graph, profile, &live),
            live,
            placed: vec![None; graph.values.len()],
            drafts: Drafts::default(),
        }
    }

    /// Notes where sweeps begin whose first node is `node` or one before it.
    fn begin_sweeps(&mut self, node: usize) {
        while self.graph.sweeps.get(self.drafts.sweeps.len()).is_some_and(|first| first.index() <= node) {
            self.drafts.sweeps.push(PassId(self.drafts.passes.len() as u32));
        }
    }

    /// Storages of inputs, constants and states.
    fn sources(&mut self) {
        for (index, value) in self.graph.values.iter().enumerate() {
            let (kind, category, name) = match value.source {
                Source::Input(i) => {
                    (StorageKind::Input(i), Category::Input, self.graph.inputs[i as usize].name.clone())
                }
                Source::Constant(i) => (StorageKind::Constant(i), Category::Other, format!("constant{i}")),
                Source::State(i) => {
                    let state = &self.graph.states[i as usize];
                    (StorageKind::State(i), state.category, state.name.clone())
                }
                Source::Node { .. } => continue,
            };
            let storage = self.storage(&value.ty, kind, category, name, false);
            let layout = Layout::contiguous(&value.ty.shape);
            self.placed[index] = Some(Placed { storage, layout, ty: value.ty.clone() });
        }
    }

    pub(super) fn storage(
        &mut self,
        ty: &TensorType,
        kind: StorageKind,
        category: Category,
        name: String,
        named: bool,
    ) -> Option<StorageId> {
        let bytes = ty.size_bytes();
        if bytes == 0 {
            return None;
        }
        let id = StorageId(self.drafts.storages.len() as u32);
        self.drafts.storages.push(Storage { name, bytes, kind, category, named, mark: None });
        Some(id)
    }

    fn node(&mut self, id: NodeId) -> Result<()> {
        let node = self.graph.node(id);
        let elsewhere = |v: &ValueId| self.groups.inline[v.index()] || self.groups.generated[v.index()].is_some();
        if !node.outputs.is_empty() && node.outputs.iter().all(elsewhere) {
            return Ok(());
        }
        match node.op.lowering() {
            Lowering::View(view) => {
                for (index, &output) in node.outputs.iter().enumerate() {
                    self.view(id, view, index, output)?;
                }
                Ok(())
            }
            Lowering::Elementwise(_) => self.elementwise(id),
            Lowering::Kernel(kernel) => {
                let operands = node.inputs.clone();
                self.kernel(id, kernel, &operands, None, &node.outputs.clone())
            }
        }
    }

    fn view(&mut self, id: NodeId, view: &dyn ViewOp, index: usize, output: ValueId) -> Result<()> {
        let node = self.graph.node(id);
        let input = self.placed(node.inputs[0])?;
        let ty = self.graph.value(output).ty.clone();
        let placed = match view.view_output(index, &input.layout) {
            Some(layout) => Placed { storage: input.storage, layout, ty },
            None => {
                let copy = self.copy(&input, node.segment, node.phase, Category::Workspace, "copy".into())?;
                // Strides always suffice for a contiguous value.
                let layout = view.view_output(index, &copy.layout).unwrap_or_else(|| Layout::contiguous(&ty.shape));
                Placed { storage: copy.storage, layout, ty }
            }
        };
        // A value without elements has no storage, also as a part of one that has.
        let placed = if placed.ty.size_bytes() == 0 { Placed { storage: None, ..placed } } else { placed };
        self.name_view(output, &placed);
        self.placed[output.index()] = Some(placed);
        Ok(())
    }

    /// A name or mark given to a view reaches the storage that it looks at.
    fn name_view(&mut self, output: ValueId, placed: &Placed) {
        let value = self.graph.value(output);
        let Some(storage) = placed.storage.filter(|_| value.is_pinned()) else { return };
        let storage = &mut self.drafts.storages[storage.index()];
        if storage.kind != StorageKind::Transient {
            return;
        }
        if let Some(name) = value.name.as_ref().filter(|_| !storage.named) {
            storage.name.clone_from(name);
        }
        storage.named = true;
        storage.mark = storage.mark.or(value.mark);
    }

    pub(super) fn placed(&mut self, value: ValueId) -> Result<Placed> {
        match &self.placed[value.index()] {
            Some(placed) => Ok(placed.clone()),
            None => {
                // A value that was to be fused, but whose reader turned out to need it in memory.
                self.groups.inline[value.index()] = false;
                self.groups.generated[value.index()] = None;
                if let Some(node) = self.graph.producer(value) {
                    self.node(node)?;
                }
                Ok(self.placed[value.index()].clone().unwrap_or_else(|| {
                    let ty = self.graph.value(value).ty.clone();
                    Placed { storage: None, layout: Layout::contiguous(&ty.shape), ty }
                }))
            }
        }
    }

    /// A contiguous copy of a strided value, as a pass of its own.
    pub(super) fn copy(
        &mut self,
        from: &Placed,
        segment: Option<SegmentId>,
        phase: Phase,
        category: Category,
        name: String,
    ) -> Result<Placed> {
        self.copy_as(from, from.ty.dtype, (segment, phase), category, name)
    }

    /// [`Self::copy`] in another float type.
    pub(super) fn copy_as(
        &mut self,
        from: &Placed,
        dtype: DType,
        (segment, phase): (Option<SegmentId>, Phase),
        category: Category,
        name: String,
    ) -> Result<Placed> {
        let ty = TensorType { dtype, shape: from.ty.shape.clone() };
        let storage = self.storage(&ty, StorageKind::Transient, category, name, false);
        if let Some(output) = storage {
            self.copy_to(from, &ty, (segment, phase), output);
        }
        Ok(Placed { storage, layout: Layout::contiguous(&ty.shape), ty })
    }

    /// A pass that copies into a storage of type `ty`.
    pub(super) fn copy_to(
        &mut self,
        from: &Placed,
        ty: &TensorType,
        (segment, phase): (Option<SegmentId>, Phase),
        output: StorageId,
    ) {
        let expression = Expression::copy(from, ty);
        self.drafts.passes.push(Draft { segment, phase, body: Body::Elementwise { expression, output } });
    }

    pub(super) fn value_storage(&mut self, value: ValueId, op: &str, phase: Phase) -> Option<StorageId> {
        let info = self.graph.value(value);
        let category = match phase {
            _ if info.is_parameter_gradient => Category::ParameterGradient,
            Phase::Forward => Category::Activation,
            Phase::Backward | Phase::Update => Category::Gradient,
        };
        let name = info.name.clone().unwrap_or_else(|| format!("{op}.{}", value.0));
        let ty = info.ty.clone();
        let (named, mark) = (info.is_pinned(), info.mark);
        let storage = self.storage(&ty, StorageKind::Transient, category, name, named);
        if let Some(storage) = storage {
            self.drafts.storages[storage.index()].mark = mark;
        }
        self.placed[value.index()] = Some(Placed { storage, layout: Layout::contiguous(&ty.shape), ty });
        storage
    }

    /// An elementwise value that needs memory: its tree becomes one pass.
    fn elementwise(&mut self, id: NodeId) -> Result<()> {
        let node = self.graph.node(id);
        let root = node.outputs[0];
        if self.graph.value(root).ty.size_bytes() == 0 {
            self.value_storage(root, node.op.name(), node.phase);
            return Ok(());
        }
        let (mut expression, kernel) = self.gather(id)?;
        if let Some(kernel) = kernel {
            if self.fused_kernel(id, kernel, &expression)? {
                return Ok(());
            }
            let product = self.graph.node(kernel).outputs[0];
            self.groups.inline[product.index()] = false;
            self.node(kernel)?;
            expression = self.gather(id)?.0;
        }
        self.check_bindings(id, &expression)?;
        let output = self.value_storage(root, node.op.name(), node.phase);
        if let Some(output) = output {
            let body = Body::Elementwise { expression, output };
            self.drafts.passes.push(Draft { segment: node.segment, phase: node.phase, body });
        }
        Ok(())
    }

    /// Groups keep within the bindings; a single op of many operands may not.
    fn check_bindings(&self, id: NodeId, expression: &Expression) -> Result<()> {
        let mut storages: Vec<StorageId> = expression.leaves.iter().filter_map(|l| l.storage).collect();
        storages.sort_unstable();
        storages.dedup();
        let usable = self.profile.usable_storage_buffers();
        if storages.len() < usable {
            return Ok(());
        }
        Err(Error::Argument {
            op: self.graph.node(id).op.name(),
            argument: "operands",
            value: storages.len().to_string(),
            detail: format!("one pass on {} binds {usable} storages, the output among them", self.profile.name),
        })
    }

    /// The expression under `id` in evaluation order, and the kernel whose
    /// output it reads as its accumulator. Groups have at most
    /// [`super::MAX_FUSED_NODES`] nodes, so recursion is shallow.
    fn gather(&mut self, id: NodeId) -> Result<(Expression, Option<NodeId>)> {
        let ty = self.graph.value(self.graph.node(id).outputs[0]).ty.clone();
        let expression = Expression { leaves: Vec::new(), steps: Vec::new(), ty };
        let mut gathered = Gathered { expression, kernel: None, known: Vec::new() };
        self.gather_into(id, &mut gathered)?;
        Ok((gathered.expression, gathered.kernel))
    }

    fn gather_into(&mut self, id: NodeId, into: &mut Gathered) -> Result<usize> {
        let node = self.graph.node(id);
        let mut operands: Vec<StepOperand> = Vec::with_capacity(node.inputs.len());
        for &input in &node.inputs {
            let generated = self.groups.generated[input.index()];
            // A view of a constant is that constant.
            let v = generated.unwrap_or(input);
            if let Some((_, operand)) = into.known.iter().find(|(known, _)| *known == v) {
                operands.push(*operand);
                continue;
            }
            let fused = generated.is_some() || self.groups.inline[v.index()];
            let operand = match self.graph.producer(v).filter(|_| fused) {
                Some(p) if matches!(self.graph.node(p).op.lowering(), Lowering::Kernel(_)) => {
                    into.kernel = Some(p);
                    StepOperand::Accumulator
                }
                Some(p) => StepOperand::Step(self.gather_into(p, into)?),
                None => {
                    let placed = self.placed(v)?;
                    let same =
                        |l: &Placed| l.storage == placed.storage && l.layout == placed.layout && l.ty == placed.ty;
                    let leaves = &mut into.expression.leaves;
                    let leaf = leaves.iter().position(same).unwrap_or_else(|| {
                        leaves.push(placed);
                        leaves.len() - 1
                    });
                    StepOperand::Leaf(leaf)
                }
            };
            into.known.push((v, operand));
            operands.push(operand);
        }
        let ty = self.graph.value(node.outputs[0]).ty.clone();
        into.expression.steps.push(Step { node: Some(id), operands, ty });
        Ok(into.expression.steps.len() - 1)
    }

    /// Fuses an expression into the store of the kernel it reads; false if it does not fit.
    fn fused_kernel(&mut self, root: NodeId, kernel: NodeId, expression: &Expression) -> Result<bool> {
        let node = self.graph.node(kernel);
        let Lowering::Kernel(op) = node.op.lowering() else { return Ok(false) };
        let outputs = self.graph.node(root).outputs.clone();
        if expression.steps.len() == 1 && is_widening(self.graph, root) {
            self.kernel(kernel, op, &node.inputs, None, &outputs)?;
            return Ok(true);
        }
        let types: Vec<&TensorType> = node.inputs.iter().map(|v| &self.graph.value(*v).ty).collect();
        let Some(shape) = op.epilogue_shape(&types) else { return Ok(false) };
        let mut bound: Vec<StorageId> = Vec::new();
        for v in node.inputs.clone() {
            bound.extend(self.placed(v)?.storage);
        }
        let first_binding = node.inputs.len() as u32 + 2;
        let Some(epilogue) = super::epilogue::generate(self.graph, expression, shape, &bound, first_binding) else {
            return Ok(false);
        };
        // A software adapter compiles the chain into a large store loop, once per chain:
        // a tenth of a second each, where an elementwise pass compiles in hundredths and
        // costs a thousandth of a step.
        if self.profile.class == AdapterClass::Cpu && epilogue.code.flops > SOFTWARE_EPILOGUE_FLOPS {
            return Ok(false);
        }
        self.kernel(
            kernel,
            op,
            &node.inputs,
            Some((&epilogue.code, &epilogue.storages, epilogue.name.as_str())),
            &outputs,
        )?;
        Ok(true)
    }

    /// Outputs are handed back contiguous from a transient storage's start.
    fn outputs(&mut self) -> Result<()> {
        for (name, value) in &self.graph.outputs {
            let placed = self.placed(*value)?;
            let direct = placed.storage.is_none_or(|s| {
                let storage = &self.drafts.storages[s.index()];
                storage.kind == StorageKind::Transient
                    && placed.layout.is_contiguous()
                    && placed.layout.offset == 0
                    && storage.bytes == placed.ty.size_bytes()
            });
            let storage = if direct {
                placed.storage
            } else {
                self.copy(&placed, None, Phase::Forward, Category::Other, format!("{name}.copy"))?.storage
            };
            self.drafts.outputs.push(storage);
        }
        Ok(())
    }
}

/// Names of an expression's nodes, joined with `+`.
pub(super) fn expression_name(graph: &Graph, expression: &Expression) -> String {
    let names: Vec<&str> =
        expression.steps.iter().map(|s| s.node.map_or("copy", |n| graph.node(n).op.name())).collect();
    names.join("+")
}

/// A shared text: equal kernels share one.
pub(super) type Text = Shared<str>;
