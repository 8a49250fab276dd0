//! Learning rates as functions of the step, on the host: hand the result to a run
//! as its input `"lr"`. Steps count from 0; formulas and names are those of
//! PyTorch's `lr_scheduler`, closed rather than step by step.
//!
//! ```
//! use remat::optim::schedule::{Cosine, Schedule};
//! let schedule = Cosine { base: 0.1, t_max: 90, eta_min: 0.0 }.warm_up(10);
//! assert!((schedule.lr(4) - 0.05).abs() < 1e-12);
//! assert!((schedule.lr(10) - 0.1).abs() < 1e-12);
//! ```

use std::f64::consts::PI;
use std::fmt::Debug;

/// A learning rate that depends on the step alone.
pub trait Schedule: Debug {
    /// The learning rate of this step, counted from 0.
    fn lr(&self, step: u64) -> f64;

    /// Rises linearly over `steps` steps, from `1 / steps` of what this schedule
    /// begins with to all of it, then follows it from its own step 0.
    fn warm_up(self, steps: u64) -> WarmUp<Self>
    where
        Self: Sized,
    {
        WarmUp { steps, then: self }
    }
}

/// How far `step` is towards `total`, 0 to 1.
fn progress(step: u64, total: u64) -> f64 {
    if step >= total { 1.0 } else { step as f64 / total as f64 }
}

/// `base`, always.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constant {
    /// The learning rate.
    pub base: f64,
}

impl Schedule for Constant {
    fn lr(&self, _: u64) -> f64 {
        self.base
    }
}

/// `base gamma^floor(step / step_size)` (`StepLR`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// The first learning rate.
    pub base: f64,
    /// Steps from one change to the next; 0 counts as 1.
    pub step_size: u64,
    /// What it is multiplied by.
    pub gamma: f64,
}

impl Schedule for Step {
    fn lr(&self, step: u64) -> f64 {
        self.base * self.gamma.powf((step / self.step_size.max(1)) as f64)
    }
}

/// `eta_min + (base - eta_min) (1 + cos(pi step / t_max)) / 2` (`CosineAnnealingLR`).
/// After `t_max` it rises again, as in PyTorch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cosine {
    /// The first learning rate.
    pub base: f64,
    /// The step at which it is least; 0 is always there.
    pub t_max: u64,
    /// The least learning rate.
    pub eta_min: f64,
}

impl Schedule for Cosine {
    fn lr(&self, step: u64) -> f64 {
        if self.t_max == 0 {
            return self.eta_min;
        }
        // Two halves of a wave make a whole; the remainder keeps the angle exact.
        let angle = PI * (step % self.t_max.saturating_mul(2)) as f64 / self.t_max as f64;
        self.eta_min + (self.base - self.eta_min) * (1.0 + angle.cos()) / 2.0
    }
}

/// From `base start_factor` to `base end_factor` in `total_iters` steps, straight
/// (`LinearLR`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Linear {
    /// What the factors multiply.
    pub base: f64,
    /// The first factor.
    pub start_factor: f64,
    /// The last factor.
    pub end_factor: f64,
    /// Steps until the last factor is reached.
    pub total_iters: u64,
}

impl Schedule for Linear {
    fn lr(&self, step: u64) -> f64 {
        let way = progress(step, self.total_iters);
        self.base * (self.start_factor + (self.end_factor - self.start_factor) * way)
    }
}

/// `base gamma^step` (`ExponentialLR`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exponential {
    /// The first learning rate.
    pub base: f64,
    /// What each step multiplies by.
    pub gamma: f64,
}

impl Schedule for Exponential {
    fn lr(&self, step: u64) -> f64 {
        self.base * self.gamma.powf(step as f64)
    }
}

/// `base (1 - step / total_iters)^power`, then 0 (`PolynomialLR`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Polynomial {
    /// The first learning rate.
    pub base: f64,
    /// Steps until 0 is reached.
    pub total_iters: u64,
    /// The exponent; 1 is a straight line.
    pub power: f64,
}

impl Schedule for Polynomial {
    fn lr(&self, step: u64) -> f64 {
        if step >= self.total_iters {
            return 0.0;
        }
        self.base * (1.0 - progress(step, self.total_iters)).powf(self.power)
    }
}

/// Up from `max_lr / div_factor` to `max_lr` and down to
/// `max_lr / div_factor / final_div_factor`, along half a cosine each way
/// (`OneCycleLR`, Smith and Topin 2017).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OneCycle {
    /// The largest learning rate.
    pub max_lr: f64,
    /// Steps of the whole cycle; afterwards the last value stays.
    pub total_steps: u64,
    /// Share of the steps in which it rises.
    pub pct_start: f64,
    /// `max_lr` by the first learning rate.
    pub div_factor: f64,
    /// The first learning rate by the last one.
    pub final_div_factor: f64,
}

impl OneCycle {
    /// PyTorch's defaults: rises for 0.3 of the steps, factors 25 and 10,000.
    #[must_use]
    pub const fn new(max_lr: f64, total_steps: u64) -> Self {
        Self { max_lr, total_steps, pct_start: 0.3, div_factor: 25.0, final_div_factor: 1e4 }
    }
}

impl Schedule for OneCycle {
    fn lr(&self, step: u64) -> f64 {
        let first = self.max_lr / self.div_factor;
        let last = first / self.final_div_factor;
        let (step, end) = (step as f64, self.total_steps as f64 - 1.0);
        let top = self.pct_start * self.total_steps as f64 - 1.0;
        let anneal = |from: f64, to: f64, way: f64| to + (from - to) / 2.0 * (1.0 + (PI * way).cos());
        if step >= end {
            last
        } else if step <= top {
            anneal(first, self.max_lr, if top > 0.0 { step / top } else { 1.0 })
        } else {
            anneal(self.max_lr, last, (step - top) / (end - top))
        }
    }
}

/// A linear rise, then another schedule; see [`Schedule::warm_up`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WarmUp<S> {
    /// Steps of the rise.
    pub steps: u64,
    /// What follows.
    pub then: S,
}

impl<S: Schedule> Schedule for WarmUp<S> {
    fn lr(&self, step: u64) -> f64 {
        if step < self.steps {
            self.then.lr(0) * (step + 1) as f64 / self.steps as f64
        } else {
            self.then.lr(step - self.steps)
        }
    }
}
