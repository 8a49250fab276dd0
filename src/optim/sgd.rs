//! Stochastic gradient descent with momentum and Nesterov's variant (Sutskever
//! et al. 2013, PyTorch's form). The formula stands in `shaders/shared/sgd_update.wgsl`.

use super::Rule;
use super::group::{at_least_zero, below_one};
use super::rule::RuleOptimizer;
use super::update::bits;
use crate::error::{Error, Result};

const MOMENTUM: &str = include_str!("../../shaders/shared/sgd_update.wgsl");
const PLAIN: &str = include_str!("../../shaders/shared/sgd_plain_update.wgsl");

/// Settings of [`Sgd`]. The learning rate is the run's input `"lr"`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SgdConfig {
    /// Momentum; 0 keeps no buffer.
    pub momentum: f64,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
    /// Nesterov's look-ahead.
    pub nesterov: bool,
    /// What the momentum keeps back of a gradient, from the second step on;
    /// unless it is 0, the run's input `"step"` is read.
    pub dampening: f64,
}

/// Stochastic gradient descent; its buffers are the states `sgd.NAME.momentum`.
pub type Sgd = RuleOptimizer<SgdConfig>;

impl Rule for SgdConfig {
    const NAME: &'static str = "sgd";

    fn moments(&self) -> &'static [&'static str] {
        if self.momentum == 0.0 { &[] } else { &["momentum"] }
    }
    fn formula(&self) -> &'static str {
        if self.momentum == 0.0 { PLAIN } else { MOMENTUM }
    }
    fn words(&self, weight_decay: f64) -> Vec<u32> {
        if self.momentum == 0.0 {
            return vec![bits(weight_decay)];
        }
        vec![u32::from(self.nesterov), bits(self.momentum), bits(weight_decay), bits(1.0 - self.dampening)]
    }
    fn reads_step(&self) -> bool {
        self.momentum != 0.0 && self.dampening != 0.0
    }
    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }
    fn check(&self) -> Result<()> {
        at_least_zero("sgd", "momentum", self.momentum)?;
        at_least_zero("sgd", "weight_decay", self.weight_decay)?;
        below_one("sgd", "dampening", self.dampening)?;
        let looks_ahead = "it looks ahead along the momentum, so that must not be 0, and dampening must be";
        if self.nesterov && (self.momentum == 0.0 || self.dampening != 0.0) {
            return Err(Error::Argument {
                op: "sgd",
                argument: "nesterov",
                value: "true".into(),
                detail: looks_ahead.into(),
            });
        }
        Ok(())
    }
}
