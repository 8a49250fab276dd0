//! The true optimum of small graphs: A* over what has run and what is resident.
//!
//! A state is the set of nodes that have run and the set of resident values.
//! Values are freed only when a run would not fit, and then in every way that
//! frees no more than it must: freeing later is never worse. The bound on what
//! is left adds the cost of all nodes that must run again: those whose outputs a
//! node that has not run reads while they are gone, and so on through their inputs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::graph::Graph;

/// A graph as bit sets; constants left out.
struct Bits {
    cost: Vec<u64>,
    reads: Vec<u64>,
    writes: Vec<u64>,
    bytes: Vec<u64>,
    producer: Vec<usize>,
    keep: u64,
    /// The nodes that write kept values.
    keepers: u64,
    /// Nodes that a value leads to.
    leads_to: Vec<u64>,
    /// Nodes that may run once only.
    once: u64,
}

struct State {
    ran: u64,
    resident: u64,
    cost: u64,
    parent: usize,
    node: u32,
}

fn ones(mut set: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (set != 0).then(|| {
            let i = set.trailing_zeros() as usize;
            set &= set - 1;
            i
        })
    })
}

impl Bits {
    fn new(graph: &Graph) -> Option<Self> {
        let values: Vec<u32> = (0..graph.values() as u32).filter(|&v| graph.producer(v).is_some()).collect();
        if values.len() > 64 || graph.nodes().len() > 64 {
            return None;
        }
        let bit = |v: &u32| values.binary_search(v).map_or(0, |i| 1u64 << i);
        let set = |list: &[u32]| list.iter().map(bit).fold(0, |a, b| a | b);
        let nodes = graph.nodes();
        let reads: Vec<u64> = nodes.iter().map(|n| set(&n.inputs)).collect();
        let writes: Vec<u64> = nodes.iter().map(|n| set(&n.outputs)).collect();
        let mut leads_to = vec![0u64; values.len()];
        for n in (0..nodes.len()).rev() {
            let beyond = ones(writes[n]).fold(1u64 << n, |a, v| a | leads_to[v]);
            ones(reads[n]).for_each(|v| leads_to[v] |= beyond);
        }
        let kept: Vec<u32> = values.iter().copied().filter(|&v| graph.kept(v)).collect();
        Some(Self {
            cost: nodes.iter().map(|n| n.cost).collect(),
            bytes: values.iter().map(|&v| graph.bytes(v)).collect(),
            producer: values.iter().filter_map(|&v| graph.producer(v)).map(|p| p as usize).collect(),
            keep: set(&kept),
            keepers: kept.iter().filter_map(|&v| graph.producer(v)).fold(0, |k, p| k | 1 << p),
            once: (0..nodes.len()).filter(|&n| graph.once(n as u32)).fold(0, |set, n| set | 1 << n),
            reads,
            writes,
            leads_to,
        })
    }

    fn size(&self, set: u64) -> u64 {
        ones(set).map(|v| self.bytes[v]).sum()
    }

    /// The cost of the nodes that must run again; none if one may not.
    fn bound(&self, ran: u64, resident: u64, all: u64) -> Option<u64> {
        let mut wanted = ones(all & !ran).fold(self.keep, |w, n| w | self.reads[n]) & !resident;
        let (mut again, mut cost) = (0u64, 0);
        while wanted != 0 {
            let node = self.producer[wanted.trailing_zeros() as usize];
            wanted &= wanted - 1;
            if ran & !again & (1 << node) != 0 {
                if self.once & 1 << node != 0 {
                    return None;
                }
                again |= 1 << node;
                cost += self.cost[node];
                wanted |= self.reads[node] & !resident;
            }
        }
        Some(cost)
    }

    /// Without what leads to nothing that may still run. Kept values may be dropped
    /// and made again at the end, so their producers always may.
    fn useful(&self, ran: u64, resident: u64, all: u64) -> u64 {
        let left = all & !ran | self.keepers;
        ones(resident & !self.keep).fold(resident, |r, v| if self.leads_to[v] & left == 0 { r & !(1 << v) } else { r })
    }

    /// All sets of values out of `from` that free `need` bytes and no value too many.
    fn frees(&self, from: &[usize], need: u64, chosen: u64, least: u64, found: &mut Vec<u64>, work: &mut u64) {
        if need == 0 {
            found.push(chosen);
            return;
        }
        *work = work.saturating_sub(1);
        let all: u64 = from.iter().map(|&v| self.bytes[v]).sum();
        if *work == 0 || all < need {
            return;
        }
        for (i, &v) in from.iter().enumerate() {
            let bytes = self.bytes[v];
            if bytes == 0 {
                continue;
            }
            // No value too many: what is freed beyond the need is less than the least chosen.
            let least = least.min(bytes);
            if bytes >= need && bytes - need >= least {
                continue;
            }
            self.frees(&from[i + 1..], need.saturating_sub(bytes), chosen | 1 << v, least, found, work);
        }
    }
}

/// What the search ended with.
pub(super) enum Outcome {
    /// The order of the cheapest schedule.
    Best(Vec<u32>),
    /// No schedule within the budget costs less than the limit.
    Nothing,
    /// The steps did not suffice, or the graph is too large.
    Unknown,
}

/// Looks for the cheapest order within `budget` that costs less than `limit`.
pub(super) fn search(graph: &Graph, budget: u64, limit: u64, steps: &mut u64) -> Outcome {
    let Some(bits) = Bits::new(graph) else { return Outcome::Unknown };
    let nodes = graph.nodes().len();
    let all = if nodes == 64 { u64::MAX } else { (1u64 << nodes) - 1 };
    let Some(limit) = limit.checked_sub(graph.base_cost()) else { return Outcome::Nothing };
    let mut states = vec![State { ran: 0, resident: 0, cost: 0, parent: 0, node: 0 }];
    let mut reached = HashMap::from([((0u64, 0u64), 0u64)]);
    let mut queue = BinaryHeap::from([Reverse((0u64, nodes as u32, 0usize))]);
    let mut found = Vec::new();
    // There may be very many ways to free enough: trying them is counted as well.
    let mut work = steps.saturating_mul(64);
    while let Some(Reverse((_, _, at))) = queue.pop() {
        let State { ran, resident, cost, .. } = states[at];
        if reached.get(&(ran, resident)).is_some_and(|&c| c < cost) {
            continue;
        }
        if ran == all && resident & bits.keep == bits.keep {
            let mut order = Vec::new();
            let mut at = at;
            while at != 0 {
                order.push(states[at].node);
                at = states[at].parent;
            }
            order.reverse();
            return Outcome::Best(order);
        }
        for node in 0..nodes {
            let again = ran >> node & 1 == 1;
            if bits.reads[node] & !resident != 0
                || (again && (bits.writes[node] & !resident == 0 || bits.once & 1 << node != 0))
            {
                continue;
            }
            let now = ran | 1 << node;
            if again && bits.useful(ran, bits.writes[node] & !resident, all) == 0 {
                continue;
            }
            // A second copy would count twice: the first goes.
            let before = resident & !bits.writes[node];
            let need = (bits.size(before) + bits.size(bits.writes[node])).saturating_sub(budget);
            let may: Vec<usize> = ones(before & !bits.reads[node]).collect();
            found.clear();
            bits.frees(&may, need, 0, u64::MAX, &mut found, &mut work);
            if work == 0 {
                return Outcome::Unknown;
            }
            for &freed in &found {
                let after = bits.useful(now, before & !freed | bits.writes[node], all);
                let cost = cost + if again { bits.cost[node] } else { 0 };
                let Some(bound) = bits.bound(now, after, all) else { continue };
                let total = cost + bound;
                if total >= limit {
                    continue;
                }
                let known = reached.entry((now, after)).or_insert(u64::MAX);
                if *known <= cost {
                    continue;
                }
                *known = cost;
                if *steps == 0 {
                    return Outcome::Unknown;
                }
                *steps -= 1;
                let left = (nodes as u32) - now.count_ones();
                queue.push(Reverse((total, left, states.len())));
                states.push(State { ran: now, resident: after, cost, parent: at, node: node as u32 });
            }
        }
    }
    Outcome::Nothing
}
