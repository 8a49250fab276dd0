//! Dynamic loss scaling, wholly on the device (Micikevicius et al., "Mixed
//! precision training", 2018; PyTorch's `GradScaler`).
//!
//! ```text
//! some gradient not finite   no update; scale <- scale backoff; since <- 0
//! else                       updates;   since <- since + 1;
//!                            scale <- scale growth and since <- 0 every `interval`
//! ```

use super::{Gradients, Guard};
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Category;
use crate::graph::{Recorder, Tensor};
use crate::ops::{Scalar, assign};
use crate::params::{Init, Params};

/// Settings of a [`LossScaler`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LossScalerConfig {
    /// The first scale.
    pub init_scale: f32,
    /// Grows by this.
    pub growth_factor: f32,
    /// Shrinks by this.
    pub backoff_factor: f32,
    /// Updates in a row before it grows.
    pub growth_interval: u32,
}

impl Default for LossScalerConfig {
    /// PyTorch's: 65536, twice as large every 2000 updates, half as large after a skip.
    fn default() -> Self {
        Self { init_scale: 65_536.0, growth_factor: 2.0, backoff_factor: 0.5, growth_interval: 2000 }
    }
}

/// Scales the loss so that small gradients survive a short data type, and skips
/// the update where a gradient is not finite, without reading anything back. The
/// states `scaler.scale` (f32), `scaler.since` and `scaler.updates` (u32) tell how
/// it fared; `scaler.updates` counts the updates that happened, and optimisers
/// that read the number of the step take it instead of the input `"step"`.
#[derive(Debug, Clone)]
pub struct LossScaler {
    params: Params,
    config: LossScalerConfig,
}

impl LossScaler {
    /// A scaler whose states live in `params`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a scale or a factor that is not positive and finite,
    /// a growth below 1, a backoff of 1 or more, or an interval of 0.
    pub fn new(params: &Params, config: LossScalerConfig) -> Result<Self> {
        let c = config;
        let positive = |value: f32| value > 0.0 && value.is_finite();
        let checks = [
            ("init_scale", c.init_scale, positive(c.init_scale)),
            ("growth_factor", c.growth_factor, c.growth_factor >= 1.0 && positive(c.growth_factor)),
            ("backoff_factor", c.backoff_factor, positive(c.backoff_factor) && c.backoff_factor < 1.0),
            ("growth_interval", c.growth_interval as f32, c.growth_interval > 0),
        ];
        if let Some((argument, value, _)) = checks.into_iter().find(|(_, _, fits)| !fits) {
            let detail = "expected scale > 0, growth >= 1, 0 < backoff < 1, interval >= 1".into();
            return Err(Error::Argument { op: "loss_scaler", argument, value: value.to_string(), detail });
        }
        Ok(Self { params: params.clone(), config })
    }

    fn state(&self, recorder: &Recorder, name: &str, dtype: DType, init: f32) -> Result<Tensor> {
        let ty = TensorType::new(dtype, []);
        let init = if init == 0.0 { Init::Zeros } else { Init::Constant(init) };
        recorder.param(&self.params.create_typed(&format!("scaler.{name}"), ty, Category::Optimizer, init)?)
    }

    fn scale_state(&self, recorder: &Recorder) -> Result<Tensor> {
        self.state(recorder, "scale", DType::F32, self.config.init_scale)
    }

    /// `loss * scale`, whose gradients [`LossScaler::unscale`] takes.
    ///
    /// # Errors
    /// [`Error::DType`] unless the loss is f32.
    pub fn scale(&self, loss: &Tensor) -> Result<Tensor> {
        loss.mul(&self.scale_state(loss.recorder())?)
    }

    /// The gradients divided by the scale, with a guard that skips the updates if
    /// one of them is not finite; records how the scale changes. Once per step;
    /// clip afterwards.
    ///
    /// # Errors
    /// As [`Gradients::norm`]; [`Error::StateConflict`] if a state's name is taken.
    pub fn unscale(&self, recorder: &Recorder, gradients: &Gradients) -> Result<Gradients> {
        let scale = self.scale_state(recorder)?;
        let since = self.state(recorder, "since", DType::U32, 0.0)?;
        let updates = self.state(recorder, "updates", DType::U32, 0.0)?;
        let skip = gradients.norm(recorder)?.1;
        let inverse = scale.recip()?;
        let mut unscaled = gradients.map(|_, gradient| gradient.mul(&inverse))?;
        let c = self.config;
        let failed = skip.ne_scalar(0_u32)?;
        let next = since.add_scalar(1_u32)?;
        let grows = next.ge_scalar(c.growth_interval)?;
        // A scale that would not be finite stays.
        let grown = scale.mul_scalar(c.growth_factor)?;
        let grown = grown.isfinite()?.where_(&grown, &scale)?;
        let kept = grows.where_(&grown, &scale)?;
        let scale_next = failed.where_(&scale.mul_scalar(c.backoff_factor)?, &kept)?;
        let restarts = failed.logical_or(&grows)?;
        assign(&scale, &scale_next, None)?;
        assign(&since, &next.masked_fill(&restarts, Scalar::U32(0))?, None)?;
        assign(&updates, &updates.add_scalar(1_u32)?, Some(&skip))?;
        unscaled.guard = Some(Guard { skip, step: updates });
        Ok(unscaled)
    }
}
