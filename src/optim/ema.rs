//! Exponential moving average of weights (Polyak and Juditsky 1992, PyTorch's
//! `AveragedModel` with `get_ema_multi_avg_fn`).
//!
//! ```text
//! first update   a <- p
//! later          a <- decay a + (1 - decay) p
//! ```

use super::group::below_one;
use super::update::{Update, UpdateScalar, bits};
use crate::dtype::{DType, TensorType};
use crate::error::Result;
use crate::fuse::program::Category;
use crate::graph::Recorder;
use crate::ops::assign;
use crate::params::{Init, Param, Params};

const UPDATE: &str = include_str!("../../shaders/shared/ema_update.wgsl");
const SWAP: &str = include_str!("../../shaders/shared/swap_update.wgsl");

/// Averages of parameters: the states `ema.NAME`, and `ema_updates`, which counts.
///
/// A read of state sees the value before the run. So record [`Ema::update`] in a
/// step of its own, run after each training step; within the training step it
/// would average the parameters as they were before.
///
/// For evaluation run a step that records [`Ema::swap`], evaluate, and run it
/// again; or read `ema.NAME` back.
#[derive(Debug, Clone)]
pub struct Ema {
    params: Params,
    decay: f64,
}

impl Ema {
    /// Averages of decay `decay`, such as 0.999, that live in `params`.
    ///
    /// # Errors
    /// [`crate::Error::Argument`] for a decay outside `[0, 1)`.
    pub fn new(params: &Params, decay: f64) -> Result<Self> {
        below_one("ema", "decay", decay)?;
        Ok(Self { params: params.clone(), decay })
    }

    /// The average of a parameter, registered now if it is new.
    ///
    /// # Errors
    /// [`crate::Error::StateConflict`] if its name is taken by something else.
    pub fn average(&self, param: &Param) -> Result<Param> {
        let name = format!("ema.{}", param.name());
        self.params.create_typed(&name, param.ty().clone(), Category::Optimizer, Init::Zeros)
    }

    /// Records the update of these parameters' averages; once per step.
    ///
    /// # Errors
    /// As [`Ema::average`]; [`crate::Error::DType`] for a parameter that is not f32.
    pub fn update(&self, recorder: &Recorder, params: &[Param]) -> Result<()> {
        let ty = TensorType::new(DType::U32, []);
        let updates = self.params.create_typed("ema_updates", ty, Category::Optimizer, Init::Zeros)?;
        let count = recorder.param(&updates)?;
        for param in params {
            super::expect_float("ema", param.ty())?;
            let (average, value) = (recorder.state(&self.average(param)?)?, recorder.state(param)?);
            let words = vec![bits(self.decay), bits(1.0 - self.decay)];
            let update = Update::new("ema", &["average"], &["param"]).formula(UPDATE, words).scalar(UpdateScalar::Step);
            update.record(&[&average, &value, &count])?;
        }
        assign(&count, &count.add_scalar(1_u32)?, None)
    }

    /// Records the exchange of these parameters with their averages; a second run
    /// of it undoes the first.
    ///
    /// # Errors
    /// As [`Ema::average`].
    pub fn swap(&self, recorder: &Recorder, params: &[Param]) -> Result<()> {
        for param in params {
            let (value, average) = (recorder.state(param)?, recorder.state(&self.average(param)?)?);
            let update = Update::new("ema_swap", &["param", "average"], &[]).formula(SWAP, vec![0]);
            update.record(&[&value, &average])?;
        }
        Ok(())
    }
}
