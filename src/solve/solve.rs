//! The solver: several starts, dropping values, local search, exact search where small.

use super::exact::{self, Outcome};
use super::graph::{Graph, SolveError};
use super::greedy::Search;
use super::halving::halving;
use super::improve::improve;
use super::line::Line;
use super::schedule::{Figures, Schedule};

/// How long to search, counted in steps so that results do not depend on the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Steps of the first plans and of the local search together: prices worked
    /// out and, for every 32 runs of a line that is changed, one more.
    pub steps: u64,
    /// States that the exact search of small graphs may reach.
    pub states: u64,
}

impl Default for Effort {
    fn default() -> Self {
        Self { steps: 400_000, states: 1_000_000 }
    }
}

/// A schedule with what it takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Solution {
    /// The schedule.
    pub schedule: Schedule,
    /// Its peak and cost, as [`Schedule::check`] finds them.
    pub figures: Figures,
    /// Whether no schedule within the budget is cheaper.
    pub optimal: bool,
    /// The steps taken.
    pub steps: u64,
}

/// The nodes below which the exact search is tried.
const SMALL: usize = 24;

/// How a first plan is made.
struct Start {
    /// The budgets between the first peak and the last.
    levels: u32,
    /// See [`Search::power`].
    power: f64,
    /// See [`Search::shared`].
    shared: bool,
    /// Whether runs are first moved to where they free bytes.
    tight: bool,
    /// The blocks of [`halving`]; 0 for every node once.
    blocks: usize,
}

const PLAIN: Start = Start { levels: 1, power: 1.0, shared: false, tight: false, blocks: 0 };

/// The cheapest to try come first.
const STARTS: [Start; 9] = [
    PLAIN,
    Start { shared: true, ..PLAIN },
    Start { shared: true, levels: 8, ..PLAIN },
    Start { shared: true, blocks: 8, ..PLAIN },
    Start { shared: true, blocks: 32, ..PLAIN },
    Start { levels: 8, power: 2.0, ..PLAIN },
    Start { levels: 24, tight: true, ..PLAIN },
    Start { shared: true, levels: 24, power: 0.0, tight: true, ..PLAIN },
    Start { shared: true, blocks: 128, ..PLAIN },
];

/// Looks for the cheapest schedule whose peak is at most `budget_bytes`.
///
/// Starts from every node once, in the order given, or from recursive halving; drops values, cheapest per
/// byte first, until the budget holds; removes the replays that turn out not to
/// be needed; then takes some replays out at random and puts others in, keeping
/// what is cheaper. Graphs of up to 24 nodes are then solved exactly, if
/// [`Effort::states`] suffices. The same inputs give the same schedule.
///
/// # Errors
/// [`SolveError::Infeasible`] if no schedule within the budget was found.
pub fn solve(graph: &Graph, budget_bytes: u64, effort: &Effort) -> Result<Solution, SolveError> {
    let order: Vec<u32> = (0..graph.nodes().len() as u32).collect();
    let base = graph.base_cost();
    let mut search = Search::new(graph);
    let mut best: Option<Line<'_>> = None;
    let mut least = u64::MAX;
    for start in &STARTS {
        let line = first(graph, budget_bytes, &order, start, &mut search, effort.steps);
        least = least.min(line.peak);
        let better = best.as_ref().is_none_or(|b| line.cost < b.cost);
        if line.excess == 0 && better {
            best = Some(line);
        }
        if best.as_ref().is_some_and(|b| b.cost == base || search.steps > effort.steps / 2) {
            break;
        }
    }
    if let Some(line) = &mut best {
        let left = effort.steps.saturating_sub(search.steps);
        (search.power, search.shared) = (1.0, true);
        improve(&mut search, line, left);
    }
    let mut optimal = best.as_ref().is_some_and(|b| b.cost == base);
    let mut order = best.map(|b| (b.cost, b.order()));
    if graph.nodes().len() <= SMALL && !optimal {
        let mut states = effort.states;
        let limit = order.as_ref().map_or(u64::MAX, |o| o.0);
        match exact::search(graph, budget_bytes, limit, &mut states) {
            Outcome::Best(exact) => (order, optimal) = (Some((0, exact)), true),
            Outcome::Nothing => optimal = true,
            Outcome::Unknown => {}
        }
    }
    let Some((_, order)) = order else {
        return Err(SolveError::Infeasible { budget_bytes, least_bytes: least });
    };
    let schedule = Schedule::from_order(graph, &order)?;
    let figures = schedule.check(graph)?;
    Ok(Solution { schedule, figures, optimal, steps: search.steps })
}

/// A first plan; it exceeds the budget if none was found.
fn first<'g>(graph: &'g Graph, budget: u64, order: &[u32], start: &Start, search: &mut Search, steps: u64) -> Line<'g> {
    let mut line = Line::new(graph, budget, order);
    if start.blocks > 0 {
        let turn = line.resident.iter().position(|&r| r == line.peak).unwrap_or(0);
        line.set_order(&halving(graph, turn, start.blocks));
        line.prune(search);
    }
    // Past this, replays breed replays and nothing comes of it.
    let limit = graph.base_cost().saturating_mul(16).max(1);
    (search.power, search.shared, search.noise) = (start.power, start.shared, 0.0);
    search.end = search.steps.saturating_add(steps);
    if start.tight {
        line.tighten(search);
    }
    let over = line.peak.saturating_sub(budget);
    for level in 1..=u64::from(start.levels) {
        let share = u128::from(over) * u128::from(u64::from(start.levels) - level) / u128::from(start.levels);
        line.set_budget(budget + share as u64);
        search.fit(&mut line, limit);
        line.prune(search);
        if line.cost >= limit {
            break;
        }
    }
    line.set_budget(budget);
    line
}
