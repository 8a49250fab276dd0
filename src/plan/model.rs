//! A program as an abstract graph for the solver, and the solver's orders as traces.
//!
//! A node is a pass, or a chain of forward passes each of which works in place on what
//! the one before made: what is overwritten cannot be kept, so the chain is replayed
//! as a whole. A pass that runs once and works in place on the result of another such
//! pass shares its value. State writes and what depends on them are nodes that run
//! once; where they really go is decided when the schedule is made.
//!
//! What the solver says of peaks is near the truth, not the truth: a chain counts as if
//! all that it reads were there throughout. The planner measures and places every order
//! that it is given.

use crate::checkpoint::facts::{Facts, NONE};
use crate::checkpoint::replay::{Step, Trace};
use crate::error::{Error, Result};
use crate::fuse::program::{Mark, Operand};
use crate::solve::{Graph, Node};

/// The graph of a program in one order of its passes.
#[derive(Debug)]
pub(crate) struct Model {
    graph: Graph,
    /// The passes of each node, in order.
    passes: Vec<Vec<u32>>,
}

impl Model {
    /// `order` is every pass once, state writes among them, as a plan without replays
    /// has them. None if the program holds a wish that the graph cannot express, a
    /// value to be recomputed in any case, or numbers too large for it.
    pub(crate) fn new(facts: &Facts<'_>, order: &[u32]) -> Option<Self> {
        if facts.marks.contains(&Some(Mark::Recompute)) {
            return None;
        }
        let passes = chains(facts, order);
        let count = facts.program.storages.len();
        // A value per storage, and one without bytes per pass that shares a value: whoever
        // reads the shared value after it reads that one as well.
        let mut bytes: Vec<u64> = facts.size.clone();
        let mut value: Vec<Vec<u32>> = (0..count as u32).map(|storage| vec![storage]).collect();
        let mut nodes = Vec::with_capacity(passes.len());
        let mut once = Vec::new();
        for (index, chain) in passes.iter().enumerate() {
            let (mut inputs, mut outputs): (Vec<u32>, Vec<u32>) = (Vec::new(), Vec::new());
            for &pass in chain {
                for operand in &facts.program.passes[pass as usize].operands {
                    if let Some(read) = operand.read() {
                        inputs.extend(value[read.index()].iter().filter(|v| !outputs.contains(v)));
                    }
                    match *operand {
                        Operand::Write(made) => outputs.push(made.0),
                        Operand::InPlace { input, output } if outputs.contains(&input.0) => {
                            outputs.retain(|v| *v != input.0);
                            outputs.push(output.0);
                        }
                        Operand::InPlace { input, output } if shares(facts, pass, input.index()) => {
                            let token = bytes.len() as u32;
                            bytes.push(0);
                            outputs.push(token);
                            let mut all = value[input.index()].clone();
                            all.push(token);
                            value[output.index()] = all;
                        }
                        Operand::InPlace { output, .. } => outputs.push(output.0),
                        Operand::Read(_) | Operand::StateWrite(_) => {}
                    }
                }
            }
            if !chain.iter().all(|&pass| may_repeat(facts, pass)) {
                once.push(index as u32);
            }
            let cost = chain.iter().map(|&pass| facts.cost_ns[pass as usize]).sum::<f64>();
            nodes.push(Node { cost: cost.round().max(1.0) as u64, inputs, outputs });
        }
        let handed_back = (0..count).filter(|&s| facts.handed_back[s]);
        let keep: Vec<u32> = handed_back.flat_map(|s| value[s].iter().copied()).collect();
        let graph = Graph::new(bytes, nodes, &keep).ok()?.running_once(&once).ok()?;
        Some(Self { graph, passes })
    }

    /// The graph, its nodes in the order given.
    pub(crate) const fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The trace of an order of nodes: passes one after the other, those that ran
    /// before as replays, state writes left out. A read means the newest instance.
    ///
    /// # Errors
    /// [`Error::PlanCheck`] if a value is read that is not there.
    pub(crate) fn trace(&self, facts: &Facts<'_>, order: &[u32]) -> Result<Trace> {
        let mut trace = Trace {
            storage: facts.externals.clone(),
            born: vec![NONE; facts.externals.len()],
            earlier: vec![NONE; facts.externals.len()],
            newest: facts.external.clone(),
            ..Trace::default()
        };
        let mut current = facts.external.clone();
        let mut ran = vec![false; facts.program.passes.len()];
        let passes = order.iter().flat_map(|&node| self.passes[node as usize].iter().copied());
        for pass in passes.filter(|&pass| !facts.late[pass as usize]) {
            let step = trace.steps.len() as u32;
            let replay = std::mem::replace(&mut ran[pass as usize], true);
            trace.steps.push(Step { pass, replay, first_operand: trace.reads.len() as u32 });
            for operand in &facts.program.passes[pass as usize].operands {
                let read = operand.read().map_or(Ok(NONE), |s| match current[s.index()] {
                    NONE => Err(Error::PlanCheck {
                        dispatch: step as usize,
                        detail: format!("{} is read before it is made", facts.program.storage(s).name),
                    }),
                    instance => Ok(instance),
                })?;
                if let Operand::InPlace { input, .. } = operand {
                    current[input.index()] = NONE;
                }
                trace.reads.push(read);
                let made = operand.made().map_or(NONE, |s| {
                    current[s.index()] = trace.add_instance(s.0, step);
                    current[s.index()]
                });
                trace.makes.push(made);
            }
        }
        Ok(trace)
    }
}

/// Whether the solver may run a pass again: none of its values has to be kept.
fn may_repeat(facts: &Facts<'_>, pass: u32) -> bool {
    let made = facts.program.passes[pass as usize].operands.iter().filter_map(|o| o.made());
    let mut kept = made.map(|s| facts.handed_back[s.index()] || facts.marks[s.index()] == Some(Mark::Save));
    facts.replayable(pass) && !kept.any(|kept| kept)
}

/// Whether what `pass` makes on top of `storage` may share its value: neither the pass
/// nor the storage's producer ever runs again.
fn shares(facts: &Facts<'_>, pass: u32, storage: usize) -> bool {
    let producer = facts.producer[storage];
    producer != NONE && !may_repeat(facts, pass) && !may_repeat(facts, producer)
}

/// Groups passes that have to be replayed together, each group at its last pass's place.
fn chains(facts: &Facts<'_>, order: &[u32]) -> Vec<Vec<u32>> {
    let mut position = vec![NONE; facts.program.passes.len()];
    for (at, &pass) in order.iter().enumerate() {
        position[pass as usize] = at as u32;
    }
    let mut chain_of: Vec<Vec<u32>> = order.iter().map(|&pass| vec![pass]).collect();
    for (at, &pass) in order.iter().enumerate() {
        for operand in &facts.program.passes[pass as usize].operands {
            let Operand::InPlace { input, .. } = *operand else { continue };
            let producer = facts.producer[input.index()];
            if producer == NONE || !may_repeat(facts, pass) || !may_repeat(facts, producer) {
                continue;
            }
            let from = position[producer as usize] as usize;
            // It can wait for `pass` unless somebody reads in between what else it makes.
            let waits = chain_of[from].iter().all(|&member| {
                let made = facts.program.passes[member as usize].operands.iter().filter_map(|o| o.made());
                made.filter(|s| *s != input)
                    .flat_map(|s| facts.readers_of(s.index()))
                    .all(|&reader| chain_of[from].contains(&reader) || position[reader as usize] as usize > at)
            });
            if waits {
                let mut chain = std::mem::take(&mut chain_of[from]);
                chain.append(&mut chain_of[at]);
                chain_of[at] = chain;
            }
        }
    }
    chain_of.retain(|chain| !chain.is_empty());
    chain_of
}
