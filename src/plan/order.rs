//! The order of passes before anything is replayed.
//!
//! Values are in SSA form: any order that makes a value before it is read
//! computes the same bits. Two orders are tried and the one with the lower
//! peak is taken: as recorded, and *eager*, in which backward passes run as
//! soon as what they wait for is there if they free at least what they take
//! (weight gradients, reductions, digests), and passes that depend on no
//! gradient wait until somebody reads them.

use crate::checkpoint::facts::{Facts, NONE};
use crate::fuse::program::{Category, Operand, Phase};

/// All wanted passes that are not late, as recorded.
pub(crate) fn recorded(facts: &Facts<'_>) -> Vec<u32> {
    (0..facts.program.passes.len() as u32).filter(|&p| facts.wanted[p as usize] && !facts.late[p as usize]).collect()
}

/// The same passes, backward ones moved so that values die early.
pub(crate) fn eager(facts: &Facts<'_>) -> Vec<u32> {
    let recorded = recorded(facts);
    let mut eager = Eager::new(facts, &recorded);
    for &pass in &recorded {
        if !eager.done[pass as usize] && !eager.lazy[pass as usize] {
            eager.run(pass);
        }
    }
    // A lazy pass that only a late pass reads was demanded by nobody here.
    for &pass in &recorded {
        if !eager.done[pass as usize] {
            eager.run(pass);
        }
    }
    eager.order
}

struct Eager<'a> {
    facts: &'a Facts<'a>,
    order: Vec<u32>,
    done: Vec<bool>,
    /// Backward passes that read nothing made in backward: they could run at
    /// any time, so they run when first demanded.
    lazy: Vec<bool>,
    /// Passes of backward, and whatever the user recorded on gradients
    /// (digests, norms, clipping), which frees them as a backward pass does.
    after_gradient: Vec<bool>,
    /// Readers that have not run yet. Late ones do not count: state is written
    /// as soon as it can be.
    readers_left: Vec<u32>,
}

impl<'a> Eager<'a> {
    fn new(facts: &'a Facts<'a>, recorded: &[u32]) -> Self {
        let program = facts.program;
        let mut lazy = vec![false; program.passes.len()];
        let mut after_gradient = vec![false; program.passes.len()];
        for &pass in recorded {
            let p = &program.passes[pass as usize];
            after_gradient[pass as usize] = p.phase == Phase::Backward
                || p.operands.iter().filter_map(|o| o.read()).any(|s| {
                    let producer = facts.producer[s.index()];
                    producer != NONE && after_gradient[producer as usize]
                });
            let waits_for_gradient = p.operands.iter().filter_map(|o| o.read()).any(|s| {
                let producer = facts.producer[s.index()];
                producer != NONE && program.passes[producer as usize].phase != Phase::Forward
            });
            let demanded = p
                .operands
                .iter()
                .filter_map(|o| o.made())
                .all(|s| !facts.readers_of(s.index()).is_empty() && !facts.handed_back[s.index()]);
            lazy[pass as usize] = p.phase == Phase::Backward && !waits_for_gradient && demanded;
        }
        let early = |r: &&u32| !facts.late[**r as usize];
        let readers_left =
            (0..program.storages.len()).map(|s| facts.readers_of(s).iter().filter(early).count() as u32).collect();
        Self {
            facts,
            order: Vec::with_capacity(recorded.len()),
            done: vec![false; program.passes.len()],
            lazy,
            after_gradient,
            readers_left,
        }
    }

    /// Runs a pass, what it demands of lazy passes first, and afterwards
    /// everything that can now run without taking memory. Passes that wait for
    /// the same gradient and are free to run go before it: a weight's gradient
    /// frees an activation before the next activation's gradient is made.
    fn run(&mut self, pass: u32) {
        let mut hoisted = vec![(pass, pass)];
        let program = self.facts.program;
        if self.after_gradient[pass as usize] {
            let gradients = program.passes[pass as usize].operands.iter().filter_map(|o| o.read()).filter(|s| {
                let producer = self.facts.producer[s.index()];
                producer != NONE && self.after_gradient[producer as usize]
            });
            let mut siblings: Vec<u32> =
                gradients.flat_map(|s| self.facts.readers_of(s.index()).iter().copied()).collect();
            siblings.sort_unstable_by(|a, b| b.cmp(a));
            hoisted.extend(siblings.into_iter().filter(|&s| s != pass).map(|sibling| (sibling, pass)));
        }
        while let Some((next, cause)) = hoisted.pop() {
            if self.done[next as usize] || (next != pass && !self.free_to_run(next, cause)) {
                continue;
            }
            for emitted in self.emit_with_lazy(next) {
                let made = self.facts.program.passes[emitted as usize].operands.iter().filter_map(|o| o.made());
                // In reverse, so that the stack gives back the recorded order.
                let mut consumers: Vec<u32> =
                    made.flat_map(|s| self.facts.readers_of(s.index()).iter().copied()).collect();
                consumers.sort_unstable_by(|a, b| b.cmp(a));
                hoisted.extend(consumers.into_iter().map(|consumer| (consumer, emitted)));
            }
        }
    }

    /// True if a backward pass is ready and takes no more than it frees. One
    /// that reads values of forward stays in the segment of the pass that made
    /// it ready: else it would have another segment replayed before its turn.
    fn free_to_run(&self, pass: u32, cause: u32) -> bool {
        let program = self.facts.program;
        let p = &program.passes[pass as usize];
        let same_segment = p.segment == program.passes[cause as usize].segment;
        if !self.after_gradient[pass as usize] || self.facts.late[pass as usize] || self.lazy[pass as usize] {
            return false;
        }
        let (mut taken, mut freed) = (0_u64, 0_u64);
        for operand in &p.operands {
            if let Some(read) = operand.read() {
                let producer = self.facts.producer[read.index()];
                if producer != NONE && !self.done[producer as usize] && !self.lazy[producer as usize] {
                    return false;
                }
                if !same_segment && self.facts.replayable(producer) {
                    return false;
                }
                let last = self.readers_left[read.index()] == 1 && !self.facts.handed_back[read.index()];
                if producer != NONE && last {
                    freed = freed.saturating_add(self.facts.size[read.index()]);
                }
            }
            match *operand {
                Operand::Write(made) if program.storage(made).category != Category::ParameterGradient => {
                    taken = taken.saturating_add(self.facts.size[made.index()]);
                }
                Operand::InPlace { output, .. } => taken = taken.saturating_add(self.facts.size[output.index()]),
                _ => {}
            }
        }
        taken <= freed
    }

    /// Emits a pass after the lazy passes that it needs; gives what was emitted.
    fn emit_with_lazy(&mut self, pass: u32) -> Vec<u32> {
        let mut emitted = Vec::new();
        let mut stack = vec![(pass, false)];
        while let Some((at, ready)) = stack.pop() {
            if self.done[at as usize] {
                continue;
            }
            let operands = &self.facts.program.passes[at as usize].operands;
            if ready {
                self.done[at as usize] = true;
                self.order.push(at);
                emitted.push(at);
                for read in operands.iter().filter_map(|o| o.read()) {
                    self.readers_left[read.index()] -= 1;
                }
                continue;
            }
            stack.push((at, true));
            for read in operands.iter().rev().filter_map(|o| o.read()) {
                let producer = self.facts.producer[read.index()];
                if producer != NONE && !self.done[producer as usize] {
                    stack.push((producer, false));
                }
            }
        }
        emitted
    }
}
