//! Pooling of images: the largest or the mean of each window.
//!
//! ```text
//! max   y = the largest of the window; its place is saved, and gradients go there
//! mean  y = the window's sum / its size: a convolution with equal weights
//! ```
//!
//! Windows are PyTorch's (`max_pool2d`, `avg_pool2d`). Where windows overlap,
//! gradients add up in a fixed order.

use super::kernel::{check_rounds, word};
use super::{CallOperand, Conv2dOptions, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;

const MAX: &str = concat!(
    include_str!("../../shaders/shared/math_extrema.wgsl"),
    include_str!("../../shaders/shared/pool2d.wgsl"),
    include_str!("../../shaders/max_pool2d.wgsl")
);
const MAX_GRAD: &str =
    concat!(include_str!("../../shaders/shared/pool2d.wgsl"), include_str!("../../shaders/max_pool2d_grad.wgsl"));
/// Where windows tile the image.
const MAX_SPREAD: &str =
    concat!(include_str!("../../shaders/shared/pool2d.wgsl"), include_str!("../../shaders/max_pool2d_spread.wgsl"));

/// Sizes of a pooling over `[N, H, W]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Windows {
    input: [usize; 2],
    output: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
}

impl Windows {
    fn words(&self, count: u64) -> Vec<u32> {
        let sizes = [self.input, self.output, self.kernel, self.stride, self.padding];
        let lowest = f32::NEG_INFINITY.to_bits();
        std::iter::once(word(count)).chain(sizes.iter().flatten().map(|&n| word(n as u64))).chain([lowest]).collect()
    }

    /// Every place lies in exactly one window.
    fn tiles(&self) -> bool {
        self.kernel == self.stride
            && self.padding == [0, 0]
            && (0..2).all(|axis| self.output[axis].checked_mul(self.kernel[axis]) == Some(self.input[axis]))
    }

    fn area(&self) -> u64 {
        self.kernel[0] as u64 * self.kernel[1] as u64
    }
}

/// `x [N, H, W] -> y, places (u32), both [N, HO, WO]`.
#[derive(Debug, Clone, Copy)]
struct MaxPool(Windows);

/// `g, places -> dx [N, H, W]`.
#[derive(Debug, Clone, Copy)]
struct MaxPoolGrad(Windows);

impl Op for MaxPool {
    fn name(&self) -> &'static str {
        "max_pool2d"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let shape = [inputs[0].shape.0[0], self.0.output[0], self.0.output[1]];
        Ok(vec![TensorType::new(inputs[0].dtype, shape), TensorType::new(DType::U32, shape)])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(call.grad()?.apply_with(MaxPoolGrad(self.0), &[&call.outputs[1]])?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for MaxPool {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let count = context.outputs[0].shape.element_count();
        check_rounds(context.profile, self.name(), self.0.area(), self.0.area() + self.0.kernel[0] as u64)?;
        let call = KernelCall {
            name: self.name(),
            source: MAX.into(),
            constants: Vec::new(),
            operands: vec![CallOperand::Input(0), CallOperand::Output(0), CallOperand::Output(1)],
            uniforms: self.0.words(count),
            grid: context.profile.split_grid(count.div_ceil(64)),
            cost: Cost {
                flops: (count * self.0.area()) as f64,
                bytes: (8 * count + context.inputs[0].ty.size_bytes()) as f64,
            },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

impl Op for MaxPoolGrad {
    fn name(&self) -> &'static str {
        "max_pool2d_grad"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![TensorType::new(inputs[0].dtype, [inputs[0].shape.0[0], self.0.input[0], self.0.input[1]])])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(call.grad()?.picked_at(&call.inputs[1])?), None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for MaxPoolGrad {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let count = context.outputs[0].shape.element_count();
        if self.0.tiles() {
            let windows = context.inputs[0].ty.shape.element_count();
            check_rounds(context.profile, self.name(), self.0.area(), self.0.area() + self.0.kernel[0] as u64)?;
            let call = KernelCall {
                name: self.name(),
                source: MAX_SPREAD.into(),
                constants: Vec::new(),
                operands: vec![CallOperand::Input(0), CallOperand::Input(1), CallOperand::Output(0)],
                uniforms: self.0.words(windows),
                grid: context.profile.split_grid(windows.div_ceil(64)),
                cost: Cost { flops: count as f64, bytes: (4 * count + 8 * windows) as f64 },
            };
            return Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] });
        }
        let across = |axis: usize| self.0.kernel[axis].div_ceil(self.0.stride[axis]) as u64 + 1;
        check_rounds(context.profile, self.name(), self.0.area(), across(0) * (across(1) + 1))?;
        let call = KernelCall {
            name: self.name(),
            source: MAX_GRAD.into(),
            constants: Vec::new(),
            operands: vec![CallOperand::Input(0), CallOperand::Input(1), CallOperand::Output(0)],
            uniforms: self.0.words(count),
            grid: context.profile.split_grid(count.div_ceil(64)),
            cost: Cost {
                flops: context.inputs[0].ty.shape.element_count() as f64,
                bytes: (4 * count + 2 * context.inputs[0].ty.size_bytes()) as f64,
            },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

impl Tensor {
    /// What this gradient `[N, H, W]` of a pooling's gradient is: that was sent to
    /// `places [N, HO, WO]`, so its own is picked up there.
    pub(super) fn picked_at(&self, places: &Self) -> Result<Self> {
        let (&[images, height, width], &[_, down, across]) = (self.dims(), places.dims()) else {
            let shapes = vec![self.shape().clone(), places.shape().clone()];
            return Err(Error::Shape { op: "max_pool2d", shapes, detail: "expected three axes each".into() });
        };
        let flat = places.reshape([images, down * across])?;
        self.reshape([images, height * width])?.gather(1, &flat)?.reshape(places.shape())
    }

    fn windows(
        &self,
        op: &'static str,
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
    ) -> Result<(usize, Windows)> {
        self.expect_float(op, 0)?;
        let misfit = |detail: String| Error::Shape { op, shapes: vec![self.shape().clone()], detail };
        let &[batch, channels, height, width] = self.dims() else {
            return Err(misfit("expected [N, C, H, W]".into()));
        };
        let mut output = [0; 2];
        for (axis, extent) in [height, width].into_iter().enumerate() {
            let (k, s, p) = (kernel[axis], stride[axis], padding[axis]);
            if k == 0 || s == 0 || p > k / 2 {
                return Err(Error::Argument {
                    op,
                    argument: "kernel, stride, padding",
                    value: format!("{kernel:?}, {stride:?}, {padding:?}"),
                    detail: "kernel and stride must be at least 1, padding at most half the kernel".into(),
                });
            }
            let padded = extent.saturating_add(2 * p);
            if k > padded || padded > 1 << 31 {
                return Err(misfit(format!("a window of {k} does not fit {padded} places")));
            }
            output[axis] = (padded - k) / s + 1;
        }
        let images = batch.saturating_mul(channels);
        Ok((images, Windows { input: [height, width], output, kernel, stride, padding }))
    }

    /// The largest element of each window of `[N, C, H, W]`, and its place in the
    /// image, `row * W + column`, as `u32`. Windows reach over the edge by `padding`,
    /// where nothing counts.
    ///
    /// # Errors
    /// [`Error::Shape`] if a window does not fit, [`Error::Argument`] for a kernel or
    /// stride of 0 or a padding above half the kernel, [`Error::DType`] unless `f32`.
    pub fn max_pool2d_with_indices(
        &self,
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
    ) -> Result<(Self, Self)> {
        let (images, windows) = self.windows("max_pool2d", kernel, stride, padding)?;
        let flat = self.reshape([images, windows.input[0], windows.input[1]])?;
        let op = crate::shared::Shared::new(MaxPool(windows));
        let found = self.recorder().record(op, &[&flat])?;
        let shape = [self.dims()[0], self.dims()[1], windows.output[0], windows.output[1]];
        Ok((found[0].reshape(shape)?, found[1].reshape(shape)?))
    }

    /// The largest element of each window of `[N, C, H, W]` (`max_pool2d`).
    ///
    /// # Errors
    /// As [`Tensor::max_pool2d_with_indices`].
    pub fn max_pool2d(&self, kernel: [usize; 2], stride: [usize; 2], padding: [usize; 2]) -> Result<Self> {
        Ok(self.max_pool2d_with_indices(kernel, stride, padding)?.0)
    }

    /// The mean of each window of `[N, C, H, W]` (`avg_pool2d`), zeros beyond the
    /// edge counting only if `count_include_pad`.
    ///
    /// # Errors
    /// As [`Tensor::max_pool2d_with_indices`].
    pub fn avg_pool2d(
        &self,
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        count_include_pad: bool,
    ) -> Result<Self> {
        let (images, windows) = self.windows("avg_pool2d", kernel, stride, padding)?;
        let recorder = self.recorder();
        let options = Conv2dOptions { stride, padding, ..Conv2dOptions::default() };
        let [height, width] = windows.input;
        let share = |weight: f32| recorder.full([1, 1, kernel[0], kernel[1]], weight);
        let image = self.reshape([images, 1, height, width])?;
        let mut mean = image.conv2d(&share(1.0 / windows.area() as f32)?, None, options)?;
        if !count_include_pad && padding != [0, 0] {
            let inside = recorder.ones([1, 1, height, width])?.conv2d(&share(1.0)?, None, options)?;
            mean = mean.mul_scalar(windows.area() as f32)?.div(&inside)?;
        }
        mean.reshape([self.dims()[0], self.dims()[1], windows.output[0], windows.output[1]])
    }
}
