//! Losses: cross-entropy with integer classes, mean squared error.
//!
//! ```text
//! cross_entropy  loss[n] = lse[n] - (1 - s) x[n, target] - s mean(x[n, :])
//!                lse = log sum exp x, s the label smoothing
//!                dx = (exp(x - lse) - (1 - s) [target] - s / V) * g[n]
//! mse            (x - y)^2      dx = 2 (x - y) g      dy = -dx
//! ```
//!
//! Cross-entropy keeps the logits and one number per row, lse; neither the
//! softmax nor a one-hot target is ever made. The mean over the rows that are not
//! ignored is PyTorch's. The gradient kernel has a rule of its own (with h the
//! gradient of dx and p = exp(x - lse)):
//!
//! ```text
//! dg = sum(h * dx of g = 1)      d2x = p * (h g - sum(p * h g))
//! ```
//!
//! Of `f16` logits the losses and lse are `f32` all the same.
//!
//! A target that is no class gives a loss and a gradient of NaN, so that it is
//! seen; nothing out of bounds is read.

use super::kernel::{check_rounds, span, word};
use super::{
    CallOperand, ElementCall, ElementwiseOp, GradientCall, KernelCall, KernelCalls, KernelContext, KernelOp, Lowering,
    Op,
};
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Cost;
use crate::graph::Tensor;

const FORWARD: &str = include_str!("../../shaders/cross_entropy.wgsl");
const GRAD: &str = include_str!("../../shaders/cross_entropy_grad.wgsl");

/// How a loss per row or element becomes the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Reduction {
    /// The mean, of rows that are not ignored.
    #[default]
    Mean,
    /// The sum.
    Sum,
    /// The sum divided by the extent of the first axis (PyTorch's `"batchmean"` of
    /// `kl_div`).
    BatchMean,
    /// One loss per row or element.
    None,
}

/// What [`Tensor::cross_entropy_with`] may be told.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CrossEntropyOptions {
    /// How the losses of the rows are put together.
    pub reduction: Reduction,
    /// Rows with this target have no loss and do not count for the mean.
    pub ignore_index: Option<i32>,
    /// This share of the target is spread over all classes alike, in 0..=1.
    pub label_smoothing: f32,
}

/// `x [N, V], targets [N] -> loss [N], lse [N]`.
#[derive(Debug, Clone, Copy)]
struct CrossEntropy {
    ignore: Option<i32>,
    smoothing: f32,
}

/// `x, targets, lse, g [N] -> dx [N, V]`.
#[derive(Debug, Clone, Copy)]
struct CrossEntropyGrad {
    of: CrossEntropy,
}

impl CrossEntropy {
    /// The uniform words of both kernels; `count` is the number of invocations.
    fn words(self, count: u64, blocks: u64, classes: u64) -> Vec<u32> {
        vec![
            word(count),
            word(blocks),
            word(classes),
            u32::from(self.ignore.is_some()),
            self.ignore.unwrap_or(0).cast_unsigned(),
            self.smoothing.to_bits(),
            (1.0 / classes as f32).to_bits(),
            f32::NAN.to_bits(),
        ]
    }
}

/// The text for four classes at once or one.
fn lanes(text: &'static str, wide: bool) -> std::borrow::Cow<'static, str> {
    let text = super::kernel::specialised(text, DType::F32, wide);
    if wide {
        return text;
    }
    text.replace("const LANES: u32 = 4u;", "const LANES: u32 = 1u;")
        .replace("{ return v[i]; }", "{ return v; }")
        .replace("{ return vec4<u32>(0u, 1u, 2u, 3u) + i * LANES; }", "{ return i; }")
        .into()
}

impl Op for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let per_row = TensorType::new(DType::F32, [inputs[0].shape.dims()[0]]);
        Ok(vec![per_row.clone(), per_row])
    }

    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (x, targets, lse) = (&call.inputs[0], &call.inputs[1], &call.outputs[1]);
        let mut dx = None;
        if let Some(g) = &call.grads[0] {
            dx = Some(x.apply_with(CrossEntropyGrad { of: *self }, &[targets, lse, g])?);
        }
        // Only where the gradient was differentiated again.
        if let Some(g) = &call.grads[1] {
            let of_lse = probabilities(x, lse)?.mul(&g.reshape([x.dims()[0], 1])?)?.to_dtype(x.dtype())?;
            dx = Some(match dx {
                Some(sum) => sum.add(&of_lse)?,
                None => of_lse,
            });
        }
        Ok(vec![dx, None])
    }

    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

/// exp(x - lse), as simple ops, in f32.
fn probabilities(x: &Tensor, lse: &Tensor) -> Result<Tensor> {
    x.to_f32()?.sub(&lse.reshape([x.dims()[0], 1])?)?.exp()
}

impl KernelOp for CrossEntropy {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let dims = context.inputs[0].ty.shape.dims();
        let (rows, classes) = (dims[0] as u64, dims[1] as u64);
        let wide = classes.is_multiple_of(4);
        let blocks = if wide { classes / 4 } else { classes };
        let walks = if self.smoothing == 0.0 { 1 } else { 2 };
        check_rounds(context.profile, self.name(), classes, blocks / 4 + 3 + walks * blocks)?;
        let elements = (rows * classes) as f64;
        let call = KernelCall {
            name: self.name(),
            source: lanes(FORWARD, wide),
            constants: Vec::new(),
            operands: vec![
                CallOperand::Input(0),
                CallOperand::Input(1),
                CallOperand::Output(0),
                CallOperand::Output(1),
            ],
            uniforms: self.words(rows, blocks, classes),
            grid: context.profile.split_grid(rows.div_ceil(64)),
            cost: Cost { flops: 12.0 * elements, bytes: 4.0 * elements },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

impl Op for CrossEntropyGrad {
    fn name(&self) -> &'static str {
        "cross_entropy_grad"
    }

    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![inputs[0].clone()])
    }

    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let [x, targets, lse, g] = [0, 1, 2, 3].map(|i| &call.inputs[i]);
        let h = &call.grad()?.to_f32()?;
        let dg = if call.needed[3] {
            let ones = x.recorder().full(g.shape().clone(), 1.0)?;
            let of_one = x.apply_with(*self, &[targets, lse, &ones])?;
            Some(h.mul(&of_one.to_f32()?)?.sum(&[1], false)?)
        } else {
            None
        };
        let d2x = if call.needed[0] {
            let mut g = g.clone();
            if let Some(ignore) = self.of.ignore {
                g = g.mul(&targets.apply(Counted { ignore })?)?;
            }
            let p = probabilities(x, lse)?;
            let hg = h.mul(&g.reshape([x.dims()[0], 1])?)?;
            let php = p.mul(&hg)?;
            Some(php.sub(&p.mul(&php.sum(&[1], true)?)?)?.to_dtype(x.dtype())?)
        } else {
            None
        };
        // All of the derivative with respect to x, that through lse included.
        Ok(vec![d2x, None, None, dg])
    }

    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}

impl KernelOp for CrossEntropyGrad {
    fn kernels(&self, context: &KernelContext<'_>) -> Result<KernelCalls> {
        let dims = context.inputs[0].ty.shape.dims();
        let (rows, classes) = (dims[0] as u64, dims[1] as u64);
        let wide = classes.is_multiple_of(4);
        let blocks = if wide { classes / 4 } else { classes };
        let elements = (rows * classes) as f64;
        let mut operands: Vec<CallOperand> = (0..4).map(CallOperand::Input).collect();
        operands.push(CallOperand::Output(0));
        let span = span(context.profile, rows, blocks);
        let spans = blocks.div_ceil(span);
        let count = rows * spans;
        let mut uniforms = self.of.words(count, blocks, classes);
        uniforms.extend([span, spans, 0, 0].map(word));
        let call = KernelCall {
            name: self.name(),
            source: lanes(GRAD, wide),
            constants: Vec::new(),
            operands,
            uniforms,
            grid: context.profile.split_grid(count.div_ceil(64)),
            cost: Cost { flops: 10.0 * elements, bytes: 8.0 * elements },
        };
        Ok(KernelCalls { scratch_bytes: Vec::new(), calls: vec![call] })
    }
}

/// 1 where an integer is not the ignored one, else 0.
#[derive(Debug, Clone, Copy)]
struct Counted {
    ignore: i32,
}

impl Op for Counted {
    fn name(&self) -> &'static str {
        "counted"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![TensorType::new(DType::F32, inputs[0].shape.clone())])
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for Counted {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        format!("select(1.0, 0.0, u32({}) == {})", call.operands[0], call.words[0])
    }
    fn words(&self) -> Vec<u32> {
        vec![self.ignore.cast_unsigned()]
    }
}

/// `(x - y)^2` in one pass that keeps nothing of its own for backward.
#[derive(Debug, Clone, Copy)]
struct SquaredDifference;

impl Op for SquaredDifference {
    fn name(&self) -> &'static str {
        "squared_difference"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (x, y, g) = (&call.inputs[0], &call.inputs[1], call.grad()?);
        let of = |a: &Tensor, b: &Tensor| a.sub(b)?.mul(&g.mul_scalar(2.0)?);
        Ok(match (call.needed[0], call.needed[1]) {
            (true, true) => {
                let dx = of(x, y)?;
                let dy = dx.neg()?;
                vec![Some(dx), Some(dy)]
            }
            (true, false) => vec![Some(of(x, y)?), None],
            (false, true) => vec![None, Some(of(y, x)?)],
            (false, false) => vec![None, None],
        })
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for SquaredDifference {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        let (a, b) = (&call.operands[0], &call.operands[1]);
        format!("({a} - {b}) * ({a} - {b})")
    }
    fn flops(&self) -> f64 {
        2.0
    }
}

/// The targets as `i32` with 0 in the place of ignored ones, and what sets their rows to 0.
pub(super) fn kept_targets(
    targets: &Tensor,
    ignore: Option<i32>,
) -> Result<(Tensor, impl Fn(Tensor) -> Result<Tensor> + use<>)> {
    let mut ids = targets.to_i32()?;
    let ignored = ignore.map(|ignore| ids.eq_scalar(ignore)).transpose()?;
    if let Some(ignored) = &ignored {
        ids = ids.masked_fill(ignored, 0)?;
    }
    let drop = move |rows: Tensor| match &ignored {
        Some(ignored) => rows.masked_fill(ignored, 0.0),
        None => Ok(rows),
    };
    Ok((ids, drop))
}

impl Tensor {
    /// The losses put together as `reduction` says.
    pub(super) fn reduced(&self, reduction: Reduction) -> Result<Self> {
        match reduction {
            Reduction::Mean => self.mean_all(),
            Reduction::Sum => self.sum_all(),
            Reduction::BatchMean => self.sum_all()?.div_scalar(self.dims().first().copied().unwrap_or(1) as f32),
            Reduction::None => Ok(self.clone()),
        }
    }

    /// Fails unless these are logits `[N, V]`, the targets fit and so does the smoothing.
    fn check_classes(&self, op: &'static str, targets: &Self, smoothing: f32) -> Result<()> {
        self.expect_float(op, 0)?;
        if !matches!(targets.dtype(), DType::I32 | DType::U32) {
            return Err(Error::DType { op, operand: 1, found: targets.dtype(), expected: "i32 or u32" });
        }
        let fits = self.rank() == 2 && targets.dims() == [self.dims()[0]] && self.dims()[1] > 0;
        if !fits {
            let shapes = vec![self.shape().clone(), targets.shape().clone()];
            let detail = "expected logits [N, V] with V > 0 and targets [N]".into();
            return Err(Error::Shape { op, shapes, detail });
        }
        if !(0.0..=1.0).contains(&smoothing) {
            return Err(Error::Argument {
                op,
                argument: "label_smoothing",
                value: smoothing.to_string(),
                detail: "it must be between 0 and 1".into(),
            });
        }
        Ok(())
    }

    /// The mean cross-entropy of the rows of these logits `[N, V]` with the
    /// classes `targets [N]`; [`Tensor::cross_entropy_with`] with default options.
    ///
    /// # Errors
    /// As [`Tensor::cross_entropy_with`].
    pub fn cross_entropy(&self, targets: &Self) -> Result<Self> {
        self.cross_entropy_with(targets, CrossEntropyOptions::default())
    }

    /// Cross-entropy of the rows of these logits `[N, V]` with the classes
    /// `targets [N]` (`i32` or `u32`): `-log softmax(x)[target]`, smoothed as
    /// `options` say. The result is a scalar, or `[N]` without reduction.
    ///
    /// A target that is neither a class in `0..V` nor ignored makes the result,
    /// and the gradient of its row, NaN. If every row is ignored the mean is NaN.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes do not fit (flatten logits of a higher rank
    /// to `[N, V]` first), [`Error::DType`] for logits that are not `f32` or
    /// targets that are not integers, [`Error::Argument`] for a label smoothing
    /// outside 0..=1.
    pub fn cross_entropy_with(&self, targets: &Self, options: CrossEntropyOptions) -> Result<Self> {
        let smoothing = options.label_smoothing;
        self.check_classes("cross_entropy", targets, smoothing)?;
        let loss = self.apply_with(CrossEntropy { ignore: options.ignore_index, smoothing }, &[targets])?;
        match (options.reduction, options.ignore_index) {
            (Reduction::Mean, Some(ignore)) => loss.sum_all()?.div(&targets.apply(Counted { ignore })?.sum_all()?),
            (reduction, _) => loss.reduced(reduction),
        }
    }

    /// [`Tensor::cross_entropy_with`] where class `c` counts `weights[c]` times
    /// (`weights [V]`, `f32`): PyTorch's `weight`. With `w` the weight of the target,
    /// a row's loss is `(1 - s) w (lse - x[target]) + s / V sum_c weights[c] (lse - x[c])`;
    /// the mean divides by the sum of `w` over the rows that are not ignored.
    ///
    /// # Errors
    /// As [`Tensor::cross_entropy_with`], and [`Error::Shape`] unless `weights` is `[V]`.
    pub fn cross_entropy_weighted(&self, targets: &Self, weights: &Self, options: CrossEntropyOptions) -> Result<Self> {
        const OP: &str = "cross_entropy_weighted";
        weights.expect_float(OP, 2)?;
        self.check_classes(OP, targets, options.label_smoothing)?;
        let classes = self.dims()[1];
        if weights.dims() != [classes] {
            let shapes = vec![self.shape().clone(), weights.shape().clone()];
            return Err(Error::Shape { op: OP, shapes, detail: "the weights must be [V], one per class".into() });
        }
        let op = CrossEntropy { ignore: options.ignore_index, smoothing: 0.0 };
        let outputs = self.recorder().record(crate::shared::Shared::new(op), &[self, targets])?;
        let [loss, lse] = &outputs[..] else {
            return Err(Error::NoGradient { op: OP, detail: "cross_entropy has two outputs".into() });
        };
        let (ids, drop) = kept_targets(targets, options.ignore_index)?;
        let of_target = drop(weights.gather(0, &ids)?)?;
        let mut loss = loss.mul(&of_target)?;
        let smoothing = options.label_smoothing;
        if smoothing > 0.0 {
            // sum_c weights[c] (lse - x[c]), without a value per class.
            let spread = lse.mul(&weights.sum_all()?)?.sub(&self.matmul(weights)?)?;
            loss = loss.mul_scalar(1.0 - smoothing)?.add(&drop(spread.mul_scalar(smoothing / classes as f32)?)?)?;
        }
        match options.reduction {
            Reduction::Mean => loss.sum_all()?.div(&of_target.sum_all()?),
            reduction => loss.reduced(reduction),
        }
    }

    /// The squared difference from `target`, element by element with
    /// broadcasting, put together as `reduction` says.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes do not broadcast, [`Error::DType`] for
    /// other types than `f32`.
    pub fn mse(&self, target: &Self, reduction: Reduction) -> Result<Self> {
        self.expect_float("mse_loss", 0)?;
        target.expect_float("mse_loss", 1)?;
        let (x, y) = self.to_f32()?.broadcast_with(&target.to_f32()?, "mse_loss")?;
        x.apply_with(SquaredDifference, &[&y])?.reduced(reduction)
    }

    /// The mean squared difference from `target`, a scalar.
    ///
    /// # Errors
    /// As [`Tensor::mse`].
    pub fn mse_loss(&self, target: &Self) -> Result<Self> {
        self.mse(target, Reduction::Mean)
    }
}
