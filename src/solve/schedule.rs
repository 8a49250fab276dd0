//! A schedule, and the check that is written apart from everything that makes one.

use super::graph::{Graph, SolveError};

/// One run of a node, and what is freed right after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The node.
    pub node: u32,
    /// The values freed right after it.
    pub frees: Vec<u32>,
}

/// Runs in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Schedule {
    /// The runs.
    pub runs: Vec<Run>,
}

/// What a schedule takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Figures {
    /// The most bytes resident while a node runs, or after the last.
    pub peak: u64,
    /// The cost of all runs.
    pub cost: u64,
}

impl Schedule {
    /// The schedule that runs these nodes in this order and frees every value as
    /// early as possible: after its last read before it is next written, or ever.
    ///
    /// No other choice of frees has a lower peak for the same runs.
    ///
    /// # Errors
    /// A node that does not exist, or a read of a value not yet written.
    pub fn from_order(graph: &Graph, order: &[u32]) -> Result<Self, SolveError> {
        let mut runs: Vec<Run> = order.iter().map(|&node| Run { node, frees: Vec::new() }).collect();
        // For each value, where its current instance was last read or written.
        let mut last: Vec<Option<usize>> = vec![None; graph.values()];
        for (position, &node) in order.iter().enumerate() {
            let Some(n) = graph.nodes().get(node as usize) else {
                return Err(SolveError::NoSuchNode { position, node });
            };
            for &value in &n.inputs {
                if graph.producer(value).is_none() {
                    continue;
                }
                if last[value as usize].is_none() {
                    return Err(SolveError::NotResident { position, node, value });
                }
                last[value as usize] = Some(position);
            }
            for &value in &n.outputs {
                if let Some(end) = last[value as usize].replace(position) {
                    runs[end].frees.push(value);
                }
            }
        }
        for value in 0..graph.values() as u32 {
            if let Some(end) = last[value as usize].filter(|_| !graph.kept(value)) {
                runs[end].frees.push(value);
            }
        }
        Ok(Self { runs })
    }

    /// The nodes, in the order of their runs.
    #[must_use]
    pub fn order(&self) -> Vec<u32> {
        self.runs.iter().map(|r| r.node).collect()
    }

    /// Simulates the schedule from its runs and frees alone.
    ///
    /// While a node runs, everything resident before it counts, its inputs among
    /// it, and all its outputs; an output that is still resident counts twice.
    /// Constants do not count.
    ///
    /// # Errors
    /// Whatever makes it no schedule of this graph: a read of what is not
    /// resident, a free of what is not resident, a node that never runs or that runs
    /// again though it may not, a kept value that is gone.
    pub fn check(&self, graph: &Graph) -> Result<Figures, SolveError> {
        let mut resident: Vec<bool> = (0..graph.values() as u32).map(|v| graph.producer(v).is_none()).collect();
        let mut ran = vec![false; graph.nodes().len()];
        let (mut live, mut peak, mut cost) = (0u64, 0u64, 0u64);
        for (position, run) in self.runs.iter().enumerate() {
            let node = run.node;
            let Some(n) = graph.nodes().get(node as usize) else {
                return Err(SolveError::NoSuchNode { position, node });
            };
            if let Some(&value) = n.inputs.iter().find(|&&v| !resident[v as usize]) {
                return Err(SolveError::NotResident { position, node, value });
            }
            let written: u64 = n.outputs.iter().map(|&v| graph.bytes(v)).sum();
            peak = peak.max(live + written);
            for &value in &n.outputs {
                if !std::mem::replace(&mut resident[value as usize], true) {
                    live += graph.bytes(value);
                }
            }
            for &value in &run.frees {
                let constant = (value as usize) >= graph.values() || graph.producer(value).is_none();
                if constant || !std::mem::replace(&mut resident[value as usize], false) {
                    return Err(SolveError::FreedTwice { position, value });
                }
                live -= graph.bytes(value);
            }
            cost = cost.saturating_add(n.cost);
            if std::mem::replace(&mut ran[node as usize], true) && graph.once(node) {
                return Err(SolveError::RunAgain { position, node });
            }
        }
        if let Some(node) = ran.iter().position(|&ran| !ran) {
            return Err(SolveError::NeverRun { node: node as u32 });
        }
        match (0..graph.values() as u32).find(|&v| graph.kept(v) && !resident[v as usize]) {
            Some(value) => Err(SolveError::NotKept { value }),
            None => Ok(Figures { peak, cost }),
        }
    }
}
