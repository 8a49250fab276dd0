//! Peak against cost: several schedules of one graph, none worse than another in both.

use super::graph::{Graph, SolveError};
use super::schedule::{Figures, Schedule};
use super::solve::{Effort, solve};

/// Schedules by falling peak and rising cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Curve {
    points: Vec<(Figures, Schedule)>,
}

impl Curve {
    /// The points, from the highest peak to the least.
    #[must_use]
    pub fn points(&self) -> &[(Figures, Schedule)] {
        &self.points
    }

    /// The cheapest schedule of the curve within a budget.
    ///
    /// From the least peak of the curve upward every budget is met, below it none,
    /// and a larger budget never gets a dearer schedule.
    ///
    /// # Errors
    /// [`SolveError::Infeasible`], with the least peak of the curve.
    pub fn within(&self, budget_bytes: u64) -> Result<&(Figures, Schedule), SolveError> {
        let least_bytes = self.points.last().map_or(0, |(f, _)| f.peak);
        let fits = self.points.iter().find(|(f, _)| f.peak <= budget_bytes);
        fits.ok_or(SolveError::Infeasible { budget_bytes, least_bytes })
    }
}

/// Solves a graph at `steps` budgets, each the same share of the one before, from
/// the peak of every node once down to the widest node, and, where that is not
/// reached, at budgets between the last met and the first refused, halving the gap
/// `steps` times at most.
///
/// # Errors
/// Those of [`Schedule::from_order`], which a graph does not cause.
pub fn pareto(graph: &Graph, steps: u32, effort: &Effort) -> Result<Curve, SolveError> {
    let order: Vec<u32> = (0..graph.nodes().len() as u32).collect();
    let plain = Schedule::from_order(graph, &order)?;
    let figures = plain.check(graph)?;
    let mut found = vec![(figures, plain)];
    let (most, least) = (figures.peak, graph.widest());
    let (mut met, mut refused) = (most, None);
    for step in 1..=steps {
        let share = f64::from(step) / f64::from(steps);
        let budget = most as f64 * (least as f64 / most.max(1) as f64).powf(share);
        let budget = (budget as u64).clamp(least, met);
        match solve(graph, budget, effort) {
            Ok(solution) => {
                met = met.min(solution.figures.peak);
                found.push((solution.figures, solution.schedule));
            }
            Err(_) => {
                refused = Some(budget);
                break;
            }
        }
    }
    for _ in 0..steps {
        let Some(low) = refused.filter(|&low| low + 1 < met) else { break };
        let budget = low.midpoint(met - 1).max(low + 1);
        match solve(graph, budget, effort) {
            Ok(solution) => {
                met = met.min(solution.figures.peak);
                found.push((solution.figures, solution.schedule));
            }
            Err(_) => refused = Some(budget),
        }
    }
    found.sort_by_key(|(f, _)| (f.cost, f.peak));
    let mut points: Vec<(Figures, Schedule)> = Vec::new();
    for point in found {
        if points.last().is_none_or(|(f, _)| point.0.peak < f.peak) {
            points.push(point);
        }
    }
    Ok(Curve { points })
}
