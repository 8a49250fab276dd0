//! Reductions over any axes.
//!
//! ```text
//! sum   y = sum x          dx = g, repeated
//! mean  y = sum x / n      dx = g / n, repeated
//! prod  y = product of x   dx = g times the product of all others, by two scans
//! max   y = largest x      dx = g where x is the first of the largest, else 0
//! min   y = smallest x     dx = g where x is the first of the smallest, else 0
//! var   y = sum (x - mean)^2 / (n - correction), composed
//! argmax, argmin           the first such index, i32; no gradient
//! ```
//!
//! NaN wins in `max`, `min`, `argmax` and `argmin`. The sum of nothing is 0, the
//! mean of nothing NaN; a largest element of nothing is an error.
//!
//! The kernels see `[O, R, I] -> [O, I]`: neighbouring axes that are reduced
//! together are joined by a reshape, and axes apart are reduced one group after
//! the other, the last first. A long reduction runs in stages over chunks of at
//! most 2,048 elements (see `kernel.rs`), for the sake of parallel work and of the
//! rounding error, which grows with the longest run of dependent additions. The
//! stages follow from the shape and the device's profile alone.

use super::kernel::{specialised, split_chunks, split_column, word};
use super::{
    CallOperand, ElementCall, ElementwiseOp, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering,
    Op,
};
use crate::dtype::{DType, TensorType, count};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;
use crate::profile::{AdapterClass, DeviceProfile};

const COLUMNS: &str =
    concat!(include_str!("../../shaders/shared/reduce.wgsl"), include_str!("../../shaders/reduce_columns.wgsl"));
const COLUMNS_WIDE: &str =
    concat!(include_str!("../../shaders/shared/reduce.wgsl"), include_str!("../../shaders/reduce_columns_wide.wgsl"));
const ROWS: &str =
    concat!(include_str!("../../shaders/shared/reduce.wgsl"), include_str!("../../shaders/reduce_rows.wgsl"));
const ARG_REDUCE: &str =
    concat!(include_str!("../../shaders/shared/arg.wgsl"), include_str!("../../shaders/arg_reduce.wgsl"));
const ARG_COMBINE: &str =
    concat!(include_str!("../../shaders/shared/arg.wgsl"), include_str!("../../shaders/arg_combine.wgsl"));

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Sum,
    Max,
    Min,
    Product,
}

impl Kind {
    /// The kernels' override `KIND`.
    const fn constant(self) -> f64 {
        match self {
            Self::Sum => 0.0,
            Self::Max => 1.0,
            Self::Min => 2.0,
            Self::Product => 3.0,
        }
    }
}

/// Overrides shared by the kernels of this file.
fn constants(kind: Kind, dtype: DType) -> Vec<(&'static str, f64)> {
    let nan_above = if dtype.is_float() { 0x7f80_0000_u32 } else { u32::MAX };
    vec![("KIND", kind.constant()), ("NAN_ABOVE", f64::from(nan_above))]
}

/// `[O, R, I] -> [O, I]`.
#[derive(Debug, Clone, Copy)]
struct Reduce {
    kind: Kind,
    /// A sum divided by R.
    mean: bool,
}

impl Op for Reduce {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Sum if self.mean => "mean",
            Kind::Sum => "sum",
            Kind::Max => "max",
            Kind::Min => "min",
            Kind::Product => "prod",
        }
    }

    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        reduced_type(self.name(), inputs[0], inputs[0].dtype).map(|ty| vec![ty])
    }

    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (x, g) = (&call.inputs[0], call.grad()?);
        let (outer, reduced, inner) = (x.dims()[0], x.dims()[1], x.dims()[2]);
        let repeated = |t: &Tensor| t.reshape([outer, 1, inner])?.broadcast_to([outer, reduced, inner]);
        let dx = match self.kind {
            Kind::Sum if self.mean => repeated(&g.mul_scalar(1.0 / reduced as f32)?)?,
            Kind::Sum => repeated(g)?,
            Kind::Product => repeated(g)?.mul(&x.products_of_others()?)?,
            Kind::Max | Kind::Min => {
                let at = x.apply(ArgReduce { kind: self.kind })?;
                repeated(g)?.apply_with(Pick { reduced: reduced as u32, inner: inner as u32 }, &[&repeated(&at)?])?
            }
        };
        Ok(vec![Some(dx)])
    }

    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

/// `[O, R, I] -> [O, I]` as a shape rule.
fn reduced_type(op: &'static str, input: &TensorType, dtype: DType) -> Result<TensorType> {
    match input.shape.dims() {
        &[outer, reduced, inner] if reduced > 0 => Ok(TensorType::new(dtype, [outer, inner])),
        _ => Err(Error::Shape { op, shapes: vec![input.shape.clone()], detail: "nothing to reduce".into() }),
    }
}

impl KernelOp for Reduce {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let ty = context.inputs[0].ty;
        let dims = ty.shape.dims();
        let stages = Stages { name: self.name(), kind: self.kind, mean: self.mean, dtype: ty.dtype };
        let mut result = KernelCalls::default();
        let ends = (CallOperand::Input(0), CallOperand::Output(0));
        stages.append(context.profile, ends, [dims[0], dims[1], dims[2]].map(|d| d as u64), &mut result);
        Ok(result)
    }
}

/// The dispatches of one reduction, which other ops append to their own.
#[derive(Debug, Clone, Copy)]
struct Stages {
    name: &'static str,
    kind: Kind,
    mean: bool,
    dtype: DType,
}

impl Stages {
    /// Appends the dispatches that reduce `[O, R, I] -> [O, I]` between two operands.
    fn append(
        self,
        profile: &DeviceProfile,
        (from, to): (CallOperand, CallOperand),
        [outer, total, inner]: [u64; 3],
        result: &mut KernelCalls,
    ) {
        let mut reduced = total;
        let mut source = from;
        loop {
            let rows = inner == 1 && reduced.is_multiple_of(4);
            let wide = rows || inner.is_multiple_of(4);
            let lanes = if wide { 4 } else { 1 };
            // Rows of 4 KiB or more are apart in pages and cache sets.
            let long = profile.class == AdapterClass::Cpu && inner >= 1024 && inner.is_multiple_of(16);
            let outputs = match (rows, long) {
                (true, _) => outer,
                (false, true) => outer * inner / 16,
                (false, false) => outer * inner / lanes,
            };
            let (chunks, chunk) = match (rows, inner) {
                (true, _) => split_chunks(profile, outputs, reduced, 4),
                (false, 1) => split_chunks(profile, outputs, reduced, 1),
                (false, _) => split_column(profile, outputs, reduced),
            };
            let last = chunks == 1;
            let scale = if last && self.mean { 1.0 / total as f32 } else { 1.0 };
            let count = outputs * chunks;
            let (text, uniforms) = if rows {
                (ROWS, [count, 1, reduced / 4, chunks, chunk / 4])
            } else {
                let text = if long { COLUMNS_WIDE } else { COLUMNS };
                (text, [count, inner / lanes, reduced, chunks, chunk])
            };
            let mut uniforms = uniforms.map(word).to_vec();
            uniforms.extend([scale.to_bits(), 0, 0]);
            let scratch = result.scratch_bytes.len();
            if !last {
                result.scratch_bytes.push(outer * chunks * inner * 4);
            }
            let elements = (outer * reduced * inner) as f64;
            result.calls.push(KernelCall {
                name: self.name,
                source: specialised(text, self.dtype, wide),
                constants: constants(self.kind, self.dtype),
                operands: vec![source, if last { to } else { CallOperand::Scratch(scratch) }],
                uniforms,
                grid: profile.split_grid(count.div_ceil(64)),
                cost: Cost { flops: elements, bytes: 4.0 * (elements + (outer * chunks * inner) as f64) },
            });
            if last {
                return;
            }
            source = CallOperand::ScratchRead(scratch);
            reduced = chunks;
        }
    }
}

/// Appends the dispatches that sum `[rows, columns]` over rows between two operands.
pub(crate) fn column_sums(
    profile: &DeviceProfile,
    name: &'static str,
    dtype: DType,
    ends: (CallOperand, CallOperand),
    [rows, columns]: [u64; 2],
    result: &mut KernelCalls,
) {
    Stages { name, kind: Kind::Sum, mean: false, dtype }.append(profile, ends, [1, rows, columns], result);
}

/// The index of the first largest or smallest element, `[O, R, I] -> [O, I]`.
#[derive(Debug, Clone, Copy)]
struct ArgReduce {
    kind: Kind,
}

impl Op for ArgReduce {
    fn name(&self) -> &'static str {
        if self.kind == Kind::Max { "argmax" } else { "argmin" }
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        reduced_type(self.name(), inputs[0], DType::I32).map(|ty| vec![ty])
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for ArgReduce {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let ty = context.inputs[0].ty;
        let dims = ty.shape.dims();
        let (outer, reduced, inner) = (dims[0] as u64, dims[1] as u64, dims[2] as u64);
        let outputs = outer * inner;
        let (chunks, chunk) = split_chunks(context.profile, outputs, reduced, 1);
        let elements = (outputs * reduced) as f64;
        let partial = (outputs * chunks) as f64;
        let mut result = KernelCalls::default();
        let staged = chunks > 1;
        if staged {
            result.scratch_bytes.push(outputs * chunks * 4);
        }
        result.calls.push(KernelCall {
            name: self.name(),
            source: specialised(ARG_REDUCE, ty.dtype, true),
            constants: constants(self.kind, ty.dtype),
            operands: vec![
                CallOperand::Input(0),
                if staged { CallOperand::Scratch(0) } else { CallOperand::Output(0) },
            ],
            uniforms: [outputs * chunks, inner, reduced, chunks, chunk, 0, 0, 0].map(word).to_vec(),
            grid: context.profile.split_grid((outputs * chunks).div_ceil(64)),
            cost: Cost { flops: elements, bytes: 4.0 * (elements + partial) },
        });
        if staged {
            result.calls.push(KernelCall {
                name: self.name(),
                source: specialised(ARG_COMBINE, ty.dtype, true),
                constants: constants(self.kind, ty.dtype),
                operands: vec![CallOperand::Input(0), CallOperand::ScratchRead(0), CallOperand::Output(0)],
                uniforms: [outputs, inner, reduced, chunks].map(word).to_vec(),
                grid: context.profile.split_grid(outputs.div_ceil(64)),
                cost: Cost { flops: partial, bytes: 8.0 * partial },
            });
        }
        Ok(result)
    }
}

/// Of `[O, R, I]` keeps the elements whose index along R is the second
/// operand's, and makes the rest 0. Linear in its first operand, so its own gradient.
#[derive(Debug, Clone, Copy)]
struct Pick {
    reduced: u32,
    inner: u32,
}

impl Op for Pick {
    fn name(&self) -> &'static str {
        "pick"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(call.grad()?.apply_with(*self, &[&call.inputs[1]])?), None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for Pick {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        let [value, at] = [&call.operands[0], &call.operands[1]];
        let [inner, reduced] = [&call.words[0], &call.words[1]];
        format!("select(0.0, {value}, u32({at}) == ({} / {inner}) % {reduced})", call.index)
    }
    fn words(&self) -> Vec<u32> {
        vec![self.inner, self.reduced]
    }
}

impl Tensor {
    /// The axes as a mask; an empty list means all of them.
    pub(super) fn axis_mask(&self, op: &'static str, axes: &[isize]) -> Result<Vec<bool>> {
        let mut mask = vec![axes.is_empty(); self.rank()];
        for &axis in axes {
            let index = self.axis(op, axis)?;
            if mask[index] {
                return Err(Error::Argument {
                    op,
                    argument: "axes",
                    value: format!("{axes:?}"),
                    detail: format!("axis {axis} is named twice"),
                });
            }
            mask[index] = true;
        }
        Ok(mask)
    }

    /// Records `op` on each group of neighbouring axes of `mask`, the last group first.
    /// Every reduced axis has elements.
    pub(super) fn reduce_groups(&self, op: impl Op + Copy + 'static, mask: &[bool], keep: bool) -> Result<Self> {
        let mut dims = self.dims().to_vec();
        let mut x = self.clone();
        let mut axis = dims.len();
        while axis > 0 {
            axis -= 1;
            // Axes of one element are reduced already, so they join any group.
            if !mask[axis] || dims[axis] == 1 {
                continue;
            }
            let last = axis;
            while axis > 0 && (mask[axis - 1] || dims[axis - 1] == 1) {
                axis -= 1;
            }
            let [outer, reduced, inner] = [&dims[..axis], &dims[axis..=last], &dims[last + 1..]].map(count);
            x = x.reshape([outer, reduced, inner])?.apply(op)?;
            dims[axis..=last].fill(1);
        }
        let kept = dims.iter().zip(mask).filter(|(_, reduced)| keep || !**reduced).map(|(&d, _)| d);
        x.reshape(kept.collect::<Vec<_>>())
    }

    fn expect_number(&self, op: &'static str) -> Result<()> {
        if self.dtype() == DType::Bool {
            return Err(Error::DType { op, operand: 0, found: DType::Bool, expected: "f32, f16, i32 or u32" });
        }
        Ok(())
    }

    /// The shape after reducing the axes of `mask`.
    pub(super) fn reduced_dims(&self, mask: &[bool], keep: bool) -> Vec<usize> {
        let each = self.dims().iter().zip(mask).filter(|(_, reduced)| keep || !**reduced);
        each.map(|(&d, &reduced)| if reduced { 1 } else { d }).collect()
    }

    /// The number of elements behind each element of the result.
    pub(super) fn reduced_count(&self, mask: &[bool]) -> usize {
        let reduced = self.dims().iter().zip(mask).filter(|(_, reduced)| **reduced).map(|(&d, _)| d);
        count(&reduced.collect::<Vec<_>>())
    }

    /// The sum over `axes` (all axes if the list is empty; negative ones count
    /// from the end). `keep` leaves the reduced axes with extent 1. The sum of
    /// nothing is 0. Takes `f32`, `i32` and `u32`; integers wrap.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there or named twice,
    /// [`Error::DType`] for `bool`.
    pub fn sum(&self, axes: &[isize], keep: bool) -> Result<Self> {
        self.expect_number("sum")?;
        let mask = self.axis_mask("sum", axes)?;
        if self.reduced_count(&mask) == 0 {
            let dims = self.reduced_dims(&mask, keep);
            return match self.dtype() {
                DType::I32 => self.recorder().full_i32(dims, 0),
                DType::U32 => self.recorder().full_u32(dims, 0),
                dtype => self.recorder().full_float(dtype, dims, 0.0),
            };
        }
        self.reduce_groups(Reduce { kind: Kind::Sum, mean: false }, &mask, keep)
    }

    /// The product over `axes`, which are as in [`Tensor::sum`]. The product of
    /// nothing is 1. Its gradient is right where elements are 0 too.
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    pub fn prod(&self, axes: &[isize], keep: bool) -> Result<Self> {
        self.expect_number("prod")?;
        let mask = self.axis_mask("prod", axes)?;
        if self.reduced_count(&mask) == 0 {
            let dims = self.reduced_dims(&mask, keep);
            return match self.dtype() {
                DType::I32 => self.recorder().full_i32(dims, 1),
                DType::U32 => self.recorder().full_u32(dims, 1),
                dtype => self.recorder().full_float(dtype, dims, 1.0),
            };
        }
        self.reduce_groups(Reduce { kind: Kind::Product, mean: false }, &mask, keep)
    }

    /// The sum of all elements, a scalar.
    ///
    /// # Errors
    /// As [`Tensor::sum`].
    pub fn sum_all(&self) -> Result<Self> {
        self.sum(&[], false)
    }

    /// The mean over `axes`, which are as in [`Tensor::sum`]. The mean of nothing is NaN.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there or named twice,
    /// [`Error::DType`] for other types than `f32`.
    pub fn mean(&self, axes: &[isize], keep: bool) -> Result<Self> {
        self.expect_float("mean", 0)?;
        let mask = self.axis_mask("mean", axes)?;
        if self.reduced_count(&mask) == 0 {
            return self.recorder().full_float(self.dtype(), self.reduced_dims(&mask, keep), f32::NAN);
        }
        self.reduce_groups(Reduce { kind: Kind::Sum, mean: true }, &mask, keep)
    }

    /// The mean of all elements, a scalar.
    ///
    /// # Errors
    /// As [`Tensor::mean`].
    pub fn mean_all(&self) -> Result<Self> {
        self.mean(&[], false)
    }

    /// The largest element over `axes`, which are as in [`Tensor::sum`]; NaN if
    /// there is one. The gradient goes to the first of the largest.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there, named twice or without
    /// elements, [`Error::DType`] for `bool`.
    pub fn max(&self, axes: &[isize], keep: bool) -> Result<Self> {
        self.extreme(Kind::Max, axes, keep)
    }

    /// The smallest element over `axes`; otherwise as [`Tensor::max`].
    ///
    /// # Errors
    /// As [`Tensor::max`].
    pub fn min(&self, axes: &[isize], keep: bool) -> Result<Self> {
        self.extreme(Kind::Min, axes, keep)
    }

    fn extreme(&self, kind: Kind, axes: &[isize], keep: bool) -> Result<Self> {
        let op = Reduce { kind, mean: false };
        self.expect_number(op.name())?;
        let mask = self.axis_mask(op.name(), axes)?;
        self.expect_some(op.name(), &mask)?;
        self.reduce_groups(op, &mask, keep)
    }

    fn expect_some(&self, op: &'static str, mask: &[bool]) -> Result<()> {
        if self.reduced_count(mask) > 0 {
            return Ok(());
        }
        Err(Error::Argument {
            op,
            argument: "axes",
            value: format!("{:?}", (0..mask.len()).filter(|&a| mask[a]).collect::<Vec<_>>()),
            detail: format!("there is no element to choose in a tensor of shape {}", self.shape()),
        })
    }

    /// The variance over `axes`: the mean squared distance from the mean, or,
    /// if `unbiased`, its sum divided by n - 1 (Bessel's correction; NaN for n = 1).
    ///
    /// # Errors
    /// As [`Tensor::mean`].
    pub fn var(&self, axes: &[isize], keep: bool, unbiased: bool) -> Result<Self> {
        self.expect_float("var", 0)?;
        let mask = self.axis_mask("var", axes)?;
        let count = self.reduced_count(&mask) as f32;
        let away = self.sub(&self.mean(axes, true)?.broadcast_to(self.shape().clone())?)?;
        let mean = away.mul(&away)?.mean(axes, keep)?;
        if unbiased { mean.mul_scalar(count / (count - 1.0)) } else { Ok(mean) }
    }

    /// The index of the largest element along `axis`, as `i32`: the first of
    /// equals, the first NaN if there is one. `keep` leaves the axis with extent 1.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there or has no elements,
    /// [`Error::DType`] for `bool`.
    pub fn argmax(&self, axis: isize, keep: bool) -> Result<Self> {
        self.arg_extreme(Kind::Max, axis, keep)
    }

    /// The index of the smallest element along `axis`; otherwise as [`Tensor::argmax`].
    ///
    /// # Errors
    /// As [`Tensor::argmax`].
    pub fn argmin(&self, axis: isize, keep: bool) -> Result<Self> {
        self.arg_extreme(Kind::Min, axis, keep)
    }

    fn arg_extreme(&self, kind: Kind, axis: isize, keep: bool) -> Result<Self> {
        let op = ArgReduce { kind };
        self.expect_number(op.name())?;
        let mask = self.axis_mask(op.name(), &[axis])?;
        self.expect_some(op.name(), &mask)?;
        let axis = self.axis(op.name(), axis)?;
        let dims = self.dims();
        let [outer, inner] = [&dims[..axis], &dims[axis + 1..]].map(count);
        self.reshape([outer, dims[axis], inner])?.apply(op)?.reshape(self.reduced_dims(&mask, keep))
    }
}
