//! A program with what the search has found out about it: any number of plans.

use std::sync::OnceLock;
use std::time::Duration;

use super::model::Model;
use super::{ParetoPoint, Plan, plan_with};
use crate::checkpoint::Policy;
use crate::checkpoint::search::Candidate;
use crate::error::Result;
use crate::fuse::program::Program;
use crate::plan::planner::Planner;
use crate::profile::DeviceProfile;
use crate::shared::Shared;

/// How hard the planner searches for plans under a budget.
///
/// Effort is counted in steps, not in time, so that the same program gives the same
/// plan on every machine. More steps find cheaper plans and smaller least budgets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlanOptions {
    /// Steps of all searches for one program together: prices worked out, and passes
    /// walked by the thirty-two.
    pub steps: u64,
    /// Also ends the search after so long. The plan then depends on the machine, and
    /// says so in [`Plan::notes`] if the time was over before the steps.
    pub time_limit: Option<Duration>,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self { steps: 200_000, time_limit: None }
    }
}

/// What was found, whatever the budget.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The program as graphs, one per order of passes.
    pub(crate) models: OnceLock<Vec<Model>>,
    /// Every way worth choosing.
    pub(crate) found: OnceLock<Found>,
}

/// The ways that a search ended with.
#[derive(Debug)]
pub(crate) struct Found {
    /// By rising cost and falling memory; the first keeps everything.
    pub(crate) candidates: Vec<Candidate>,
    /// Whether the clock ended the search.
    pub(crate) cut_short: bool,
}

/// A program to be planned under several policies: the search is made once.
#[derive(Debug)]
pub struct Planning {
    program: Shared<Program>,
    profile: DeviceProfile,
    known: Known,
}

impl Planning {
    /// For a program and a device; searches nothing yet.
    #[must_use]
    pub fn new(program: Shared<Program>, profile: DeviceProfile) -> Self {
        Self { program, profile, known: Known::default() }
    }

    /// The program.
    #[must_use]
    pub const fn program(&self) -> &Shared<Program> {
        &self.program
    }

    /// See [`super::plan()`]; the first budget searches, later ones choose.
    ///
    /// # Errors
    /// As [`super::plan()`].
    pub fn plan(&self, policy: &Policy) -> Result<Plan> {
        plan_with(&self.program, policy, &self.profile, &self.known)
    }

    /// See [`super::pareto`].
    ///
    /// # Errors
    /// As [`super::pareto`].
    pub fn pareto(&self, points: usize) -> Result<Vec<ParetoPoint>> {
        Planner::new(&self.program, &self.profile, &self.known)?.pareto(points)
    }
}
