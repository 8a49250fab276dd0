//! Writing by number along an axis.
//!
//! ```text
//! scatter   y = x; y[.., ids[.., j, ..], ..] = s[.., j, ..], in rising j
//! dx = g where nothing was written, else 0      ds[j] = g where s[j] was taken, else 0
//! ```
//!
//! Which place is taken is found once, by sorting, and saved: where PyTorch's
//! `Tensor.scatter` leaves open which of repeated numbers wins, here the last does.

use super::embedding;
use super::kernel::word;
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::dtype::{DType, TensorType, count};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;

/// `ids [N] -> winners [rows]` (u32): the last place of each number.
#[derive(Debug, Clone, Copy)]
struct ScatterLast {
    rows: usize,
}

/// `x [V], source [N], winners [V], ids [N] -> y [V]`.
#[derive(Debug, Clone, Copy)]
struct Scatter;

/// `g [V], winners [V], ids [N] -> source [N]`.
#[derive(Debug, Clone, Copy)]
struct ScatterGrad;

impl Op for ScatterLast {
    fn name(&self) -> &'static str {
        "scatter_last"
    }
    fn output_types(&self, _: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![TensorType::new(DType::U32, [self.rows])])
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for ScatterLast {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let (places, rows) = (context.inputs[0].ty.shape.element_count(), self.rows as u64);
        let sort = embedding::sort_call(context.profile, self.name(), [places, rows], CallOperand::Input(0))?;
        let last = KernelCall {
            name: self.name(),
            source: include_str!("../../shaders/scatter_last.wgsl").into(),
            constants: Vec::new(),
            operands: vec![CallOperand::ScratchRead(0), CallOperand::ScratchRead(1), CallOperand::Output(0)],
            uniforms: vec![word(rows), 0, 0, 0],
            grid: context.profile.split_grid(rows.div_ceil(64)),
            cost: Cost { flops: 0.0, bytes: 16.0 * rows as f64 },
        };
        Ok(KernelCalls { scratch_bytes: vec![rows * 4, places * 4], calls: vec![sort, last] })
    }
}

impl Op for Scatter {
    fn name(&self) -> &'static str {
        "scatter"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let [source, winners, ids] = [1, 2, 3].map(|i| &call.inputs[i]);
        let g = call.grad()?;
        let kept = if call.needed[0] {
            let written = winners.lt_scalar(word(source.element_count()))?;
            Some(g.masked_fill(&written, 0.0)?)
        } else {
            None
        };
        let taken = if call.needed[1] { Some(g.apply_with(ScatterGrad, &[winners, ids])?) } else { None };
        Ok(vec![kept, taken, None, None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for Scatter {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let rows = context.outputs[0].shape.element_count();
        let places = context.inputs[1].ty.shape.element_count();
        let call = KernelCall {
            name: self.name(),
            source: include_str!("../../shaders/scatter.wgsl").into(),
            constants: Vec::new(),
            operands: (0..3).map(CallOperand::Input).chain([CallOperand::Output(0)]).collect(),
            uniforms: vec![word(rows), word(places), 0, 0],
            grid: context.profile.split_grid(rows.div_ceil(64)),
            cost: Cost { flops: 0.0, bytes: 16.0 * rows as f64 },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

impl Op for ScatterGrad {
    fn name(&self) -> &'static str {
        "scatter_grad"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![TensorType::new(inputs[0].dtype, inputs[2].shape.clone())])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        // What was picked up goes back to where it came from.
        let (g, winners, ids) = (&call.inputs[0], &call.inputs[1], &call.inputs[2]);
        let nothing = g.filled(0.0)?;
        Ok(vec![Some(nothing.apply_with(Scatter, &[call.grad()?, winners, ids])?), None, None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for ScatterGrad {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let places = context.outputs[0].shape.element_count();
        let rows = context.inputs[0].ty.shape.element_count();
        let call = KernelCall {
            name: self.name(),
            source: include_str!("../../shaders/scatter_grad.wgsl").into(),
            constants: Vec::new(),
            operands: (0..3).map(CallOperand::Input).chain([CallOperand::Output(0)]).collect(),
            uniforms: vec![word(places), word(rows), 0, 0],
            grid: context.profile.split_grid(places.div_ceil(64)),
            cost: Cost { flops: 0.0, bytes: 16.0 * places as f64 },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

impl Tensor {
    /// This tensor with `source[.., j, ..]` written at `ids[.., j, ..]` along `axis`;
    /// `source` and `ids` (`i32` or `u32`) have one shape, the tensor's but along `axis`
    /// (`torch.scatter`). Of repeated numbers the last is written; for numbers that are
    /// no place of the axis nothing is.
    ///
    /// # Errors
    /// As [`Tensor::scatter_add`].
    pub fn scatter(&self, axis: isize, ids: &Self, source: &Self) -> Result<Self> {
        const OP: &str = "scatter";
        let Some(flat) = self.scattered(OP, axis, ids, source)? else { return Ok(self.clone()) };
        let (rows, places) = (count(self.dims()), count(ids.dims()));
        let flat = flat.reshape([places])?;
        let winners = flat.apply_with(ScatterLast { rows }, &[])?;
        let (x, source) = (self.reshape([rows])?, source.reshape([places])?);
        x.apply_with(Scatter, &[&source, &winners, &flat])?.reshape(self.shape())
    }

    /// The operands of a scatter checked, and where each element goes; nothing if none does.
    pub(super) fn scattered(&self, op: &'static str, axis: isize, ids: &Self, source: &Self) -> Result<Option<Self>> {
        let at = self.axis(op, axis)?;
        self.expect_float(op, 0)?;
        source.expect_float(op, 2)?;
        if source.dtype() != self.dtype() {
            return Err(Error::DType { op, operand: 2, found: source.dtype(), expected: "the tensor's type" });
        }
        if ids.shape() != source.shape() {
            let shapes = [self, ids, source].iter().map(|t| t.shape().clone()).collect();
            return Err(Error::Shape { op, shapes, detail: "numbers and source must have one shape".into() });
        }
        let flat = self.flat_numbers(op, at, ids)?;
        Ok((ids.element_count() > 0 && self.element_count() > 0).then_some(flat))
    }
}
