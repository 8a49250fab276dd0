//! Parameter groups: some parameters with a learning rate and a decay of their own.

use std::fmt;

use crate::error::{Error, Result};
use crate::params::Param;
use crate::shared::{MaybeSendSync, Shared};

#[cfg(not(target_arch = "wasm32"))]
type Predicate = dyn Fn(&Param) -> bool + Send + Sync;
#[cfg(target_arch = "wasm32")]
type Predicate = dyn Fn(&Param) -> bool;

/// Some of an optimiser's parameters, with what differs for them.
///
/// ```
/// use remat::optim::{AdamW, AdamWConfig, Group};
/// # let params = remat::params::Params::offline(0);
/// // No decay on biases and norms.
/// let adamw = AdamW::new(&params, AdamWConfig::default())?.with_group(Group::vectors().weight_decay(0.0))?;
/// # Ok::<(), remat::Error>(())
/// ```
#[derive(Clone)]
pub struct Group {
    contains: Shared<Predicate>,
    lr_factor: f64,
    weight_decay: Option<f64>,
}

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Group")
            .field("lr_factor", &self.lr_factor)
            .field("weight_decay", &self.weight_decay)
            .finish_non_exhaustive()
    }
}

impl Group {
    /// The parameters for which `contains` is true.
    #[must_use]
    pub fn matching(contains: impl Fn(&Param) -> bool + MaybeSendSync + 'static) -> Self {
        Self { contains: Shared::new(contains), lr_factor: 1.0, weight_decay: None }
    }

    /// The parameters given.
    #[must_use]
    pub fn of(params: &[Param]) -> Self {
        let names: Vec<String> = params.iter().map(|p| p.name().to_owned()).collect();
        Self::matching(move |param| names.iter().any(|name| name == param.name()))
    }

    /// Parameters of at most one axis: biases, and the scales and shifts of norms.
    #[must_use]
    pub fn vectors() -> Self {
        Self::matching(|param| param.ty().shape.rank() <= 1)
    }

    /// Multiplies the run's learning rate for these.
    #[must_use]
    pub fn lr_factor(mut self, factor: f64) -> Self {
        self.lr_factor = factor;
        self
    }

    /// Their weight decay, instead of the optimiser's own.
    #[must_use]
    pub fn weight_decay(mut self, decay: f64) -> Self {
        self.weight_decay = Some(decay);
        self
    }
}

/// The groups of an optimiser; the first that contains a parameter counts.
#[derive(Debug, Clone, Default)]
pub(super) struct Groups(Vec<Group>);

impl Groups {
    pub(super) fn push(&mut self, optimizer: &'static str, group: Group) -> Result<()> {
        at_least_zero(optimizer, "lr_factor", group.lr_factor)?;
        at_least_zero(optimizer, "weight_decay", group.weight_decay.unwrap_or(0.0))?;
        self.0.push(group);
        Ok(())
    }

    /// The factor of the learning rate and the weight decay of a parameter.
    pub(super) fn of(&self, param: &Param, weight_decay: f64) -> (f64, f64) {
        let group = self.0.iter().find(|g| (g.contains)(param));
        group.map_or((1.0, weight_decay), |g| (g.lr_factor, g.weight_decay.unwrap_or(weight_decay)))
    }
}

/// Refuses what is negative or no number.
pub(super) fn at_least_zero(op: &'static str, argument: &'static str, value: f64) -> Result<()> {
    if value >= 0.0 {
        return Ok(());
    }
    let detail = "expected a number of at least 0".into();
    Err(Error::Argument { op, argument, value: value.to_string(), detail })
}

/// Refuses what is outside `[0, 1)`.
pub(super) fn below_one(op: &'static str, argument: &'static str, value: f64) -> Result<()> {
    if (0.0..1.0).contains(&value) {
        return Ok(());
    }
    let detail = format!("expected 0 <= {argument} < 1");
    Err(Error::Argument { op, argument, value: value.to_string(), detail })
}
