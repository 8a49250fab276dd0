//! Norms composed of simpler ops: root mean square, group, instance, batch norm in
//! evaluation.
//!
//! ```text
//! rms_norm    y = x / sqrt(mean(x^2) + eps) * w                 over the last axis
//! group_norm  y = (x - mean) / sqrt(var + eps) * w[c] + b[c]    over a group's channels and places
//! batch_norm  the same per channel, with a mean and a variance that are given
//! ```
//!
//! Of an `f16` x the statistics are `f32`, and so are the mean and the variance that
//! `batch_norm_train` hands back.
//!
//! Sources: Zhang and Sennrich 2019 (root mean square), Wu and He 2018 (group),
//! Ulyanov et al. 2016 (instance), Ioffe and Szegedy 2015 (batch).

use crate::dtype::{DType, Shape, count};
use crate::error::{Error, Result};
use crate::graph::Tensor;

impl Tensor {
    /// `self / sqrt(mean(self^2) + eps) * weight` over the last axis; `weight [C]`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the weight is not `[C]`, [`Error::DType`] unless `f32`.
    pub fn rms_norm(&self, weight: Option<&Self>, eps: f32) -> Result<Self> {
        const OP: &str = "rms_norm";
        self.expect_float(OP, 0)?;
        let Some(&width) = self.dims().last() else {
            let shapes = vec![self.shape().clone()];
            return Err(Error::Shape { op: OP, shapes, detail: "it needs an axis to norm over".into() });
        };
        let normed = if self.dtype() == DType::F16 {
            // The squares of halves overflow from 256 on.
            let squares = self.mul_as(self, DType::F32)?;
            self.mul_as(&squares.mean(&[-1], true)?.add_scalar(eps)?.rsqrt()?, DType::F16)?
        } else {
            self.mul(&self.mul(self)?.mean(&[-1], true)?.add_scalar(eps)?.rsqrt()?)?
        };
        match weight {
            None => Ok(normed),
            Some(weight) if weight.dims() == [width] => normed.mul(weight),
            Some(weight) => {
                let shapes = vec![self.shape().clone(), weight.shape().clone()];
                Err(Error::Shape { op: OP, shapes, detail: format!("the weight must be [{width}]") })
            }
        }
    }

    /// `[1, C, 1, ..]` from `[C]`, to go with `[N, C, ..]`.
    pub(super) fn per_channel(&self, op: &'static str, of: &Self) -> Result<Self> {
        let channels = of.dims()[1];
        if self.dims() != [channels] {
            let shapes = vec![of.shape().clone(), self.shape().clone()];
            let detail = format!("what is given per channel must be [{channels}]");
            return Err(Error::Shape { op, shapes, detail });
        }
        let mut dims = vec![1; of.rank()];
        dims[1] = channels;
        self.reshape(Shape(dims))
    }

    fn scaled_per_channel(&self, op: &'static str, weight: Option<&Self>, bias: Option<&Self>) -> Result<Self> {
        let mut y = self.clone();
        if let Some(weight) = weight {
            y = y.mul(&weight.per_channel(op, self)?)?;
        }
        if let Some(bias) = bias {
            y = y.add(&bias.per_channel(op, self)?)?;
        }
        Ok(y)
    }

    /// Each sample's channels of `[N, C, ..]`, in `groups` neighbouring groups,
    /// brought to mean 0 and variance 1, then times `weight [C]` plus `bias [C]`.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `groups` divides `C`, [`Error::Shape`] and
    /// [`Error::DType`] if the operands do not fit.
    pub fn group_norm(&self, groups: usize, weight: Option<&Self>, bias: Option<&Self>, eps: f32) -> Result<Self> {
        const OP: &str = "group_norm";
        let channels = self.channels(OP)?;
        if groups == 0 || channels % groups != 0 {
            return Err(Error::Argument {
                op: OP,
                argument: "groups",
                value: groups.to_string(),
                detail: format!("it must divide the {channels} channels of shape {}", self.shape()),
            });
        }
        if self.element_count() == 0 {
            return Ok(self.clone());
        }
        let size = count(self.dims()) / (self.dims()[0] * groups);
        let rows = self.reshape([self.dims()[0] * groups, size])?;
        rows.layer_norm(None, None, eps)?.reshape(self.shape())?.scaled_per_channel(OP, weight, bias)
    }

    /// Each channel of each sample of `[N, C, ..]` brought to mean 0 and variance 1.
    ///
    /// # Errors
    /// As [`Tensor::group_norm`].
    pub fn instance_norm(&self, weight: Option<&Self>, bias: Option<&Self>, eps: f32) -> Result<Self> {
        self.group_norm(self.channels("instance_norm")?, weight, bias, eps)
    }

    pub(super) fn channels(&self, op: &'static str) -> Result<usize> {
        self.expect_float(op, 0)?;
        match self.dims() {
            [_, channels, ..] => Ok(*channels),
            _ => {
                let shapes = vec![self.shape().clone()];
                Err(Error::Shape { op, shapes, detail: "expected [N, C, ..]".into() })
            }
        }
    }

    /// Batch norm in evaluation: with a mean and a variance `[C]` that are given,
    /// into which no gradient flows.
    ///
    /// # Errors
    /// As [`Tensor::batch_norm_train`].
    pub fn batch_norm_eval(
        &self,
        mean: &Self,
        var: &Self,
        weight: Option<&Self>,
        bias: Option<&Self>,
        eps: f32,
    ) -> Result<Self> {
        const OP: &str = "batch_norm";
        self.channels(OP)?;
        let (mean, var) = (mean.detach()?, var.detach()?);
        let scale = var.per_channel(OP, self)?.add_scalar(eps)?.rsqrt()?;
        if self.dtype() == DType::F16 {
            let away = self.sub_as(&mean.per_channel(OP, self)?, DType::F16)?;
            return away.mul_as(&scale, DType::F16)?.scaled_per_channel(OP, weight, bias);
        }
        self.sub(&mean.per_channel(OP, self)?)?.mul(&scale)?.scaled_per_channel(OP, weight, bias)
    }
}
