//! Lion (Chen et al., "Symbolic discovery of optimization algorithms", 2023).
//! The formula stands in `shaders/shared/lion_update.wgsl`.

use super::Rule;
use super::group::{at_least_zero, below_one};
use super::rule::RuleOptimizer;
use super::update::bits;
use crate::error::Result;

const UPDATE: &str = include_str!("../../shaders/shared/lion_update.wgsl");

/// Settings of [`Lion`]. The learning rate is the run's input `"lr"`; the paper
/// takes a third to a tenth of AdamW's, and a decay as many times larger.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LionConfig {
    /// Share of the momentum in the direction.
    pub beta1: f64,
    /// Decay of the momentum.
    pub beta2: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

impl Default for LionConfig {
    /// The paper's: betas 0.9 and 0.99, no weight decay.
    fn default() -> Self {
        Self { beta1: 0.9, beta2: 0.99, weight_decay: 0.0 }
    }
}

/// Lion; its momentum is the state `lion.NAME.exp_avg`.
pub type Lion = RuleOptimizer<LionConfig>;

impl Rule for LionConfig {
    const NAME: &'static str = "lion";

    fn moments(&self) -> &'static [&'static str] {
        &["exp_avg"]
    }
    fn formula(&self) -> &'static str {
        UPDATE
    }
    fn words(&self, weight_decay: f64) -> Vec<u32> {
        let [beta1, beta2] = [self.beta1, self.beta2];
        [beta1, 1.0 - beta1, beta2, 1.0 - beta2, weight_decay].map(bits).to_vec()
    }
    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }
    fn check(&self) -> Result<()> {
        below_one("lion", "beta1", self.beta1)?;
        below_one("lion", "beta2", self.beta2)?;
        at_least_zero("lion", "weight_decay", self.weight_decay)
    }
}
