//! Dropping values where too many bytes are resident, cheapest first.

use std::collections::BinaryHeap;

use super::deadline::Deadline;
use super::graph::Graph;
use super::line::{END, Line};

/// A value dropped before a read and made again for it.
#[derive(Debug, Clone)]
pub(super) struct Drop {
    /// Cost per byte and run above the budget that it relieves.
    pub(super) price: f64,
    /// The nodes to run again, in order.
    pub(super) nodes: Vec<u32>,
    /// Where.
    pub(super) at: usize,
}

#[derive(Debug, PartialEq)]
struct Candidate {
    price: f64,
    value: u32,
    reader: u32,
}

impl Eq for Candidate {}
impl Ord for Candidate {
    /// The cheapest is the greatest; ties by number, so that plans are repeatable.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        other.price.total_cmp(&self.price).then_with(|| (other.value, other.reader).cmp(&(self.value, self.reader)))
    }
}
impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Scratch space and the count of steps.
#[derive(Debug)]
pub(super) struct Search {
    marks: Vec<u32>,
    mark: u32,
    /// Evaluations and changes so far.
    pub(super) steps: u64,
    /// The count at which dropping gives up.
    pub(super) end: u64,
    /// The clock's end.
    pub(super) deadline: Deadline,
    random: u64,
    /// How much prices are disturbed: 0 for not at all.
    pub(super) noise: f64,
    /// The power of a wait's length in the bytes that it relieves.
    pub(super) power: f64,
    /// Whether a value kept longer for a replay is charged to all that may use it.
    pub(super) shared: bool,
    readers: Vec<u32>,
}

impl Search {
    pub(super) fn new(graph: &Graph) -> Self {
        let mut readers = vec![0; graph.values()];
        for node in graph.nodes() {
            node.inputs.iter().for_each(|&v| readers[v as usize] += 1);
        }
        Self {
            marks: vec![0; graph.nodes().len()],
            mark: 0,
            steps: 0,
            end: u64::MAX,
            deadline: Deadline::NEVER,
            random: 0x9e37_79b9_7f4a_7c15,
            noise: 0.0,
            power: 1.0,
            shared: false,
            readers,
        }
    }

    /// The next number of a fixed sequence (xorshift64*).
    pub(super) fn random(&mut self) -> u64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        self.random.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(super) fn unit(&mut self) -> f64 {
        (self.random() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.random() % n.max(1) as u64) as usize
    }

    /// What it costs to drop `value` before its read by the run `reader`.
    pub(super) fn price(&mut self, line: &Line<'_>, value: u32, reader: u32) -> Option<Drop> {
        let graph = line.graph;
        let at = line.position(reader)?;
        let from = line.previous(value, at)?;
        let over = line.over(from + 1, at);
        if over == 0 || graph.bytes(value) == 0 {
            return None;
        }
        let producer = graph.producer(value).filter(|&p| !graph.once(p))?;
        let power = self.power;
        let weight = |over: u64| if power == 1.0 { over as f64 } else { (over as f64).powf(power) };
        let gross = graph.bytes(value) as f64 * weight(over);
        let mut best: Option<Drop> = None;
        let factor = if self.noise > 0.0 { 1.0 + self.noise * self.unit() } else { 1.0 };
        for share in [0.0, 0.25, 0.8] {
            self.steps += 1;
            self.mark += 1;
            self.marks[producer as usize] = self.mark;
            let mut nodes = vec![producer];
            let (mut cost, mut net, mut next) = (0u64, gross, 0);
            let mut extended = false;
            let limit = best.as_ref().map_or(f64::INFINITY, |b| b.price);
            while next < nodes.len() {
                let node = &graph.nodes()[nodes[next] as usize];
                next += 1;
                cost += node.cost;
                if cost as f64 / net >= limit || nodes.len() > 4000 {
                    net = 0.0;
                    break;
                }
                for &w in &node.inputs {
                    let Some(p) = graph.producer(w) else { continue };
                    if self.marks[p as usize] == self.mark {
                        continue;
                    }
                    let Some(life) = line.life(w, at) else {
                        net = 0.0;
                        break;
                    };
                    if w != value && life.death as usize >= at {
                        continue;
                    }
                    let penalty = graph.bytes(w) as f64 * weight(line.over(life.death as usize + 1, at));
                    let penalty =
                        if self.shared { penalty / f64::from(self.readers[w as usize].max(2) - 1) } else { penalty };
                    // What may not run again is kept, whatever that takes.
                    if penalty <= share * gross || graph.once(p) {
                        net -= penalty;
                        extended |= penalty > 0.0;
                    } else {
                        self.marks[p as usize] = self.mark;
                        nodes.push(p);
                    }
                }
                if net <= 0.0 {
                    break;
                }
            }
            if net <= 0.0 {
                continue;
            }
            let price = (cost as f64 + 1e-3) / net * factor;
            if best.as_ref().is_none_or(|b| price < b.price) {
                best = Some(Drop { price, nodes, at });
            }
            if !extended && share > 0.0 {
                break;
            }
        }
        if let Some(best) = &mut best {
            best.nodes.sort_unstable();
        }
        best
    }

    fn push(&mut self, heap: &mut BinaryHeap<Candidate>, line: &Line<'_>, value: u32, reader: u32) {
        if let Some(drop) = self.price(line, value, reader) {
            heap.push(Candidate { price: drop.price, value, reader });
        }
    }

    /// All places where a value waits for a reader while the budget is exceeded.
    fn gather(&mut self, line: &Line<'_>) -> BinaryHeap<Candidate> {
        let mut heap = BinaryHeap::new();
        for item in &line.items {
            for &v in &line.graph.nodes()[item.node as usize].inputs {
                self.push(&mut heap, line, v, item.id);
            }
        }
        for v in 0..line.graph.values() as u32 {
            if line.graph.kept(v) {
                self.push(&mut heap, line, v, END);
            }
        }
        heap
    }

    /// Drops values until the budget holds; false if it could not, or if the cost
    /// reaches `limit`.
    pub(super) fn fit(&mut self, line: &mut Line<'_>, limit: u64) -> bool {
        // Shared charges may let the excess grow for a while: not for long.
        let (mut lowest, mut stalled) = (u128::MAX, 0);
        while line.excess > 0 {
            let mut heap = self.gather(line);
            let mut changed = false;
            let mut spare: Vec<super::line::Item> = Vec::new();
            while line.excess > 0 {
                let Some(top) = heap.pop() else { break };
                let Some(drop) = self.price(line, top.value, top.reader) else { continue };
                if heap.peek().is_some_and(|next| drop.price > next.price * 1.000_001) {
                    heap.push(Candidate { price: drop.price, ..top });
                    continue;
                }
                let excess = line.excess;
                spare.clone_from(&line.items);
                self.steps += line.items.len() as u64 / 32;
                line.insert(drop.at, &drop.nodes);
                if line.excess >= excess && !(self.shared && line.excess < excess + excess / 8) {
                    line.items.clone_from(&spare);
                    line.rebuild();
                    continue;
                }
                changed = true;
                stalled += 1;
                if line.excess < lowest {
                    (lowest, stalled) = (line.excess, 0);
                }
                if line.cost >= limit || stalled > 100 || self.steps > self.end || self.deadline.is_over() {
                    return false;
                }
                for p in drop.at..drop.at + drop.nodes.len() {
                    let item = line.items[p];
                    for &v in &line.graph.nodes()[item.node as usize].inputs {
                        self.push(&mut heap, line, v, item.id);
                    }
                }
            }
            if !changed {
                return line.excess == 0;
            }
        }
        true
    }
}
