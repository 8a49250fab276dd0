//! A plan: ordered dispatches, each operand at a fixed place, with its peak.
//!
//! ```text
//! program + policy -> schedule (which passes run, when, replays)
//!                  -> lifetimes -> placement -> Plan
//! ```
//!
//! Spaces: transient values live in the *arena* (blocks within the device's
//! buffer limit), inputs in the *upload* blocks, constants in *constant*
//! blocks, uniform words in one buffer, states in buffers of their own.
//!
//! What is counted, and how:
//! * The peak counts states at their exact length, blocks up to their last
//!   placed byte, the uniform buffer and output slots in whole alignments.
//! * Sums of *live* bytes (`live_peak_bytes`, `activation_peak_bytes`,
//!   [`Plan::timeline`]) count each transient value rounded up to the alignment
//!   of offsets (256), since nothing else can lie in the rest. Values made in
//!   place of one another count once.
//! * Passes that nothing asks for (no output and no state depends on them) are
//!   not run at all.
//! * Passes with equal uniform words share one place in the uniform buffer.

mod build;
mod check;
mod order;
mod place;
mod report;
mod schedule;

pub use check::check;
pub use report::{LiveBytes, Report};

use crate::checkpoint::facts::Facts;
use crate::checkpoint::paths::Paths;
use crate::checkpoint::search::{Candidate, Evaluated, search};
use crate::checkpoint::{ByteSize, Decision, Policy, candidates, replay};
use crate::error::{Error, Result};
use crate::fuse::program::{PassId, Phase, Program, StorageId};
use crate::profile::DeviceProfile;
use build::{Fixed, Placed};
use schedule::{Measure, Schedule};

/// Which memory a binding lies in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Arena block of this index.
    Arena(u32),
    /// Upload block of this index.
    Upload(u32),
    /// Constant block of this index.
    Constant(u32),
    /// State of this index in [`crate::fuse::program::Program::states`]; offset 0.
    State(u32),
}

/// A range of bytes in a space.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Location {
    /// Which memory.
    pub space: Space,
    /// First byte, a multiple of 256.
    pub offset: u64,
    /// Length in bytes, not rounded.
    pub bytes: u64,
}

/// Index of an instance in its [`Plan`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InstanceId(pub u32);

/// One life of a storage: a replay makes a new instance.
///
/// It is alive from dispatch `first` (which makes it; for inputs 0) to
/// dispatch `last` (its last reader; `dispatches.len()` if a run hands it
/// back), both included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// The storage that it is a life of.
    pub storage: StorageId,
    /// Where it lies.
    pub location: Location,
    /// Index of the dispatch that makes it.
    pub first: u32,
    /// Index of the last dispatch that reads it.
    pub last: u32,
}

/// One pass, encoded at one place of the schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dispatch {
    /// Which pass.
    pub pass: PassId,
    /// True if this pass ran before in the same run.
    pub replay: bool,
    /// The instance read (or, for pure writes, made) per operand; for
    /// `InPlace` the instance consumed.
    pub instances: Vec<InstanceId>,
    /// The instance made per operand, where one is (`Write`, `InPlace`).
    pub made: Vec<Option<InstanceId>>,
    /// First byte of its uniform words in the uniform buffer, a multiple of 256.
    pub uniform_offset: u64,
}

/// An output of a run: copied from the arena to the run's slot when it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputPlacement {
    /// Index in [`crate::fuse::program::Program::outputs`].
    pub output: u32,
    /// The instance that holds it.
    pub instance: InstanceId,
    /// First byte within a slot, a multiple of 4.
    pub slot_offset: u64,
    /// Length in bytes.
    pub bytes: u64,
}

/// Bytes of a step at its peak, by the buffers that hold them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PeakBytes {
    /// States that the step uses, at their exact length.
    pub state: u64,
    /// Arena blocks, each as long as its last placed byte.
    pub arena: u64,
    /// Upload blocks.
    pub upload: u64,
    /// Constant blocks.
    pub constant: u64,
    /// The uniform buffer.
    pub uniform: u64,
    /// The ring of output slots.
    pub output: u64,
    /// The read-back buffer.
    pub readback: u64,
}

impl PeakBytes {
    /// The sum: `planned_peak_bytes`.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.state
            .saturating_add(self.arena)
            .saturating_add(self.upload)
            .saturating_add(self.constant)
            .saturating_add(self.uniform)
            .saturating_add(self.output)
            .saturating_add(self.readback)
    }
}

/// How many runs may be in flight, and how many earlier outputs are kept.
pub const OUTPUT_SLOTS: u64 = 3;

/// A planned step, ready to be encoded. Pure data.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The policy that made it, printed.
    pub policy: String,
    /// What is encoded, in order.
    pub dispatches: Vec<Dispatch>,
    /// Every life of every transient storage, input, constant and state.
    pub instances: Vec<Instance>,
    /// Length of each arena block in bytes.
    pub arena_blocks: Vec<u64>,
    /// Length of each upload block in bytes.
    pub upload_blocks: Vec<u64>,
    /// Length of each constant block in bytes.
    pub constant_blocks: Vec<u64>,
    /// Where each input lies (index as in `Program::inputs`); `None` for one without elements.
    pub inputs: Vec<Option<Location>>,
    /// Where each constant lies.
    pub constants: Vec<Option<Location>>,
    /// Length of the uniform buffer in bytes.
    pub uniform_bytes: u64,
    /// Outputs and their place in a slot.
    pub outputs: Vec<OutputPlacement>,
    /// What offsets are multiples of, in bytes.
    pub offset_alignment_bytes: u64,
    /// Length of one output slot in bytes (a multiple of 256).
    pub slot_bytes: u64,
    /// Bytes at the peak.
    pub peak: PeakBytes,
    /// Largest sum of live arena bytes: what a perfect placement would take.
    pub live_peak_bytes: u64,
    /// Largest sum of live arena bytes, without parameter gradients and inputs.
    pub activation_peak_bytes: u64,
    /// Number of dispatches that repeat an earlier pass.
    pub replayed_passes: u32,
    /// Estimated time of all dispatches, in nanoseconds.
    pub cost_ns: f64,
    /// Estimated time of the replays among them, in nanoseconds.
    pub replay_cost_ns: f64,
    /// Remarks for the user, as where a policy gains nothing.
    pub notes: Vec<String>,
}

/// Plans a step: which passes run and are repeated, in which order, and where
/// everything lies.
///
/// The same program, policy and profile give the same plan, byte for byte. A
/// plan under [`Policy::Budget`] has `peak.total()` within the budget; from the
/// least budget on every budget succeeds, and a larger one never gives a dearer
/// plan.
///
/// # Errors
/// [`Error::Policy`] if the policy makes no sense for this program,
/// [`Error::BudgetTooSmall`] naming the least budget, [`Error::Limit`] for a
/// value that the device cannot hold, [`Error::PlanCheck`] for a program that
/// breaks its rules or cannot be ordered (a state written twice, an output
/// overwritten). In debug builds every plan goes through [`check()`].
pub fn plan(program: &Program, policy: &Policy, profile: &DeviceProfile) -> Result<Plan> {
    policy.validate()?;
    if cfg!(debug_assertions) {
        program.validate()?;
    }
    let planner = Planner::new(program, profile)?;
    let plan = match candidates::fixed(program, policy)? {
        Some(decision) => planner.plan_fixed(policy, &decision),
        None => planner.plan_budget(policy),
    };
    let plan = plan.map_err(|error| match error {
        Error::Policy { detail, .. } => Error::Policy { policy: policy.to_string(), detail },
        other => other,
    })?;
    if cfg!(debug_assertions) {
        check(program, &plan, profile)?;
    }
    Ok(plan)
}

/// The state, and this share of what a plan takes besides.
fn share_of(none: &PeakBytes, share: f64) -> u64 {
    let beyond = none.total() - none.state;
    let allowed = if share >= 1.0 { beyond } else { (beyond as f64 * share).floor() as u64 };
    none.state.saturating_add(allowed)
}

struct Planner<'p> {
    facts: Facts<'p>,
    fixed: Fixed,
    /// Orders of the passes to choose from.
    orders: Vec<Vec<u32>>,
}

impl<'p> Planner<'p> {
    fn new(program: &'p Program, profile: &DeviceProfile) -> Result<Self> {
        let facts = Facts::new(program, profile)?;
        let fixed = Fixed::new(&facts, profile)?;
        let mut orders = vec![order::recorded(&facts), order::eager(&facts)];
        orders.dedup();
        Ok(Self { facts, fixed, orders })
    }

    /// Schedules a decision in the order with the lowest peak.
    fn schedule(&self, decision: &Decision) -> Result<(Schedule, Measure)> {
        let mut best: Option<(Schedule, Measure)> = None;
        for order in &self.orders {
            let trace = replay::replay(&self.facts, order, decision)?;
            let schedule = schedule::schedule(&self.facts, trace)?;
            let measure = schedule.measure(&self.facts);
            let key = |m: &Measure| (m.live_bytes, m.activation_bytes);
            if best.as_ref().is_none_or(|(_, b)| key(&measure) < key(b)) {
                best = Some((schedule, measure));
            }
        }
        best.ok_or_else(|| Error::PlanCheck { dispatch: 0, detail: "no order".to_owned() })
    }

    fn place(&self, schedule: &Schedule, measure: &Measure) -> Placed {
        self.fixed.place(&self.facts, schedule, measure.live_bytes)
    }

    fn finish(&self, scheduled: &(Schedule, Measure), placed: &Placed, policy: &Policy) -> Result<Plan> {
        let (schedule, measure) = scheduled;
        build::build(&self.facts, &self.fixed, schedule, measure, placed, policy.to_string())
    }

    fn plan_fixed(&self, policy: &Policy, decision: &Decision) -> Result<Plan> {
        let scheduled = self.schedule(decision)?;
        let placed = self.place(&scheduled.0, &scheduled.1);
        let mut plan = self.finish(&scheduled, &placed, policy)?;
        if *policy != Policy::None {
            let keeps_all = Decision::of_paths(Paths::flat(self.facts.program));
            let (_, none) = self.schedule(&keeps_all)?;
            plan.notes.extend(report::gain_note(&scheduled.1, &none));
        }
        Ok(plan)
    }

    fn plan_budget(&self, policy: &Policy) -> Result<Plan> {
        let keeps_all = Decision::of_paths(Paths::flat(self.facts.program));
        let scheduled = self.schedule(&keeps_all)?;
        let placed = self.place(&scheduled.0, &scheduled.1);
        let none = self.fixed.peak_with(placed.placement.total());
        let budget = match *policy {
            Policy::Budget(size) => size.bytes(),
            Policy::BudgetFraction(share) => share_of(&none, share),
            _ => u64::MAX,
        };
        // Nothing is cheaper than to replay nothing: the search would choose it.
        if none.total() <= budget {
            return self.finish(&scheduled, &placed, policy);
        }
        let candidates = search(&self.facts, &mut |decision| self.evaluate(decision))?;
        // The cheapest that fits; of equals the one with the smaller peak.
        for candidate in &candidates {
            if self.peak_at_least(candidate.live_bytes) > budget {
                continue;
            }
            let scheduled = self.schedule(&candidate.decision)?;
            let placed = self.place(&scheduled.0, &scheduled.1);
            if self.fixed.peak_with(placed.placement.total()).total() <= budget {
                let mut plan = self.finish(&scheduled, &placed, policy)?;
                if let Policy::BudgetFraction(_) = policy {
                    plan.notes.push(format!("the budget is {budget} bytes ({})", ByteSize::new(budget)));
                }
                return Ok(plan);
            }
        }
        Err(Error::BudgetTooSmall { budget_bytes: budget, least_budget_bytes: self.least_budget(&candidates)? })
    }

    /// A bound that no placement undercuts: blocks end at the last used byte,
    /// a little before the rounded end that live bytes count.
    fn peak_at_least(&self, live_bytes: u64) -> u64 {
        let rounding = live_bytes / 64 + 4096;
        self.fixed.peak_with(live_bytes.saturating_sub(rounding)).total()
    }

    fn least_budget(&self, candidates: &[Candidate]) -> Result<u64> {
        let mut least = u64::MAX;
        for candidate in candidates.iter().rev() {
            if self.peak_at_least(candidate.live_bytes) < least {
                let (schedule, measure) = self.schedule(&candidate.decision)?;
                let arena = self.place(&schedule, &measure).placement.total();
                least = least.min(self.fixed.peak_with(arena).total());
            }
        }
        Ok(least)
    }

    fn evaluate(&self, decision: &Decision) -> Result<Evaluated> {
        let (schedule, measure) = self.schedule(decision)?;
        Ok(Evaluated {
            live_bytes: measure.live_bytes,
            cost_ns: measure.cost_ns,
            effort: schedule.order.len() * self.orders.len(),
            saved_at_peak: self.saved_at(&schedule, measure.peak_at),
        })
    }

    /// Values made in forward, needed by no forward pass any more at `dispatch`
    /// but read later, that could be made again.
    fn saved_at(&self, schedule: &Schedule, dispatch: u32) -> Vec<StorageId> {
        let facts = &self.facts;
        let mut needed_in_forward = vec![0_u32; schedule.lives.len()];
        for at in dispatch as usize..schedule.order.len() {
            let step = schedule.step(at);
            let pass = &facts.program.passes[step.pass as usize];
            if pass.phase == Phase::Forward && !step.replay {
                let begin = step.first_operand as usize;
                for &read in &schedule.trace.reads[begin..begin + pass.operands.len()] {
                    if let Some(needed) = needed_in_forward.get_mut(read as usize) {
                        *needed = at as u32;
                    }
                }
            }
        }
        let mut saved: Vec<StorageId> = Vec::new();
        for (instance, life) in schedule.lives.iter().enumerate().skip(facts.externals.len()) {
            let storage = schedule.trace.storage[instance] as usize;
            let original = !schedule.trace.steps[schedule.trace.born[instance] as usize].replay;
            let spans = life.first < dispatch && dispatch < life.last && needed_in_forward[instance] == 0;
            if original && spans && facts.remakable(storage) && !facts.handed_back[storage] {
                saved.push(StorageId(storage as u32));
            }
        }
        saved
    }
}
