//! The largest elements of windows that are chosen so that a size comes out.
//!
//! ```text
//! y[n, c, i, j] = the largest x[n, c, a, b] with floor(i H / HO) <= a < ceil((i + 1) H / HO), ..
//! ```
//!
//! Windows are PyTorch's (`F.adaptive_max_pool2d`); neighbours may overlap. The place
//! of each is saved, and gradients go there, added up in a fixed order.

use super::kernel::{check_rounds, word};
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;
use crate::shared::Shared;

const FORWARD: &str = concat!(
    include_str!("../../shaders/shared/math_extrema.wgsl"),
    include_str!("../../shaders/shared/adaptive_pool2d.wgsl"),
    include_str!("../../shaders/adaptive_max_pool2d.wgsl")
);
const GRAD: &str = concat!(
    include_str!("../../shaders/shared/adaptive_pool2d.wgsl"),
    include_str!("../../shaders/adaptive_max_pool2d_grad.wgsl")
);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    input: [usize; 2],
    output: [usize; 2],
}

/// `x [N, H, W] -> y, places (u32), both [N, HO, WO]`.
#[derive(Debug, Clone, Copy)]
struct AdaptiveMaxPool(Sizes);

/// `g, places -> dx [N, H, W]`.
#[derive(Debug, Clone, Copy)]
struct AdaptiveMaxPoolGrad(Sizes);

impl Sizes {
    fn words(&self, count: u64) -> Vec<u32> {
        let sizes = [self.input, self.output];
        std::iter::once(word(count)).chain(sizes.iter().flatten().map(|&n| word(n as u64))).chain([0; 3]).collect()
    }

    /// Most rounds along windows of `of` that meet one place of `by`.
    fn rounds(of: [usize; 2], by: [usize; 2]) -> u64 {
        let across = |axis: usize| of[axis].div_ceil(by[axis]) as u64 + 1;
        across(0) * (across(1) + 1)
    }
}

impl Op for AdaptiveMaxPool {
    fn name(&self) -> &'static str {
        "adaptive_max_pool2d"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let shape = [inputs[0].shape.0[0], self.0.output[0], self.0.output[1]];
        Ok(vec![TensorType::new(inputs[0].dtype, shape), TensorType::new(DType::U32, shape)])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(call.grad()?.apply_with(AdaptiveMaxPoolGrad(self.0), &[&call.outputs[1]])?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for AdaptiveMaxPool {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let count = context.outputs[0].shape.element_count();
        let rounds = Sizes::rounds(self.0.input, self.0.output);
        check_rounds(context.profile, self.name(), rounds, rounds)?;
        let call = KernelCall {
            name: self.name(),
            source: FORWARD.into(),
            constants: Vec::new(),
            operands: vec![CallOperand::Input(0), CallOperand::Output(0), CallOperand::Output(1)],
            uniforms: self.0.words(count),
            grid: context.profile.split_grid(count.div_ceil(64)),
            cost: Cost {
                flops: context.inputs[0].ty.shape.element_count() as f64,
                bytes: (8 * count + context.inputs[0].ty.size_bytes()) as f64,
            },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

impl Op for AdaptiveMaxPoolGrad {
    fn name(&self) -> &'static str {
        "adaptive_max_pool2d_grad"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![TensorType::new(inputs[0].dtype, [inputs[0].shape.0[0], self.0.input[0], self.0.input[1]])])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let h = call.grad()?.picked_at(&call.inputs[1])?;
        Ok(vec![Some(h), None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for AdaptiveMaxPoolGrad {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let count = context.outputs[0].shape.element_count();
        let rounds = Sizes::rounds(self.0.output, self.0.input);
        check_rounds(context.profile, self.name(), rounds, rounds)?;
        let call = KernelCall {
            name: self.name(),
            source: GRAD.into(),
            constants: Vec::new(),
            operands: vec![CallOperand::Input(0), CallOperand::Input(1), CallOperand::Output(0)],
            uniforms: self.0.words(count),
            grid: context.profile.split_grid(count.div_ceil(64)),
            cost: Cost { flops: count as f64, bytes: (4 * count + 2 * context.inputs[0].ty.size_bytes()) as f64 },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

impl Tensor {
    /// The largest element of each of `size` windows of `[N, C, H, W]`, and its place in
    /// the image, `row * W + column`, as `u32`.
    ///
    /// # Errors
    /// As [`Tensor::adaptive_max_pool2d`].
    pub fn adaptive_max_pool2d_with_indices(&self, size: [usize; 2]) -> Result<(Self, Self)> {
        const OP: &str = "adaptive_max_pool2d";
        self.expect_float(OP, 0)?;
        let misfit = |detail: String| Error::Shape { op: OP, shapes: vec![self.shape().clone()], detail };
        let &[batch, channels, height, width] = self.dims() else {
            return Err(misfit("expected [N, C, H, W]".into()));
        };
        let input = [height, width];
        if input.contains(&0) {
            return Err(misfit("an empty image has no largest element".into()));
        }
        for axis in 0..2 {
            let most = input[axis].checked_add(1).and_then(|n| n.checked_mul(size[axis].checked_add(1)?));
            if size[axis] == 0 || most.is_none_or(|n| u32::try_from(n).is_err()) {
                let detail = format!("it must be at least 1, and times {} below 2^32", input[axis]);
                return Err(Error::Argument { op: OP, argument: "size", value: format!("{size:?}"), detail });
            }
        }
        let images = self.reshape([batch * channels, height, width])?;
        let op = Shared::new(AdaptiveMaxPool(Sizes { input, output: size }));
        let found = self.recorder().record(op, &[&images])?;
        let shape = [batch, channels, size[0], size[1]];
        Ok((found[0].reshape(shape)?, found[1].reshape(shape)?))
    }

    /// The largest element of each of `size = [HO, WO]` windows of `[N, C, H, W]`, which
    /// cover the image: `[N, C, HO, WO]` (`F.adaptive_max_pool2d`).
    ///
    /// # Errors
    /// [`Error::Shape`] unless `[N, C, H, W]` with rows and columns, [`Error::Argument`]
    /// for a size of 0, [`Error::DType`] unless `f32` or `f16`.
    pub fn adaptive_max_pool2d(&self, size: [usize; 2]) -> Result<Self> {
        Ok(self.adaptive_max_pool2d_with_indices(size)?.0)
    }
}
