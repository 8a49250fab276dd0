//! The norm of all gradients together, and clipping by it or by value.
//!
//! ```text
//! norm        n = sqrt(sum of squares over every gradient)
//! clip_norm   g <- g min(1, max_norm / (n + 1e-6))
//! clip_value  g <- min(max(g, -value), value)
//! ```
//!
//! as PyTorch's `clip_grad_norm_` and `clip_grad_value_` have it. A gradient that
//! is not finite stays so where it can, and is counted in any case.

use super::Gradients;
use super::group::at_least_zero;
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::{Recorder, Tensor};
use crate::ops::kernel::{specialised, split_chunks, word};
use crate::ops::{
    CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op, column_sums,
};
use crate::shared::Shared;

const TEXT: &str = include_str!("../../shaders/square_sum.wgsl");

/// Gradients after clipping, and what they were before.
#[derive(Debug, Clone)]
pub struct Clipped {
    /// The clipped gradients, to be applied.
    pub gradients: Gradients,
    /// The norm of all gradients before clipping, `f32 []`.
    pub total_norm: Tensor,
    /// How many elements were NaN or infinite before clipping, `u32 []`.
    pub non_finite: Tensor,
}

/// `x [N] -> f32 [1]`, the sum of squares, and `u32 [1]`, the number of
/// elements that are not finite.
#[derive(Debug)]
struct SquareSum;

impl Op for SquareSum {
    fn name(&self) -> &'static str {
        "square_sum"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        if inputs[0].dtype != DType::F32 {
            return Err(Error::DType { op: "square_sum", operand: 0, found: inputs[0].dtype, expected: "f32" });
        }
        Ok([DType::F32, DType::U32].map(|dtype| TensorType::new(dtype, [1])).to_vec())
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Err(Error::NoGradient { op: "square_sum", detail: "use x.sqr() and sum to differentiate it".into() })
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for SquareSum {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let elements = context.inputs[0].ty.shape.element_count();
        let wide = elements.is_multiple_of(4);
        let blocks = if wide { elements / 4 } else { elements };
        let (chunks, chunk) = split_chunks(context.profile, 1, blocks, 1);
        let mut result = KernelCalls::default();
        let staged = chunks > 1;
        if staged {
            result.scratch_bytes.extend([chunks * 4, chunks * 4]);
        }
        let place = |i: usize| if staged { CallOperand::Scratch(i) } else { CallOperand::Output(i) };
        result.calls.push(KernelCall {
            name: "square_sum",
            source: specialised(TEXT, DType::F32, wide),
            constants: Vec::new(),
            operands: vec![CallOperand::Input(0), place(0), place(1)],
            uniforms: [blocks, chunks, chunk, 0].map(word).to_vec(),
            grid: context.profile.split_grid(chunks.div_ceil(64)),
            cost: Cost { flops: 3.0 * elements as f64, bytes: 4.0 * elements as f64 },
        });
        if staged {
            for (index, dtype) in [DType::F32, DType::U32].into_iter().enumerate() {
                let ends = (CallOperand::ScratchRead(index), CallOperand::Output(index));
                column_sums(context.profile, "square_sum", dtype, ends, [chunks, 1], &mut result);
            }
        }
        Ok(result)
    }
}

/// The sum of squares and the number of elements that are not finite, over
/// several tensors, as scalars.
fn square_sums(recorder: &Recorder, tensors: &[&Tensor]) -> Result<(Tensor, Tensor)> {
    let (mut sums, mut counts) = (Vec::new(), Vec::new());
    for tensor in tensors.iter().filter(|t| t.element_count() > 0) {
        let flat = tensor.reshape([tensor.element_count() as usize])?;
        let mut outputs = recorder.record(Shared::new(SquareSum), &[&flat])?.into_iter();
        sums.extend(outputs.next());
        counts.extend(outputs.next());
    }
    if sums.is_empty() {
        return Ok((recorder.zeros([])?, recorder.full_u32([], 0)?));
    }
    let total = |parts: &[Tensor]| Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0)?.sum(&[], false);
    Ok((total(&sums)?, total(&counts)?))
}

impl Gradients {
    /// The square root of the sum of squares over every gradient, `f32 []`, and how
    /// many elements are NaN or infinite, `u32 []`. Reads each gradient once and
    /// makes nothing of its size.
    ///
    /// # Errors
    /// [`Error::DType`] for a gradient that is not f32.
    pub fn norm(&self, recorder: &Recorder) -> Result<(Tensor, Tensor)> {
        let tensors: Vec<&Tensor> = self.entries.iter().map(|(_, gradient)| gradient).collect();
        let (squares, non_finite) = square_sums(recorder, &tensors)?;
        Ok((squares.sqrt()?, non_finite))
    }

    /// Multiplies every gradient by `min(1, max_norm / (total_norm + 1e-6))`, as
    /// PyTorch's `clip_grad_norm_`. A total norm of NaN makes every gradient NaN,
    /// an infinite one makes 0 of what is finite and NaN of what is not; read
    /// `total_norm` or `non_finite` to know.
    ///
    /// All gradients live until the norm is known.
    ///
    /// # Errors
    /// [`Error::Argument`] for a negative `max_norm`; as [`Gradients::norm`].
    pub fn clip_norm(&self, recorder: &Recorder, max_norm: f64) -> Result<Clipped> {
        at_least_zero("clip_norm", "max_norm", max_norm)?;
        let (total_norm, non_finite) = self.norm(recorder)?;
        // clamp leaves NaN as it is.
        let factor = total_norm.add_scalar(1e-6_f32)?.rdiv_scalar(max_norm as f32)?.clamp(0.0, 1.0)?;
        let gradients = self.map(|_, gradient| gradient.mul(&factor))?;
        Ok(Clipped { gradients, total_norm, non_finite })
    }

    /// Limits every element to `-value..=value`, as PyTorch's `clip_grad_value_`.
    /// NaN stays NaN; infinities become `value`, but are counted in `non_finite`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a negative `value`; as [`Gradients::norm`].
    pub fn clip_value(&self, recorder: &Recorder, value: f64) -> Result<Clipped> {
        at_least_zero("clip_value", "value", value)?;
        let (total_norm, non_finite) = self.norm(recorder)?;
        let gradients = self.map(|_, gradient| gradient.clamp(-value as f32, value as f32))?;
        Ok(Clipped { gradients, total_norm, non_finite })
    }
}
