//! Running sums and products along one axis.
//!
//! ```text
//! cumsum   y_i = x_0 + .. + x_i     dx_i = g_i + .. + g_(n-1)
//! cumprod  y_i = x_0 * .. * x_i     dx_i = (x_0 .. x_(i-1)) s_i,  s_i = g_i + x_(i+1) s_(i+1)
//! ```
//!
//! Nothing is divided: both are right where elements are 0. The recurrence of
//! `cumprod`'s gradient is an op of its own, whose gradient is the recurrence in
//! the other direction, so that all can be differentiated again.
//!
//! The kernels see `[O, R, I]` and walk one line each. A long axis is cut into
//! parts: each is walked on its own, and the totals of those before it follow.

use super::kernel::{check_rounds, specialised, word};
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op, Scalar};
use crate::dtype::{DType, TensorType, count};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;

const SCAN: &str = include_str!("../../shaders/scan.wgsl");
const LINEAR: &str = include_str!("../../shaders/scan_linear.wgsl");

/// The longest line that one invocation walks, if the axis can be cut.
const LONGEST_LINE: usize = 1024;

/// `[O, R, I] -> [O, R, I]`.
#[derive(Debug, Clone, Copy)]
struct Scan {
    product: bool,
    reverse: bool,
}

/// `y_i = x_i + a_i y_(i-1)` of operands x and a, or from the end.
#[derive(Debug, Clone, Copy)]
struct Recurrence {
    reverse: bool,
}

/// The one dispatch of either op.
fn walk(
    context: &KernelContext<'_>,
    name: &'static str,
    text: &'static str,
    constants: Vec<(&'static str, f64)>,
    reverse: bool,
) -> Result<KernelCalls> {
    let ty = context.outputs[0];
    let dims = ty.shape.dims();
    let (lines, extent) = ((dims[0] * dims[2]) as u64, dims[1] as u64);
    check_rounds(context.profile, name, extent, extent)?;
    let inputs = context.inputs.len();
    let mut operands: Vec<CallOperand> = (0..inputs).map(CallOperand::Input).collect();
    operands.push(CallOperand::Output(0));
    Ok(KernelCalls {
        scratch_bytes: Vec::new(),
        calls: vec![KernelCall {
            name,
            source: specialised(text, ty.dtype, true),
            constants,
            operands,
            uniforms: vec![word(lines), word(dims[2] as u64), word(extent), u32::from(reverse)],
            grid: context.profile.split_grid(lines.div_ceil(64)),
            cost: Cost {
                flops: inputs as f64 * ty.shape.element_count() as f64,
                bytes: (inputs + 1) as f64 * ty.size_bytes() as f64,
            },
        }],
    })
}

fn lines_type(op: &'static str, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
    if inputs[0].shape.rank() != 3 || inputs.iter().any(|t| *t != inputs[0]) {
        let shapes = inputs.iter().map(|t| t.shape.clone()).collect();
        return Err(Error::Shape { op, shapes, detail: "they must be [O, R, I] and equal".into() });
    }
    Ok(vec![inputs[0].clone()])
}

impl Op for Scan {
    fn name(&self) -> &'static str {
        if self.product { "cumprod" } else { "cumsum" }
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        lines_type(self.name(), inputs)
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (x, g) = (&call.inputs[0], call.grad()?);
        let other = !self.reverse;
        if !self.product {
            return Ok(vec![Some(g.apply(Self { reverse: other, ..*self })?)]);
        }
        // Behind i in walking order stands the element that the shift brings here.
        let behind = x.shifted(other, Scalar::F32(1.0))?;
        let sums = g.apply_with(Recurrence { reverse: other }, &[&behind])?;
        let before = x.shifted(self.reverse, Scalar::F32(1.0))?.apply(*self)?;
        Ok(vec![Some(before.mul(&sums)?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for Scan {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let kind = vec![("KIND", f64::from(u8::from(self.product)))];
        walk(context, self.name(), SCAN, kind, self.reverse)
    }
}

impl Op for Recurrence {
    fn name(&self) -> &'static str {
        "recurrence"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        lines_type(self.name(), inputs)
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (a, y) = (&call.inputs[1], &call.outputs[0]);
        let other = !self.reverse;
        // t_i = h_i + a_(i+1) t_(i+1);  dx = t, da_i = t_i y_(i-1).
        let behind = a.shifted(other, Scalar::F32(0.0))?;
        let dx = call.grad()?.apply_with(Self { reverse: other }, &[&behind])?;
        let da = if call.needed[1] { Some(dx.mul(&y.shifted(self.reverse, Scalar::F32(0.0))?)?) } else { None };
        Ok(vec![Some(dx), da])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for Recurrence {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        walk(context, self.name(), LINEAR, Vec::new(), self.reverse)
    }
}

impl Tensor {
    /// `[O, R, I]` moved by one along R: towards the front, so that each place
    /// holds what stood behind it, or towards the end. `value` fills the gap.
    fn shifted(&self, towards_front: bool, value: Scalar) -> Result<Self> {
        let kept = self.dims()[1] - 1;
        let (start, pads) = if towards_front { (1, (0, 1)) } else { (0, (1, 0)) };
        self.narrow(1, start, kept)?.pad(&[(0, 0), pads, (0, 0)], value)
    }

    /// Of `[O, R, I]` with R > 0, for each element the product of all others along R.
    pub(super) fn products_of_others(&self) -> Result<Self> {
        let scan = |reverse| self.shifted(reverse, Scalar::F32(1.0))?.scan_lines(Scan { product: true, reverse });
        scan(false)?.mul(&scan(true)?)
    }

    /// The scan of `[O, R, I]` along R, in parts where R is long.
    fn scan_lines(&self, op: Scan) -> Result<Self> {
        let &[outer, extent, inner] = self.dims() else {
            return self.apply(op);
        };
        if extent <= LONGEST_LINE {
            return self.apply(op);
        }
        let neutral = u32::from(op.product);
        let neutral = match self.dtype() {
            DType::I32 => Scalar::I32(neutral as i32),
            DType::U32 => Scalar::U32(neutral),
            _ => Scalar::F32(neutral as f32),
        };
        // Parts as long as there are parts, up to the longest line.
        let mut part = 64;
        while part < LONGEST_LINE && part * part < extent {
            part *= 2;
        }
        let parts = extent.div_ceil(part);
        let whole = self.pad(&[(0, 0), (0, parts * part - extent), (0, 0)], neutral)?;
        let scanned = whole.reshape([outer * parts, part, inner])?.apply(op)?.reshape([outer, parts, part, inner])?;
        let total = if op.reverse { 0 } else { part - 1 };
        let totals = scanned.narrow(2, total, 1)?.reshape([outer, parts, inner])?;
        let before = totals.shifted(op.reverse, neutral)?.scan_lines(op)?.reshape([outer, parts, 1, inner])?;
        let joined = if op.product { scanned.mul(&before)? } else { scanned.add(&before)? };
        joined.reshape([outer, parts * part, inner])?.narrow(1, 0, extent)
    }

    fn scan(&self, op: Scan, axis: isize) -> Result<Self> {
        if self.dtype() == DType::Bool {
            return Err(Error::DType {
                op: op.name(),
                operand: 0,
                found: DType::Bool,
                expected: "f32, f16, i32 or u32",
            });
        }
        let axis = self.axis(op.name(), axis)?;
        let dims = self.dims();
        let [outer, inner] = [&dims[..axis], &dims[axis + 1..]].map(count);
        if self.element_count() == 0 {
            return Ok(self.clone());
        }
        self.reshape([outer, dims[axis], inner])?.scan_lines(op)?.reshape(self.shape().clone())
    }

    /// Running sums along `axis`: `y_i = x_0 + .. + x_i`, of this tensor's shape;
    /// `f32`, `i32` or `u32`, of which integers wrap.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there, [`Error::DType`] for `bool`.
    pub fn cumsum(&self, axis: isize) -> Result<Self> {
        self.scan(Scan { product: false, reverse: false }, axis)
    }

    /// Running products along `axis`: `y_i = x_0 * .. * x_i`, of this tensor's
    /// shape; types as in [`Tensor::cumsum`]. Its gradient is right where
    /// elements are 0 too.
    ///
    /// # Errors
    /// As [`Tensor::cumsum`].
    pub fn cumprod(&self, axis: isize) -> Result<Self> {
        self.scan(Scan { product: true, reverse: false }, axis)
    }
}
