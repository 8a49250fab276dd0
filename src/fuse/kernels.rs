//! Drafts of the dispatches of ops that have kernels of their own.
//!
//! Kernels are written for `f32`. Where operands are `f16` their texts are made to
//! read and store halves (see [`super::half`]); an operand for which that cannot
//! be done goes through an `f32` copy in scratch.

use super::draft::{Body, Builder, Draft, DraftOperand, Placed};
use super::half::{narrowed, with_functions};
use super::program::{Category, Phase, SegmentId, Storage, StorageId, StorageKind};
use crate::dtype::{DType, Layout, TensorType};
use crate::error::{Error, Result};
use crate::graph::{NodeId, ValueId};
use crate::ops::{CallOperand, EpilogueCode, KernelCalls, KernelContext, KernelOp, OperandView};

/// A fused epilogue: its text, the storages that it reads, the suffix of the name.
pub(super) type EpilogueParts<'e> = (&'e EpilogueCode, &'e [StorageId], &'e str);

/// Which operands of an op are halves that its kernels read and store as they lie.
#[derive(Debug, Default)]
struct Halves {
    inputs: Vec<bool>,
    outputs: Vec<bool>,
}

impl Halves {
    fn has(&self, operand: CallOperand) -> bool {
        match operand {
            CallOperand::Input(i) | CallOperand::State(i) => self.inputs[i],
            CallOperand::Output(i) | CallOperand::OutputRead(i) => self.outputs[i],
            CallOperand::Scratch(_) | CallOperand::ScratchRead(_) => false,
        }
    }

    /// Takes out what some call's text does not allow.
    fn limit(&mut self, calls: &KernelCalls) {
        for call in &calls.calls {
            for (index, &operand) in call.operands.iter().enumerate() {
                if self.has(operand) && narrowed(&call.source, index + 1).is_none() {
                    match operand {
                        CallOperand::Input(i) | CallOperand::State(i) => self.inputs[i] = false,
                        CallOperand::Output(i) | CallOperand::OutputRead(i) => self.outputs[i] = false,
                        CallOperand::Scratch(_) | CallOperand::ScratchRead(_) => {}
                    }
                }
            }
        }
    }

    /// Rewrites the texts; what is read and stored is half as long.
    fn apply(&self, calls: &mut KernelCalls, inputs: &[Placed], outputs: &[TensorType]) {
        for call in &mut calls.calls {
            for (index, &operand) in call.operands.iter().enumerate().filter(|(_, o)| self.has(**o)) {
                let Some(text) = narrowed(&call.source, index + 1) else { continue };
                call.source = with_functions(text).into();
                let bytes = match operand {
                    CallOperand::Input(i) | CallOperand::State(i) => inputs[i].ty.data_bytes(),
                    CallOperand::Output(i) | CallOperand::OutputRead(i) => outputs[i].data_bytes(),
                    CallOperand::Scratch(_) | CallOperand::ScratchRead(_) => 0,
                };
                // The op counted four bytes per element.
                call.cost.bytes = (call.cost.bytes - bytes as f64).max(bytes as f64);
            }
        }
    }
}

/// The type as kernels are written for it.
fn widened(ty: &TensorType) -> TensorType {
    let dtype = if ty.dtype == DType::F16 { DType::F32 } else { ty.dtype };
    TensorType { dtype, shape: ty.shape.clone() }
}

impl Builder<'_> {
    /// A kernel op's dispatches, storing into the values `outputs`.
    pub(super) fn kernel(
        &mut self,
        id: NodeId,
        op: &dyn KernelOp,
        inputs: &[ValueId],
        epilogue: Option<EpilogueParts<'_>>,
        outputs: &[ValueId],
    ) -> Result<()> {
        let node = self.graph.node(id);
        let (name, segment, phase) = (node.op.name(), node.segment, node.phase);
        let writes = node.op.state_writes();
        let mut operands = Vec::with_capacity(inputs.len());
        for (index, &v) in inputs.iter().enumerate() {
            let placed = self.placed(v)?;
            let direct = op.accepts(index, &placed.layout) || writes.contains(&index);
            operands.push(if direct {
                placed
            } else {
                self.copy(&placed, segment, phase, Category::Workspace, format!("{name}.copy"))?
            });
        }
        let output_storages: Vec<Option<StorageId>> =
            outputs.iter().map(|v| self.value_storage(*v, name, phase)).collect();
        if !outputs.is_empty() && output_storages.iter().all(Option::is_none) {
            return Ok(());
        }
        let output_types: Vec<TensorType> = outputs.iter().map(|v| self.graph.value(*v).ty.clone()).collect();
        let code = epilogue.map(|(code, _, _)| code);
        let (calls, halves) =
            self.calls_for_halves(op, name, (segment, phase), writes, &mut operands, &output_types, code)?;
        let scratch: Vec<StorageId> = calls
            .scratch_bytes
            .iter()
            .enumerate()
            .map(|(i, &bytes)| self.scratch(format!("{name}.scratch{i}"), bytes))
            .collect();
        // Where halves cannot be stored, another pass packs them.
        let mut stored = output_storages.clone();
        for (index, ty) in output_types.iter().enumerate() {
            if ty.dtype == DType::F16 && !halves.outputs[index] && stored[index].is_some() {
                stored[index] = Some(self.scratch(format!("{name}.wide{index}"), widened(ty).size_bytes()));
            }
        }
        let last = calls.calls.len().saturating_sub(1);
        for (index, call) in calls.calls.into_iter().enumerate() {
            let mut bound: Vec<DraftOperand> = Vec::with_capacity(call.operands.len());
            for operand in &call.operands {
                bound.extend(match *operand {
                    CallOperand::Input(i) => operands[i].storage.map(DraftOperand::Read),
                    CallOperand::State(i) => operands[i].storage.map(DraftOperand::State),
                    CallOperand::Output(i) => stored[i].map(DraftOperand::Write),
                    CallOperand::OutputRead(i) => stored[i].map(DraftOperand::Read),
                    CallOperand::Scratch(i) => Some(DraftOperand::Write(scratch[i])),
                    CallOperand::ScratchRead(i) => Some(DraftOperand::Read(scratch[i])),
                });
            }
            let mut full_name = call.name.to_owned();
            if index == last {
                if let Some((_, storages, suffix)) = epilogue {
                    bound.extend(storages.iter().map(|s| DraftOperand::Read(*s)));
                    full_name.push_str(suffix);
                }
            }
            let body = Body::Kernel { kind: name, name: full_name, call, operands: bound };
            self.drafts.passes.push(Draft { segment, phase, body });
        }
        for (index, ty) in output_types.iter().enumerate() {
            if let (Some(wide), Some(output)) = (stored[index], output_storages[index]) {
                if wide != output {
                    let from = Placed { storage: Some(wide), layout: Layout::contiguous(&ty.shape), ty: widened(ty) };
                    self.copy_to(&from, ty, (segment, phase), output);
                }
            }
        }
        Ok(())
    }

    fn scratch(&mut self, name: String, bytes: u64) -> StorageId {
        let id = StorageId(self.drafts.storages.len() as u32);
        let (kind, category) = (StorageKind::Transient, Category::Workspace);
        self.drafts.storages.push(Storage { name, bytes, kind, category, named: false, mark: None });
        id
    }

    /// The calls, their texts fit for the halves among the operands; those that
    /// no text can be made to read are replaced by `f32` copies.
    #[expect(clippy::too_many_arguments, reason = "one call site; a struct for it would only rename them")]
    fn calls_for_halves(
        &mut self,
        op: &dyn KernelOp,
        name: &'static str,
        (segment, phase): (Option<SegmentId>, Phase),
        writes: &[usize],
        operands: &mut [Placed],
        outputs: &[TensorType],
        epilogue: Option<&EpilogueCode>,
    ) -> Result<(KernelCalls, Halves)> {
        loop {
            let types: Vec<TensorType> = operands.iter().map(|p| widened(&p.ty)).collect();
            let views: Vec<OperandView<'_>> =
                types.iter().zip(&*operands).map(|(ty, p)| OperandView { ty, layout: &p.layout }).collect();
            let output_types: Vec<TensorType> = outputs.iter().map(widened).collect();
            let is_half = |ty: &TensorType| ty.dtype == DType::F16;
            let mut halves = Halves {
                inputs: operands.iter().map(|p| is_half(&p.ty)).collect(),
                outputs: outputs.iter().map(is_half).collect(),
            };
            let context = KernelContext {
                profile: self.profile,
                inputs: &views,
                outputs: &output_types.iter().collect::<Vec<_>>(),
                vector_stores: halves.outputs.contains(&true),
                epilogue,
            };
            let mut calls = op.kernels(&context)?;
            let wanted = halves.inputs.clone();
            halves.limit(&calls);
            let refused: Vec<usize> = (0..operands.len()).filter(|&i| wanted[i] && !halves.inputs[i]).collect();
            if refused.is_empty() {
                halves.apply(&mut calls, operands, outputs);
                return Ok((calls, halves));
            }
            for index in refused {
                if writes.contains(&index) {
                    let expected = "a state of f32, i32, u32 or bool; keep parameters in f32 and cast what is read";
                    return Err(Error::DType { op: name, operand: index, found: DType::F16, expected });
                }
                let from = operands[index].clone();
                let label = format!("{name}.wide");
                operands[index] = self.copy_as(&from, DType::F32, (segment, phase), Category::Workspace, label)?;
            }
        }
    }
}
