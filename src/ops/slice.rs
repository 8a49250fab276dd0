//! `slice` and `narrow`: every `step`-th part of an axis, a view; and `pad`,
//! its gradient: the parts at their places, a number everywhere else.
//!
//! ```text
//! slice  y[i] = x[start + i step]                  g padded with 0
//! pad    y[start + i step] = x[i], else value      g sliced
//! ```
//!
//! Each is the other's gradient, so both can be differentiated as often as wanted.

use super::{
    CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op, Scalar, ViewOp,
};
use crate::dtype::{Layout, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;

/// `count` parts of `axis`, `step` apart, the first at `start`.
#[derive(Debug)]
struct Slice {
    axis: usize,
    start: usize,
    step: usize,
    count: usize,
}

impl Op for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let mut ty = inputs[0].clone();
        ty.shape.0[self.axis] = self.count;
        Ok(vec![ty])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let extent = call.inputs[0].dims()[self.axis];
        let pad = Pad { axis: self.axis, start: self.start, step: self.step, extent, value: Scalar::F32(0.0) };
        Ok(vec![Some(call.grad()?.apply(pad)?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::View(self)
    }
}

impl ViewOp for Slice {
    fn view(&self, input: &Layout) -> Option<Layout> {
        let mut layout = input.clone();
        layout.shape.0[self.axis] = self.count;
        if layout.shape.element_count() > 0 {
            layout.offset += self.start as u64 * input.strides[self.axis];
        }
        layout.strides[self.axis] = input.strides[self.axis].saturating_mul(self.step as u64);
        Some(layout)
    }
}

/// The parts of `axis` at `start`, `start + step`, .. of `extent`; `value` elsewhere.
#[derive(Debug)]
struct Pad {
    axis: usize,
    start: usize,
    step: usize,
    extent: usize,
    value: Scalar,
}

/// Invocations per workgroup, as in the shader.
const WORKGROUP: u64 = 64;

impl Op for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        self.value.expect("pad", inputs[0])?;
        let mut ty = inputs[0].clone();
        ty.shape.0[self.axis] = self.extent;
        Ok(vec![ty])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let count = call.inputs[0].dims()[self.axis];
        let slice = Slice { axis: self.axis, start: self.start, step: self.step, count };
        Ok(vec![Some(call.grad()?.apply(slice)?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for Pad {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let ty = context.outputs[0];
        let count = ty.shape.element_count();
        let inner: u64 = ty.shape.0[self.axis + 1..].iter().map(|&d| d as u64).product();
        let narrow = |n: u64| {
            u32::try_from(n).map_err(|_| Error::Limit {
                what: format!("pad to {}", ty.shape),
                size_bytes: ty.size_bytes(),
                limit: "maxStorageBufferBindingSize",
                limit_bytes: context.profile.max_binding_bytes,
                adapter: context.profile.name.clone(),
            })
        };
        let parts = context.inputs[0].ty.shape.0[self.axis] as u64;
        // Nothing to read: the value everywhere. A binding is never empty, so none is made.
        let reads = parts > 0;
        let source: &'static str =
            if reads { include_str!("../../shaders/pad.wgsl") } else { include_str!("../../shaders/pad_empty.wgsl") };
        let uniforms = vec![
            narrow(count)?,
            narrow(inner)?,
            narrow(self.extent as u64)?,
            narrow(parts)?,
            narrow(self.start as u64)?,
            narrow(self.step as u64)?,
            self.value.bits(),
            0,
        ];
        let operands =
            if reads { vec![CallOperand::Input(0), CallOperand::Output(0)] } else { vec![CallOperand::Output(0)] };
        Ok(KernelCalls {
            scratch_bytes: Vec::new(),
            calls: vec![KernelCall {
                name: "pad",
                source: source.into(),
                constants: Vec::new(),
                operands,
                uniforms,
                grid: context.profile.split_grid(count.div_ceil(WORKGROUP)),
                cost: Cost { flops: 0.0, bytes: (ty.size_bytes() + context.inputs[0].ty.size_bytes()) as f64 },
            }],
        })
    }
}

impl Tensor {
    /// `count` parts of `axis` from `start` on. A view.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there or a range outside it.
    pub fn narrow(&self, axis: isize, start: usize, count: usize) -> Result<Self> {
        let at = self.axis("narrow", axis)?;
        let extent = self.dims()[at];
        if start.checked_add(count).is_none_or(|end| end > extent) {
            return Err(Error::Argument {
                op: "narrow",
                argument: "start + count",
                value: format!("{start} + {count}"),
                detail: format!("axis {axis} of shape {} has {extent} parts", self.shape()),
            });
        }
        if count == extent {
            return Ok(self.clone());
        }
        self.apply(Slice { axis: at, start, step: 1, count })
    }

    /// Every `step`-th part of `axis` from `start` up to, not including, `end`. A view.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there, `start > end`, an
    /// `end` behind the last part, or a `step` of 0.
    pub fn slice(&self, axis: isize, start: usize, end: usize, step: usize) -> Result<Self> {
        let at = self.axis("slice", axis)?;
        let extent = self.dims()[at];
        if start > end || end > extent || step == 0 {
            return Err(Error::Argument {
                op: "slice",
                argument: "start..end, step",
                value: format!("{start}..{end}, {step}"),
                detail: format!("axis {axis} of shape {} has {extent} parts; step is at least 1", self.shape()),
            });
        }
        let count = (end - start).div_ceil(step);
        if count == extent {
            return Ok(self.clone());
        }
        self.apply(Slice { axis: at, start, step, count })
    }

    /// One part of `axis`, which is dropped. A view.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis or a part that is not there.
    pub fn select(&self, axis: isize, index: usize) -> Result<Self> {
        let at = self.axis("select", axis)?;
        let mut dims = self.dims().to_vec();
        dims.remove(at);
        self.narrow(axis, index, 1)?.reshape(dims)
    }

    /// `value` added `before` and `after` the parts of each axis: `pads[axis] = (before, after)`.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `pads` has one entry per axis;
    /// [`Error::DType`] unless `value` has the tensor's type.
    pub fn pad(&self, pads: &[(usize, usize)], value: impl Into<Scalar>) -> Result<Self> {
        let value = value.into();
        value.expect("pad", self.ty())?;
        if pads.len() != self.rank() {
            return Err(Error::Argument {
                op: "pad",
                argument: "pads",
                value: format!("{pads:?}"),
                detail: format!("shape {} needs {} pairs", self.shape(), self.rank()),
            });
        }
        let mut padded = self.clone();
        for (axis, &(before, after)) in pads.iter().enumerate() {
            if (before, after) != (0, 0) {
                let extent = self.dims()[axis].saturating_add(before).saturating_add(after);
                padded = padded.apply(Pad { axis, start: before, step: 1, extent, value })?;
            }
        }
        Ok(padded)
    }
}
