//! Tries decisions: schedules, measures and places them, and takes the best.

use crate::checkpoint::facts::Facts;
use crate::checkpoint::paths::Paths;
use crate::checkpoint::search::{Candidate, Effort, Evaluated, Way, pareto, search};
use crate::checkpoint::{ByteSize, Decision, Policy, candidates, replay};
use crate::error::{Error, Result};
use crate::fuse::program::{Phase, Program, StorageId};
use crate::plan::build::{self, Fixed, Placed};
use crate::plan::model::Model;
use crate::plan::planning::{Found, Known};
use crate::plan::schedule::{self, Measure, Schedule};
use crate::plan::{ParetoPoint, PeakBytes, Plan, PlanOptions, order, report};
use crate::profile::DeviceProfile;
use crate::solve::{Deadline, Descent, descend};

/// The state, and this share of what a plan takes besides.
fn share_of(none: &PeakBytes, share: f64) -> u64 {
    let beyond = none.total() - none.state;
    let allowed = if share >= 1.0 { beyond } else { (beyond as f64 * share).floor() as u64 };
    none.state.saturating_add(allowed)
}

/// A program with all that its plans have in common.
pub(super) struct Planner<'p> {
    facts: Facts<'p>,
    fixed: Fixed,
    /// Orders of the passes to choose from.
    orders: Vec<Vec<u32>>,
    /// What was found out before.
    known: &'p Known,
    options: PlanOptions,
}

/// How the solver walks down, one way after the other: whether what is kept for several
/// replays is shared between them, and whether runs are moved first.
const DESCENTS: [(bool, bool); 2] = [(true, false), (false, true)];

/// Programs of more nodes are searched by regions and values alone: every change of an
/// order takes time with its length.
const SOLVED_UP_TO: usize = 12_000;

/// In programs of more nodes runs are not moved first.
const MOVED_UP_TO: usize = 4_000;

/// Budgets that it stops at on its way.
const LEVELS: u32 = 32;

/// Passes walked that count as one step of the search.
const PASSES_PER_STEP: u64 = 32;

/// A decision carried through to offsets.
struct LaidOut {
    schedule: Schedule,
    measure: Measure,
    placed: Placed,
}

impl LaidOut {
    fn arena(&self) -> u64 {
        self.placed.placement.total()
    }
}

impl<'p> Planner<'p> {
    pub(super) fn new(program: &'p Program, profile: &DeviceProfile, known: &'p Known) -> Result<Self> {
        let facts = Facts::new(program, profile)?;
        let fixed = Fixed::new(&facts, profile)?;
        let mut orders = vec![order::recorded(&facts), order::eager(&facts)];
        orders.dedup();
        Ok(Self { facts, fixed, orders, known, options: profile.planning })
    }

    pub(super) const fn facts(&self) -> &Facts<'p> {
        &self.facts
    }

    fn schedule(&self, decision: &Decision) -> Result<(Schedule, Measure)> {
        let trace = replay::replay(&self.facts, &self.orders[decision.order], decision)?;
        let schedule = schedule::schedule(&self.facts, trace)?;
        let measure = schedule.measure(&self.facts);
        Ok((schedule, measure))
    }

    fn lay_out(&self, decision: &Decision) -> Result<LaidOut> {
        let (schedule, measure) = self.schedule(decision)?;
        let placed = self.fixed.place(&self.facts, &schedule, measure.live_bytes);
        Ok(LaidOut { schedule, measure, placed })
    }

    /// What an order of the solver's nodes comes to.
    fn schedule_order(&self, model: usize, nodes: &[u32]) -> Result<(Schedule, Measure)> {
        let trace = self.models()[model].trace(&self.facts, nodes)?;
        let schedule = schedule::schedule(&self.facts, trace)?;
        let measure = schedule.measure(&self.facts);
        Ok((schedule, measure))
    }

    fn lay_out_way(&self, way: &Way) -> Result<LaidOut> {
        match way {
            Way::Decision(decision) => self.lay_out(decision),
            Way::Order(model, nodes) => {
                let (schedule, measure) = self.schedule_order(*model, nodes)?;
                let placed = self.fixed.place(&self.facts, &schedule, measure.live_bytes);
                Ok(LaidOut { schedule, measure, placed })
            }
        }
    }

    /// The graphs of the step that keeps everything, in each order of its passes.
    fn models(&self) -> &[Model] {
        self.known.models.get_or_init(|| {
            if self.orders.iter().any(|order| order.len() > SOLVED_UP_TO) {
                return Vec::new();
            }
            let orders = (0..self.orders.len()).filter_map(|order| {
                let (schedule, _) = self.schedule(&self.keeps_all().in_order(order)).ok()?;
                let passes: Vec<u32> = (0..schedule.order.len()).map(|at| schedule.step(at).pass).collect();
                Model::new(&self.facts, &passes)
            });
            orders.collect()
        })
    }

    /// What the solver finds on its ways down, in so many steps.
    fn solved(&self, steps: u64, deadline: Deadline) -> Vec<Candidate> {
        let mut found = Vec::new();
        let ways = (self.models().len() * DESCENTS.len()).max(1);
        for (index, model) in self.models().iter().enumerate() {
            let nodes: Vec<u32> = (0..model.graph().nodes().len() as u32).collect();
            for (shared, tight) in DESCENTS {
                if tight && nodes.len() > MOVED_UP_TO {
                    continue;
                }
                let steps = steps / ways as u64;
                let descent = Descent { levels: LEVELS, shared, tight, improve: 0, steps, deadline };
                for waypoint in descend(model.graph(), &nodes, &descent) {
                    let Ok((_, measure)) = self.schedule_order(index, &waypoint.order) else { continue };
                    found.push(Candidate::of_order(index, waypoint.order, measure.live_bytes, measure.cost_ns));
                }
            }
        }
        found
    }

    /// Lays a decision out in every order and takes the shortest arena, or a
    /// cheaper one that is hardly longer.
    fn lay_out_best(&self, decision: &Decision) -> Result<LaidOut> {
        let mut best = self.lay_out(&decision.in_order(0))?;
        for order in 1..self.orders.len() {
            let next = self.lay_out(&decision.in_order(order))?;
            let (arena, best_arena) = (next.arena(), best.arena());
            let near = arena.abs_diff(best_arena) <= best_arena / 64;
            let dearer = next.measure.cost_ns.total_cmp(&best.measure.cost_ns);
            let better = if near && dearer.is_ne() { dearer.is_lt() } else { arena < best_arena };
            if better {
                best = next;
            }
        }
        Ok(best)
    }

    fn peak(&self, laid_out: &LaidOut) -> PeakBytes {
        self.fixed.peak_with(laid_out.arena())
    }

    fn finish(&self, laid_out: &LaidOut, policy: &Policy) -> Result<Plan> {
        let LaidOut { schedule, measure, placed } = laid_out;
        build::build(&self.facts, &self.fixed, schedule, measure, placed, policy.to_string())
    }

    /// Plans a policy that needs no search.
    pub(super) fn plan_fixed(&self, policy: &Policy, decision: &Decision) -> Result<Plan> {
        let mut plan = self.finish(&self.lay_out_best(decision)?, policy)?;
        if *policy != Policy::None {
            let mut least = u64::MAX;
            for order in 0..self.orders.len() {
                least = least.min(self.schedule(&self.keeps_all().in_order(order))?.1.live_bytes);
            }
            plan.notes.extend(report::gain_note(&plan, least));
        }
        Ok(plan)
    }

    fn keeps_all(&self) -> Decision {
        Decision::of_paths(Paths::flat(self.facts.program))
    }

    /// Plans the cheapest candidate that fits, or names the least budget.
    pub(super) fn plan_budget(&self, policy: &Policy) -> Result<Plan> {
        let keeps_all = self.lay_out_best(&self.keeps_all())?;
        let none = self.peak(&keeps_all);
        let budget = match *policy {
            Policy::Budget(size) => size.bytes(),
            Policy::BudgetFraction(share) => share_of(&none, share),
            _ => u64::MAX,
        };
        // Nothing is cheaper than to replay nothing: the search would choose it.
        if none.total() <= budget {
            return self.finish(&keeps_all, policy);
        }
        let found = self.found()?;
        for candidate in &found.candidates {
            if self.peak_at_least(candidate.live_bytes) > budget || self.peak_of(candidate)? > budget {
                continue;
            }
            let mut plan = self.finish_found(&self.lay_out_way(&candidate.way)?, policy, found)?;
            if let Policy::BudgetFraction(_) = policy {
                plan.notes.push(format!("the budget is {budget} bytes ({})", ByteSize::new(budget)));
            }
            return Ok(plan);
        }
        let least_budget_bytes = self.least_budget(&none, &found.candidates)?;
        Err(Error::BudgetTooSmall { budget_bytes: budget, least_budget_bytes })
    }

    /// Every way worth choosing, whatever the budget: each with less memory is dearer.
    fn found(&self) -> Result<&Found> {
        if let Some(found) = self.known.found.get() {
            return Ok(found);
        }
        let deadline = self.options.time_limit.map_or(Deadline::NEVER, Deadline::after);
        let named = [Policy::Nothing, Policy::Selective];
        let named = named.iter().filter_map(|policy| candidates::fixed(&self.facts, policy).ok().flatten()).collect();
        // A quarter for what is dropped by regions and by value, the rest for the solver.
        let passes = usize::try_from((self.options.steps / 4).saturating_mul(PASSES_PER_STEP)).unwrap_or(usize::MAX);
        let effort = Effort { passes, deadline };
        let mut all = search(&self.facts, self.orders.len(), named, effort, &mut |decision| self.evaluate(decision))?;
        all.extend(self.solved(self.options.steps - self.options.steps / 4, deadline));
        let found = Found { candidates: pareto(all), cut_short: deadline.is_over() };
        Ok(self.known.found.get_or_init(|| found))
    }

    /// Bytes of the arena of a candidate, which is placed at most once to know them.
    fn arena_of(&self, candidate: &Candidate) -> Result<u64> {
        if let Some(&arena) = candidate.arena.get() {
            return Ok(arena);
        }
        let arena = self.lay_out_way(&candidate.way)?.arena();
        Ok(*candidate.arena.get_or_init(|| arena))
    }

    fn peak_of(&self, candidate: &Candidate) -> Result<u64> {
        Ok(self.fixed.peak_with(self.arena_of(candidate)?).total())
    }

    fn finish_found(&self, laid_out: &LaidOut, policy: &Policy, found: &Found) -> Result<Plan> {
        let mut plan = self.finish(laid_out, policy)?;
        if let (true, Some(limit)) = (found.cut_short, self.options.time_limit) {
            plan.notes.push(format!(
                "the search was cut short after {} ms: with more time, or on another machine, the plan may be another",
                limit.as_millis()
            ));
        }
        Ok(plan)
    }

    /// Plans the least memory that the search can reach.
    pub(super) fn plan_least(&self, policy: &Policy) -> Result<Plan> {
        let mut best = self.lay_out_best(&self.keeps_all())?;
        // From the leanest on; of equals, the last one met is the cheapest.
        let found = self.found()?;
        for candidate in found.candidates.iter().rev() {
            if self.peak_at_least(candidate.live_bytes) <= self.peak(&best).total()
                && self.arena_of(candidate)? <= best.arena()
            {
                best = self.lay_out_way(&candidate.way)?;
            }
        }
        self.finish_found(&best, policy, found)
    }

    /// Peak against cost, from keeping everything to the leanest plan known: at
    /// most `points` plans, about evenly spaced in memory, none dearer and larger
    /// than another.
    pub(super) fn pareto(&self, points: usize) -> Result<Vec<ParetoPoint>> {
        let keeps_all = self.lay_out_best(&self.keeps_all())?;
        let point = |laid_out: &LaidOut, cost_ns: f64, base: f64| ParetoPoint {
            peak_bytes: self.peak(laid_out).total(),
            cost_ns,
            replay_cost_ns: (cost_ns - base).max(0.0),
        };
        let base = keeps_all.measure.cost_ns;
        let mut all = vec![point(&keeps_all, base, base)];
        let candidates = &self.found()?.candidates;
        let (most, least) = (keeps_all.measure.live_bytes, candidates.last().map_or(0, |c| c.live_bytes));
        let mut taken = usize::MAX;
        for step in 1..points.max(2) {
            let share = step as u128 * u128::from(most.saturating_sub(least)) / (points.max(2) - 1) as u128;
            let wanted = most.saturating_sub(share as u64);
            let Some(index) = candidates.iter().position(|c| c.live_bytes <= wanted.max(least)) else { break };
            if index != taken {
                taken = index;
                let laid_out = self.lay_out_way(&candidates[index].way)?;
                all.push(point(&laid_out, laid_out.measure.cost_ns, base));
            }
        }
        all.sort_by(|a, b| a.cost_ns.total_cmp(&b.cost_ns).then(a.peak_bytes.cmp(&b.peak_bytes)));
        let mut smallest = u64::MAX;
        all.retain(|p| {
            let keep = p.peak_bytes < smallest;
            smallest = smallest.min(p.peak_bytes);
            keep
        });
        Ok(all)
    }

    /// A bound that no placement undercuts: blocks end at the last used byte,
    /// a little before the rounded end that live bytes count.
    fn peak_at_least(&self, live_bytes: u64) -> u64 {
        let rounding = live_bytes / 64 + 4096;
        self.fixed.peak_with(live_bytes.saturating_sub(rounding)).total()
    }

    fn least_budget(&self, none: &PeakBytes, candidates: &[Candidate]) -> Result<u64> {
        let mut least = none.total();
        for candidate in candidates.iter().rev() {
            if self.peak_at_least(candidate.live_bytes) < least {
                least = least.min(self.peak_of(candidate)?);
            }
        }
        Ok(least)
    }

    fn evaluate(&self, decision: &Decision) -> Result<Evaluated> {
        let (schedule, measure) = self.schedule(decision)?;
        Ok(Evaluated {
            live_bytes: measure.live_bytes,
            cost_ns: measure.cost_ns,
            effort: schedule.order.len(),
            saved_at_peak: self.saved_at(&schedule, measure.peak_at),
        })
    }

    /// Values made in forward, needed by no forward pass any more at `dispatch`
    /// but read later, that could be made again.
    fn saved_at(&self, schedule: &Schedule, dispatch: u32) -> Vec<StorageId> {
        let facts = &self.facts;
        let mut needed_in_forward = vec![0_u32; schedule.lives.len()];
        for at in dispatch as usize..schedule.order.len() {
            let step = schedule.step(at);
            let pass = &facts.program.passes[step.pass as usize];
            if pass.phase == Phase::Forward && !step.replay {
                let begin = step.first_operand as usize;
                for &read in &schedule.trace.reads[begin..begin + pass.operands.len()] {
                    if let Some(needed) = needed_in_forward.get_mut(read as usize) {
                        *needed = at as u32;
                    }
                }
            }
        }
        let mut saved: Vec<StorageId> = Vec::new();
        for (instance, life) in schedule.lives.iter().enumerate().skip(facts.externals.len()) {
            let storage = schedule.trace.storage[instance] as usize;
            let original = !schedule.trace.steps[schedule.trace.born[instance] as usize].replay;
            let spans = life.first < dispatch && dispatch < life.last && needed_in_forward[instance] == 0;
            if original && spans && facts.remakable(storage) && !facts.handed_back[storage] {
                saved.push(StorageId(storage as u32));
            }
        }
        saved
    }
}
