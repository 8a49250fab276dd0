//! Layer norm over the last axis, `[.., C]`.
//!
//! ```text
//! xh = (x - mean) * rstd      rstd = 1 / sqrt(var + eps)      y = xh * weight + bias
//! with a = g * weight and P(v) = v - mean(v) - xh * mean(v * xh), means over C:
//! dx = rstd * P(a)      dweight = sum over rows of g * xh      dbias = sum over rows of g
//! ```
//!
//! The forward pass hands mean and rstd on, one number per row each; backward
//! reads them and x. The sums over rows go through partial sums of a few chunks
//! of rows; nothing of size `[rows, C]` is made besides dx.
//!
//! Of an `f16` x, weight and bias may be `f32`; mean, rstd and the sums are in any case.
//!
//! The gradient kernels have rules of their own, built from simple ops and from
//! themselves, so layer norm can be differentiated any number of times. Those
//! rules give the whole derivative with respect to x, that through mean and rstd
//! included, and nothing for mean and rstd. With h the gradient of dx, and `dx(v)`
//! the kernel with weights of 1, which is rstd * P(v):
//!
//! ```text
//! dg = dx(h) * weight      dweight = sum over rows of dx(h) * g
//! e = -rstd * (h * mean(a * xh) + a * mean(h * xh))
//! d2x = dx(e) - xh * rstd * mean(h * dx)
//! ```

use super::kernel::{check_rounds, specialised, split_column, word};
use super::reduce::column_sums;
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::dtype::{DType, TensorType, count};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;
use crate::shared::Shared;

const FORWARD: &str = include_str!("../../shaders/layer_norm.wgsl");
const GRAD: &str = include_str!("../../shaders/layer_norm_grad.wgsl");
const PARAMS: &str = include_str!("../../shaders/layer_norm_params.wgsl");

/// `x [N, C], weight [C], bias [C] -> y [N, C], mean [N], rstd [N]`.
#[derive(Debug, Clone, Copy)]
struct LayerNorm {
    eps: f32,
}

/// `x, weight, mean, rstd, g -> dx`.
#[derive(Debug, Clone, Copy)]
struct LayerNormGrad;

/// `x, mean, rstd, g -> dweight, dbias`.
#[derive(Debug, Clone, Copy)]
struct LayerNormParams;

/// Rows, columns and whether columns come in fours.
fn extents(ty: &TensorType) -> (u64, u64, bool) {
    let (rows, columns) = (ty.shape.dims()[0] as u64, ty.shape.dims()[1] as u64);
    (rows, columns, columns.is_multiple_of(4))
}

fn blocks(columns: u64, wide: bool) -> u64 {
    if wide { columns / 4 } else { columns }
}

impl Op for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let rows = inputs[0].shape.dims()[0];
        let per_row = TensorType::new(DType::F32, [rows]);
        Ok(vec![inputs[0].clone(), per_row.clone(), per_row])
    }

    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (x, weight) = (&call.inputs[0], &call.inputs[1]);
        let (mean, rstd) = (&call.outputs[1], &call.outputs[2]);
        let mut dx: Option<Tensor> = None;
        let mut add = |t: Tensor| -> Result<()> {
            dx = Some(match dx.take() {
                Some(sum) => sum.add(&t)?,
                None => t,
            });
            Ok(())
        };
        let (mut dweight, mut dbias) = (None, None);
        if let Some(g) = &call.grads[0] {
            if call.needed[0] {
                add(x.apply_with(LayerNormGrad, &[weight, mean, rstd, g])?)?;
            }
            if call.needed[1] {
                let mut both = x.recorder().record(Shared::new(LayerNormParams), &[x, mean, rstd, g])?;
                dbias = both.pop().map(|t| t.to_dtype(call.inputs[2].dtype())).transpose()?;
                dweight = both.pop().map(|t| t.to_dtype(weight.dtype())).transpose()?;
            } else if call.needed[2] {
                dbias = Some(g.sum(&[0], false)?.to_dtype(call.inputs[2].dtype())?);
            }
        }
        // Only where a gradient was differentiated again.
        let per_column = 1.0 / x.dims()[1] as f32;
        let (rows, shape) = (x.dims()[0], x.shape().clone());
        if let (Some(g), true) = (&call.grads[1], call.needed[0]) {
            add(g.mul_scalar(per_column)?.reshape([rows, 1])?.broadcast_to(shape.clone())?.to_dtype(x.dtype())?)?;
        }
        if let (Some(g), true) = (&call.grads[2], call.needed[0]) {
            let factor = g.mul(rstd)?.mul(rstd)?.mul_scalar(-per_column)?.reshape([rows, 1])?;
            add(normalised(x, mean, rstd)?.mul(&factor)?.to_dtype(x.dtype())?)?;
        }
        Ok(vec![dx, dweight, dbias])
    }

    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

/// xh, as simple ops.
fn normalised(x: &Tensor, mean: &Tensor, rstd: &Tensor) -> Result<Tensor> {
    let rows = x.dims()[0];
    x.to_f32()?.sub(&mean.reshape([rows, 1])?)?.mul(&rstd.reshape([rows, 1])?)
}

impl KernelOp for LayerNorm {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let (rows, columns, wide) = extents(context.inputs[0].ty);
        let width = blocks(columns, wide);
        check_rounds(context.profile, self.name(), columns, 2 * (width / 4 + 3) + width)?;
        let elements = (rows * columns) as f64;
        let mut operands: Vec<CallOperand> = (0..3).map(CallOperand::Input).collect();
        operands.extend((0..3).map(CallOperand::Output));
        let call = KernelCall {
            name: self.name(),
            source: specialised(FORWARD, DType::F32, wide),
            constants: Vec::new(),
            operands,
            uniforms: vec![
                word(rows),
                word(blocks(columns, wide)),
                (1.0 / columns as f32).to_bits(),
                self.eps.to_bits(),
            ],
            grid: context.profile.split_grid(rows.div_ceil(64)),
            cost: Cost { flops: 8.0 * elements, bytes: 8.0 * elements },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

impl Op for LayerNormGrad {
    fn name(&self) -> &'static str {
        "layer_norm_grad"
    }

    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![inputs[0].clone()])
    }

    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        // In f32: this is where gradients were differentiated again, which is rare.
        let inputs: Vec<Tensor> = call.inputs.iter().map(Tensor::to_f32).collect::<Result<_>>()?;
        let [x, weight, mean, rstd, g] = [0, 1, 2, 3, 4].map(|i| &inputs[i]);
        let (dx, h) = (&call.outputs[0].to_f32()?, &call.grad()?.to_f32()?);
        let as_input = |i: usize, t: Option<Tensor>| t.map(|t| t.to_dtype(call.inputs[i].dtype())).transpose();
        let ones = weight.filled(1.0)?;
        let projected = |v: &Tensor| x.apply_with(Self, &[&ones, mean, rstd, v]);
        let of_h = if call.needed[1] || call.needed[4] { Some(projected(h)?) } else { None };
        let dg = match &of_h {
            Some(p) if call.needed[4] => Some(p.mul(weight)?),
            _ => None,
        };
        let dweight = match &of_h {
            Some(p) if call.needed[1] => Some(p.mul(g)?.sum(&[0], false)?),
            _ => None,
        };
        let d2x = if call.needed[0] {
            let (a, xh) = (g.mul(weight)?, normalised(x, mean, rstd)?);
            let rstd = rstd.reshape([x.dims()[0], 1])?;
            let along = |t: &Tensor| t.mean(&[1], true);
            let e = h.mul(&along(&a.mul(&xh)?)?)?.add(&a.mul(&along(&h.mul(&xh)?)?)?)?.mul(&rstd)?.neg()?;
            let through_rstd = xh.mul(&rstd.mul(&along(&h.mul(dx)?)?)?)?;
            Some(projected(&e)?.sub(&through_rstd)?)
        } else {
            None
        };
        Ok(vec![as_input(0, d2x)?, as_input(1, dweight)?, None, None, as_input(4, dg)?])
    }

    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for LayerNormGrad {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let (rows, columns, wide) = extents(context.inputs[0].ty);
        let width = blocks(columns, wide);
        check_rounds(context.profile, self.name(), columns, width / 2 + 1 + width)?;
        let elements = (rows * columns) as f64;
        let mut operands: Vec<CallOperand> = (0..5).map(CallOperand::Input).collect();
        operands.push(CallOperand::Output(0));
        let call = KernelCall {
            name: self.name(),
            source: specialised(GRAD, DType::F32, wide),
            constants: Vec::new(),
            operands,
            uniforms: vec![word(rows), word(blocks(columns, wide)), (1.0 / columns as f32).to_bits(), 0],
            grid: context.profile.split_grid(rows.div_ceil(64)),
            cost: Cost { flops: 12.0 * elements, bytes: 12.0 * elements },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

impl Op for LayerNormParams {
    fn name(&self) -> &'static str {
        "layer_norm_params"
    }

    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let ty = TensorType::new(DType::F32, [inputs[0].shape.dims()[1]]);
        Ok(vec![ty.clone(), ty])
    }

    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let inputs: Vec<Tensor> = call.inputs.iter().map(Tensor::to_f32).collect::<Result<_>>()?;
        let [x, mean, rstd, g] = [0, 1, 2, 3].map(|i| &inputs[i]);
        let as_input = |i: usize, t: Option<Tensor>| t.map(|t| t.to_dtype(call.inputs[i].dtype())).transpose();
        let (for_weight, for_bias) = (&call.grads[0], &call.grads[1]);
        let dx = match for_weight {
            Some(h) if call.needed[0] => {
                let ones = x.recorder().full(h.shape().clone(), 1.0)?;
                Some(x.apply_with(LayerNormGrad, &[&ones, mean, rstd, &g.mul(h)?])?)
            }
            _ => None,
        };
        let mut dg = None;
        if call.needed[3] {
            if let Some(h) = for_weight {
                dg = Some(normalised(x, mean, rstd)?.mul(h)?);
            }
            if let Some(h) = for_bias {
                dg = Some(match dg {
                    Some(sum) => sum.add(h)?,
                    None => h.broadcast_to(g.shape().clone())?,
                });
            }
        }
        Ok(vec![as_input(0, dx)?, None, None, as_input(3, dg)?])
    }

    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for LayerNormParams {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let (rows, columns, wide) = extents(context.inputs[0].ty);
        let width = blocks(columns, wide);
        let (chunks, chunk) = split_column(context.profile, width, rows);
        let elements = (rows * columns) as f64;
        let mut result = KernelCalls::default();
        let mut operands: Vec<CallOperand> = (0..4).map(CallOperand::Input).collect();
        for output in 0..2 {
            if chunks == 1 {
                operands.push(CallOperand::Output(output));
            } else {
                operands.push(CallOperand::Scratch(output));
                result.scratch_bytes.push(chunks * columns * 4);
            }
        }
        result.calls.push(KernelCall {
            name: self.name(),
            source: specialised(PARAMS, DType::F32, wide),
            constants: Vec::new(),
            operands,
            uniforms: [chunks * width, rows, width, chunk].map(word).to_vec(),
            grid: context.profile.split_grid((chunks * width).div_ceil(64)),
            cost: Cost { flops: 5.0 * elements, bytes: 8.0 * elements },
        });
        if chunks > 1 {
            for output in 0..2 {
                column_sums(
                    context.profile,
                    self.name(),
                    DType::F32,
                    (CallOperand::ScratchRead(output), CallOperand::Output(output)),
                    [chunks, columns],
                    &mut result,
                );
            }
        }
        Ok(result)
    }
}

impl Tensor {
    /// Layer norm over the last axis: `(x - mean) / sqrt(var + eps) * weight + bias`,
    /// with the biased variance. `weight` and `bias` have the shape `[C]`, C the
    /// last extent; without them they are 1 and 0.
    ///
    /// # Errors
    /// [`Error::Shape`] if weight or bias does not fit or x is a scalar,
    /// [`Error::DType`] for other types than `f32`.
    pub fn layer_norm(&self, weight: Option<&Self>, bias: Option<&Self>, eps: f32) -> Result<Self> {
        const OP: &str = "layer_norm";
        self.expect_float(OP, 0)?;
        let Some(&columns) = self.dims().last() else {
            let detail = "there is no axis to normalise over".into();
            return Err(Error::Shape { op: OP, shapes: vec![self.shape().clone()], detail });
        };
        let operand = |given: Option<&Self>, index: usize, value: f32| {
            let Some(given) = given else { return self.recorder().full([columns], value) };
            given.expect_float(OP, index)?;
            if given.dims() != [columns] {
                let shapes = vec![self.shape().clone(), given.shape().clone()];
                let detail = format!("operand {index} must have the shape [{columns}] of the last axis");
                return Err(Error::Shape { op: OP, shapes, detail });
            }
            Ok(given.clone())
        };
        let (weight, bias) = (operand(weight, 1, 1.0)?, operand(bias, 2, 0.0)?);
        if self.element_count() == 0 {
            // Rows of nothing have a mean all the same, but nothing reads it.
            return Ok(self.clone());
        }
        let rows = count(&self.dims()[..self.rank() - 1]);
        let y = self.reshape([rows, columns])?.apply_with(LayerNorm { eps }, &[&weight, &bias])?;
        y.reshape(self.shape().clone())
    }
}
