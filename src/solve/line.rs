//! A sequence of runs and everything that follows from it: lifetimes, bytes.

use super::graph::Graph;

/// Stands for the reader of kept values, after the last run.
pub(super) const END: u32 = u32::MAX;
const NONE: u32 = u32::MAX;

/// One life of a value: written at `birth`, last read at `death`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Life {
    pub(super) birth: u32,
    pub(super) death: u32,
    /// The life of the same value before this one.
    earlier: u32,
}

/// One run in the line: its node, and a name that stays when positions shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) node: u32,
    pub(super) id: u32,
}

/// A sequence of runs under a budget.
///
/// Every value is freed at its last read before it is written again, so that the
/// order alone says what is resident when.
#[derive(Debug, Clone)]
pub(super) struct Line<'g> {
    pub(super) graph: &'g Graph,
    pub(super) budget: u64,
    pub(super) items: Vec<Item>,
    next_id: u32,
    position: Vec<u32>,
    /// Bytes resident while each run runs.
    pub(super) resident: Vec<u64>,
    /// How many of the first `i` runs are above the budget.
    over: Vec<u32>,
    /// Bytes above the budget, summed over all runs.
    pub(super) excess: u128,
    pub(super) peak: u64,
    pub(super) cost: u64,
    lives: Vec<Life>,
    latest: Vec<u32>,
    change: Vec<i64>,
    /// Where each input of each run was last read or written before.
    previous: Vec<u32>,
    inputs_at: Vec<u32>,
    previous_end: Vec<u32>,
}

impl<'g> Line<'g> {
    pub(super) fn new(graph: &'g Graph, budget: u64, order: &[u32]) -> Self {
        let mut line = Self {
            graph,
            budget,
            items: Vec::new(),
            next_id: 0,
            position: Vec::new(),
            resident: Vec::new(),
            over: Vec::new(),
            excess: 0,
            peak: 0,
            cost: 0,
            lives: Vec::new(),
            latest: Vec::new(),
            change: Vec::new(),
            previous: Vec::new(),
            inputs_at: Vec::new(),
            previous_end: vec![NONE; graph.values()],
        };
        line.set_order(order);
        line
    }

    pub(super) fn set_order(&mut self, order: &[u32]) {
        self.items = order.iter().zip(0..).map(|(&node, id)| Item { node, id }).collect();
        self.next_id = order.len() as u32;
        self.rebuild();
    }

    /// Takes over a sequence, with names anew: they would only grow otherwise.
    pub(super) fn restore(&mut self, items: &[Item]) {
        self.items.clear();
        self.items.extend(items.iter().zip(0..).map(|(item, id)| Item { node: item.node, id }));
        self.next_id = self.items.len() as u32;
        self.rebuild();
    }

    pub(super) fn order(&self) -> Vec<u32> {
        self.items.iter().map(|i| i.node).collect()
    }

    /// Works out lifetimes and bytes from the order.
    pub(super) fn rebuild(&mut self) {
        let graph = self.graph;
        let n = self.items.len();
        self.position.clear();
        self.position.resize(self.next_id as usize, NONE);
        self.lives.clear();
        self.latest.clear();
        self.latest.resize(graph.values(), NONE);
        self.change.clear();
        self.change.resize(n + 2, 0);
        self.previous.clear();
        self.inputs_at.clear();
        self.cost = 0;
        for (p, item) in self.items.iter().enumerate() {
            self.position[item.id as usize] = p as u32;
            let node = &graph.nodes()[item.node as usize];
            self.cost = self.cost.saturating_add(node.cost);
            self.inputs_at.push(self.previous.len() as u32);
            for &v in &node.inputs {
                let l = self.latest[v as usize];
                if l == NONE {
                    self.previous.push(NONE);
                } else {
                    let life = &mut self.lives[l as usize];
                    self.previous.push(life.death);
                    life.death = p as u32;
                }
            }
            for &v in &node.outputs {
                let earlier = self.latest[v as usize];
                self.latest[v as usize] = self.lives.len() as u32;
                self.change[p] += graph.bytes(v) as i64;
                if earlier != NONE {
                    self.change[self.lives[earlier as usize].death as usize + 1] -= graph.bytes(v) as i64;
                }
                self.lives.push(Life { birth: p as u32, death: p as u32, earlier });
            }
        }
        for v in 0..graph.values() {
            let l = self.latest[v];
            if l == NONE {
                continue;
            }
            let life = &mut self.lives[l as usize];
            if graph.kept(v as u32) {
                self.previous_end[v] = life.death;
                life.death = n as u32;
            }
            self.change[life.death as usize + 1] -= graph.bytes(v as u32) as i64;
        }
        self.resident.clear();
        self.over.clear();
        self.over.push(0);
        let (mut live, mut over) = (0i64, 0);
        (self.excess, self.peak) = (0, 0);
        for change in &self.change[..n] {
            live += change;
            let bytes = live as u64;
            self.resident.push(bytes);
            self.peak = self.peak.max(bytes);
            if bytes > self.budget {
                over += 1;
                self.excess += u128::from(bytes - self.budget);
            }
            self.over.push(over);
        }
    }

    pub(super) fn set_budget(&mut self, budget: u64) {
        self.budget = budget;
        self.rebuild();
    }

    /// Where a run stands; the length for [`END`], none if it is gone.
    pub(super) fn position(&self, id: u32) -> Option<usize> {
        if id == END {
            return Some(self.items.len());
        }
        self.position.get(id as usize).filter(|&&p| p != NONE).map(|&p| p as usize)
    }

    /// How many runs in `from..to` are above the budget.
    pub(super) fn over(&self, from: usize, to: usize) -> u64 {
        if to <= from { 0 } else { u64::from(self.over[to] - self.over[from]) }
    }

    /// The event of `value` before its read at position `at`: its birth or a read.
    pub(super) fn previous(&self, value: u32, at: usize) -> Option<usize> {
        let p = if at == self.items.len() {
            self.previous_end[value as usize]
        } else {
            let inputs = &self.graph.nodes()[self.items[at].node as usize].inputs;
            let k = inputs.binary_search(&value).ok()?;
            self.previous[self.inputs_at[at] as usize + k]
        };
        (p != NONE).then_some(p as usize)
    }

    /// The last life of `value` that began before position `at`.
    pub(super) fn life(&self, value: u32, at: usize) -> Option<Life> {
        let mut l = self.latest[value as usize];
        while l != NONE {
            let life = self.lives[l as usize];
            if (life.birth as usize) < at {
                return Some(life);
            }
            l = life.earlier;
        }
        None
    }

    /// Whether the run at `at` is the first of its node.
    pub(super) fn is_first(&self, at: usize) -> bool {
        let node = &self.graph.nodes()[self.items[at].node as usize];
        match node.outputs.first() {
            Some(&v) => self.life(v, at).is_none(),
            // Nothing reads it, so it never runs twice.
            None => true,
        }
    }

    /// Puts runs of `nodes` before position `at`.
    pub(super) fn insert(&mut self, at: usize, nodes: &[u32]) {
        let first = self.next_id;
        self.next_id += nodes.len() as u32;
        let new = nodes.iter().zip(first..).map(|(&node, id)| Item { node, id });
        self.items.splice(at..at, new);
        self.rebuild();
    }
}
