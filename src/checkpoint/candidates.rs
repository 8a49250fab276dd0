//! Decisions that the fixed policies mean, and those that a budget chooses from.
//!
//! The list depends on the program alone, never on a budget: so a larger
//! budget can only choose from more of the same.

use crate::checkpoint::facts::{Facts, NONE};
use crate::checkpoint::paths::{Paths, even_groups};
use crate::checkpoint::policy::{Policy, ceil_sqrt};
use crate::checkpoint::{Decision, select};
use crate::error::{Error, Result};
use crate::fuse::program::{Operand, Phase, Program};

/// The decision of a policy that needs no search.
///
/// # Errors
/// [`Error::Policy`] for segment policies on a recording without segments, and
/// for kinds and names that the recording does not have.
pub(crate) fn fixed(facts: &Facts<'_>, policy: &Policy) -> Result<Option<Decision>> {
    let program = facts.program;
    let outermost = outermost_segments(program);
    let groups = match policy {
        Policy::None => return Ok(Some(Decision::of_paths(Paths::flat(program)))),
        Policy::Budget(_) | Policy::BudgetFraction(_) | Policy::LeastMemory => return Ok(None),
        Policy::Nothing | Policy::Kinds(_) | Policy::Only(_) | Policy::AllBut(_) | Policy::Selective => {
            return select::decision(facts, policy).map(Some);
        }
        Policy::Segments | Policy::Revolve(_) => (0..outermost).collect(),
        Policy::Every(n) => (0..outermost).map(|i| i / n.max(&1)).collect(),
        Policy::Sqrt => even_groups(outermost, ceil_sqrt(outermost).max(1))?,
    };
    if outermost == 0 {
        return Err(Error::Policy {
            policy: policy.to_string(),
            detail: "this recording has no segments; wrap parts of the model in `checkpoint`, or give a budget"
                .to_owned(),
        });
    }
    if let Policy::Revolve(slots) = policy {
        return Ok(Some(Decision::of_paths(Paths::revolve(program, *slots))));
    }
    Ok(Some(Decision::of_paths(Paths::of_groups(program, &all(&groups), true))))
}

fn outermost_segments(program: &Program) -> usize {
    program.segments.iter().filter(|s| s.parent.is_none()).count()
}

fn all(groups: &[usize]) -> Vec<Option<usize>> {
    groups.iter().copied().map(Some).collect()
}

/// Prefixes tried per grouping.
const PREFIXES: usize = 16;

/// Decisions by regions, the most useful ones first: a search that runs out of
/// effort has then seen those.
pub(crate) fn regions(facts: &Facts<'_>) -> Vec<Decision> {
    let program = facts.program;
    let mut decisions = vec![Decision::of_paths(Paths::flat(program))];
    let outermost = outermost_segments(program);
    let nested = program.segments.iter().any(|s| s.parent.is_some());
    let mut groupings: Vec<Vec<usize>> = Vec::new();
    if outermost > 0 {
        for n in [1, 2, 3, 4, 6, 8, 12, 16] {
            if n == 1 || n < outermost {
                groupings.push((0..outermost).map(|i| i / n).collect());
            }
        }
        groupings.extend(even_groups(outermost, ceil_sqrt(outermost)));
    }
    let cuts = Cuts::new(facts);
    let chunkings: Vec<Vec<u32>> = [2, 3, 4, 6, 8, 12, 16, 24, 32].iter().filter_map(|&n| cuts.chunks(n)).collect();

    for groups in &groupings {
        decisions.push(Decision::of_paths(Paths::of_groups(program, &all(groups), true)));
        if nested {
            decisions.push(Decision::of_paths(Paths::of_groups(program, &all(groups), false)));
        }
    }
    if nested {
        decisions.push(Decision::of_paths(Paths::inner_only(program)));
    }
    for chunks in &chunkings {
        decisions.push(Decision::of_paths(Paths::of_chunks(facts, chunks)));
    }
    // The last regions gain least: they are needed again at once.
    for groups in &groupings {
        let count = groups.last().map_or(0, |&g| g + 1);
        for kept in prefixes(count) {
            let honoured: Vec<Option<usize>> = groups.iter().map(|&g| (g < kept).then_some(g)).collect();
            decisions.push(Decision::of_paths(Paths::of_groups(program, &honoured, true)));
        }
    }
    for chunks in &chunkings {
        let count = chunks.iter().filter(|&&c| c != NONE).max().map_or(0, |&c| c as usize + 1);
        for kept in prefixes(count) {
            let honoured: Vec<u32> = chunks.iter().map(|&c| if (c as usize) < kept { c } else { NONE }).collect();
            decisions.push(Decision::of_paths(Paths::of_chunks(facts, &honoured)));
        }
    }
    decisions
}

/// How many of `count` groups to honour, evenly chosen from the most on.
fn prefixes(count: usize) -> impl Iterator<Item = usize> {
    let step = count.div_ceil(PREFIXES).max(1);
    (1..count).rev().step_by(step)
}

/// Where the forward pass can be cut, and how many bytes cross there.
struct Cuts {
    /// Forward passes in recorded order.
    forward: Vec<u32>,
    passes: usize,
    /// Bytes made up to and including each of them.
    made: Vec<u64>,
    /// Bytes read after each of them that were made up to it.
    crossing: Vec<u64>,
}

impl Cuts {
    fn new(facts: &Facts<'_>) -> Self {
        let program = facts.program;
        let forward: Vec<u32> = (0..program.passes.len() as u32)
            .filter(|&p| {
                let p = p as usize;
                facts.wanted[p] && !facts.late[p] && program.passes[p].phase == Phase::Forward
            })
            .collect();
        let mut position = vec![NONE; program.passes.len()];
        for (at, &pass) in forward.iter().enumerate() {
            position[pass as usize] = at as u32;
        }
        let mut made = vec![0_u64; forward.len()];
        let mut opens = vec![0_u64; forward.len() + 1];
        let mut closes = vec![0_u64; forward.len() + 1];
        let mut barred = vec![false; forward.len()];
        for (at, &pass) in forward.iter().enumerate() {
            for operand in &program.passes[pass as usize].operands {
                if let Operand::InPlace { input, .. } = operand {
                    // Cutting a chain in place would have it rebuilt from before the cut.
                    let from = facts.producer[input.index()];
                    if from != NONE && position[from as usize] != NONE {
                        barred[position[from as usize] as usize..at].fill(true);
                    }
                }
                let Some(storage) = operand.made() else { continue };
                let size = facts.size[storage.index()];
                made[at] = made[at].saturating_add(size);
                let readers = facts.readers_of(storage.index());
                let last = readers.iter().map(|&r| position[r as usize]).filter(|&r| r != NONE).max();
                if let Some(last) = last {
                    opens[at] = opens[at].saturating_add(size);
                    closes[last as usize] = closes[last as usize].saturating_add(size);
                }
            }
        }
        let (mut total, mut open) = (0_u64, 0_u64);
        let mut crossing = vec![0_u64; forward.len()];
        for at in 0..forward.len() {
            total = total.saturating_add(made[at]);
            made[at] = total;
            open = open.saturating_add(opens[at]).saturating_sub(closes[at]);
            crossing[at] = if barred[at] { u64::MAX } else { open };
        }
        Self { forward, passes: program.passes.len(), made, crossing }
    }

    /// The chunk of each pass when forward is cut into `count` parts that make
    /// about as many bytes each, at the narrowest places nearby.
    fn chunks(&self, count: usize) -> Option<Vec<u32>> {
        let total = *self.made.last()?;
        if self.forward.len() < count * 2 {
            return None;
        }
        let mut ends: Vec<usize> = Vec::new();
        for part in 1..count {
            let share = |eighths: u128| (u128::from(total) * eighths / (8 * count as u128)) as u64;
            let (low, high) = (share(8 * part as u128 - 3), share(8 * part as u128 + 3));
            let from = self.made.partition_point(|&m| m < low);
            let to = self.made.partition_point(|&m| m <= high).max(from + 1).min(self.made.len());
            let best = (from..to).min_by_key(|&at| (self.crossing[at], at))?;
            if self.crossing[best] != u64::MAX && ends.last().is_none_or(|&end| best > end) {
                ends.push(best);
            }
        }
        let mut chunk_of = vec![NONE; self.passes];
        for (at, &pass) in self.forward.iter().enumerate() {
            chunk_of[pass as usize] = ends.partition_point(|&end| end < at) as u32;
        }
        Some(chunk_of)
    }
}
