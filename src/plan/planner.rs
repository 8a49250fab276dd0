//! Tries decisions: schedules, measures and places them, and takes the best.

use crate::checkpoint::facts::Facts;
use crate::checkpoint::paths::Paths;
use crate::checkpoint::search::{Candidate, Evaluated, search};
use crate::checkpoint::{ByteSize, Decision, Policy, replay};
use crate::error::{Error, Result};
use crate::fuse::program::{Phase, Program, StorageId};
use crate::plan::build::{self, Fixed, Placed};
use crate::plan::schedule::{self, Measure, Schedule};
use crate::plan::{ParetoPoint, PeakBytes, Plan, order, report};
use crate::profile::DeviceProfile;

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
}

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
    pub(super) fn new(program: &'p Program, profile: &DeviceProfile) -> Result<Self> {
        let facts = Facts::new(program, profile)?;
        let fixed = Fixed::new(&facts, profile)?;
        let mut orders = vec![order::recorded(&facts), order::eager(&facts)];
        orders.dedup();
        Ok(Self { facts, fixed, orders })
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
        let candidates = self.candidates()?;
        for candidate in &candidates {
            if self.peak_at_least(candidate.live_bytes) > budget {
                continue;
            }
            let laid_out = self.lay_out(&candidate.decision)?;
            if self.peak(&laid_out).total() <= budget {
                let mut plan = self.finish(&laid_out, policy)?;
                if let Policy::BudgetFraction(_) = policy {
                    plan.notes.push(format!("the budget is {budget} bytes ({})", ByteSize::new(budget)));
                }
                return Ok(plan);
            }
        }
        Err(Error::BudgetTooSmall { budget_bytes: budget, least_budget_bytes: self.least_budget(&none, &candidates)? })
    }

    fn candidates(&self) -> Result<Vec<Candidate>> {
        search(&self.facts, self.orders.len(), &mut |decision| self.evaluate(decision))
    }

    /// Plans the least memory that the search can reach.
    pub(super) fn plan_least(&self, policy: &Policy) -> Result<Plan> {
        let mut best = self.lay_out_best(&self.keeps_all())?;
        // From the leanest on; of equals, the last one met is the cheapest.
        for candidate in self.candidates()?.iter().rev() {
            if self.peak_at_least(candidate.live_bytes) <= self.peak(&best).total() {
                let next = self.lay_out(&candidate.decision)?;
                if next.arena() <= best.arena() {
                    best = next;
                }
            }
        }
        self.finish(&best, policy)
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
        let candidates = self.candidates()?;
        let (most, least) = (keeps_all.measure.live_bytes, candidates.last().map_or(0, |c| c.live_bytes));
        let mut taken = usize::MAX;
        for step in 1..points.max(2) {
            let share = step as u128 * u128::from(most.saturating_sub(least)) / (points.max(2) - 1) as u128;
            let wanted = most.saturating_sub(share as u64);
            let Some(index) = candidates.iter().position(|c| c.live_bytes <= wanted.max(least)) else { break };
            if index != taken {
                taken = index;
                let laid_out = self.lay_out(&candidates[index].decision)?;
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
                least = least.min(self.peak(&self.lay_out(&candidate.decision)?).total());
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
