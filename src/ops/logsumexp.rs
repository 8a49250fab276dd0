//! The logarithm of a sum of exponentials, over any axes, without overflow.
//!
//! ```text
//! logsumexp  y = log(sum e^x)      dx = g e^(x - y), 0 where y is -infinity
//! ```
//!
//! The gradient is told from the input and the output; no softmax is stored. It
//! is recorded with simple ops, so it can be differentiated again.

use super::kernel::{check_rounds, word};
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::dtype::TensorType;
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;

const TEXT: &str = include_str!("../../shaders/logsumexp.wgsl");

/// `[O, R, I] -> [O, I]`, R > 0.
#[derive(Debug, Clone, Copy)]
struct LogSumExp;

impl Op for LogSumExp {
    fn name(&self) -> &'static str {
        "logsumexp"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        match inputs[0].shape.dims() {
            &[outer, extent, inner] if extent > 0 => Ok(vec![TensorType::new(inputs[0].dtype, [outer, inner])]),
            _ => {
                let shapes = vec![inputs[0].shape.clone()];
                Err(Error::Shape { op: self.name(), shapes, detail: "it must be [O, R, I] with R > 0".into() })
            }
        }
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (x, y, g) = (&call.inputs[0], &call.outputs[0], call.grad()?);
        let (outer, inner) = (x.dims()[0], x.dims()[2]);
        let along = |t: &Tensor| t.reshape([outer, 1, inner]);
        let nothing = y.eq_scalar(f32::NEG_INFINITY)?;
        // Where y is -infinity every x is too, and e^(x - 0) is 0.
        let away = x.sub(&along(&y.masked_fill(&nothing, 0.0)?)?)?;
        Ok(vec![Some(away.exp()?.mul(&along(g)?)?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for LogSumExp {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let ty = context.inputs[0].ty;
        let dims = ty.shape.dims();
        let (lines, extent) = ((dims[0] * dims[2]) as u64, dims[1] as u64);
        check_rounds(context.profile, self.name(), extent, 2 * extent)?;
        let elements = ty.shape.element_count() as f64;
        Ok(KernelCalls {
            scratch_bytes: Vec::new(),
            calls: vec![KernelCall {
                name: self.name(),
                source: TEXT.into(),
                constants: Vec::new(),
                operands: vec![CallOperand::Input(0), CallOperand::Output(0)],
                uniforms: vec![word(lines), word(dims[2] as u64), word(extent), f32::NEG_INFINITY.to_bits()],
                grid: context.profile.split_grid(lines.div_ceil(64)),
                cost: Cost { flops: 10.0 * elements, bytes: 4.0 * (2.0 * elements + lines as f64) },
            }],
        })
    }
}

impl Tensor {
    /// `log(sum(exp(x)))` over `axes` (all axes if the list is empty; negative
    /// ones count from the end), computed without overflow. `keep` leaves the
    /// reduced axes with extent 1. -infinity where every element is, or over nothing.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there or named twice,
    /// [`Error::DType`] for other types than `f32`.
    pub fn logsumexp(&self, axes: &[isize], keep: bool) -> Result<Self> {
        self.expect_float("logsumexp", 0)?;
        let mask = self.axis_mask("logsumexp", axes)?;
        if self.reduced_count(&mask) == 0 {
            return self.recorder().full_float(self.dtype(), self.reduced_dims(&mask, keep), f32::NEG_INFINITY);
        }
        self.reduce_groups(LogSumExp, &mask, keep)
    }
}
