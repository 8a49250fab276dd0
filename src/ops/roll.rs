//! The parts of an axis in another order: `flip`, `roll`; and what is made of
//! it and of views: `repeat`, `repeat_interleave`.
//!
//! ```text
//! flip  y[p] = x[n - 1 - p]          g flipped
//! roll  y[p] = x[(p - k) mod n]      g rolled back
//! ```

use super::kernel::word;
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::dtype::{Shape, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;

/// Place `p` of `axis` from `(p + shift) mod extent`, or `(shift - p) mod extent` backward.
#[derive(Debug, Clone, Copy)]
struct Roll {
    axis: usize,
    shift: usize,
    backward: bool,
}

impl Op for Roll {
    fn name(&self) -> &'static str {
        if self.backward { "flip" } else { "roll" }
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        // A flip is its own inverse, whatever its shift.
        let extent = call.inputs[0].dims()[self.axis].max(1);
        let shift = if self.backward { self.shift } else { (extent - self.shift) % extent };
        Ok(vec![Some(call.grad()?.apply(Self { shift, ..*self })?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for Roll {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let ty = context.outputs[0];
        let count = ty.shape.element_count();
        let inner: u64 = ty.shape.0[self.axis + 1..].iter().map(|&d| d as u64).product();
        let call = KernelCall {
            name: self.name(),
            source: include_str!("../../shaders/roll.wgsl").into(),
            constants: Vec::new(),
            operands: vec![CallOperand::Input(0), CallOperand::Output(0)],
            uniforms: vec![
                word(count),
                word(inner),
                word(ty.shape.0[self.axis] as u64),
                word(self.shift as u64),
                u32::from(self.backward),
                0,
                0,
                0,
            ],
            grid: context.profile.split_grid(count.div_ceil(64)),
            cost: Cost { flops: 0.0, bytes: 2.0 * ty.size_bytes() as f64 },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

impl Tensor {
    /// The parts of each of these axes in reverse order (`torch.flip`).
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there or named twice.
    pub fn flip(&self, axes: &[isize]) -> Result<Self> {
        let mut flipped = self.clone();
        let mut seen = Vec::new();
        for &axis in axes {
            let at = self.axis("flip", axis)?;
            if seen.contains(&at) {
                let detail = "an axis is named twice".into();
                return Err(Error::Argument { op: "flip", argument: "axes", value: format!("{axes:?}"), detail });
            }
            seen.push(at);
            if self.dims()[at] > 1 {
                flipped = flipped.apply(Roll { axis: at, shift: self.dims()[at] - 1, backward: true })?;
            }
        }
        Ok(flipped)
    }

    /// The parts of `axis` moved on by `shift` places, those pushed out at the end
    /// coming back at the start (`torch.roll`).
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there.
    pub fn roll(&self, shift: isize, axis: isize) -> Result<Self> {
        let at = self.axis("roll", axis)?;
        let extent = self.dims()[at];
        if extent < 2 {
            return Ok(self.clone());
        }
        // Below extent, which fits.
        let back = (-(shift as i128)).rem_euclid(extent as i128) as usize;
        if back == 0 { Ok(self.clone()) } else { self.apply(Roll { axis: at, shift: back, backward: false }) }
    }

    /// This tensor laid side by side `repeats[axis]` times along each axis. More
    /// repeats than axes add axes in front (`Tensor.repeat`).
    ///
    /// # Errors
    /// [`Error::Argument`] for fewer repeats than axes.
    pub fn repeat(&self, repeats: &[usize]) -> Result<Self> {
        let Some(added) = repeats.len().checked_sub(self.rank()) else {
            return Err(Error::Argument {
                op: "repeat",
                argument: "repeats",
                value: format!("{repeats:?}"),
                detail: format!("shape {} needs at least {}", self.shape(), self.rank()),
            });
        };
        let mut dims = vec![1; added];
        dims.extend_from_slice(self.dims());
        let (mut apart, mut whole, mut joined) = (Vec::new(), Vec::new(), Vec::new());
        for (&dim, &times) in dims.iter().zip(repeats) {
            apart.extend([1, dim]);
            whole.extend([times, dim]);
            joined.push(dim.saturating_mul(times));
        }
        self.reshape(Shape(apart))?.broadcast_to(Shape(whole))?.reshape(Shape(joined))
    }

    /// Each part of `axis` `times` times in a row (`torch.repeat_interleave`).
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there.
    pub fn repeat_interleave(&self, times: usize, axis: isize) -> Result<Self> {
        let at = self.axis("repeat_interleave", axis)?;
        let (mut apart, mut whole, mut joined) = (self.dims().to_vec(), self.dims().to_vec(), self.dims().to_vec());
        apart.insert(at + 1, 1);
        whole.insert(at + 1, times);
        joined[at] = joined[at].saturating_mul(times);
        self.reshape(Shape(apart))?.broadcast_to(Shape(whole))?.reshape(Shape(joined))
    }
}
