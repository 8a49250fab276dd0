//! Short trainings under every policy, the same code natively and in a browser:
//! what they come to can be compared.

mod gpt;
mod mlp;

pub use gpt::{Fixture, gpt};
pub use mlp::{MLPS, MlpRun};

use remat::checkpoint::{ByteSize, Policy};
use remat::gpu::{Gpu, InputData};
use remat::graph::{Recorder, Tensor};
use remat::params::Params;
use remat::step::RecordedStep;
use remat::{Error, Result};
use serde_json::{Value, json};

/// What one policy came to.
#[derive(Debug, Clone)]
pub struct PolicyRun {
    /// The policy, as typed; of the least budget, with its bytes.
    pub policy: String,
    /// The loss of every step.
    pub losses: Vec<f32>,
    /// The gradients' fingerprint of every step.
    pub fingerprints: Vec<[u32; 4]>,
    /// A hash of every parameter and moment after the last step, by name.
    pub state: Vec<(String, u64)>,
    /// What the plan says.
    pub planned_peak_bytes: u64,
    /// What the engine counted while this was the only step alive.
    pub measured_peak_bytes: u64,
    /// Passes encoded a second time.
    pub replayed_passes: u32,
}

/// A model with its state, and the step that trains it.
pub trait Training {
    /// Makes the state, always with the same first values.
    ///
    /// # Errors
    /// What the engine says.
    fn start(&self, gpu: &Gpu) -> impl Future<Output = Result<Params>>;

    /// Records loss and fingerprint of one step on that state.
    ///
    /// # Errors
    /// What the engine says.
    fn record(&self, params: &Params, recorder: &Recorder) -> Result<(Tensor, Tensor)>;

    /// The number of steps.
    fn steps(&self) -> usize;

    /// The inputs of a step.
    fn inputs(&self, step: usize) -> Vec<(&'static str, InputData<'_>)>;
}

/// Trains from the same start under every policy, one after the other, each step alone on the device.
///
/// # Errors
/// What the engine says; [`Error::Policy`] if a budget a byte below the least is not refused.
pub async fn every_policy(gpu: &Gpu, training: &impl Training) -> Result<Vec<PolicyRun>> {
    let least = least_budget(gpu, training).await?;
    let mut runs = Vec::new();
    for policy in [Policy::None, Policy::Segments, Policy::Every(2), Policy::Sqrt, Policy::Budget(least)] {
        runs.push(one_policy(gpu, training, policy).await?);
    }
    Ok(runs)
}

async fn one_policy(gpu: &Gpu, training: &impl Training, policy: Policy) -> Result<PolicyRun> {
    let params = training.start(gpu).await?;
    let step = gpu.step(policy.clone(), |recorder| training.record(&params, recorder)).await?;
    let mut run = PolicyRun {
        policy: policy.to_string(),
        losses: Vec::new(),
        fingerprints: Vec::new(),
        state: Vec::new(),
        planned_peak_bytes: step.plan().peak.total(),
        measured_peak_bytes: step.measured_peak_bytes(),
        replayed_passes: step.plan().replayed_passes,
    };
    for index in 0..training.steps() {
        let (loss, fingerprint) = step.run(&training.inputs(index)).await?;
        run.losses.push(loss.item().await?);
        let words = fingerprint.read::<u32>().await?;
        run.fingerprints.push(words.try_into().unwrap_or_default());
    }
    run.measured_peak_bytes = run.measured_peak_bytes.max(step.measured_peak_bytes());
    for name in params.names() {
        // One at a time: all at once may be more than a page's module can hold.
        let values = params.read::<f32>(&name).await?;
        run.state.push((name, hash(&values)));
    }
    Ok(run)
}

/// Of the values' bits (64-bit FNV-1a, a word at a time).
fn hash(values: &[f32]) -> u64 {
    let mix = |hash: u64, value: &f32| (hash ^ u64::from(value.to_bits())).wrapping_mul(0x0100_0000_01b3);
    values.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// The least budget, as the refusal of a budget of nothing names it, after
/// making sure that a byte less is refused too.
async fn least_budget(gpu: &Gpu, training: &impl Training) -> Result<ByteSize> {
    let params = training.start(gpu).await?;
    let recorded = RecordedStep::new(gpu.profile(), |recorder| training.record(&params, recorder))?;
    let least_of = |budget: u64| match recorded.plan(&Policy::Budget(ByteSize::new(budget))) {
        Err(Error::BudgetTooSmall { least_budget_bytes, .. }) => Ok(least_budget_bytes),
        Err(error) => Err(error),
        Ok(_) => Err(Error::Policy { policy: format!("budget:{budget}"), detail: "it was not refused".into() }),
    };
    let least = least_of(0)?;
    if least_of(least - 1)? == least {
        return Ok(ByteSize::new(least));
    }
    Err(Error::Policy { policy: format!("budget:{least}"), detail: "the least budget depends on the budget".into() })
}

/// Compares the policies with each other, bit by bit, and their plans with what was measured.
///
/// # Errors
/// What does not agree.
pub fn agree(runs: &[PolicyRun]) -> std::result::Result<(), String> {
    let first = runs.first().ok_or("no run")?;
    for run in runs {
        let policy = &run.policy;
        if run.planned_peak_bytes != run.measured_peak_bytes {
            return Err(format!(
                "{policy}: planned peak {} bytes, measured {}",
                run.planned_peak_bytes, run.measured_peak_bytes
            ));
        }
        if let Some(budget) = policy.strip_prefix("budget:") {
            if budget.parse::<u64>().map_or(true, |budget| run.planned_peak_bytes > budget) {
                return Err(format!("{policy}: the plan takes {} bytes", run.planned_peak_bytes));
            }
        }
        let differs = run.fingerprints.iter().zip(&first.fingerprints).position(|(a, b)| a != b);
        if let Some(step) = differs {
            return Err(format!("{policy}: gradients of step {step} differ from those of {}", first.policy));
        }
        if run.fingerprints.contains(&[0; 4]) || run.fingerprints.len() != first.fingerprints.len() {
            return Err(format!("{policy}: no fingerprint"));
        }
        let bits = |losses: &[f32]| losses.iter().map(|loss| loss.to_bits()).collect::<Vec<_>>();
        if bits(&run.losses) != bits(&first.losses) {
            return Err(format!(
                "{policy}: losses {:?} are not those of {}: {:?}",
                run.losses, first.policy, first.losses
            ));
        }
        if run.state.is_empty() || run.state.len() != first.state.len() {
            return Err(format!("{policy}: {} states, {} has {}", run.state.len(), first.policy, first.state.len()));
        }
        if let Some(((name, _), _)) = run.state.iter().zip(&first.state).find(|(a, b)| a != b) {
            return Err(format!("{policy}: {name} differs after the last step from that of {}", first.policy));
        }
    }
    Ok(())
}

/// The largest relative deviation of `losses` from those expected.
///
/// # Errors
/// Their numbers differ, or it is above `tolerance`.
pub fn deviation(losses: &[f32], expected: &[f64], tolerance: f64) -> std::result::Result<f64, String> {
    if losses.len() != expected.len() {
        return Err(format!("{} losses, {} expected", losses.len(), expected.len()));
    }
    let mut worst = 0.0_f64;
    for (step, (&loss, &expected)) in losses.iter().zip(expected).enumerate() {
        let off = (f64::from(loss) - expected).abs() / expected.abs();
        // Written so that NaN is refused.
        if off.is_nan() || off > tolerance {
            return Err(format!(
                "step {step}: loss {loss}, expected {expected}: off by {off:.1e}, above {tolerance:.0e}"
            ));
        }
        worst = worst.max(off);
    }
    Ok(worst)
}

/// Figures worth printing.
#[must_use]
pub fn summary(runs: &[PolicyRun], deviation: f64) -> Value {
    let policy = |run: &PolicyRun| {
        json!({
            "policy": run.policy,
            "planned_peak_bytes": run.planned_peak_bytes,
            "measured_peak_bytes": run.measured_peak_bytes,
            "replayed_passes": run.replayed_passes,
        })
    };
    let last = runs.first().and_then(|run| run.fingerprints.last()).copied().unwrap_or_default();
    json!({
        "loss_deviation": deviation,
        "fingerprint": last.map(|word| format!("{word:08x}")).concat(),
        "policies": runs.iter().map(policy).collect::<Vec<_>>(),
    })
}
