//! Adagrad (Duchi et al. 2011), PyTorch's form. The formula stands in
//! `shaders/shared/adagrad_update.wgsl`.

use super::Rule;
use super::group::at_least_zero;
use super::rule::RuleOptimizer;
use super::update::bits;
use crate::error::Result;

const UPDATE: &str = include_str!("../../shaders/shared/adagrad_update.wgsl");

/// Settings of [`Adagrad`]. The learning rate is the run's input `"lr"`, the
/// number of the step its input `"step"`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdagradConfig {
    /// The learning rate falls as `lr / (1 + step * lr_decay)`.
    pub lr_decay: f64,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
    /// What the sums of squares start from.
    pub initial_accumulator_value: f64,
    /// Added to the denominator.
    pub eps: f64,
}

impl Default for AdagradConfig {
    /// PyTorch's: eps 1e-10, nothing else.
    fn default() -> Self {
        Self { lr_decay: 0.0, weight_decay: 0.0, initial_accumulator_value: 0.0, eps: 1e-10 }
    }
}

/// Adagrad; its sums of squares are the states `adagrad.NAME.sum`, less the
/// initial value.
pub type Adagrad = RuleOptimizer<AdagradConfig>;

impl Rule for AdagradConfig {
    const NAME: &'static str = "adagrad";

    fn moments(&self) -> &'static [&'static str] {
        &["sum"]
    }
    fn formula(&self) -> &'static str {
        UPDATE
    }
    fn words(&self, weight_decay: f64) -> Vec<u32> {
        vec![bits(self.lr_decay), bits(weight_decay), bits(self.initial_accumulator_value), bits(self.eps)]
    }
    fn reads_step(&self) -> bool {
        self.lr_decay != 0.0
    }
    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }
    fn check(&self) -> Result<()> {
        at_least_zero("adagrad", "lr_decay", self.lr_decay)?;
        at_least_zero("adagrad", "weight_decay", self.weight_decay)?;
        at_least_zero("adagrad", "initial_accumulator_value", self.initial_accumulator_value)?;
        at_least_zero("adagrad", "eps", self.eps)
    }
}
