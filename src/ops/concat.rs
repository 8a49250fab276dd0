//! Concatenation along an axis: `cat` along one that is there, `stack` along a
//! new one.
//!
//! ```text
//! y = [x0, x1, ..]      dxk = the part of g where xk lies
//! ```
//!
//! A pass joins as many operands as a dispatch may bind beside its output; more
//! become a tree of passes, each of which writes a storage of its own.

use std::borrow::{Borrow, Cow};

use super::kernel::word;
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::dtype::{Shape, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;
use crate::shared::Shared;

const TEXT: &str = include_str!("../../shaders/cat.wgsl");

/// Operands of one pass: WebGPU's floor of 8 storage bindings, less the output
/// and the one left spare.
const WIDEST: usize = 6;

/// `x0, x1, .. -> y`, all alike but for the extent of `axis`; none without elements.
#[derive(Debug, Clone, Copy)]
struct Cat {
    axis: usize,
}

impl Op for Cat {
    fn name(&self) -> &'static str {
        "cat"
    }

    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let mut ty = inputs[0].clone();
        ty.shape.0[self.axis] = inputs.iter().fold(0, |sum: usize, t| sum.saturating_add(t.shape.0[self.axis]));
        Ok(vec![ty])
    }

    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let g = call.grad()?;
        let mut start = 0;
        let mut grads = Vec::with_capacity(call.inputs.len());
        for (x, needed) in call.inputs.iter().zip(call.needed) {
            let extent = x.dims()[self.axis];
            grads.push(if *needed { Some(g.narrow(self.axis as isize, start, extent)?) } else { None });
            start += extent;
        }
        Ok(grads)
    }

    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for Cat {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let dims = context.outputs[0].shape.dims();
        let rows: u64 = dims[..self.axis].iter().map(|&d| d as u64).product();
        let inner: u64 = dims[self.axis + 1..].iter().map(|&d| d as u64).product();
        let widths: Vec<u64> = context.inputs.iter().map(|x| x.ty.shape.dims()[self.axis] as u64 * inner).collect();
        let wide = widths.iter().all(|w| w.is_multiple_of(4));
        let lanes = if wide { 4 } else { 1 };
        let total: u64 = widths.iter().sum::<u64>() / lanes;
        let mut uniforms = vec![word(rows * total), word(total), 0, 0];
        let mut start = 0;
        for width in &widths {
            uniforms.extend([word(start), word(width / lanes), 0, 0]);
            start += width / lanes;
        }
        uniforms.resize(4 + 4 * WIDEST, 0);
        let mut operands = vec![CallOperand::Output(0)];
        operands.extend((0..widths.len()).map(CallOperand::Input));
        let call = KernelCall {
            name: self.name(),
            source: text(widths.len(), wide),
            constants: Vec::new(),
            operands,
            uniforms,
            grid: context.profile.split_grid((rows * total).div_ceil(64)),
            cost: Cost { flops: 0.0, bytes: 8.0 * (rows * total * lanes) as f64 },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

/// The text for `operands` operands: each line that names one beyond is left out.
fn text(operands: usize, wide: bool) -> Cow<'static, str> {
    let absent: Vec<[String; 2]> = (operands..WIDEST).map(|k| [format!(" x{k}:"), format!(" x{k}[")]).collect();
    let kept = TEXT.lines().filter(|line| !absent.iter().flatten().any(|name| line.contains(name.as_str())));
    let text = kept.collect::<Vec<_>>().join("\n") + "\n";
    if wide { text.into() } else { text.replace("alias Block = vec4<u32>;", "alias Block = u32;").into() }
}

impl Tensor {
    /// The tensors one after the other along `axis` (negative ones count from
    /// the end). They are alike but for that axis; those without elements along
    /// it are left out. Any data type.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty list or an axis that is not there,
    /// [`Error::Shape`] or [`Error::DType`] if the tensors do not fit,
    /// [`Error::OtherRecording`] if they belong to several recordings.
    pub fn cat<T: Borrow<Self>>(tensors: &[T], axis: isize) -> Result<Self> {
        const OP: &str = "cat";
        let tensors: Vec<&Self> = tensors.iter().map(Borrow::borrow).collect();
        let Some(&first) = tensors.first() else {
            return Err(Error::Argument {
                op: OP,
                argument: "tensors",
                value: "[]".into(),
                detail: "there must be at least one".into(),
            });
        };
        let axis = first.axis(OP, axis)?;
        let others = |t: &Self| -> Vec<usize> {
            t.dims().iter().enumerate().filter(|(a, _)| *a != axis).map(|(_, &d)| d).collect()
        };
        for (operand, tensor) in tensors.iter().enumerate() {
            if !first.recorder().is_same(tensor.recorder()) {
                return Err(Error::OtherRecording { op: OP, operand });
            }
            if tensor.dtype() != first.dtype() {
                return Err(Error::DType { op: OP, operand, found: tensor.dtype(), expected: "the type of operand 0" });
            }
            if tensor.rank() != first.rank() || others(tensor) != others(first) {
                return Err(Error::Shape {
                    op: OP,
                    shapes: tensors.iter().map(|t| t.shape().clone()).collect(),
                    detail: format!("operand {operand} differs in another axis than {axis}"),
                });
            }
        }
        let mut level: Vec<Self> = tensors.iter().filter(|t| t.dims()[axis] > 0).map(|&t| t.clone()).collect();
        while level.len() > 1 {
            let joined: Result<Vec<Self>> = level.chunks(WIDEST).map(|group| join(group, axis)).collect();
            level = joined?;
        }
        Ok(level.pop().unwrap_or_else(|| first.clone()))
    }

    /// The tensors, all of one shape, along a new axis at place `axis` of the
    /// result (negative ones count from its end).
    ///
    /// # Errors
    /// As [`Tensor::cat`].
    pub fn stack<T: Borrow<Self>>(tensors: &[T], axis: isize) -> Result<Self> {
        let tensors: Vec<&Self> = tensors.iter().map(Borrow::borrow).collect();
        let rank = tensors.first().map_or(0, |t| t.rank() as isize);
        let from_start = if axis < 0 { axis + rank + 1 } else { axis };
        if !(0..=rank).contains(&from_start) {
            return Err(Error::Argument {
                op: "stack",
                argument: "axis",
                value: axis.to_string(),
                detail: format!("the result has the axes {}..{}", -rank - 1, rank + 1),
            });
        }
        let at = from_start.unsigned_abs();
        let with_axis: Result<Vec<Self>> = tensors
            .iter()
            .map(|t| {
                let mut dims = t.dims().to_vec();
                dims.insert(at.min(dims.len()), 1);
                t.reshape(Shape(dims))
            })
            .collect();
        Self::cat(&with_axis?, from_start)
    }
}

/// One pass of [`Tensor::cat`].
fn join(group: &[Tensor], axis: usize) -> Result<Tensor> {
    let [only] = group else {
        let operands: Vec<&Tensor> = group.iter().collect();
        return Ok(group[0].recorder().record(Shared::new(Cat { axis }), &operands)?.swap_remove(0));
    };
    Ok(only.clone())
}
