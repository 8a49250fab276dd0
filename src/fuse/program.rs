//! What fusion hands to the planner: storages and passes, pure data.
//!
//! A *storage* is a value that lies in memory: one allocation of its own,
//! written by exactly one pass (SSA), or filled by the host before a run, or
//! state. Views have been resolved: a pass reads a storage, and strides and
//! offsets inside it are among its uniform words.
//!
//! A *pass* is one dispatch. The list is in recorded order: forward passes,
//! then backward passes in the order in which gradients were derived, with
//! state writes where they were recorded. Every storage is produced before it
//! is read. Passes are the same under every policy; the planner chooses which
//! are repeated, when, and where their operands lie.
//!
//! Rules, proved by [`Program::validate`]:
//! * A `Transient` storage has exactly one producing pass (operand `Write`, or
//!   the output of an `InPlace`). Other kinds have none.
//! * Each pass binds one storage at most once.
//! * The input of an `InPlace` operand is transient, has that pass as its only
//!   reader, is as long as the output, and was made in the same segment.
//! * `StateWrite` operands name `State` storages; a pass with one is never
//!   replayed. Every read of a state in a run sees the value before the run's
//!   writes, wherever the read was recorded.
//! * No storage is empty; a value without elements has no storage and no pass.

use crate::dtype::TensorType;
use crate::error::{Error, Result};
use crate::shared::Shared;

/// Index of a storage in its [`Program`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StorageId(pub u32);

/// Index of a pass in its [`Program`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PassId(pub u32);

/// Index of a kernel in its [`Program`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KernelId(pub u32);

/// Index of a segment in its [`Program`] and in its graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SegmentId(pub u32);

impl StorageId {
    /// As a list index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
impl PassId {
    /// As a list index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
impl KernelId {
    /// As a list index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
impl SegmentId {
    /// As a list index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Where a storage's bytes come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StorageKind {
    /// Made by a pass, placed in the arena.
    Transient,
    /// Uploaded by the host for each run; index into [`Program::inputs`].
    Input(u32),
    /// Uploaded once, when the step is planned; index into [`Program::constants`].
    Constant(u32),
    /// Lives across runs; index into [`Program::states`].
    State(u32),
}

/// What a storage counts as in reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Category {
    /// Parameters.
    Parameter,
    /// Moments, counters and whatever else optimisers keep.
    Optimizer,
    /// Values of the forward pass, and replays of them.
    Activation,
    /// Gradients of activations: values made in backward.
    Gradient,
    /// Gradients of parameters (values handed to an optimiser or asked for).
    ParameterGradient,
    /// Scratch of kernels.
    Workspace,
    /// Inputs of a run.
    Input,
    /// Constants, uniform words, outputs, read-back; running statistics and caches of layers.
    Other,
}

/// Forward, backward or update: decides what may be replayed and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Recorded by the user.
    Forward,
    /// Recorded by differentiation.
    Backward,
    /// Writes state: runs once, never replayed.
    Update,
}

/// What every policy does with a value or a segment, whatever it does otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mark {
    /// Keep from forward to backward what backward needs of it.
    Save,
    /// Drop after its last reader of the forward pass and replay.
    Recompute,
}

/// A value that lies in memory.
#[derive(Debug, Clone)]
pub struct Storage {
    /// Its name if it was given one, else the op and index that made it.
    pub name: String,
    /// Length in bytes, a positive multiple of 4.
    pub bytes: u64,
    /// Where its bytes come from.
    pub kind: StorageKind,
    /// What it counts as.
    pub category: Category,
    /// True if the user named it with `named`, or marked it.
    pub named: bool,
    /// The user's wish for it.
    pub mark: Option<Mark>,
}

/// How a pass uses one binding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operand {
    /// Reads the storage.
    Read(StorageId),
    /// Makes the storage; writes every element.
    Write(StorageId),
    /// Makes `output` at the very place where `input` lies, which ends there.
    InPlace {
        /// The storage consumed.
        input: StorageId,
        /// The storage made.
        output: StorageId,
    },
    /// Reads and overwrites a state.
    StateWrite(StorageId),
}

impl Operand {
    /// The storage read, if this operand reads one.
    #[must_use]
    pub const fn read(self) -> Option<StorageId> {
        match self {
            Self::Read(s) | Self::StateWrite(s) | Self::InPlace { input: s, .. } => Some(s),
            Self::Write(_) => None,
        }
    }

    /// The transient storage made, if this operand makes one.
    #[must_use]
    pub const fn made(self) -> Option<StorageId> {
        match self {
            Self::Write(s) | Self::InPlace { output: s, .. } => Some(s),
            Self::Read(_) | Self::StateWrite(_) => None,
        }
    }
}

/// A shader with its constants: what becomes one pipeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Kernel {
    /// Name for labels and reports.
    pub name: String,
    /// The whole WGSL text. Binding 0 of group 0 is the uniform words if
    /// `uniform_words > 0`; storage operand `i` of a pass is binding `i + 1`, declared
    /// `read_write` (one buffer may then be bound at several offsets).
    pub source: Shared<str>,
    /// The entry point.
    pub entry: &'static str,
    /// Values for `override` declarations.
    pub constants: Vec<(&'static str, f64)>,
    /// Number of storage bindings.
    pub operand_count: usize,
    /// Length of the uniform block in 32-bit words; 0 for none.
    pub uniform_words: usize,
}

/// Estimated work of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Cost {
    /// Floating-point operations.
    pub flops: f64,
    /// Bytes read and written.
    pub bytes: f64,
}

/// One dispatch.
#[derive(Debug, Clone)]
pub struct Pass {
    /// The fused ops, as `matmul+add+relu`.
    pub name: String,
    /// What is run.
    pub kernel: KernelId,
    /// The bindings, in order.
    pub operands: Vec<Operand>,
    /// The uniform words: the same in every run and every replay.
    pub uniforms: Vec<u32>,
    /// Workgroups along x, y, z; none is 0.
    pub grid: [u32; 3],
    /// Estimated work.
    pub cost: Cost,
    /// Kind of the heaviest op in it ("matmul", "softmax", "elementwise", ...).
    pub kind: &'static str,
    /// Innermost segment that it was recorded in; for a backward pass, the
    /// segment of the forward op whose gradient it computes.
    pub segment: Option<SegmentId>,
    /// When it runs.
    pub phase: Phase,
}

/// A region recorded inside `checkpoint`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Its name for reports.
    pub name: String,
    /// The segment around it, if it is nested.
    pub parent: Option<SegmentId>,
    /// The user's wish for what is made in it.
    pub mark: Option<Mark>,
}

/// A named input of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InputInfo {
    /// The name that `run` is given.
    pub name: String,
    /// Data type and shape.
    pub ty: TensorType,
}

/// State that the program reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateInfo {
    /// Its dotted name.
    pub name: String,
    /// Data type and shape.
    pub ty: TensorType,
    /// Parameter or Optimizer.
    pub category: Category,
}

/// Something that a run hands back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputInfo {
    /// Label for messages.
    pub name: String,
    /// Data type and shape.
    pub ty: TensorType,
    /// The storage that holds it, contiguous from its first byte; `None` if it has no elements.
    pub storage: Option<StorageId>,
}

/// Everything that the planner needs to know.
#[derive(Debug, Clone, Default)]
pub struct Program {
    /// Every value that lies in memory.
    pub storages: Vec<Storage>,
    /// Dispatches in recorded order.
    pub passes: Vec<Pass>,
    /// Distinct kernels.
    pub kernels: Vec<Kernel>,
    /// Segments; a parent precedes its children; siblings are in recorded order.
    pub segments: Vec<Segment>,
    /// Inputs of a run.
    pub inputs: Vec<InputInfo>,
    /// Bytes of constants, copied when recorded.
    pub constants: Vec<Shared<[u8]>>,
    /// State used.
    pub states: Vec<StateInfo>,
    /// What a run hands back.
    pub outputs: Vec<OutputInfo>,
    /// Where each sweep of [`crate::graph::Recorder::gradients`] begins: its first pass,
    /// or the number of passes if none followed.
    pub sweeps: Vec<PassId>,
}

impl Program {
    /// The storage with this id.
    #[must_use]
    pub fn storage(&self, id: StorageId) -> &Storage {
        &self.storages[id.index()]
    }

    /// The pass with this id.
    #[must_use]
    pub fn pass(&self, id: PassId) -> &Pass {
        &self.passes[id.index()]
    }

    /// Which sweep a pass belongs to: 0 before the first, then counted from 1.
    #[must_use]
    pub fn sweep_of(&self, pass: PassId) -> usize {
        self.sweeps.partition_point(|first| *first <= pass)
    }

    /// For each storage the pass that makes it, if any.
    #[must_use]
    pub fn producers(&self) -> Vec<Option<PassId>> {
        let mut producers = vec![None; self.storages.len()];
        for (index, pass) in self.passes.iter().enumerate() {
            for made in pass.operands.iter().filter_map(|o| o.made()) {
                producers[made.index()] = Some(PassId(index as u32));
            }
        }
        producers
    }

    /// Segments from the outermost to `segment` itself.
    #[must_use]
    pub fn segment_path(&self, segment: Option<SegmentId>) -> Vec<SegmentId> {
        let mut path = Vec::new();
        let mut at = segment;
        while let Some(id) = at {
            path.push(id);
            at = self.segments[id.index()].parent;
        }
        path.reverse();
        path
    }

    /// Proves the rules in the module's documentation.
    ///
    /// # Errors
    /// [`Error::PlanCheck`] with the index of the first pass that breaks one.
    pub fn validate(&self) -> Result<()> {
        let fail = |dispatch: usize, detail: String| Err(Error::PlanCheck { dispatch, detail });
        let mut written = vec![false; self.storages.len()];
        let producers = self.producers();
        let mut readers = vec![0_u32; self.storages.len()];
        for pass in &self.passes {
            for read in pass.operands.iter().filter_map(|o| o.read()) {
                readers[read.index()] += 1;
            }
        }
        for (index, pass) in self.passes.iter().enumerate() {
            let mut bound: Vec<StorageId> = Vec::new();
            for operand in &pass.operands {
                for id in [operand.read(), operand.made()].into_iter().flatten() {
                    if bound.contains(&id) {
                        return fail(index, format!("{} is bound twice", self.storage(id).name));
                    }
                    bound.push(id);
                    if self.storage(id).bytes == 0 || !self.storage(id).bytes.is_multiple_of(4) {
                        return fail(
                            index,
                            format!("{} has a length of {} bytes", self.storage(id).name, self.storage(id).bytes),
                        );
                    }
                }
                if let Some(read) = operand.read() {
                    if self.storage(read).kind == StorageKind::Transient && !written[read.index()] {
                        return fail(index, format!("{} is read before it is made", self.storage(read).name));
                    }
                }
                match *operand {
                    Operand::InPlace { input, output } => {
                        let (from, to) = (self.storage(input), self.storage(output));
                        let producer = producers[input.index()].map(|p| self.pass(p));
                        if from.kind != StorageKind::Transient
                            || readers[input.index()] != 1
                            || from.bytes != to.bytes
                            || producer.is_none_or(|p| p.segment != pass.segment)
                        {
                            return fail(index, format!("{} must not be overwritten in place", from.name));
                        }
                    }
                    Operand::StateWrite(id)
                        if !matches!(self.storage(id).kind, StorageKind::State(_)) || pass.phase != Phase::Update =>
                    {
                        return fail(index, format!("{} is written as state", self.storage(id).name));
                    }
                    _ => {}
                }
            }
            for made in pass.operands.iter().filter_map(|o| o.made()) {
                if written[made.index()] || self.storage(made).kind != StorageKind::Transient {
                    return fail(index, format!("{} is written twice", self.storage(made).name));
                }
                written[made.index()] = true;
            }
            if pass.grid.contains(&0) {
                return fail(index, format!("{} has an empty grid", pass.name));
            }
            let kernel = &self.kernels[pass.kernel.index()];
            if kernel.operand_count != pass.operands.len() || kernel.uniform_words != pass.uniforms.len() {
                return fail(index, format!("{} does not fit its kernel's bindings", pass.name));
            }
        }
        Ok(())
    }
}
