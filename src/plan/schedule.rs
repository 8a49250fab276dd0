//! The final order with state writes, and how long each instance lives.

use crate::checkpoint::facts::{Facts, NONE};
use crate::checkpoint::replay::{Step, Trace};
use crate::error::{Error, Result};
use crate::fuse::program::{Category, Operand, StorageId};

/// A life in the final order. Externals have one as well, never placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Life {
    /// The dispatch that makes it.
    pub(crate) first: u32,
    /// The last dispatch that reads it, or the number of dispatches if a run hands it back.
    pub(crate) last: u32,
    /// The instance at whose place this one was made, or `NONE`.
    pub(crate) grown_from: u32,
    /// True if another instance is made at this one's place, which ends it.
    pub(crate) consumed: bool,
}

/// Steps in final order, with lives.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    /// Steps and instances, in order of making.
    pub(crate) trace: Trace,
    /// The final order, as indices of steps.
    pub(crate) order: Vec<u32>,
    /// The life of each instance.
    pub(crate) lives: Vec<Life>,
    /// The instance that a run hands back, per output.
    pub(crate) outputs: Vec<Option<u32>>,
}

/// What a schedule costs, before anything is placed.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Measure {
    /// Largest sum of live arena bytes.
    pub(crate) live_bytes: u64,
    /// The dispatch at which it is reached first.
    pub(crate) peak_at: u32,
    /// The same without parameter gradients.
    pub(crate) activation_bytes: u64,
    /// Estimated time of all dispatches.
    pub(crate) cost_ns: f64,
    /// Estimated time of replays.
    pub(crate) replay_cost_ns: f64,
    /// Number of replays.
    pub(crate) replays: u32,
}

/// Puts the late passes (state writes and what depends on them) where they
/// first can run: when their inputs are there and every other pass, replays
/// included, has read the states that they overwrite. A parameter's gradient
/// is thereby consumed, and freed, as soon as its parameter is not read again.
///
/// # Errors
/// [`Error::PlanCheck`] if a state is read by a pass that needs its new value
/// to have been made before.
pub(crate) fn schedule(facts: &Facts<'_>, mut trace: Trace) -> Result<Schedule> {
    let late = late_order(facts, &trace)?;
    let walked = trace.steps.len() as u32;
    let mut order = Vec::with_capacity(trace.steps.len() + late.len());
    let mut next = 0;
    for &(slot, pass) in &late {
        order.extend(next..slot);
        next = next.max(slot);
        order.push(trace.steps.len() as u32);
        add_late_step(facts, &mut trace, pass, slot);
    }
    order.extend(next..walked);
    let outputs: Vec<Option<u32>> =
        facts.program.outputs.iter().map(|o| o.storage.map(|s| first_instance(&trace, s))).collect();
    let lives = lives(&trace, &order, &outputs);
    Ok(Schedule { trace, order, lives, outputs })
}

fn first_instance(trace: &Trace, storage: StorageId) -> u32 {
    let mut at = trace.newest[storage.index()];
    while at != NONE && trace.earlier[at as usize] != NONE {
        at = trace.earlier[at as usize];
    }
    at
}

/// Late passes with the slot (the number of steps before it) of each, in an
/// order in which each follows what it waits for.
fn late_order(facts: &Facts<'_>, trace: &Trace) -> Result<Vec<(u32, u32)>> {
    let program = facts.program;
    let late: Vec<u32> =
        (0..program.passes.len() as u32).filter(|&p| facts.late[p as usize] && facts.wanted[p as usize]).collect();
    if late.is_empty() {
        return Ok(Vec::new());
    }
    let last_read = last_state_reads(facts, trace);
    let mut number = vec![NONE; program.passes.len()];
    for (index, &pass) in late.iter().enumerate() {
        number[pass as usize] = index as u32;
    }
    let mut slot = vec![0_u32; late.len()];
    let mut waits = vec![0_u32; late.len()];
    let mut followers: Vec<Vec<u32>> = vec![Vec::new(); late.len()];
    for (index, &pass) in late.iter().enumerate() {
        for operand in &program.passes[pass as usize].operands {
            if let Some(read) = operand.read() {
                let producer = facts.producer[read.index()];
                if producer != NONE && number[producer as usize] != NONE {
                    followers[number[producer as usize] as usize].push(index as u32);
                    waits[index] += 1;
                } else if producer != NONE {
                    let made = trace.born[first_instance(trace, read) as usize];
                    slot[index] = slot[index].max(made + 1);
                }
            }
            if let Operand::StateWrite(state) = *operand {
                slot[index] = slot[index].max(last_read[state.index()]);
                for &reader in facts.readers_of(state.index()) {
                    if reader != pass && number[reader as usize] != NONE {
                        followers[number[reader as usize] as usize].push(index as u32);
                        waits[index] += 1;
                    }
                }
            }
        }
    }
    settle(facts, &late, slot, waits, &followers)
}

/// Per storage the number of steps after which no step reads it any more.
fn last_state_reads(facts: &Facts<'_>, trace: &Trace) -> Vec<u32> {
    let mut last = vec![0_u32; facts.program.storages.len()];
    for (index, step) in trace.steps.iter().enumerate() {
        for read in facts.program.passes[step.pass as usize].operands.iter().filter_map(|o| o.read()) {
            last[read.index()] = index as u32 + 1;
        }
    }
    last
}

/// Orders by waiting, then by slot; equals stay as recorded.
fn settle(
    facts: &Facts<'_>,
    late: &[u32],
    mut slot: Vec<u32>,
    mut waits: Vec<u32>,
    followers: &[Vec<u32>],
) -> Result<Vec<(u32, u32)>> {
    let mut ready: std::collections::BTreeSet<u32> =
        (0..late.len() as u32).filter(|&i| waits[i as usize] == 0).collect();
    let mut settled = Vec::with_capacity(late.len());
    while let Some(index) = ready.pop_first() {
        settled.push((slot[index as usize], late[index as usize]));
        for &follower in &followers[index as usize] {
            let follower = follower as usize;
            slot[follower] = slot[follower].max(slot[index as usize]);
            waits[follower] -= 1;
            if waits[follower] == 0 {
                ready.insert(follower as u32);
            }
        }
    }
    if let Some(stuck) = (0..late.len()).find(|&i| waits[i] > 0) {
        let pass = &facts.program.passes[late[stuck] as usize];
        return Err(Error::PlanCheck {
            dispatch: late[stuck] as usize,
            detail: format!(
                "{} waits for itself: a state is read by a pass that needs a value made when that state is overwritten",
                pass.name
            ),
        });
    }
    settled.sort_by_key(|&(slot, _)| slot);
    Ok(settled)
}

fn add_late_step(facts: &Facts<'_>, trace: &mut Trace, pass: u32, slot: u32) {
    let step = trace.steps.len() as u32;
    trace.steps.push(Step { pass, replay: false, first_operand: trace.reads.len() as u32 });
    for operand in &facts.program.passes[pass as usize].operands {
        let read = operand.read().map_or(NONE, |s| {
            // The newest instance that is there by then: it was used last.
            let mut at = trace.newest[s.index()];
            let late = facts.producer[s.index()] != NONE && facts.late[facts.producer[s.index()] as usize];
            while !late && at != NONE && trace.born[at as usize] != NONE && trace.born[at as usize] >= slot {
                at = trace.earlier[at as usize];
            }
            at
        });
        trace.reads.push(read);
        let made = operand.made().map_or(NONE, |s| trace.add_instance(s.0, step));
        trace.makes.push(made);
    }
}

fn lives(trace: &Trace, order: &[u32], outputs: &[Option<u32>]) -> Vec<Life> {
    let unborn = Life { first: 0, last: 0, grown_from: NONE, consumed: false };
    let mut lives = vec![unborn; trace.storage.len()];
    for (dispatch, &step) in order.iter().enumerate() {
        let dispatch = dispatch as u32;
        let begin = trace.steps[step as usize].first_operand as usize;
        let end = trace.steps.get(step as usize + 1).map_or(trace.reads.len(), |s| s.first_operand as usize);
        for at in begin..end {
            let (read, made) = (trace.reads[at], trace.makes[at]);
            if read != NONE {
                lives[read as usize].last = dispatch;
            }
            if made != NONE {
                let grown_from = read;
                lives[made as usize] = Life { first: dispatch, last: dispatch, grown_from, consumed: false };
                if read != NONE {
                    lives[read as usize].consumed = true;
                }
            }
        }
    }
    for &instance in outputs.iter().flatten() {
        lives[instance as usize].last = order.len() as u32;
    }
    lives
}

impl Schedule {
    /// The step at a place of the final order.
    pub(crate) fn step(&self, dispatch: usize) -> Step {
        self.trace.steps[self.order[dispatch] as usize]
    }

    /// Adds up live bytes (each value rounded up to the alignment of offsets)
    /// and costs. An instance that another one is made on top of counts until
    /// the dispatch before: they are one piece of memory.
    pub(crate) fn measure(&self, facts: &Facts<'_>) -> Measure {
        let count = self.order.len();
        let mut begins = vec![(0_u128, 0_u128); count + 1];
        let mut ends = vec![(0_u128, 0_u128); count + 2];
        for (instance, life) in self.lives.iter().enumerate().skip(facts.externals.len()) {
            let storage = self.trace.storage[instance] as usize;
            let size = u128::from(facts.size[storage]);
            let gradient = facts.program.storages[storage].category == Category::ParameterGradient;
            let activation = if gradient { 0 } else { size };
            let end = if life.consumed { life.last } else { life.last + 1 } as usize;
            begins[life.first as usize].0 += size;
            begins[life.first as usize].1 += activation;
            ends[end].0 += size;
            ends[end].1 += activation;
        }
        let mut measure = Measure::default();
        let (mut live, mut activation) = (0_u128, 0_u128);
        for dispatch in 0..count {
            live = live + begins[dispatch].0 - ends[dispatch].0;
            activation = activation + begins[dispatch].1 - ends[dispatch].1;
            let live_bytes = u64::try_from(live).unwrap_or(u64::MAX);
            if live_bytes > measure.live_bytes {
                measure.live_bytes = live_bytes;
                measure.peak_at = dispatch as u32;
            }
            let activation_bytes = u64::try_from(activation).unwrap_or(u64::MAX);
            measure.activation_bytes = measure.activation_bytes.max(activation_bytes);
        }
        self.add_costs(facts, &mut measure);
        measure
    }

    /// Adds costs up pass by pass, not in the order of dispatches: two orders
    /// of the same work cost the same to the last bit.
    fn add_costs(&self, facts: &Facts<'_>, measure: &mut Measure) {
        let mut runs = vec![(0_u32, 0_u32); facts.cost_ns.len()];
        for step in &self.trace.steps {
            runs[step.pass as usize].0 += 1;
            runs[step.pass as usize].1 += u32::from(step.replay);
        }
        for (&(all, replays), &cost) in runs.iter().zip(&facts.cost_ns) {
            measure.cost_ns += f64::from(all) * cost;
            measure.replay_cost_ns += f64::from(replays) * cost;
            measure.replays += replays;
        }
    }
}
