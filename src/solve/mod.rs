//! Scheduling under a memory budget, on an abstract graph.
//!
//! A [`Graph`] says what each node costs, reads and writes; a [`Schedule`] says
//! in which order nodes run, some of them several times, and what is freed when;
//! [`solve`] looks for the cheapest schedule within a budget. Nothing here knows
//! operations, kernels or devices. `docs/planner.md` tells how it works.

mod chain;
mod deadline;
mod descent;
mod exact;
mod graph;
mod greedy;
mod halving;
mod improve;
mod line;
mod pareto;
mod schedule;
#[expect(clippy::module_inception, reason = "the function that the module is for")]
mod solve;

pub use chain::{Action, ChainPlan, Stage, mixed_steps, revolve_extra, rotor};
pub use deadline::Deadline;
pub use descent::{Descent, Waypoint, descend};
pub use graph::{Graph, Node, SolveError};
pub use pareto::{Curve, pareto};
pub use schedule::{Figures, Run, Schedule};
pub use solve::{Effort, Solution, solve};
