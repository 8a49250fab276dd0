//! AdamW (Loshchilov and Hutter 2019) and Adam (Kingma and Ba 2015), PyTorch's
//! conventions. The formula stands in `shaders/shared/adamw_update.wgsl`.

use super::Rule;
use super::group::{at_least_zero, below_one};
use super::rule::RuleOptimizer;
use super::update::bits;
use crate::error::Result;

const UPDATE: &str = include_str!("../../shaders/shared/adamw_update.wgsl");

/// Settings of [`AdamW`]. The learning rate is the run's input `"lr"`, the number
/// of the step its input `"step"`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamWConfig {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay.
    pub weight_decay: f64,
    /// True for AdamW; false adds the decay to the gradient (Adam).
    pub decoupled: bool,
}

impl Default for AdamWConfig {
    /// PyTorch's `AdamW`: betas 0.9 and 0.999, eps 1e-8, weight decay 0.01.
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.01, decoupled: true }
    }
}

/// AdamW; its moments are the states `adamw.NAME.exp_avg` and `adamw.NAME.exp_avg_sq`.
pub type AdamW = RuleOptimizer<AdamWConfig>;

impl Rule for AdamWConfig {
    const NAME: &'static str = "adamw";

    fn moments(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }
    fn formula(&self) -> &'static str {
        UPDATE
    }
    fn words(&self, weight_decay: f64) -> Vec<u32> {
        vec![
            u32::from(self.decoupled),
            bits(self.beta1),
            bits(self.beta2),
            bits(1.0 - self.beta1),
            bits(1.0 - self.beta2),
            bits(self.beta1.ln()),
            bits(self.beta2.ln()),
            bits(self.eps),
            bits(weight_decay),
        ]
    }
    fn reads_step(&self) -> bool {
        true
    }
    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }
    fn check(&self) -> Result<()> {
        self.check_as(Self::NAME)
    }
}

impl AdamWConfig {
    fn check_as(&self, name: &'static str) -> Result<()> {
        below_one(name, "beta1", self.beta1)?;
        below_one(name, "beta2", self.beta2)?;
        at_least_zero(name, "eps", self.eps)?;
        at_least_zero(name, "weight_decay", self.weight_decay)
    }
}

/// Settings of [`Adam`]. The learning rate is the run's input `"lr"`, the number
/// of the step its input `"step"`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamConfig {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
}

impl Default for AdamConfig {
    /// PyTorch's `Adam`: betas 0.9 and 0.999, eps 1e-8, no weight decay.
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.999, eps: 1e-8, weight_decay: 0.0 }
    }
}

/// Adam; its moments are the states `adam.NAME.exp_avg` and `adam.NAME.exp_avg_sq`.
pub type Adam = RuleOptimizer<AdamConfig>;

impl AdamConfig {
    const fn coupled(self) -> AdamWConfig {
        let Self { beta1, beta2, eps, weight_decay } = self;
        AdamWConfig { beta1, beta2, eps, weight_decay, decoupled: false }
    }
}

impl Rule for AdamConfig {
    const NAME: &'static str = "adam";

    fn moments(&self) -> &'static [&'static str] {
        &["exp_avg", "exp_avg_sq"]
    }
    fn formula(&self) -> &'static str {
        UPDATE
    }
    fn words(&self, weight_decay: f64) -> Vec<u32> {
        self.coupled().words(weight_decay)
    }
    fn reads_step(&self) -> bool {
        true
    }
    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }
    fn check(&self) -> Result<()> {
        self.coupled().check_as(Self::NAME)
    }
}
