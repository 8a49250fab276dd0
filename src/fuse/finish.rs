//! From drafts to passes: writing in place, kernel texts, uniform words.

use std::collections::HashMap;

use super::draft::{Body, Draft, DraftOperand, Drafts, Expression, Text, expression_name};
use super::elementwise::{BoundExpression, generate};
use super::program::{
    Category, Cost, Kernel, KernelId, Operand, OutputInfo, Pass, Program, SegmentId, StorageId, StorageKind,
};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Graph;
use crate::ops::KernelCall;
use crate::profile::DeviceProfile;

pub(super) fn finish(graph: &Graph, profile: &DeviceProfile, drafts: Drafts) -> Result<Program> {
    let mut finisher = Finisher::new(graph, profile, &drafts);
    for draft in &drafts.passes {
        let pass = match &draft.body {
            Body::Elementwise { expression, output } => finisher.elementwise(draft, expression, *output),
            Body::Kernel { kind, name, call, operands } => finisher.kernel(draft, kind, name, call, operands)?,
        };
        finisher.program.passes.push(pass);
    }
    let mut program = finisher.program;
    program.outputs = graph
        .outputs
        .iter()
        .zip(&drafts.outputs)
        .map(|((name, value), storage)| OutputInfo {
            name: name.clone(),
            ty: graph.value(*value).ty.clone(),
            storage: *storage,
        })
        .collect();
    program.storages = drafts.storages;
    program.segments.clone_from(&graph.segments);
    program.inputs.clone_from(&graph.inputs);
    program.constants.clone_from(&graph.constants);
    program.states.clone_from(&graph.states);
    program.sweeps = drafts.sweeps;
    Ok(program)
}

/// Text and constants: what makes a kernel distinct.
type KernelKey = (Text, Vec<(&'static str, u64)>);

struct Finisher<'a> {
    graph: &'a Graph,
    profile: &'a DeviceProfile,
    drafts: &'a Drafts,
    /// Passes that read each storage; an output counts as a reader.
    readers: Vec<u32>,
    made_in: Vec<Option<SegmentId>>,
    kernels: HashMap<KernelKey, KernelId>,
    program: Program,
}

impl<'a> Finisher<'a> {
    fn new(graph: &'a Graph, profile: &'a DeviceProfile, drafts: &'a Drafts) -> Self {
        let mut readers = vec![0_u32; drafts.storages.len()];
        let mut made_in = vec![None; drafts.storages.len()];
        for draft in &drafts.passes {
            for storage in draft_reads(draft) {
                readers[storage.index()] += 1;
            }
            for storage in draft_writes(draft) {
                made_in[storage.index()] = draft.segment;
            }
        }
        for storage in drafts.outputs.iter().flatten() {
            readers[storage.index()] += 1;
        }
        Self { graph, profile, drafts, readers, made_in, kernels: HashMap::new(), program: Program::default() }
    }

    fn kernel_id(
        &mut self,
        name: &str,
        source: Text,
        call: (&'static str, Vec<(&'static str, f64)>),
        operands: usize,
        words: usize,
    ) -> KernelId {
        let (entry, constants) = call;
        let key = (source.clone(), constants.iter().map(|(n, v)| (*n, v.to_bits())).collect());
        if let Some(id) = self.kernels.get(&key) {
            return *id;
        }
        let id = KernelId(self.program.kernels.len() as u32);
        self.program.kernels.push(Kernel {
            name: name.to_owned(),
            source,
            entry,
            constants,
            operand_count: operands,
            uniform_words: words,
        });
        self.kernels.insert(key, id);
        id
    }

    /// The leaf that the output may overwrite: read by nothing else, laid out
    /// alike, made in the same segment.
    fn in_place(&self, draft: &Draft, expression: &Expression, output: StorageId) -> Option<StorageId> {
        let target = &self.drafts.storages[output.index()];
        let candidates = expression.leaves.iter().filter_map(|leaf| {
            let id = leaf.storage?;
            let storage = &self.drafts.storages[id.index()];
            let alike = storage.kind == StorageKind::Transient
                && storage.bytes == target.bytes
                && !storage.named
                && self.readers[id.index()] == 1
                && self.made_in[id.index()] == draft.segment
                && leaf.layout.offset == 0
                && leaf.layout.is_contiguous()
                && leaf.ty.dtype.wgsl_storage() == expression.ty.dtype.wgsl_storage()
                && leaf.ty.dtype.size_bytes() == expression.ty.dtype.size_bytes()
                // One leaf only may look at it, or another element would be read after its overwrite.
                && expression.leaves.iter().filter(|l| l.storage == Some(id)).count() == 1;
            alike.then_some(id)
        });
        // A parameter gradient is freed by its own reader; overwriting it would hide it in reports.
        candidates.into_iter().find(|id| self.drafts.storages[id.index()].category != Category::ParameterGradient)
    }

    fn elementwise(&mut self, draft: &Draft, expression: &Expression, output: StorageId) -> Pass {
        let in_place = self.in_place(draft, expression, output);
        let mut operands: Vec<Operand> = Vec::new();
        let mut dtypes: Vec<DType> = Vec::new();
        let mut leaf_bindings = Vec::new();
        let mut storages: Vec<StorageId> = Vec::new();
        let mut bytes = expression.ty.size_bytes() as f64;
        for leaf in &expression.leaves {
            // Leaves of a pass with elements have elements.
            let Some(id) = leaf.storage else { continue };
            let at = storages.iter().position(|s| *s == id).unwrap_or_else(|| {
                storages.push(id);
                operands.push(if in_place == Some(id) {
                    Operand::InPlace { input: id, output }
                } else {
                    Operand::Read(id)
                });
                dtypes.push(leaf.ty.dtype);
                bytes += self.drafts.storages[id.index()].bytes.min(expression.ty.size_bytes()) as f64;
                storages.len() - 1
            });
            leaf_bindings.push(at);
        }
        let output_binding = match in_place.and_then(|id| storages.iter().position(|s| *s == id)) {
            Some(at) => at,
            None => {
                operands.push(Operand::Write(output));
                dtypes.push(expression.ty.dtype);
                operands.len() - 1
            }
        };
        let bound =
            BoundExpression { expression, leaf_bindings: &leaf_bindings, dtypes: &dtypes, output: output_binding };
        let generated = generate(self.graph, self.profile, &bound);
        let name = expression_name(self.graph, expression);
        let words = generated.words.len();
        let kernel = self.kernel_id(&name, generated.source.into(), ("main", Vec::new()), operands.len(), words);
        Pass {
            name,
            kernel,
            operands,
            uniforms: generated.words,
            grid: generated.grid,
            cost: Cost { flops: generated.flops, bytes },
            kind: "elementwise",
            segment: draft.segment,
            phase: draft.phase,
        }
    }

    fn kernel(
        &mut self,
        draft: &Draft,
        kind: &'static str,
        name: &str,
        call: &KernelCall,
        bindings: &[DraftOperand],
    ) -> Result<Pass> {
        let mut source = call.source.to_string();
        let mut operands: Vec<Operand> = Vec::new();
        let mut names: Vec<String> = Vec::new();
        let mut removed = 0;
        for (index, binding) in bindings.iter().enumerate() {
            let (id, operand) = match *binding {
                DraftOperand::Read(id) => (id, Operand::Read(id)),
                DraftOperand::Write(id) => (id, Operand::Write(id)),
                DraftOperand::State(id) => (id, Operand::StateWrite(id)),
            };
            if matches!(operand, Operand::StateWrite(_))
                && !matches!(self.drafts.storages[id.index()].kind, StorageKind::State(_))
            {
                return Err(Error::Argument {
                    op: kind,
                    argument: "state",
                    value: self.drafts.storages[id.index()].name.clone(),
                    detail: "only state (a parameter as Recorder::param gives it) can be written".into(),
                });
            }
            let declared = binding_name(&source, index + 1);
            let seen = operands.iter().position(|o| o.read() == Some(id));
            match (seen, operand, declared) {
                // One storage may be bound once only: both operands share the first binding.
                (Some(at), Operand::Read(_), Some(declared)) => {
                    source = share_binding(&source, index + 1, &declared, &names[at]);
                    removed += 1;
                }
                (_, operand, declared) => {
                    if removed > 0 {
                        source = renumber_binding(&source, index + 1, index + 1 - removed);
                    }
                    operands.push(operand);
                    names.push(declared.unwrap_or_default());
                }
            }
        }
        let words = call.uniforms.len();
        let kernel = self.kernel_id(name, source.into(), ("main", call.constants.clone()), operands.len(), words);
        Ok(Pass {
            name: name.to_owned(),
            kernel,
            operands,
            uniforms: call.uniforms.clone(),
            grid: call.grid,
            cost: call.cost,
            kind,
            segment: draft.segment,
            phase: draft.phase,
        })
    }
}

fn draft_reads(draft: &Draft) -> Vec<StorageId> {
    let mut reads: Vec<StorageId> = match &draft.body {
        Body::Elementwise { expression, .. } => expression.leaves.iter().filter_map(|l| l.storage).collect(),
        Body::Kernel { operands, .. } => operands
            .iter()
            .filter_map(|o| match o {
                DraftOperand::Read(id) | DraftOperand::State(id) => Some(*id),
                DraftOperand::Write(_) => None,
            })
            .collect(),
    };
    reads.sort_unstable();
    reads.dedup();
    reads
}

fn draft_writes(draft: &Draft) -> Vec<StorageId> {
    match &draft.body {
        Body::Elementwise { output, .. } => vec![*output],
        Body::Kernel { operands, .. } => operands
            .iter()
            .filter_map(|o| match o {
                DraftOperand::Write(id) => Some(*id),
                DraftOperand::Read(_) | DraftOperand::State(_) => None,
            })
            .collect(),
    }
}

/// Start and end of the declaration `@group(0) @binding(n) var<storage, ..> NAME: ..;`.
pub(super) fn declaration(source: &str, binding: usize) -> Option<(usize, usize)> {
    let start = source.find(&format!("@group(0) @binding({binding}) var<storage"))?;
    let end = source[start..].find(';')? + start + 1;
    Some((start, end))
}

/// The variable's name of a storage binding.
pub(super) fn binding_name(source: &str, binding: usize) -> Option<String> {
    let (start, end) = declaration(source, binding)?;
    let text = &source[start..end];
    let after = &text[text.find('>')? + 1..];
    Some(after.split(':').next()?.trim().to_owned())
}

/// Drops binding `binding`, whose variable `name` becomes `other`.
fn share_binding(source: &str, binding: usize, name: &str, other: &str) -> String {
    let Some((start, end)) = declaration(source, binding) else { return source.to_owned() };
    let mut text = format!("{}{}", &source[..start], &source[end..]);
    text = replace_identifier(&text, name, other);
    text
}

fn renumber_binding(source: &str, from: usize, to: usize) -> String {
    source.replacen(&format!("@group(0) @binding({from}) "), &format!("@group(0) @binding({to}) "), 1)
}

/// Replaces a whole identifier, outside comments too: names there follow.
fn replace_identifier(source: &str, name: &str, other: &str) -> String {
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find(name) {
        let before = rest[..at].chars().next_back().or(out.chars().next_back());
        let after = rest[at + name.len()..].chars().next();
        let whole = !before.is_some_and(|c| word(c) || c == '.') && !after.is_some_and(word);
        out.push_str(&rest[..at]);
        out.push_str(if whole { other } else { name });
        rest = &rest[at + name.len()..];
    }
    out.push_str(rest);
    out
}
