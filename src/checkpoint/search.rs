//! What a budget chooses from: regions, then single values.
//!
//! From a few decisions by regions, values are dropped one after the other:
//! always one that is alive at the peak, with the most bytes per nanosecond
//! of recomputing it. Every step of the way is a candidate. Effort is counted
//! in passes walked, so the same program gives the same candidates anywhere.

use crate::checkpoint::Decision;
use crate::checkpoint::candidates::regions;
use crate::checkpoint::facts::{Facts, NONE};
use crate::error::Result;
use crate::fuse::program::StorageId;

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

/// A decision and what it costs.
#[derive(Debug, Clone)]
pub(crate) struct Candidate {
    /// The decision.
    pub(crate) decision: Decision,
    /// Largest sum of live arena bytes.
    pub(crate) live_bytes: u64,
    /// Estimated time of a run.
    pub(crate) cost_ns: f64,
    saved_at_peak: Vec<StorageId>,
}

/// Passes walked in all.
const EFFORT: usize = 1_500_000;
/// Of these, for decisions by regions.
const EFFORT_FOR_REGIONS: usize = EFFORT / 2;
/// Values dropped in a row without a lower peak before a way is given up.
const PATIENCE: usize = 12;
/// Steps of one way at most: large programs drop several values per step.
const STEPS: usize = 128;

/// Every decision worth choosing: each one with less memory is dearer. Sorted
/// by cost; the first keeps everything. Each decision is tried in each of
/// `orders` orders of passes, which are candidates of their own: an order may
/// take less memory and repeat more.
///
/// # Errors
/// Those of evaluating the first decision, which keeps everything.
pub(crate) fn search(
    facts: &Facts<'_>,
    orders: usize,
    evaluate: &mut dyn FnMut(&Decision) -> Result<Evaluated>,
) -> Result<Vec<Candidate>> {
    let mut search = Search { facts, evaluate, found: Vec::new(), spent: 0 };
    let decisions = regions(facts);
    for (index, decision) in decisions.into_iter().enumerate() {
        if search.spent > EFFORT_FOR_REGIONS {
            break;
        }
        for order in 0..orders {
            let tried = search.add(decision.in_order(order));
            if index == 0 {
                tried?;
            }
        }
    }
    for start in search.starts() {
        search.drop_values(start);
    }
    Ok(pareto(search.found))
}

struct Search<'a> {
    facts: &'a Facts<'a>,
    evaluate: &'a mut dyn FnMut(&Decision) -> Result<Evaluated>,
    found: Vec<Candidate>,
    spent: usize,
}

impl Search<'_> {
    fn add(&mut self, decision: Decision) -> Result<usize> {
        let evaluated = (self.evaluate)(&decision)?;
        self.spent += evaluated.effort;
        self.found.push(Candidate {
            decision,
            live_bytes: evaluated.live_bytes,
            cost_ns: evaluated.cost_ns,
            saved_at_peak: evaluated.saved_at_peak,
        });
        Ok(self.found.len() - 1)
    }

    /// Keeping everything, the decision with the lowest peak, and the cheapest
    /// of those that save at least half of what that one saves.
    fn starts(&self) -> Vec<usize> {
        let lowest = (0..self.found.len()).min_by(|&a, &b| {
            let (a, b) = (&self.found[a], &self.found[b]);
            a.live_bytes.cmp(&b.live_bytes).then(a.cost_ns.total_cmp(&b.cost_ns))
        });
        let Some(lowest) = lowest else { return Vec::new() };
        let middle = self.found[0].live_bytes / 2 + self.found[lowest].live_bytes / 2;
        let cheapest = (0..self.found.len())
            .filter(|&c| self.found[c].live_bytes <= middle)
            .min_by(|&a, &b| self.found[a].cost_ns.total_cmp(&self.found[b].cost_ns));
        let all = self.found.iter().map(|c| c.decision.order).max().unwrap_or(0);
        let mut starts: Vec<usize> = (0..=all).collect();
        starts.extend([Some(lowest), cheapest].into_iter().flatten());
        starts.sort_unstable();
        starts.dedup();
        starts
    }

    fn drop_values(&mut self, start: usize) {
        let mut at = start;
        let mut best = self.found[start].live_bytes;
        let mut without_gain = 0;
        let at_once = self.found[start].saved_at_peak.len().div_ceil(STEPS / 2).max(1);
        for _ in 0..STEPS {
            if self.spent > EFFORT || without_gain > PATIENCE {
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
            without_gain = if self.found[next].live_bytes < best { 0 } else { without_gain + 1 };
            best = best.min(self.found[next].live_bytes);
            at = next;
        }
    }

    /// Values to drop together, the best first.
    fn moves(&self, at: usize) -> Vec<Vec<StorageId>> {
        let candidate = &self.found[at];
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
/// keep the first. Sorted by cost.
fn pareto(mut found: Vec<Candidate>) -> Vec<Candidate> {
    found.sort_by(|a, b| a.cost_ns.total_cmp(&b.cost_ns).then(a.live_bytes.cmp(&b.live_bytes)));
    let mut least = u64::MAX;
    found.retain(|c| {
        let keep = c.live_bytes < least || least == u64::MAX;
        least = least.min(c.live_bytes);
        keep
    });
    found
}
