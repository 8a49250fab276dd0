//! What a budget chooses from: regions, then single values.
//!
//! From a few decisions by regions, values are dropped one after the other:
//! always one that is alive at the peak, with the most bytes per nanosecond
//! of recomputing it. Every step of the way is a candidate. Effort is counted
//! in passes walked, so the same program gives the same candidates anywhere.

use std::sync::OnceLock;

use crate::checkpoint::Decision;
use crate::checkpoint::candidates::regions;
use crate::checkpoint::facts::{Facts, NONE};
use crate::error::Result;
use crate::fuse::program::StorageId;
use crate::solve::Deadline;

/// What a decision costs, before anything is placed.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evaluated {
    /// Largest sum of live arena bytes.
    pub(crate) live_bytes: u64,
    /// Estimated time of a run.
    pub(crate) cost_ns: f64,
    /// Passes walked to find out.
    pub(crate) effort: usize,
    /// Values kept from forward to backward that are alive at the peak and
    /// could be dropped.
    pub(crate) saved_at_peak: Vec<StorageId>,
}

/// How a candidate says which passes run when.
#[derive(Debug, Clone)]
pub(crate) enum Way {
    /// By what is dropped.
    Decision(Decision),
    /// By the order of the solver's nodes, in the model of this index.
    Order(usize, Vec<u32>),
}

/// A way and what it costs.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    /// The way.
    pub(crate) way: Way,
    /// Largest sum of live arena bytes.
    pub(crate) live_bytes: u64,
    /// Estimated time of a run.
    pub(crate) cost_ns: f64,
    /// Bytes of the arena, once it was placed.
    pub(crate) arena: OnceLock<u64>,
}

impl Candidate {
    /// An order of the solver's nodes.
    pub(crate) fn of_order(model: usize, order: Vec<u32>, live_bytes: u64, cost_ns: f64) -> Self {
        Self { way: Way::Order(model, order), live_bytes, cost_ns, arena: OnceLock::new() }
    }
}

/// How long to search.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Passes walked in all.
    pub(crate) passes: usize,
    /// The clock's end.
    pub(crate) deadline: Deadline,
}

/// Values dropped in a row without a lower peak before a way is given up.
const PATIENCE: usize = 12;
/// Steps of one way at most: large programs drop several values per step.
const STEPS: usize = 128;

/// Decisions to choose from; the first keeps everything. Each is tried in each of
/// `orders` orders of passes, which are candidates of their own: an order may
/// take less memory and repeat more. `others` are tried besides those by regions.
///
/// # Errors
/// Those of evaluating the first decision, which keeps everything.
pub(crate) fn search(
    facts: &Facts<'_>,
    orders: usize,
    others: Vec<Decision>,
    effort: Effort,
    evaluate: &mut dyn FnMut(&Decision) -> Result<Evaluated>,
) -> Result<Vec<Candidate>> {
    let mut search = Search { facts, evaluate, found: Vec::new(), spent: 0, effort };
    let decisions = regions(facts);
    for (index, decision) in decisions.into_iter().enumerate() {
        if search.is_over(effort.passes / 2) {
            break;
        }
        for order in 0..orders {
            let tried = search.add(decision.in_order(order));
            if index == 0 {
                tried?;
            }
        }
    }
    for decision in others {
        for order in 0..orders {
            // One that cannot be walked is no candidate.
            drop(search.add(decision.in_order(order)));
        }
    }
    for start in search.starts() {
        search.drop_values(start);
    }
    Ok(search.found.into_iter().map(Found::candidate).collect())
}

/// A decision on the way, to be gone on from.
struct Found {
    decision: Decision,
    evaluated: Evaluated,
}

impl Found {
    fn candidate(self) -> Candidate {
        let Evaluated { live_bytes, cost_ns, .. } = self.evaluated;
        Candidate { way: Way::Decision(self.decision), live_bytes, cost_ns, arena: OnceLock::new() }
    }
}

struct Search<'a> {
    facts: &'a Facts<'a>,
    evaluate: &'a mut dyn FnMut(&Decision) -> Result<Evaluated>,
    found: Vec<Found>,
    spent: usize,
    effort: Effort,
}

impl Search<'_> {
    fn is_over(&self, passes: usize) -> bool {
        !self.found.is_empty() && (self.spent > passes || self.effort.deadline.is_over())
    }

    fn add(&mut self, decision: Decision) -> Result<usize> {
        let evaluated = (self.evaluate)(&decision)?;
        self.spent += evaluated.effort;
        self.found.push(Found { decision, evaluated });
        Ok(self.found.len() - 1)
    }

    /// Keeping everything, the decision with the lowest peak, and the cheapest
    /// of those that save at least half of what that one saves.
    fn starts(&self) -> Vec<usize> {
        let lowest = (0..self.found.len()).min_by(|&a, &b| {
            let (a, b) = (&self.found[a].evaluated, &self.found[b].evaluated);
            a.live_bytes.cmp(&b.live_bytes).then(a.cost_ns.total_cmp(&b.cost_ns))
        });
        let Some(lowest) = lowest else { return Vec::new() };
        let middle = self.found[0].evaluated.live_bytes / 2 + self.found[lowest].evaluated.live_bytes / 2;
        let cheapest = (0..self.found.len())
            .filter(|&c| self.found[c].evaluated.live_bytes <= middle)
            .min_by(|&a, &b| self.found[a].evaluated.cost_ns.total_cmp(&self.found[b].evaluated.cost_ns));
        let all = self.found.iter().map(|c| c.decision.order).max().unwrap_or(0);
        let mut starts: Vec<usize> = (0..=all).collect();
        starts.extend([Some(lowest), cheapest].into_iter().flatten());
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    fn drop_values(&mut self, start: usize) {
        let mut at = start;
        let mut best = self.found[start].evaluated.live_bytes;
        let mut without_gain = 0;
        let at_once = self.found[start].evaluated.saved_at_peak.len().div_ceil(STEPS / 2).max(1);
        for _ in 0..STEPS {
            if self.is_over(self.effort.passes) || without_gain > PATIENCE {
                return;
            }
            let mut decision = self.found[at].decision.clone();
            let moves = self.moves(at);
            if moves.is_empty() {
                return;
            }
            decision.evicted.extend(moves.into_iter().take(at_once).flatten());
            decision.evicted.sort_unstable();
            decision.evicted.dedup();
            let Ok(next) = self.add(decision) else { return };
            without_gain = if self.found[next].evaluated.live_bytes < best { 0 } else { without_gain + 1 };
            best = best.min(self.found[next].evaluated.live_bytes);
            at = next;
        }
    }

    /// Values to drop together, the best first.
    fn moves(&self, at: usize) -> Vec<Vec<StorageId>> {
        let candidate = &self.found[at].evaluated;
        let mut saved = vec![false; self.facts.program.storages.len()];
        for storage in &candidate.saved_at_peak {
            saved[storage.index()] = true;
        }
        let mut seen = Marks { stamp: vec![0; saved.len()], now: 0 };
        let mut moves: Vec<(f64, Vec<StorageId>)> = Vec::new();
        for &storage in &candidate.saved_at_peak {
            if let Some((bytes, cost, dropped)) = self.with_ancestors(storage, &saved, &mut seen) {
                moves.push((bytes / cost, dropped));
            }
            if let Some((bytes, cost)) = self.alone(storage, &saved) {
                moves.push((bytes / cost, vec![storage]));
            }
        }
        moves.sort_by(|(a, dropped_a), (b, dropped_b)| b.total_cmp(a).then_with(|| dropped_a.cmp(dropped_b)));
        moves.into_iter().map(|(_, dropped)| dropped).collect()
    }

    /// Dropping a value and keeping what it is made from: gains the difference.
    fn alone(&self, storage: StorageId, saved: &[bool]) -> Option<(f64, f64)> {
        let producer = self.facts.producer[storage.index()] as usize;
        let mut kept = 0_u64;
        for read in self.facts.program.passes[producer].operands.iter().filter_map(|o| o.read()) {
            if self.facts.remakable(read.index()) && !saved[read.index()] {
                kept = kept.saturating_add(self.facts.size[read.index()]);
            }
        }
        let gain = self.facts.size[storage.index()].checked_sub(kept).filter(|&gain| gain > 0 && kept > 0)?;
        Some((gain as f64, self.facts.cost_ns[producer]))
    }

    /// Dropping a value and whatever is not saved on the way to it. `None` if
    /// that is a long way.
    fn with_ancestors(
        &self,
        storage: StorageId,
        saved: &[bool],
        seen: &mut Marks,
    ) -> Option<(f64, f64, Vec<StorageId>)> {
        const LONG: usize = 64;
        seen.now += 1;
        seen.mark(storage);
        let mut dropped = vec![storage];
        let mut cost = 0.0;
        let mut at = 0;
        while at < dropped.len() {
            let producer = self.facts.producer[dropped[at].index()];
            at += 1;
            if producer == NONE || at > LONG {
                return None;
            }
            cost += self.facts.cost_ns[producer as usize];
            for read in self.facts.program.passes[producer as usize].operands.iter().filter_map(|o| o.read()) {
                if self.facts.remakable(read.index()) && !saved[read.index()] && seen.mark(read) {
                    dropped.push(read);
                }
            }
        }
        Some((self.facts.size[storage.index()] as f64, cost, dropped))
    }
}

/// A set that is emptied by counting up.
struct Marks {
    stamp: Vec<u32>,
    now: u32,
}

impl Marks {
    /// Adds; true if it was not in the set.
    fn mark(&mut self, storage: StorageId) -> bool {
        let new = self.stamp[storage.index()] != self.now;
        self.stamp[storage.index()] = self.now;
        new
    }
}

/// Drops every candidate that another one undercuts in memory and cost; equals
/// keep the first. Sorted by cost: each one with less memory is dearer.
pub(crate) fn pareto(mut found: Vec<Candidate>) -> Vec<Candidate> {
    found.sort_by(|a, b| a.cost_ns.total_cmp(&b.cost_ns).then(a.live_bytes.cmp(&b.live_bytes)));
    let mut least = u64::MAX;
    found.retain(|c| {
        let keep = c.live_bytes < least || least == u64::MAX;
        least = least.min(c.live_bytes);
        keep
    });
    found
}
