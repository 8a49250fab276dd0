//! What is scheduled: nodes that read values and write values.

use std::fmt;

/// One node: its cost, what it reads and what it writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The cost of one run, in any unit (nanoseconds, operations).
    pub cost: u64,
    /// The values read.
    pub inputs: Vec<u32>,
    /// The values written.
    pub outputs: Vec<u32>,
}

/// A step to be scheduled: nodes in an order in which they can run, once each.
///
/// Values that no node writes are constants: always there, and not counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    nodes: Vec<Node>,
    bytes: Vec<u64>,
    producer: Vec<Option<u32>>,
    keep: Vec<bool>,
    once: Vec<bool>,
}

/// Why something is no graph, or no schedule of one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SolveError {
    /// A node, or the list of kept values, names a value that does not exist.
    NoSuchValue {
        /// The value.
        value: u32,
        /// How many there are.
        values: usize,
    },
    /// Two nodes write one value.
    WrittenTwice {
        /// The value.
        value: u32,
        /// The second node that writes it.
        node: u32,
    },
    /// A node reads a value that only it or a later one writes.
    ReadTooEarly {
        /// The node.
        node: u32,
        /// The value.
        value: u32,
    },
    /// The sum of all costs or all bytes does not fit in 63 bits.
    TooLarge,
    /// A schedule runs a node that does not exist.
    NoSuchNode {
        /// The position in the schedule.
        position: usize,
        /// The node.
        node: u32,
    },
    /// A run reads a value that is not resident.
    NotResident {
        /// The position in the schedule.
        position: usize,
        /// The node that reads.
        node: u32,
        /// The value.
        value: u32,
    },
    /// A schedule frees a value that is not resident.
    FreedTwice {
        /// The position in the schedule.
        position: usize,
        /// The value.
        value: u32,
    },
    /// A node that runs once runs again.
    RunAgain {
        /// The position in the schedule.
        position: usize,
        /// The node.
        node: u32,
    },
    /// A node never runs.
    NeverRun {
        /// The node.
        node: u32,
    },
    /// A value to keep is gone after the last run.
    NotKept {
        /// The value.
        value: u32,
    },
    /// No schedule within the budget was found.
    Infeasible {
        /// The budget in bytes.
        budget_bytes: u64,
        /// The least peak that was reached, in bytes.
        least_bytes: u64,
    },
}

impl fmt::Display for SolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchValue { value, values } => {
                write!(f, "value {value} is named but there are {values}: number values from 0")
            }
            Self::WrittenTwice { value, node } => {
                write!(f, "node {node} writes value {value}, which an earlier node writes: give it a value of its own")
            }
            Self::ReadTooEarly { node, value } => write!(
                f,
                "node {node} reads value {value}, which it or a later node writes: list nodes in an order in which they can run"
            ),
            Self::TooLarge => {
                write!(f, "the costs or the bytes of the graph add up to 2^63 or more: use a coarser unit")
            }
            Self::NoSuchNode { position, node } => {
                write!(f, "run {position} is of node {node}, which the graph lacks")
            }
            Self::NotResident { position, node, value } => {
                write!(f, "run {position}, of node {node}, reads value {value}, which is not resident then")
            }
            Self::FreedTwice { position, value } => {
                write!(f, "value {value} is freed after run {position} but is not resident then")
            }
            Self::RunAgain { position, node } => {
                write!(f, "run {position} is of node {node} again, which may run once only")
            }
            Self::NeverRun { node } => write!(f, "node {node} never runs"),
            Self::NotKept { value } => {
                write!(f, "value {value} is to be kept but is gone after the last run")
            }
            Self::Infeasible { budget_bytes, least_bytes } => write!(
                f,
                "no schedule within {budget_bytes} bytes was found: the least peak reached is {least_bytes} bytes"
            ),
        }
    }
}

impl std::error::Error for SolveError {}

impl Graph {
    /// A graph of `bytes.len()` values, of the given sizes, and the given nodes;
    /// `keep` are the values that must be resident after the last run.
    ///
    /// # Errors
    /// A value that does not exist, is written twice or is read before it is
    /// written; sums of 2^63 and more.
    pub fn new(bytes: Vec<u64>, mut nodes: Vec<Node>, keep: &[u32]) -> Result<Self, SolveError> {
        let values = bytes.len();
        let exists = |value: u32| {
            if (value as usize) < values { Ok(value as usize) } else { Err(SolveError::NoSuchValue { value, values }) }
        };
        let mut producer = vec![None; values];
        for (i, node) in nodes.iter_mut().enumerate() {
            for &value in &node.outputs {
                if producer[exists(value)?].replace(i as u32).is_some() {
                    return Err(SolveError::WrittenTwice { value, node: i as u32 });
                }
            }
            node.inputs.sort_unstable();
            node.inputs.dedup();
        }
        for (i, node) in nodes.iter().enumerate() {
            for &value in &node.inputs {
                if producer[exists(value)?].is_some_and(|p| p as usize >= i) {
                    return Err(SolveError::ReadTooEarly { node: i as u32, value });
                }
            }
        }
        let mut kept = vec![false; values];
        for &value in keep {
            kept[exists(value)?] = true;
        }
        let sum = |mut of: Box<dyn Iterator<Item = u64> + '_>| {
            of.try_fold(0u64, |sum, x| sum.checked_add(x)).filter(|&sum| sum < 1 << 63).ok_or(SolveError::TooLarge)
        };
        sum(Box::new(nodes.iter().map(|n| n.cost)))?;
        sum(Box::new(bytes.iter().copied()))?;
        let once = vec![false; nodes.len()];
        Ok(Self { nodes, bytes, producer, keep: kept, once })
    }

    /// The same graph, in which these nodes may run once only.
    ///
    /// # Errors
    /// [`SolveError::NoSuchNode`].
    pub fn running_once(mut self, nodes: &[u32]) -> Result<Self, SolveError> {
        for (position, &node) in nodes.iter().enumerate() {
            match self.once.get_mut(node as usize) {
                Some(once) => *once = true,
                None => return Err(SolveError::NoSuchNode { position, node }),
            }
        }
        Ok(self)
    }

    /// Whether a node may run once only.
    #[must_use]
    pub fn once(&self, node: u32) -> bool {
        self.once[node as usize]
    }

    /// The nodes, in an order in which they can run.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// How many values there are, constants among them.
    #[must_use]
    pub fn values(&self) -> usize {
        self.bytes.len()
    }

    /// The size of a value.
    #[must_use]
    pub fn bytes(&self, value: u32) -> u64 {
        self.bytes[value as usize]
    }

    /// The node that writes a value; none for a constant.
    #[must_use]
    pub fn producer(&self, value: u32) -> Option<u32> {
        self.producer[value as usize]
    }

    /// Whether a value must be resident after the last run.
    #[must_use]
    pub fn kept(&self, value: u32) -> bool {
        self.keep[value as usize]
    }

    /// The cost of running every node once.
    #[must_use]
    pub fn base_cost(&self) -> u64 {
        self.nodes.iter().map(|n| n.cost).sum()
    }

    /// A bound that no peak lies below: the widest node's inputs and outputs, or
    /// the kept values.
    #[must_use]
    pub fn widest(&self) -> u64 {
        let counted = |v: u32| match self.producer(v) {
            Some(_) => self.bytes(v),
            None => 0,
        };
        let node = |n: &Node| {
            let inputs: u64 = n.inputs.iter().map(|&v| counted(v)).sum();
            inputs + n.outputs.iter().map(|&v| counted(v)).sum::<u64>()
        };
        let kept = (0..self.values() as u32).filter(|&v| self.kept(v));
        let kept = kept.map(counted).sum();
        self.nodes.iter().map(node).max().unwrap_or(0).max(kept)
    }
}
