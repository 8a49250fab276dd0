//! RMSprop (Tieleman and Hinton 2012; centred as Graves 2013 has it), PyTorch's
//! form. The formulas stand in `shaders/shared/rmsprop_*.wgsl`.

use super::Rule;
use super::group::{at_least_zero, below_one};
use super::rule::RuleOptimizer;
use super::update::bits;
use crate::error::Result;

macro_rules! formula {
    ($text:literal) => {
        concat!(
            include_str!("../../shaders/shared/rmsprop_update.wgsl"),
            include_str!(concat!("../../shaders/shared/rmsprop_", $text, ".wgsl"))
        )
    };
}

const PLAIN: &str = formula!("plain");
const MOMENTUM: &str = formula!("momentum");
const CENTERED: &str = formula!("centered");
const CENTERED_MOMENTUM: &str = formula!("centered_momentum");

/// Settings of [`RmsProp`]. The learning rate is the run's input `"lr"`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RmsPropConfig {
    /// Decay of the mean of squares.
    pub alpha: f64,
    /// Added to the denominator.
    pub eps: f64,
    /// Weight decay, added to the gradient.
    pub weight_decay: f64,
    /// Momentum; 0 keeps no buffer.
    pub momentum: f64,
    /// Divides by the gradient's standard deviation instead of its root mean square.
    pub centered: bool,
}

impl Default for RmsPropConfig {
    /// PyTorch's: alpha 0.99, eps 1e-8, nothing else.
    fn default() -> Self {
        Self { alpha: 0.99, eps: 1e-8, weight_decay: 0.0, momentum: 0.0, centered: false }
    }
}

/// RMSprop; its moments are the states `rmsprop.NAME.square_avg`, and
/// `.grad_avg` and `.momentum` where wanted.
pub type RmsProp = RuleOptimizer<RmsPropConfig>;

impl Rule for RmsPropConfig {
    const NAME: &'static str = "rmsprop";

    fn moments(&self) -> &'static [&'static str] {
        match (self.centered, self.momentum != 0.0) {
            (false, false) => &["square_avg"],
            (false, true) => &["square_avg", "momentum"],
            (true, false) => &["square_avg", "grad_avg"],
            (true, true) => &["square_avg", "grad_avg", "momentum"],
        }
    }
    fn formula(&self) -> &'static str {
        match (self.centered, self.momentum != 0.0) {
            (false, false) => PLAIN,
            (false, true) => MOMENTUM,
            (true, false) => CENTERED,
            (true, true) => CENTERED_MOMENTUM,
        }
    }
    fn words(&self, weight_decay: f64) -> Vec<u32> {
        vec![bits(self.alpha), bits(1.0 - self.alpha), bits(self.eps), bits(weight_decay), bits(self.momentum)]
    }
    fn weight_decay(&self) -> f64 {
        self.weight_decay
    }
    fn check(&self) -> Result<()> {
        below_one("rmsprop", "alpha", self.alpha)?;
        at_least_zero("rmsprop", "eps", self.eps)?;
        at_least_zero("rmsprop", "weight_decay", self.weight_decay)?;
        at_least_zero("rmsprop", "momentum", self.momentum)
    }
}
