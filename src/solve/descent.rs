//! Schedules of one graph at falling budgets, each made from the one before.

use super::deadline::Deadline;
use super::graph::Graph;
use super::greedy::Search;
use super::improve::improve;
use super::line::Line;
use super::schedule::Figures;

/// How a descent is made.
#[derive(Debug, Clone, Copy)]
pub struct Descent {
    /// Budgets between the peak of the order given and the widest node, each the same
    /// share of the one before.
    pub levels: u32,
    /// Whether a value kept longer for a replay is charged to all that may use it.
    pub shared: bool,
    /// Whether runs are first moved to where they free bytes.
    pub tight: bool,
    /// Steps of local search at each level.
    pub improve: u64,
    /// Steps at which it ends in any case.
    pub steps: u64,
    /// The clock's end.
    pub deadline: Deadline,
}

/// A way that a descent came by: the order of runs, and what it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waypoint {
    /// Peak and cost.
    pub figures: Figures,
    /// The nodes in the order of their runs, some of them several times.
    pub order: Vec<u32>,
}

/// Runs that multiply the cost by this much are no plan that anybody wants.
const DEAREST: u64 = 8;

/// Walks down from `order`, which runs every node once, and gives a schedule for each
/// level that it reached, by falling peak. Below the last level reached it halves the
/// gap to the first one missed a few times, so that the last schedule is about the
/// least that this way reaches. The same inputs give the same schedules.
#[must_use]
pub fn descend(graph: &Graph, order: &[u32], descent: &Descent) -> Vec<Waypoint> {
    const HALVINGS: u32 = 5;
    let mut search = Search::new(graph);
    (search.shared, search.deadline) = (descent.shared, descent.deadline);
    let mut line = Line::new(graph, u64::MAX, order);
    if descent.tight {
        line.set_budget(0);
        line.tighten(&mut search);
    }
    let (most, least) = (line.peak, graph.widest().max(1));
    let limit = graph.base_cost().saturating_mul(DEAREST).max(1);
    let mut found = vec![waypoint(&line)];
    let (mut met, mut missed) = (most, None);
    for level in 1..=descent.levels {
        let share = f64::from(level) / f64::from(descent.levels);
        let budget = (most as f64 * (least as f64 / most.max(1) as f64).powf(share)) as u64;
        if budget >= met {
            continue;
        }
        if !step_down(&mut search, &mut line, budget.max(least), limit, descent) {
            missed = Some(budget);
            break;
        }
        met = line.peak;
        found.push(waypoint(&line));
    }
    // What is left of the way is short.
    for _ in 0..HALVINGS {
        let Some(low) = missed.filter(|&low| low + 1 < met && search.steps < descent.steps) else { break };
        let budget = low.midpoint(met - 1).max(low + 1);
        if step_down(&mut search, &mut line, budget, limit, descent) {
            met = line.peak;
            found.push(waypoint(&line));
        } else {
            missed = Some(budget);
        }
    }
    found
}

fn waypoint(line: &Line<'_>) -> Waypoint {
    Waypoint { figures: Figures { peak: line.peak, cost: line.cost }, order: line.order() }
}

/// Brings the line within `budget`; leaves it as it was if that fails.
fn step_down(search: &mut Search, line: &mut Line<'_>, budget: u64, limit: u64, descent: &Descent) -> bool {
    let (items, before) = (line.items.clone(), line.budget);
    search.end = descent.steps;
    line.set_budget(budget);
    search.noise = 0.0;
    if search.steps >= descent.steps || !search.fit(line, limit) {
        line.budget = before;
        line.restore(&items);
        return false;
    }
    line.prune(search);
    if descent.improve > 0 {
        improve(search, line, descent.improve);
    }
    true
}
