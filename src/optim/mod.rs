//! Optimisers: updates of parameters, recorded into the step.
//!
//! An optimiser's moments are state of their own in the same [`crate::params::Params`], under
//! `NAME.exp_avg` and the like after the optimiser's prefix. The learning rate
//! and the step count are inputs of a run (`"lr"`, `"step"`), so changing them
//! records nothing.

mod accumulate;
mod adafactor;
mod adagrad;
mod adamw;
mod clip;
mod ema;
mod group;
mod lion;
mod rmsprop;
mod rule;
mod scaler;
pub mod schedule;
mod sgd;
mod update;

pub use accumulate::Accumulator;
pub use adafactor::{Adafactor, AdafactorConfig};
pub use adagrad::{Adagrad, AdagradConfig};
pub use adamw::{Adam, AdamConfig, AdamW, AdamWConfig};
pub use clip::Clipped;
pub use ema::Ema;
pub use group::Group;
pub use lion::{Lion, LionConfig};
pub use rmsprop::{RmsProp, RmsPropConfig};
pub use rule::{Rule, RuleOptimizer};
pub use scaler::{LossScaler, LossScalerConfig};
pub use sgd::{Sgd, SgdConfig};

use crate::dtype::{DType, TensorType};
use crate::error::Result;
use crate::fuse::program::Category;
use crate::graph::{Recorder, Tensor};
use crate::ops::GradientCall;
use crate::params::Param;

/// Gradients of the parameters that a step trains, in parameter order.
#[derive(Debug, Clone)]
pub struct Gradients {
    /// Parameter and gradient, in the order in which the parameters were created.
    pub entries: Vec<(Param, Tensor)>,
    /// Decides on the device whether updates from these gradients happen; see [`LossScaler`].
    pub guard: Option<Guard>,
}

/// What keeps an update from happening, decided on the device.
#[derive(Debug, Clone)]
pub struct Guard {
    /// `u32 []`: where it is not 0, updates write nothing.
    pub skip: Tensor,
    /// `u32 []`: how many updates happened before this run, instead of the input `"step"`.
    pub step: Tensor,
}

impl Gradients {
    /// Differentiates `loss` with respect to every parameter that the recording
    /// has read so far and that is not frozen ([`Param::freeze`]).
    ///
    /// # Errors
    /// As [`Recorder::gradients`].
    pub fn of(loss: &Tensor) -> Result<Self> {
        let recorder = loss.recorder();
        let Some(params) = recorder.params() else { return Ok(Self { entries: Vec::new(), guard: None }) };
        let used: Vec<String> = recorder.with_graph(|g| {
            g.states
                .iter()
                .filter(|s| s.category == Category::Parameter && s.ty.dtype.is_float())
                .map(|s| s.name.clone())
                .collect()
        });
        let trained: Vec<Param> =
            params.all().into_iter().filter(|p| !p.is_frozen() && used.iter().any(|name| name == p.name())).collect();
        Self::with_respect_to(loss, &trained)
    }

    /// Differentiates `loss` with respect to the given parameters, frozen or not.
    ///
    /// # Errors
    /// As [`Recorder::gradients`].
    pub fn with_respect_to(loss: &Tensor, params: &[Param]) -> Result<Self> {
        let recorder = loss.recorder();
        let tensors: Vec<Tensor> = params.iter().map(|p| recorder.state(p)).collect::<Result<_>>()?;
        let wrt: Vec<&Tensor> = tensors.iter().collect();
        let gradients = recorder.gradients(loss, &wrt)?;
        Ok(Self { entries: params.iter().cloned().zip(gradients).collect(), guard: None })
    }

    /// The same parameters, guard included, with each gradient made anew.
    fn map(&self, mut each: impl FnMut(&Param, &Tensor) -> Result<Tensor>) -> Result<Self> {
        let entry = |(param, gradient): &(Param, Tensor)| {
            let made = each(param, gradient)?;
            made.recorder().mark_parameter_gradient(made.id());
            Ok((param.clone(), made))
        };
        Ok(Self { entries: self.entries.iter().map(entry).collect::<Result<_>>()?, guard: self.guard.clone() })
    }

    /// 128 bits hashed over every gradient's bits in parameter order: a `[4]`
    /// `u32` tensor. Each gradient is hashed as it is made.
    ///
    /// # Errors
    /// As the ops that it is made of.
    pub fn fingerprint(&self, recorder: &Recorder) -> Result<Tensor> {
        let tensors: Vec<Tensor> = self.entries.iter().map(|(_, g)| g.clone()).collect();
        crate::ops::fingerprint(recorder, &tensors)
    }
}

/// An optimiser: records the update of each parameter from its gradient.
pub trait Optimizer {
    /// Records the update of one parameter.
    ///
    /// # Errors
    /// [`crate::Error::StateConflict`] if a moment's name is taken by something else.
    fn update(&self, param: &Param, gradient: &Tensor) -> Result<()> {
        self.update_guarded(param, gradient, None)
    }

    /// Records the update of one parameter, which a guard may keep from happening.
    ///
    /// # Errors
    /// As [`Optimizer::update`].
    fn update_guarded(&self, param: &Param, gradient: &Tensor, guard: Option<&Guard>) -> Result<()>;

    /// Records backward and the update of every parameter that `loss` read.
    ///
    /// # Errors
    /// As [`Recorder::gradients`] and [`Optimizer::update`].
    fn minimize(&self, loss: &Tensor) -> Result<Gradients> {
        let gradients = Gradients::of(loss)?;
        self.apply(&gradients)?;
        Ok(gradients)
    }

    /// Records the update of every parameter from given gradients.
    ///
    /// # Errors
    /// As [`Optimizer::update`].
    fn apply(&self, gradients: &Gradients) -> Result<()> {
        for (param, gradient) in &gradients.entries {
            self.update_guarded(param, gradient, gradients.guard.as_ref())?;
        }
        Ok(())
    }
}

/// Updates are made in f32, whatever the model computes in.
fn expect_float(op: &'static str, parameter: &TensorType) -> Result<()> {
    if parameter.dtype == DType::F32 {
        return Ok(());
    }
    Err(crate::error::Error::DType { op, operand: 0, found: parameter.dtype, expected: "f32" })
}

/// Updates have no gradient: parameters are read before the run's writes.
fn no_gradient(op: &'static str, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
    let _ = call;
    Err(crate::error::Error::NoGradient { op, detail: "an update hands nothing back".into() })
}
