//! Adafactor (Shazeer and Stern 2018), PyTorch's form: second moments of matrices
//! are kept as one mean per row and one per column.
//!
//! ```text
//! b     = t^beta2_decay                          t counts from 1
//! rho   = min(lr, 1 / sqrt(t))
//! alpha = max(eps2, rms(p)) rho
//! p <- p (1 - lr wd)
//! r <- r + b (mean of g^2 over columns - r)
//! c <- c + b (mean of g^2 over rows - c)         or v <- v + b (g^2 - v) for vectors
//! v  = r c / max(mean of r, eps1)
//! u  = g / sqrt(max(v, eps1^2))
//! p <- p - alpha / max(1, rms(u) / d) u
//! ```

use super::group::{Group, Groups, at_least_zero};
use super::{Guard, Optimizer, expect_float};
use crate::dtype::TensorType;
use crate::error::Result;
use crate::fuse::program::Category;
use crate::graph::Tensor;
use crate::ops::assign;
use crate::params::{Init, Param, Params};

/// Settings of [`Adafactor`]. The learning rate is the run's input `"lr"`, the
/// number of the step its input `"step"`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdafactorConfig {
    /// The exponent of the step in the second moments' decay, negative.
    pub beta2_decay: f64,
    /// The least second moment, before squaring.
    pub eps1: f64,
    /// The least scale of a parameter.
    pub eps2: f64,
    /// The largest root mean square of an update, before the learning rate.
    pub d: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

impl Default for AdafactorConfig {
    /// PyTorch's: decay exponent -0.8, eps of f32's precision and 1e-3, d 1, no weight decay.
    fn default() -> Self {
        Self { beta2_decay: -0.8, eps1: f64::from(f32::EPSILON), eps2: 1e-3, d: 1.0, weight_decay: 0.0 }
    }
}

/// Adafactor; its second moments are the states `adafactor.NAME.row_var` and
/// `.col_var`, or `.variance` of a parameter of at most one axis.
///
/// One update makes two temporaries of the parameter's size.
#[derive(Debug, Clone)]
pub struct Adafactor {
    params: Params,
    config: AdafactorConfig,
    groups: Groups,
}

impl Adafactor {
    /// An optimiser whose moments live in `params`.
    ///
    /// # Errors
    /// [`crate::Error::Argument`] for a decay exponent above 0 or another number below 0.
    pub fn new(params: &Params, config: AdafactorConfig) -> Result<Self> {
        at_least_zero("adafactor", "-beta2_decay", -config.beta2_decay)?;
        at_least_zero("adafactor", "eps1", config.eps1)?;
        at_least_zero("adafactor", "eps2", config.eps2)?;
        at_least_zero("adafactor", "d", config.d)?;
        at_least_zero("adafactor", "weight_decay", config.weight_decay)?;
        Ok(Self { params: params.clone(), config, groups: Groups::default() })
    }

    /// Adds a group; of several that contain a parameter the first counts.
    ///
    /// # Errors
    /// [`crate::Error::Argument`] for a negative factor or decay.
    pub fn with_group(mut self, group: Group) -> Result<Self> {
        self.groups.push("adafactor", group)?;
        Ok(self)
    }

    /// Moves a moment towards `mean` by the share `b`; returns what it will be.
    fn moment(&self, param: &Param, suffix: &str, mean: &Tensor, b: &Tensor, skip: Option<&Tensor>) -> Result<Tensor> {
        let name = format!("adafactor.{}.{suffix}", param.name());
        let ty = TensorType::new(param.ty().dtype, mean.shape().clone());
        let state = self.params.create_typed(&name, ty, Category::Optimizer, Init::Zeros)?;
        let old = mean.recorder().param(&state)?;
        let new = old.add(&mean.sub(&old)?.mul(b)?)?;
        assign(&old, &new, skip)?;
        Ok(new)
    }
}

fn root_mean_square(x: &Tensor) -> Result<Tensor> {
    x.sqr()?.mean(&[], false)?.sqrt()
}

impl Optimizer for Adafactor {
    fn update_guarded(&self, param: &Param, gradient: &Tensor, guard: Option<&Guard>) -> Result<()> {
        expect_float("adafactor", param.ty())?;
        if param.ty().shape.element_count() == 0 {
            return Ok(());
        }
        let recorder = gradient.recorder();
        let c = self.config;
        let (lr_factor, weight_decay) = self.groups.of(param, c.weight_decay);
        let skip = guard.map(|g| &g.skip);
        let step = guard.map_or_else(|| recorder.step_count(), |g| Ok(g.step.clone()))?;
        let t = step.add_scalar(1_u32)?.to_f32()?;
        let b = t.powf(c.beta2_decay as f32)?;
        let lr = recorder.scalar_input("lr")?;
        let value = recorder.state(param)?;
        let rho = lr.mul_scalar(lr_factor as f32)?.minimum(&t.rsqrt()?)?;
        let scale = root_mean_square(&value)?.clamp(c.eps2 as f32, f32::INFINITY)?;
        let squares = gradient.sqr()?;
        let v = if param.ty().shape.rank() > 1 {
            let row = self.moment(param, "row_var", &squares.mean(&[-1], true)?, &b, skip)?;
            let column = self.moment(param, "col_var", &squares.mean(&[-2], true)?, &b, skip)?;
            let mean = row.mean(&[-2], true)?.clamp(c.eps1 as f32, f32::INFINITY)?;
            row.div(&mean)?.mul(&column)?
        } else {
            self.moment(param, "variance", &squares, &b, skip)?
        };
        let u = v.clamp((c.eps1 * c.eps1) as f32, f32::INFINITY)?.rsqrt()?.mul(gradient)?;
        let limit = root_mean_square(&u)?.div_scalar(c.d as f32)?.clamp(1.0, f32::INFINITY)?;
        let alpha = scale.mul(&rho)?.div(&limit)?;
        let moved = u.mul(&alpha)?;
        let kept = if weight_decay == 0.0 {
            value.clone()
        } else {
            value.mul(&lr.mul_scalar((lr_factor * weight_decay) as f32)?.rsub_scalar(1.0_f32)?)?
        };
        assign(&value, &kept.sub(&moved)?, skip)
    }
}
