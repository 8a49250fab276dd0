//! Optimisers that treat each element alike: a formula, its numbers and its
//! moments. One kernel text and one recorder serve them all.

use std::fmt::Debug;

use super::group::{Group, Groups};
use super::update::{Update, UpdateScalar};
use super::{Guard, Optimizer, expect_float};
use crate::error::Result;
use crate::fuse::program::Category;
use crate::graph::Tensor;
use crate::params::{Init, Param, Params};

/// How one element of a parameter moves, as an optimiser's settings say it.
pub trait Rule: Debug + Clone {
    /// The optimiser's name: the prefix of its states and the name in errors.
    const NAME: &'static str;

    /// The moments' names: state `NAME.PARAMETER.MOMENT` each, zero at first.
    fn moments(&self) -> &'static [&'static str];

    /// WGSL: a struct `Rule` whose fields are [`Rule::words`], of four bytes
    /// each, and `fn update(w: Rule, lr: f32, step: u32, e: Elements) -> Elements`.
    /// `Elements` has the fields `param`, the moments and `grad`, each a `Block`:
    /// `vec4<f32>` or `f32`. `step` counts from 0, and is 1 if not read.
    fn formula(&self) -> &'static str;

    /// The fields of the formula's `Rule`, for a parameter of this weight decay.
    fn words(&self, weight_decay: f64) -> Vec<u32>;

    /// True if the formula needs the number of the step, a run's input `"step"`.
    fn reads_step(&self) -> bool {
        false
    }

    /// The weight decay of parameters whose group says nothing of it.
    fn weight_decay(&self) -> f64;

    /// Refuses settings that make no sense.
    ///
    /// # Errors
    /// [`crate::Error::Argument`] naming the optimiser, the setting and its value.
    fn check(&self) -> Result<()>;
}

/// An optimiser made of a [`Rule`]; its moments live in the [`Params`].
#[derive(Debug, Clone)]
pub struct RuleOptimizer<R> {
    params: Params,
    rule: R,
    groups: Groups,
}

impl<R: Rule> RuleOptimizer<R> {
    /// An optimiser whose moments live in `params`.
    ///
    /// # Errors
    /// [`crate::Error::Argument`] for settings that make no sense.
    pub fn new(params: &Params, rule: R) -> Result<Self> {
        rule.check()?;
        Ok(Self { params: params.clone(), rule, groups: Groups::default() })
    }

    /// Adds a group; of several that contain a parameter the first counts.
    ///
    /// # Errors
    /// [`crate::Error::Argument`] for a negative factor or decay.
    pub fn with_group(mut self, group: Group) -> Result<Self> {
        self.groups.push(R::NAME, group)?;
        Ok(self)
    }
}

impl<R: Rule> Optimizer for RuleOptimizer<R> {
    fn update_guarded(&self, param: &Param, gradient: &Tensor, guard: Option<&Guard>) -> Result<()> {
        expect_float(R::NAME, param.ty())?;
        let recorder = gradient.recorder();
        let (lr_factor, weight_decay) = self.groups.of(param, self.rule.weight_decay());
        let moments = self.rule.moments();
        let mut operands = vec![recorder.state(param)?];
        for moment in moments {
            let name = format!("{}.{}.{moment}", R::NAME, param.name());
            let state = self.params.create_typed(&name, param.ty().clone(), Category::Optimizer, Init::Zeros)?;
            operands.push(recorder.param(&state)?);
        }
        operands.extend([gradient.clone(), recorder.scalar_input("lr")?]);
        let states: Vec<&'static str> = std::iter::once("param").chain(moments.iter().copied()).collect();
        let mut update = Update::new(R::NAME, &states, &["grad"])
            .formula(self.rule.formula(), self.rule.words(weight_decay))
            .scalar(UpdateScalar::Lr);
        update.lr_factor = lr_factor;
        if self.rule.reads_step() {
            update = update.scalar(UpdateScalar::Step);
            operands.push(guard.map_or_else(|| recorder.step_count(), |g| Ok(g.step.clone()))?);
        }
        if let Some(guard) = guard {
            update = update.scalar(UpdateScalar::Skip);
            operands.push(guard.skip.clone());
        }
        update.record(&operands.iter().collect::<Vec<_>>())
    }
}
