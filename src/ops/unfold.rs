//! Windows of images side by side, and back.
//!
//! ```text
//! unfold  y[n, (c KH + k) KW + l, i WO + j] = x[n, c, i s + k d - p, j s + l d - p]
//! fold    x[n, c, a, b] = the sum of all y that unfold would take from there
//! ```
//!
//! Each is the other's gradient. Layouts are those of PyTorch's `F.unfold` and
//! `F.fold`. Convolutions need neither: their kernels read the image itself.

use super::kernel::{check_rounds, word};
use super::{CallOperand, Conv2dOptions, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use crate::dtype::{Shape, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;

const UNFOLD: &str =
    concat!(include_str!("../../shaders/shared/unfold.wgsl"), include_str!("../../shaders/unfold.wgsl"));
const FOLD: &str = concat!(include_str!("../../shaders/shared/unfold.wgsl"), include_str!("../../shaders/fold.wgsl"));

/// Sizes of the images, of the windows and of their places.
#[derive(Debug, Clone, Copy)]
struct Windows {
    batch: usize,
    channels: usize,
    size: [usize; 2],
    output: [usize; 2],
    kernel: [usize; 2],
    options: Conv2dOptions,
}

#[derive(Debug, Clone, Copy)]
struct Unfold(Windows);

#[derive(Debug, Clone, Copy)]
struct Fold(Windows);

impl Windows {
    fn new(
        op: &'static str,
        shape: &Shape,
        [batch, channels]: [usize; 2],
        size: [usize; 2],
        kernel: [usize; 2],
        options: Conv2dOptions,
    ) -> Result<Self> {
        options.check(op)?;
        if options.groups != 1 {
            let (value, detail) = (options.groups.to_string(), "it must be 1: channels stay apart as it is".into());
            return Err(Error::Argument { op, argument: "groups", value, detail });
        }
        let mut output = [0; 2];
        for axis in 0..2 {
            let padded = options.padding[axis].checked_mul(2).and_then(|p| p.checked_add(size[axis]));
            let reach = kernel[axis].checked_sub(1).and_then(|k| k.checked_mul(options.dilation[axis])?.checked_add(1));
            let fits = padded.zip(reach).filter(|(padded, reach)| *padded <= 1 << 31 && reach <= padded);
            let Some((padded, reach)) = fits else {
                let detail = format!("a window of {kernel:?} does not fit images of {size:?} with their padding");
                return Err(Error::Shape { op, shapes: vec![shape.clone()], detail });
            };
            output[axis] = (padded - reach) / options.stride[axis] + 1;
        }
        Ok(Self { batch, channels, size, output, kernel, options })
    }

    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    fn images(&self) -> Shape {
        Shape(vec![self.batch, self.channels, self.size[0], self.size[1]])
    }

    fn columns(&self) -> Shape {
        Shape(vec![self.batch, self.channels.saturating_mul(self.taps()), self.output[0] * self.output[1]])
    }

    fn call(&self, name: &'static str, source: &'static str, context: &KernelContext<'_>) -> KernelCalls {
        let count = context.outputs[0].shape.element_count();
        let o = &self.options;
        let pairs = [self.size, self.output, self.kernel, o.stride, o.padding, o.dilation];
        let mut uniforms = vec![word(count), word(self.channels as u64)];
        uniforms.extend(pairs.iter().flatten().map(|&n| word(n as u64)));
        uniforms.extend([0, 0]);
        let call = KernelCall {
            name,
            source: source.into(),
            constants: Vec::new(),
            operands: vec![CallOperand::Input(0), CallOperand::Output(0)],
            uniforms,
            grid: context.profile.split_grid(count.div_ceil(64)),
            cost: Cost { flops: 0.0, bytes: 8.0 * self.columns().element_count() as f64 },
        };
        KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] }
    }
}

impl Op for Unfold {
    fn name(&self) -> &'static str {
        "unfold"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![TensorType::new(inputs[0].dtype, self.0.columns())])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(call.grad()?.apply_with(Fold(self.0), &[])?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for Unfold {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        Ok(self.0.call(self.name(), UNFOLD, context))
    }
}

impl Op for Fold {
    fn name(&self) -> &'static str {
        "fold"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![TensorType::new(inputs[0].dtype, self.0.images())])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(call.grad()?.apply_with(Unfold(self.0), &[])?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for Fold {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        check_rounds(context.profile, self.name(), self.0.taps() as u64, self.0.taps() as u64)?;
        Ok(self.0.call(self.name(), FOLD, context))
    }
}

impl Tensor {
    /// The windows of `[N, C, H, W]` as columns: `[N, C KH KW, L]`, one column for each
    /// of the `L = HO WO` places of a kernel that moves as in [`Tensor::conv2d`]
    /// (`F.unfold`; `options.groups` is 1). `HO = (H + 2 p - d (KH - 1) - 1) / s + 1`.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the windows fit, [`Error::Argument`] for a stride or
    /// dilation of 0, [`Error::DType`] unless `f32`.
    pub fn unfold(&self, kernel: [usize; 2], options: Conv2dOptions) -> Result<Self> {
        const OP: &str = "unfold";
        self.expect_float(OP, 0)?;
        let &[batch, channels, height, width] = self.dims() else {
            let shapes = vec![self.shape().clone()];
            return Err(Error::Shape { op: OP, shapes, detail: "expected [N, C, H, W]".into() });
        };
        let windows = Windows::new(OP, self.shape(), [batch, channels], [height, width], kernel, options)?;
        if self.element_count() == 0 {
            return self.recorder().zeros(windows.columns());
        }
        self.apply_with(Unfold(windows), &[])
    }

    /// Columns `[N, C KH KW, L]` added up to the images `[N, C, H, W]`, `size` being
    /// `[H, W]`, whose windows [`Tensor::unfold`] would have taken them for (`F.fold`).
    ///
    /// # Errors
    /// [`Error::Shape`] unless the columns are those of such images, else as
    /// [`Tensor::unfold`].
    pub fn fold(&self, size: [usize; 2], kernel: [usize; 2], options: Conv2dOptions) -> Result<Self> {
        const OP: &str = "fold";
        self.expect_float(OP, 0)?;
        let misfit = |detail: String| Error::Shape { op: OP, shapes: vec![self.shape().clone()], detail };
        let taps = kernel[0].saturating_mul(kernel[1]);
        let &[batch, rows, places] = self.dims() else {
            return Err(misfit("expected [N, C KH KW, L]".into()));
        };
        if taps == 0 || rows % taps != 0 {
            return Err(misfit(format!("the second axis must be channels of {kernel:?} elements each")));
        }
        let windows = Windows::new(OP, self.shape(), [batch, rows / taps], size, kernel, options)?;
        let [down, across] = windows.output;
        if places != down * across {
            return Err(misfit(format!("images of {size:?} have {down} x {across} windows of {kernel:?}")));
        }
        if self.element_count() == 0 {
            return self.recorder().zeros(windows.images());
        }
        self.apply_with(Fold(windows), &[])
    }
}
