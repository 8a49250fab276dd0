//! Gradient accumulation: a batch in several micro-batches, each a run.
//!
//! ```text
//! add     a <- a + g / k
//! finish  g' = a + g / k, to be applied, and a <- 0
//! ```

use super::update::{Update, bits};
use super::{Gradients, Optimizer, expect_float};
use crate::error::{Error, Result};
use crate::fuse::program::Category;
use crate::graph::{Recorder, Tensor};
use crate::ops::assign;
use crate::params::{Init, Param, Params};

const UPDATE: &str = include_str!("../../shaders/shared/accumulate_update.wgsl");

/// Sums of gradients over `k` micro-batches: the states `accumulator.NAME`,
/// which a plan counts like moments. For a loss that is a mean over its batch the
/// result is the gradient of one batch `k` times as large.
///
/// Two steps share the parameters: one records [`Accumulator::add`] and is run
/// `k - 1` times, the other records [`Accumulator::finish`] and the optimiser's
/// update. Or one that records [`Accumulator::add`] is run `k` times, and one that
/// records [`Accumulator::take`] and the update is run after it.
///
/// ```
/// use remat::optim::{Accumulator, AdamW, AdamWConfig, Gradients, Optimizer};
/// use remat::params::{Init, Params};
/// # use remat::profile::DeviceProfile;
/// # use remat::step::RecordedStep;
/// # let (params, profile) = (Params::offline(0), DeviceProfile::default());
/// let w = params.create("w", [8], Init::Ones)?;
/// let (adamw, accumulator) = (AdamW::new(&params, AdamWConfig::default())?, Accumulator::new(&params, 4)?);
/// let add = RecordedStep::new(&profile, |g| {
///     let loss = g.param(&w)?.mul(&g.input::<f32>("x", [8])?)?.mean(&[], false)?;
///     accumulator.add(&Gradients::of(&loss)?)?;
///     Ok(loss)
/// })?;
/// let apply = RecordedStep::new(&profile, |g| adamw.apply(&accumulator.take(g, &[w.clone()])?))?;
/// # let _ = (add, apply);
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Accumulator {
    params: Params,
    micro_batches: usize,
}

impl Accumulator {
    /// For `micro_batches` (`k`) runs per update; the sums live in `params`.
    ///
    /// # Errors
    /// [`Error::Argument`] for no micro-batches.
    pub fn new(params: &Params, micro_batches: usize) -> Result<Self> {
        if micro_batches == 0 {
            return Err(Error::Argument {
                op: "accumulator",
                argument: "micro_batches",
                value: "0".into(),
                detail: "expected at least 1".into(),
            });
        }
        Ok(Self { params: params.clone(), micro_batches })
    }

    fn scale(&self) -> f64 {
        1.0 / self.micro_batches as f64
    }

    fn total(&self, recorder: &Recorder, param: &Param) -> Result<Tensor> {
        expect_float("accumulator", param.ty())?;
        let name = format!("accumulator.{}", param.name());
        let state = self.params.create_typed(&name, param.ty().clone(), Category::Optimizer, Init::Zeros)?;
        recorder.param(&state)
    }

    /// Records that a micro-batch's gradients are added.
    ///
    /// # Errors
    /// [`Error::StateConflict`] if a sum's name is taken by something else.
    pub fn add(&self, gradients: &Gradients) -> Result<()> {
        for (param, gradient) in &gradients.entries {
            let total = self.total(gradient.recorder(), param)?;
            let update = Update::new("accumulate", &["total"], &["grad"]).formula(UPDATE, vec![bits(self.scale())]);
            update.record(&[&total, gradient])?;
        }
        Ok(())
    }

    /// The sums with the last micro-batch's gradients added, to be applied; records
    /// that the sums are cleared.
    ///
    /// # Errors
    /// As [`Accumulator::add`].
    pub fn finish(&self, gradients: &Gradients) -> Result<Gradients> {
        gradients.map(|param, gradient| {
            let total = self.total(gradient.recorder(), param)?;
            let sum = total.add(&gradient.mul_scalar(self.scale() as f32)?)?;
            clear(&total)?;
            Ok(sum)
        })
    }

    /// The sums of these parameters, to be applied; records that they are cleared.
    ///
    /// # Errors
    /// As [`Accumulator::add`].
    pub fn take(&self, recorder: &Recorder, params: &[Param]) -> Result<Gradients> {
        let entry = |param: &Param| {
            let total = self.total(recorder, param)?;
            clear(&total)?;
            Ok((param.clone(), total))
        };
        Ok(Gradients { entries: params.iter().map(entry).collect::<Result<_>>()?, guard: None })
    }

    /// Records [`Accumulator::take`] and the update of these parameters.
    ///
    /// # Errors
    /// As [`Accumulator::add`] and [`Optimizer::update`].
    pub fn apply(&self, recorder: &Recorder, optimizer: &dyn Optimizer, params: &[Param]) -> Result<()> {
        optimizer.apply(&self.take(recorder, params)?)
    }
}

fn clear(total: &Tensor) -> Result<()> {
    let zero = total.recorder().zeros(total.shape())?;
    assign(total, &zero, None)
}
