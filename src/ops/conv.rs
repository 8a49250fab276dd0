//! Convolution in one and two dimensions and its transpose, without an im2col buffer.
//!
//! ```text
//! y[n, o, i, j] = sum over c, k, l of x[n, c, i s + k d - p, j s + l d - p] w[o, c, k, l]
//! dx = the transpose: each y[n, o, i, j] w[o, c, k, l] at the place of x that it came from
//! dw[o, c, k, l] = sum over n, i, j of y[n, o, i, j] x[n, c, i s + k d - p, j s + l d - p]
//! ```
//!
//! The three are linear in both operands and one another's gradients, so that they
//! can be differentiated as often as wanted. Layouts and formula are those of
//! PyTorch's `conv2d` (a cross-correlation); the gradients are Dumoulin and Visin 2016.

use super::kernel::{MOST_ROUNDS, busy_invocations, check_rounds, word};
use super::{CallOperand, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering, Op, conv_rows};
use crate::dtype::{Shape, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;

pub(super) const SIZES: &str = include_str!("../../shaders/shared/conv2d.wgsl");
const FORWARD: &str = include_str!("../../shaders/conv2d.wgsl");
const INPUT: &str = include_str!("../../shaders/conv2d_input.wgsl");
const WEIGHT: &str = include_str!("../../shaders/conv2d_weight.wgsl");
const WEIGHT_SUM: &str = include_str!("../../shaders/conv2d_weight_sum.wgsl");

/// Most parts that a weight's gradient is summed in.
pub(super) const MOST_PARTS: u64 = 256;

/// How a kernel moves over an image: rows, then columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conv2dOptions {
    /// Places from one output to the next, at least 1.
    pub stride: [usize; 2],
    /// Zeros added on either side.
    pub padding: [usize; 2],
    /// Places from one weight to the next, at least 1.
    pub dilation: [usize; 2],
    /// Channels are split into so many groups that do not see each other.
    pub groups: usize,
}

impl Default for Conv2dOptions {
    fn default() -> Self {
        Self { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 }
    }
}

impl Conv2dOptions {
    /// The same stride and padding in both directions.
    #[must_use]
    pub const fn new(stride: usize, padding: usize) -> Self {
        Self { stride: [stride; 2], padding: [padding; 2], dilation: [1, 1], groups: 1 }
    }

    pub(super) fn check(&self, op: &'static str) -> Result<()> {
        let wrong =
            |argument, value: String, detail: &str| Err(Error::Argument { op, argument, value, detail: detail.into() });
        if self.stride.contains(&0) {
            return wrong("stride", format!("{:?}", self.stride), "it must be at least 1");
        }
        if self.dilation.contains(&0) {
            return wrong("dilation", format!("{:?}", self.dilation), "it must be at least 1");
        }
        if self.groups == 0 {
            return wrong("groups", "0".into(), "it must be at least 1");
        }
        Ok(())
    }
}

/// All sizes of one convolution, whichever of its operands is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) options: Conv2dOptions,
    pub(super) batch: usize,
    /// Of one group.
    pub(super) in_channels: usize,
    /// Of one group.
    pub(super) out_channels: usize,
    pub(super) input: [usize; 2],
    pub(super) output: [usize; 2],
    pub(super) kernel: [usize; 2],
}

/// Which of the three operands is computed from the other two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// From input and weight.
    Output,
    /// From output and weight.
    Input,
    /// From input and output.
    Weight,
}

#[derive(Debug, Clone, Copy)]
struct Conv {
    side: Side,
    geometry: Geometry,
}

impl Geometry {
    /// Sizes from an input's and a weight's shape; the output's follow, or are given.
    fn new(
        op: &'static str,
        [input, weight]: [&Shape; 2],
        options: Conv2dOptions,
        output: Option<[usize; 2]>,
    ) -> Result<Self> {
        options.check(op)?;
        let misfit = |detail: String| Error::Shape { op, shapes: vec![input.clone(), weight.clone()], detail };
        let (&[batch, channels, height, width], &[filters, in_channels, kernel_height, kernel_width]) =
            (input.dims(), weight.dims())
        else {
            return Err(misfit("expected an input [N, C, H, W] and a weight of four axes".into()));
        };
        let groups = options.groups;
        if filters % groups != 0 || in_channels.checked_mul(groups) != Some(channels) {
            return Err(misfit(format!(
                "{groups} groups need a weight [O, C / groups, KH, KW] with O a multiple of groups; the input has {channels} channels"
            )));
        }
        if kernel_height == 0 || kernel_width == 0 {
            return Err(misfit("the kernel is empty".into()));
        }
        let kernel = [kernel_height, kernel_width];
        let mut follows = [0; 2];
        for (axis, extent) in [height, width].into_iter().enumerate() {
            let padded = options.padding[axis].checked_mul(2).and_then(|p| p.checked_add(extent));
            let reach = options.dilation[axis].checked_mul(kernel[axis] - 1).and_then(|r| r.checked_add(1));
            let (Some(padded), Some(reach)) = (padded, reach) else {
                return Err(misfit("padding or dilation is too large".into()));
            };
            if padded > 1 << 31 || reach > padded {
                return Err(misfit(format!("a kernel that reaches over {reach} places does not fit {padded}")));
            }
            follows[axis] = (padded - reach) / options.stride[axis] + 1;
        }
        Ok(Self {
            options,
            batch,
            in_channels,
            out_channels: filters / groups,
            input: [height, width],
            output: output.unwrap_or(follows),
            kernel,
        })
    }

    fn shape(&self, side: Side) -> Shape {
        let groups = self.options.groups;
        let [inputs, outputs] = [self.in_channels * groups, self.out_channels * groups];
        Shape(match side {
            Side::Output => vec![self.batch, outputs, self.output[0], self.output[1]],
            Side::Input => vec![self.batch, inputs, self.input[0], self.input[1]],
            Side::Weight => vec![outputs, self.in_channels, self.kernel[0], self.kernel[1]],
        })
    }

    fn operands(side: Side) -> [Side; 2] {
        match side {
            Side::Output => [Side::Input, Side::Weight],
            Side::Input => [Side::Output, Side::Weight],
            Side::Weight => [Side::Input, Side::Output],
        }
    }

    /// The uniform words of `shaders/shared/conv2d.wgsl`: invocations, sizes, and the last three.
    pub(super) fn words(&self, count: u64, last: [u64; 3]) -> Vec<u32> {
        let o = &self.options;
        let sizes = [
            self.batch,
            o.groups,
            self.in_channels,
            self.out_channels,
            self.input[0],
            self.input[1],
            self.output[0],
            self.output[1],
            self.kernel[0],
            self.kernel[1],
            o.stride[0],
            o.stride[1],
            o.padding[0],
            o.padding[1],
            o.dilation[0],
            o.dilation[1],
        ];
        let head = std::iter::once(word(count)).chain(sizes.iter().map(|&n| word(n as u64)));
        head.chain(last.map(word)).collect()
    }

    /// Bytes of the three operands.
    pub(super) fn bytes(&self, context: &KernelContext<'_>) -> f64 {
        let read: u64 = context.inputs.iter().map(|i| i.ty.size_bytes()).sum();
        (read + context.outputs[0].size_bytes()) as f64
    }

    pub(super) fn flops(&self) -> f64 {
        let size = |n: &[usize]| n.iter().map(|&n| n as f64).product::<f64>();
        2.0 * size(&self.shape(Side::Output).0) * self.in_channels as f64 * size(&self.kernel)
    }
}

impl Op for Conv {
    fn name(&self) -> &'static str {
        match self.side {
            Side::Output => "conv2d",
            Side::Input => "conv_transpose2d",
            Side::Weight => "conv2d_weight",
        }
    }

    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        super::binary::same_types(self.name(), inputs)?;
        Ok(vec![TensorType::new(inputs[0].dtype, self.geometry.shape(self.side))])
    }

    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let g = call.grad()?;
        // Whatever is computed stands in for itself in the formula of its operands.
        let of = |side: Side| -> Result<Tensor> {
            let pick = |wanted: Side| {
                if wanted == self.side {
                    return g;
                }
                &call.inputs[usize::from(Geometry::operands(self.side)[0] != wanted)]
            };
            let [first, second] = Geometry::operands(side).map(pick);
            self.geometry.apply(side, first, second)
        };
        let [first, second] = Geometry::operands(self.side);
        let first = if call.needed[0] { Some(of(first)?) } else { None };
        let second = if call.needed[1] { Some(of(second)?) } else { None };
        Ok(vec![first, second])
    }

    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl Geometry {
    /// Records the computation of `side`; of nothing to add up it is 0.
    fn apply(self, side: Side, first: &Tensor, second: &Tensor) -> Result<Tensor> {
        if first.element_count() == 0 || second.element_count() == 0 {
            return first.recorder().zeros(self.shape(side));
        }
        first.apply_with(Conv { side, geometry: self }, &[second])
    }
}

impl KernelOp for Conv {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let g = &self.geometry;
        if conv_rows::fits(g) {
            return conv_rows::kernels(g, self.side, self.name(), context);
        }
        let [batch, groups] = [g.batch as u64, g.options.groups as u64];
        let (ins, outs) = (g.in_channels as u64, g.out_channels as u64);
        let taps = g.kernel[0] as u64 * g.kernel[1] as u64;
        let call = |source: &str, count: u64, part_rows: u64, parts: u64, output: CallOperand| KernelCall {
            name: self.name(),
            source: format!("{SIZES}{source}").into(),
            constants: Vec::new(),
            operands: vec![CallOperand::Input(0), CallOperand::Input(1), output],
            uniforms: g.words(count, [part_rows, parts, 0]),
            grid: context.profile.split_grid(count.div_ceil(64)),
            cost: Cost { flops: g.flops(), bytes: g.bytes(context) },
        };
        let (columns, rows) = match self.side {
            Side::Input => ((g.input[1] as u64).div_ceil(4), g.input[0] as u64),
            _ => ((g.output[1] as u64).div_ceil(4), g.output[0] as u64),
        };
        match self.side {
            Side::Output => {
                check_rounds(context.profile, self.name(), ins, taps * (ins + 1) + 4)?;
                let count = columns * rows * outs.div_ceil(4) * groups * batch;
                let calls = vec![call(FORWARD, count, 0, 0, CallOperand::Output(0))];
                Ok(KernelCalls { scratch_bytes: Vec::new(), calls })
            }
            Side::Input => {
                check_rounds(context.profile, self.name(), outs, taps * (outs + 1) + 4)?;
                let count = columns * rows * ins.div_ceil(4) * groups * batch;
                let calls = vec![call(INPUT, count, 0, 0, CallOperand::Output(0))];
                Ok(KernelCalls { scratch_bytes: Vec::new(), calls })
            }
            Side::Weight => {
                let tiles = taps * ins.div_ceil(4) * outs.div_ceil(4) * groups;
                let all_rows = batch * rows;
                // A row takes its columns and itself; enough parts that none takes too many rounds.
                let row_rounds = g.output[1] as u64 + 1;
                let least = (all_rows * row_rounds).div_ceil(MOST_ROUNDS);
                let wished = busy_invocations(context.profile).div_ceil(tiles).min(MOST_PARTS);
                let part_rows = all_rows.div_ceil(wished.max(least).min(all_rows));
                let parts = all_rows.div_ceil(part_rows);
                check_rounds(context.profile, self.name(), all_rows, (part_rows * row_rounds).max(parts))?;
                if parts == 1 {
                    let calls = vec![call(WEIGHT, tiles, part_rows, 1, CallOperand::Output(0))];
                    return Ok(KernelCalls { scratch_bytes: Vec::new(), calls });
                }
                let count = context.outputs[0].shape.element_count();
                let sum = KernelCall {
                    name: "conv2d_weight_sum",
                    source: WEIGHT_SUM.into(),
                    constants: Vec::new(),
                    operands: vec![CallOperand::ScratchRead(0), CallOperand::Output(0)],
                    uniforms: vec![word(count), word(parts), 0, 0],
                    grid: context.profile.split_grid(count.div_ceil(64)),
                    cost: Cost { flops: (count * parts) as f64, bytes: 4.0 * (count * (parts + 1)) as f64 },
                };
                let calls = vec![call(WEIGHT, tiles * parts, part_rows, parts, CallOperand::Scratch(0)), sum];
                Ok(KernelCalls { scratch_bytes: vec![4 * count * parts], calls })
            }
        }
    }
}

impl Tensor {
    fn with_channel_bias(&self, op: &'static str, bias: Option<&Self>) -> Result<Self> {
        match bias {
            None => Ok(self.clone()),
            Some(bias) if bias.dims() == [self.dims()[1]] => {
                let mut dims = vec![1; self.rank()];
                dims[1] = bias.dims()[0];
                self.add(&bias.reshape(dims)?)
            }
            Some(bias) => {
                let shapes = vec![self.shape().clone(), bias.shape().clone()];
                Err(Error::Shape { op, shapes, detail: format!("the bias must be [{}]", self.dims()[1]) })
            }
        }
    }

    /// Convolution of `[N, C, H, W]` with `weight [O, C / groups, KH, KW]`, plus
    /// `bias [O]`: `[N, O, HO, WO]` with `HO = (H + 2 p - d (KH - 1) - 1) / s + 1`
    /// rounded down. A cross-correlation, as `torch.nn.functional.conv2d`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the operands do not fit, [`Error::Argument`] for a stride,
    /// dilation or number of groups of 0, [`Error::DType`] unless `f32`.
    pub fn conv2d(&self, weight: &Self, bias: Option<&Self>, options: Conv2dOptions) -> Result<Self> {
        const OP: &str = "conv2d";
        self.expect_float(OP, 0)?;
        weight.expect_float(OP, 1)?;
        let geometry = Geometry::new(OP, [self.shape(), weight.shape()], options, None)?;
        geometry.apply(Side::Output, self, weight)?.with_channel_bias(OP, bias)
    }

    /// Transposed convolution where every element becomes a patch of its own, stride and
    /// kernel being equal: a product of channels, `[N, O KH KW, H, W]`, and a new order.
    fn spread(&self, weight: &Self, bias: Option<&Self>) -> Result<Self> {
        let (&[batch, channels, height, width], &[_, outs, rows, columns]) = (self.dims(), weight.dims()) else {
            let shapes = vec![self.shape().clone(), weight.shape().clone()];
            return Err(Error::Shape { op: "conv_transpose2d", shapes, detail: "expected four axes each".into() });
        };
        let filters = outs * rows * columns;
        let weight = weight.reshape([channels, filters])?.t()?.reshape([filters, channels, 1, 1])?;
        let patches = self.conv2d(&weight, None, Conv2dOptions::default())?;
        let patches = patches.reshape([batch, outs, rows, columns, height, width])?.permute(&[0, 1, 4, 2, 5, 3])?;
        patches.with_channel_bias("conv_transpose2d", bias)?.reshape([batch, outs, height * rows, width * columns])
    }

    /// The transpose of [`Tensor::conv2d`], of `[N, C, H, W]` with `weight
    /// [C, O / groups, KH, KW]`: `[N, O, HO, WO]` with `HO = (H - 1) s - 2 p +
    /// d (KH - 1) + 1 + output_padding`, as `torch.nn.functional.conv_transpose2d`.
    ///
    /// # Errors
    /// As [`Tensor::conv2d`]; [`Error::Argument`] for an `output_padding` that is
    /// not below the stride or the dilation.
    pub fn conv_transpose2d(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        options: Conv2dOptions,
        output_padding: [usize; 2],
    ) -> Result<Self> {
        const OP: &str = "conv_transpose2d";
        self.expect_float(OP, 0)?;
        weight.expect_float(OP, 1)?;
        options.check(OP)?;
        let misfit = |detail: String| Error::Shape {
            op: OP,
            shapes: vec![self.shape().clone(), weight.shape().clone()],
            detail,
        };
        let (&[batch, channels, height, width], &[rows, per_group, kernel_height, kernel_width]) =
            (self.dims(), weight.dims())
        else {
            return Err(misfit("expected [N, C, H, W] and a weight of four axes".into()));
        };
        if rows != channels {
            return Err(misfit(format!("the weight must be [{channels}, O / groups, KH, KW]")));
        }
        let mut extents = [0; 2];
        for (axis, (extent, kernel)) in [(height, kernel_height), (width, kernel_width)].into_iter().enumerate() {
            let extra = output_padding[axis];
            if extra >= options.stride[axis].max(options.dilation[axis]) {
                return Err(Error::Argument {
                    op: OP,
                    argument: "output_padding",
                    value: format!("{output_padding:?}"),
                    detail: "it must be below the stride or the dilation".into(),
                });
            }
            let reach = extent.checked_sub(1).and_then(|n| n.checked_mul(options.stride[axis]));
            let spread = kernel.checked_sub(1).and_then(|k| k.checked_mul(options.dilation[axis]));
            let sum = reach.zip(spread).and_then(|(r, s)| r.checked_add(s)?.checked_add(1 + extra));
            let cut = options.padding[axis].saturating_mul(2);
            let Some(out) = sum.and_then(|n| n.checked_sub(cut)).filter(|&n| n > 0) else {
                return Err(misfit("nothing is left of the result, or it is too large".into()));
            };
            extents[axis] = out;
        }
        if options == (Conv2dOptions { stride: options.stride, ..Conv2dOptions::default() })
            && options.stride == [kernel_height, kernel_width]
            && output_padding == [0, 0]
            && self.element_count() * weight.element_count() > 0
        {
            return self.spread(weight, bias);
        }
        // What this computes is the input of a convolution whose output is given.
        let input = Shape(vec![batch, per_group.saturating_mul(options.groups), extents[0], extents[1]]);
        let geometry = Geometry::new(OP, [&input, weight.shape()], options, Some([height, width]))?;
        geometry.apply(Side::Input, self, weight)?.with_channel_bias(OP, bias)
    }

    /// Convolution of `[N, C, L]` with `weight [O, C / groups, K]`, plus `bias [O]`,
    /// as `torch.nn.functional.conv1d`: [`Tensor::conv2d`] of one row.
    ///
    /// # Errors
    /// As [`Tensor::conv2d`].
    pub fn conv1d(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        stride: usize,
        padding: usize,
        dilation: usize,
        groups: usize,
    ) -> Result<Self> {
        let (&[batch, channels, length], &[filters, per_group, kernel]) = (self.dims(), weight.dims()) else {
            let shapes = vec![self.shape().clone(), weight.shape().clone()];
            let detail = "expected [N, C, L] and a weight [O, C / groups, K]".into();
            return Err(Error::Shape { op: "conv1d", shapes, detail });
        };
        let options = Conv2dOptions { stride: [1, stride], padding: [0, padding], dilation: [1, dilation], groups };
        let image = self.reshape([batch, channels, 1, length])?;
        let y = image.conv2d(&weight.reshape([filters, per_group, 1, kernel])?, bias, options)?;
        let &[_, _, _, out] = y.dims() else { return Ok(y) };
        y.reshape([batch, filters, out])
    }
}
