//! Softmax and its logarithm along one axis.
//!
//! ```text
//! softmax      y = exp(x - m) / sum exp(x - m)      dx = y * (g - sum(g * y))
//! log_softmax  y = x - m - log(sum exp(x - m))      dx = g - exp(y) * sum(g)
//!              m = the largest x along the axis
//! ```
//!
//! Gradients are kernels of their own that read y, so x need not be kept.
//! They have gradient rules built from simple ops; with h the gradient of dx:
//!
//! ```text
//! softmax      dg = y * (h - sum(h * y))      dy = h * (g - sum(g * y)) - g * sum(h * y)
//! log_softmax  dg = h - sum(h * exp(y))       dy = -h * exp(y) * sum(g)
//! ```
//!
//! Where every element along the axis is -infinity, softmax is 0 and its
//! logarithm -infinity; where every one is a mask of -3.4e38, softmax is uniform.
//!
//! The kernels see `[O, R, I]` and run along R; with I = 1 one invocation walks
//! a row in blocks of four, else a block of four columns.

use super::kernel::{check_rounds, specialised, word};
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::dtype::{DType, TensorType, count};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;

const ROWS: &str = include_str!("../../shaders/softmax_rows.wgsl");
const COLUMNS: &str = include_str!("../../shaders/softmax_columns.wgsl");
const GRAD_ROWS: &str = include_str!("../../shaders/softmax_grad_rows.wgsl");
const GRAD_COLUMNS: &str = include_str!("../../shaders/softmax_grad_columns.wgsl");

/// `[O, R, I] -> [O, R, I]`.
#[derive(Debug, Clone, Copy)]
struct Softmax {
    log: bool,
}

/// `y, g -> dx`, all `[O, R, I]`.
#[derive(Debug, Clone, Copy)]
struct SoftmaxGrad {
    log: bool,
}

fn same_type(op: &'static str, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
    if inputs.iter().any(|t| t.shape != inputs[0].shape || t.shape.rank() != 3) {
        let shapes = inputs.iter().map(|t| t.shape.clone()).collect();
        return Err(Error::Shape { op, shapes, detail: "they must be [O, R, I] and equal".into() });
    }
    Ok(vec![inputs[0].clone()])
}

/// The one dispatch of either op.
fn call(
    context: &KernelContext<'_>,
    name: &'static str,
    texts: [&'static str; 2],
    log: bool,
    operands: Vec<CallOperand>,
) -> Result<KernelCalls> {
    let dims = context.outputs[0].shape.dims();
    let (outer, reduced, inner) = (dims[0] as u64, dims[1] as u64, dims[2] as u64);
    let rows = inner == 1;
    let wide = if rows { reduced } else { inner }.is_multiple_of(4);
    let lanes = if wide { 4 } else { 1 };
    let (count, words) = if rows {
        (outer, [outer, 1, reduced / lanes, 0])
    } else {
        (outer * inner / lanes, [outer * inner / lanes, inner / lanes, reduced, 0])
    };
    // As many walks along the axis as the texts have, the first of rows by fours.
    let walks = if operands.len() == 2 { 3 } else { 2 };
    let rounds = if rows { (walks - 1) * reduced / lanes + reduced / lanes / 4 + 3 } else { walks * reduced };
    check_rounds(context.profile, name, reduced, rounds)?;
    let elements = (outer * reduced * inner) as f64;
    let bytes = 4.0 * elements * operands.len() as f64;
    let call = KernelCall {
        name,
        source: specialised(texts[usize::from(!rows)], DType::F32, wide),
        constants: vec![("LOG", f64::from(u8::from(log)))],
        operands,
        uniforms: words.map(word).to_vec(),
        grid: context.profile.split_grid(count.div_ceil(64)),
        cost: Cost { flops: 12.0 * elements, bytes },
    };
    Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
}

impl Op for Softmax {
    fn name(&self) -> &'static str {
        if self.log { "log_softmax" } else { "softmax" }
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        same_type(self.name(), inputs)
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let dx = call.outputs[0].apply_with(SoftmaxGrad { log: self.log }, &[call.grad()?])?;
        Ok(vec![Some(dx)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for Softmax {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let operands = vec![CallOperand::Input(0), CallOperand::Output(0)];
        call(context, self.name(), [ROWS, COLUMNS], self.log, operands)
    }
}

impl Op for SoftmaxGrad {
    fn name(&self) -> &'static str {
        if self.log { "log_softmax_grad" } else { "softmax_grad" }
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        same_type(self.name(), inputs)
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (y, g, h) = (&call.inputs[0], &call.inputs[1], call.grad()?);
        let along = |t: &Tensor| t.sum(&[1], true);
        let wanted = |operand: usize| call.needed[operand];
        if self.log {
            let p = y.exp()?;
            let hp = h.mul(&p)?;
            let dy = if wanted(0) { Some(hp.mul(&along(g)?)?.neg()?) } else { None };
            let dg = if wanted(1) { Some(h.sub(&along(&hp)?)?) } else { None };
            return Ok(vec![dy, dg]);
        }
        let dy = if wanted(0) {
            let first = h.mul(&g.sub(&along(&g.mul(y)?)?)?)?;
            Some(first.sub(&g.mul(&along(&h.mul(y)?)?)?)?)
        } else {
            None
        };
        let dg = if wanted(1) { Some(y.apply_with(*self, &[h])?) } else { None };
        Ok(vec![dy, dg])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for SoftmaxGrad {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let operands = vec![CallOperand::Input(0), CallOperand::Input(1), CallOperand::Output(0)];
        call(context, self.name(), [GRAD_ROWS, GRAD_COLUMNS], self.log, operands)
    }
}

impl Tensor {
    /// `exp(x) / sum(exp(x))` along `axis` (negative ones count from the end),
    /// computed without overflow. Where every element along the axis is
    /// -infinity the result is 0.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there, [`Error::DType`] for
    /// other types than `f32`.
    pub fn softmax(&self, axis: isize) -> Result<Self> {
        self.softmax_along(Softmax { log: false }, axis)
    }

    /// The logarithm of [`Tensor::softmax`], computed without overflow. Where
    /// every element along the axis is -infinity the result is -infinity.
    ///
    /// # Errors
    /// As [`Tensor::softmax`].
    pub fn log_softmax(&self, axis: isize) -> Result<Self> {
        self.softmax_along(Softmax { log: true }, axis)
    }

    fn softmax_along(&self, op: Softmax, axis: isize) -> Result<Self> {
        self.expect_float(op.name(), 0)?;
        let axis = self.axis(op.name(), axis)?;
        let dims = self.dims();
        let [outer, inner] = [&dims[..axis], &dims[axis + 1..]].map(count);
        self.reshape([outer, dims[axis], inner])?.apply(op)?.reshape(self.shape().clone())
    }
}
