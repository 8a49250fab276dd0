//! What is told of a tensor by composed reductions: standard deviation, norms,
//! and whether any or every element is true.
//!
//! ```text
//! std   sqrt(var)                      gradient 0 where it is 0
//! norm  (sum |x|^p)^(1/p)              p = inf, -inf: largest, smallest |x|; p = 0: how many are not 0
//! any, all                             no gradient
//! ```

use crate::error::{Error, Result};
use crate::graph::Tensor;

impl Tensor {
    /// `f` of this tensor, and 0 with a gradient of 0 where this tensor is 0.
    fn where_not_zero(&self, f: impl FnOnce(&Self) -> Result<Self>) -> Result<Self> {
        let zero = self.eq_scalar(0.0)?;
        f(&self.masked_fill(&zero, 1.0)?)?.masked_fill(&zero, 0.0)
    }

    /// The standard deviation over `axes`: the root of [`Tensor::var`]. Its
    /// gradient is 0 where it is 0, as in PyTorch.
    ///
    /// # Errors
    /// As [`Tensor::mean`].
    pub fn std(&self, axes: &[isize], keep: bool, unbiased: bool) -> Result<Self> {
        self.var(axes, keep, unbiased)?.where_not_zero(Self::sqrt)
    }

    /// The p-norm over `axes`, which are as in [`Tensor::sum`]:
    /// `(sum |x|^p)^(1/p)`; the largest `|x|` for infinity, the smallest for
    /// -infinity, the number of elements that are not 0 for `p = 0` (PyTorch's
    /// `torch.linalg.vector_norm`). The gradient is 0 where the norm is 0; that of
    /// the largest or smallest goes to the first of equals.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there or named twice, a `p`
    /// that is NaN, or no elements to choose from; [`Error::DType`] for other
    /// types than `f32`.
    pub fn norm(&self, p: f32, axes: &[isize], keep: bool) -> Result<Self> {
        self.expect_float("norm", 0)?;
        if p.is_nan() {
            return Err(Error::Argument {
                op: "norm",
                argument: "p",
                value: p.to_string(),
                detail: "it must be a number".into(),
            });
        }
        if p == f32::INFINITY {
            return self.abs()?.max(axes, keep);
        }
        if p == f32::NEG_INFINITY {
            return self.abs()?.min(axes, keep);
        }
        if p == 0.0 {
            return self.ne_scalar(0.0)?.to_f32()?.sum(axes, keep);
        }
        if p == 1.0 {
            return self.abs()?.sum(axes, keep);
        }
        if p == 2.0 {
            return self.sqr()?.sum(axes, keep)?.where_not_zero(Self::sqrt);
        }
        let powers =
            if p < 1.0 && p > 0.0 { self.abs()?.where_not_zero(|x| x.powf(p))? } else { self.abs()?.powf(p)? };
        let sum = powers.sum(axes, keep)?;
        if p < 0.0 {
            return sum.powf(1.0 / p);
        }
        sum.where_not_zero(|x| x.powf(1.0 / p))
    }

    /// Whether any element over `axes` is true, that is not 0; of any type. Of nothing, false.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there or named twice.
    pub fn any(&self, axes: &[isize], keep: bool) -> Result<Self> {
        self.truth("any", axes, keep, false)
    }

    /// Whether every element over `axes` is true, that is not 0; of any type. Of nothing, true.
    ///
    /// # Errors
    /// As [`Tensor::any`].
    pub fn all(&self, axes: &[isize], keep: bool) -> Result<Self> {
        self.truth("all", axes, keep, true)
    }

    fn truth(&self, op: &'static str, axes: &[isize], keep: bool, every: bool) -> Result<Self> {
        let mask = self.axis_mask(op, axes)?;
        if self.reduced_count(&mask) == 0 {
            return self.recorder().full_bool(self.reduced_dims(&mask, keep), every);
        }
        let words = self.to_bool()?.to_u32()?;
        let found = if every { words.min(axes, keep)? } else { words.max(axes, keep)? };
        found.ne_scalar(0_u32)
    }
}
