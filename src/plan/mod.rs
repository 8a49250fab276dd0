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
mod model;
mod order;
mod place;
mod planner;
mod planning;
mod report;
mod schedule;

pub use check::check;
pub use planning::{PlanOptions, Planning};
pub use report::{LiveBytes, Report};

use crate::checkpoint::{Policy, candidates};
use crate::error::{Error, Result};
use crate::fuse::program::{PassId, Program, StorageId};
use crate::profile::DeviceProfile;
use planner::Planner;
use planning::Known;

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

/// What one plan takes and costs: a point of the curve of peak against time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ParetoPoint {
    /// `planned_peak_bytes` of the plan: a budget of as many bytes is kept.
    pub peak_bytes: u64,
    /// Estimated time of its dispatches, in nanoseconds.
    pub cost_ns: f64,
    /// How much of that replays add, in nanoseconds.
    pub replay_cost_ns: f64,
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
/// plan. [`DeviceProfile::planning`] says how hard to search; [`Planning`] searches
/// once for several budgets.
///
/// # Errors
/// [`Error::Policy`] if the policy makes no sense for this program,
/// [`Error::BudgetTooSmall`] naming the least budget, [`Error::Limit`] for a
/// value that the device cannot hold, [`Error::PlanCheck`] for a program that
/// breaks its rules or cannot be ordered (a state written twice, an output
/// overwritten). In debug builds every plan goes through [`check()`].
pub fn plan(program: &Program, policy: &Policy, profile: &DeviceProfile) -> Result<Plan> {
    plan_with(program, policy, profile, &Known::default())
}

fn plan_with(program: &Program, policy: &Policy, profile: &DeviceProfile, known: &Known) -> Result<Plan> {
    policy.validate()?;
    if cfg!(debug_assertions) {
        program.validate()?;
    }
    let planner = Planner::new(program, profile, known)?;
    let plan = match candidates::fixed(planner.facts(), policy)? {
        Some(decision) => planner.plan_fixed(policy, &decision),
        None if *policy == Policy::LeastMemory => planner.plan_least(policy),
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

/// Peak against estimated time, from keeping everything down to the least memory
/// that the planner reaches: at most `points` plans (two at least), about evenly
/// spaced in memory, the largest and fastest first. Each takes less memory than
/// the one before it and more time.
///
/// # Errors
/// As [`plan()`] under [`Policy::LeastMemory`].
pub fn pareto(program: &Program, profile: &DeviceProfile, points: usize) -> Result<Vec<ParetoPoint>> {
    Planner::new(program, profile, &Known::default())?.pareto(points)
}
