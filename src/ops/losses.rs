//! Losses made of element-wise ops and a reduction; each chain is one pass.
//!
//! ```text
//! l1            |x - y|
//! huber         d^2 / 2 where |d| < delta, else delta (|d| - delta / 2)      d = x - y
//! smooth_l1     huber / delta
//! bce_logits    max(x, 0) - x y + ln(1 + exp(-|x|))       times a weight where y = 1
//! kl_div        y (ln y - x), 0 where y = 0;              y (= exp y given as a logarithm)
//! nll           -w[target] x[n, target], w being weights of classes
//! cosine        1 - cos(a, b) where t = 1, max(0, cos(a, b) - margin) where t = -1
//! ```
//!
//! Of `f16` operands they are `f32` all the same. The formulas are those of PyTorch's functions of these names.

use super::Reduction;
use super::cross_entropy::kept_targets;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Tensor;

fn expect_positive(op: &'static str, argument: &'static str, value: f32) -> Result<()> {
    if value > 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(Error::Argument { op, argument, value: value.to_string(), detail: "expected a finite number above 0".into() })
}

/// What [`Tensor::nll_loss_with`] may be told.
#[derive(Debug, Clone, Copy, Default)]
pub struct NllOptions<'a> {
    /// `[V]`: how often each class counts; without them, once.
    pub weights: Option<&'a Tensor>,
    /// Rows with this target have no loss and do not count for the mean.
    pub ignore_index: Option<i32>,
    /// How the losses of the rows are put together.
    pub reduction: Reduction,
}

impl Tensor {
    fn float_pair(&self, other: &Self, op: &'static str) -> Result<(Self, Self)> {
        self.expect_float(op, 0)?;
        other.expect_float(op, 1)?;
        // Losses of halves are f32: their squares and sums would overflow.
        self.to_f32()?.broadcast_with(&other.to_f32()?, op)
    }

    /// The absolute difference from `target`, put together as `reduction` says
    /// (`l1_loss`).
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes do not broadcast, [`Error::DType`] for
    /// other types than `f32`.
    pub fn l1_loss(&self, target: &Self, reduction: Reduction) -> Result<Self> {
        let (x, y) = self.float_pair(target, "l1_loss")?;
        x.sub(&y)?.abs()?.reduced(reduction)
    }

    /// Squared near the target, linear beyond `delta` (`huber_loss`).
    ///
    /// # Errors
    /// As [`Tensor::l1_loss`]; [`Error::Argument`] for a `delta` that is not above 0.
    pub fn huber_loss(&self, target: &Self, delta: f32, reduction: Reduction) -> Result<Self> {
        expect_positive("huber_loss", "delta", delta)?;
        let (x, y) = self.float_pair(target, "huber_loss")?;
        let d = x.sub(&y)?;
        // d clipped to +-delta is c: c (d - c / 2) is both branches at once, and its
        // derivative is c in both.
        let c = d.clamp(-delta, delta)?;
        c.mul(&d.sub(&c.mul_scalar(0.5_f32)?)?)?.reduced(reduction)
    }

    /// Huber's loss divided by `beta` (`smooth_l1_loss`).
    ///
    /// # Errors
    /// As [`Tensor::huber_loss`].
    pub fn smooth_l1_loss(&self, target: &Self, beta: f32, reduction: Reduction) -> Result<Self> {
        expect_positive("smooth_l1_loss", "beta", beta)?;
        self.huber_loss(target, beta, Reduction::None)?.mul_scalar(1.0 / beta)?.reduced(reduction)
    }

    /// Binary cross-entropy of the sigmoid of these logits with `target` in
    /// 0..=1 (`binary_cross_entropy_with_logits`); `positive_weight` multiplies the
    /// part of the positive class and broadcasts.
    ///
    /// # Errors
    /// As [`Tensor::l1_loss`].
    pub fn bce_with_logits(&self, target: &Self, positive_weight: Option<&Self>, reduction: Reduction) -> Result<Self> {
        let (x, y) = self.float_pair(target, "bce_with_logits")?;
        // softplus(-x) is -ln sigmoid(x); -ln(1 - sigmoid(x)) is x more.
        let loss = match positive_weight {
            None => x.neg()?.softplus()?.add(&x.sub(&x.mul(&y)?)?)?,
            Some(weight) => {
                let scale = weight.sub_scalar(1.0_f32)?.mul(&y)?.add_scalar(1.0_f32)?;
                x.sub(&x.mul(&y)?)?.add(&scale.mul(&x.neg()?.softplus()?)?)?
            }
        };
        loss.reduced(reduction)
    }

    /// Binary cross-entropy of these probabilities with `target` in 0..=1
    /// (`binary_cross_entropy`); logarithms are held at -100 and above.
    ///
    /// # Errors
    /// As [`Tensor::l1_loss`].
    pub fn bce_loss(&self, target: &Self, reduction: Reduction) -> Result<Self> {
        let (p, y) = self.float_pair(target, "bce_loss")?;
        let bounded = |p: &Self| p.ln()?.clamp(-100.0, f32::MAX);
        let positive = y.mul(&bounded(&p)?)?;
        let negative = y.rsub_scalar(1.0_f32)?.mul(&bounded(&p.rsub_scalar(1.0_f32)?)?)?;
        positive.add(&negative)?.neg()?.reduced(reduction)
    }

    /// The divergence `target (ln target - self)` of Kullback and Leibler, `self`
    /// being logarithms of probabilities and `target` probabilities, or logarithms
    /// of them if `log_target` (`kl_div`). [`Reduction::Mean`] divides by the number
    /// of elements; [`Reduction::BatchMean`] by that of rows, which is the divergence.
    ///
    /// # Errors
    /// As [`Tensor::l1_loss`].
    pub fn kl_div(&self, target: &Self, log_target: bool, reduction: Reduction) -> Result<Self> {
        let (x, y) = self.float_pair(target, "kl_div")?;
        let loss = if log_target {
            y.exp()?.mul(&y.sub(&x)?)?
        } else {
            // Of a probability of 0 the logarithm of 1 is taken: the product and its gradient are finite.
            let some = y.gt_scalar(0.0_f32)?;
            let one = y.filled(1.0)?;
            y.mul(&some.where_(&y, &one)?.ln()?.sub(&x)?)?
        };
        loss.reduced(reduction)
    }

    /// The negative logarithm at the class: these logarithms of probabilities
    /// `[N, V]` with `targets [N]` (`nll_loss`); [`Tensor::nll_loss_with`] without
    /// weights, nothing ignored.
    ///
    /// # Errors
    /// As [`Tensor::nll_loss_with`].
    pub fn nll_loss(&self, targets: &Self, reduction: Reduction) -> Result<Self> {
        self.nll_loss_with(targets, NllOptions { reduction, ..NllOptions::default() })
    }

    /// `-w[target] x[n, target]` of these logarithms of probabilities `x [N, V]` with
    /// `targets [N]` (`i32` or `u32`), `w` being the weights of `options`
    /// (`nll_loss(weight=.., ignore_index=..)`). The mean divides by the sum of `w` over
    /// the rows that are not ignored. A target that is no class, and is not ignored,
    /// gives NaN.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::DType`] if the operands do not fit.
    pub fn nll_loss_with(&self, targets: &Self, options: NllOptions<'_>) -> Result<Self> {
        const OP: &str = "nll_loss";
        self.expect_float(OP, 0)?;
        let fits = self.rank() == 2
            && targets.dims() == [self.dims()[0]]
            && options.weights.is_none_or(|weights| weights.dims() == [self.dims()[1]]);
        if !fits {
            let all = [Some(self), Some(targets), options.weights];
            let shapes = all.into_iter().flatten().map(|t| t.shape().clone()).collect();
            let detail = "expected [N, V], targets [N] and weights [V]".into();
            return Err(Error::Shape { op: OP, shapes, detail });
        }
        if !matches!(targets.dtype(), DType::I32 | DType::U32) {
            return Err(Error::DType { op: OP, operand: 1, found: targets.dtype(), expected: "i32 or u32" });
        }
        let (ids, drop) = kept_targets(targets, options.ignore_index)?;
        let loss = self.gather(1, &ids.unsqueeze(1)?)?.squeeze(1)?.neg()?;
        let counted = match options.weights {
            Some(weights) => {
                weights.expect_float(OP, 2)?;
                Some(drop(weights.gather(0, &ids)?)?)
            }
            None => options.ignore_index.map(|_| drop(self.recorder().ones(targets.shape())?)).transpose()?,
        };
        let Some(counted) = counted else { return loss.reduced(options.reduction) };
        // Also where the logarithm of an ignored row is infinite there is no loss.
        let loss = drop(loss.mul(&counted)?)?;
        match options.reduction {
            Reduction::Mean => loss.sum_all()?.div(&counted.sum_all()?),
            reduction => loss.reduced(reduction),
        }
    }

    /// The cosine of the angle between this tensor and `other` along `axis`, each
    /// length held at `eps` and above (`cosine_similarity`).
    ///
    /// # Errors
    /// As [`Tensor::l1_loss`]; [`Error::Argument`] for an axis that is not there.
    pub fn cosine_similarity(&self, other: &Self, axis: isize, eps: f32) -> Result<Self> {
        expect_positive("cosine_similarity", "eps", eps)?;
        let (a, b) = self.float_pair(other, "cosine_similarity")?;
        let square = |x: &Self| x.mul(x)?.sum(&[axis], false)?.clamp(eps * eps, f32::MAX);
        let length = square(&a)?.mul(&square(&b)?)?;
        a.mul(&b)?.sum(&[axis], false)?.mul(&length.rsqrt()?)
    }

    /// `1 - cos` of rows `[N, D]` that belong together (`targets [N]` is 1), and
    /// what of `cos` exceeds `margin` of those that do not (-1)
    /// (`cosine_embedding_loss`).
    ///
    /// # Errors
    /// As [`Tensor::cosine_similarity`].
    pub fn cosine_embedding_loss(
        &self,
        other: &Self,
        targets: &Self,
        margin: f32,
        reduction: Reduction,
    ) -> Result<Self> {
        targets.expect_float("cosine_embedding_loss", 2)?;
        let cos = self.cosine_similarity(other, -1, 1e-6)?;
        let apart = cos.sub_scalar(margin)?.relu()?;
        targets.gt_scalar(0.0_f32)?.where_(&cos.rsub_scalar(1.0_f32)?, &apart)?.reduced(reduction)
    }
}
