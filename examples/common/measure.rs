//! One step under several policies: peak, time, fingerprint.

use std::time::Instant;

use remat::checkpoint::Policy;
use remat::gpu::{Gpu, InputData, Output};
use remat::graph::{Recorder, Tensor};
use remat::step::Step;
use serde::Serialize;

use super::{Outcome, median, megabytes};

/// A step that hands back its loss and its gradients' fingerprint.
pub(crate) type TrainStep = Step<(Tensor, Tensor)>;

/// One line of `--json`.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Line {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub workload: String,
    pub policy: String,
    pub planned_peak_bytes: u64,
    pub measured_peak_bytes: u64,
    pub state_bytes: u64,
    pub activation_peak_bytes: u64,
    pub passes: usize,
    pub replayed_passes: u32,
    pub step_ms_median: f64,
    pub first_step_ms: f64,
    pub losses: Vec<f32>,
    pub gradient_fingerprint: String,
}

/// The line of a budget that cannot be kept.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Refusal {
    pub policy: String,
    pub refused: bool,
    pub least_budget_bytes: u64,
    pub budget_bytes: u64,
}

/// What became of one policy.
#[derive(Debug, Clone)]
pub(crate) enum Measured {
    Kept(Line),
    Refused(Refusal),
}

impl Line {
    /// The part that the plan says.
    pub(crate) fn of_plan(policy: &Policy, step: &TrainStep) -> Self {
        let plan = step.plan();
        Self {
            workload: String::new(),
            policy: policy.to_string(),
            planned_peak_bytes: plan.peak.total(),
            measured_peak_bytes: step.measured_peak_bytes(),
            state_bytes: plan.peak.state,
            activation_peak_bytes: plan.activation_peak_bytes,
            passes: plan.dispatches.len(),
            replayed_passes: plan.replayed_passes,
            step_ms_median: 0.0,
            first_step_ms: 0.0,
            losses: Vec::new(),
            gradient_fingerprint: String::new(),
        }
    }
}

/// Reads a fingerprint as 32 hexadecimal digits.
pub(crate) async fn fingerprint_text(output: &Output) -> Outcome<String> {
    let words = output.read::<u32>().await?;
    Ok(words.iter().map(|w| format!("{w:08x}")).collect())
}

/// Inputs of step number `index`; `lr` 0 leaves the parameters as they are.
pub(crate) type Inputs<'a> = dyn Fn(u32, f32) -> Vec<(&'static str, InputData<'a>)> + 'a;

/// Measures a step under each policy: first each alone (peak as the engine
/// counts it, first step, fingerprint, all at learning rate 0 so that every
/// policy sees the same parameters), then all in turn, interleaved, training on
/// one shared state.
pub(crate) async fn compare(
    gpu: &Gpu,
    policies: &[Policy],
    steps: u32,
    lr: f32,
    inputs: &Inputs<'_>,
    record: &dyn Fn(&Recorder) -> remat::Result<(Tensor, Tensor)>,
) -> Outcome<Vec<Measured>> {
    let mut results = Vec::new();
    for policy in policies {
        results.push(alone(gpu, policy, inputs, record).await?);
    }
    let mut running: Vec<(usize, TrainStep, Vec<f64>)> = Vec::new();
    for (index, policy) in policies.iter().enumerate() {
        if matches!(results[index], Measured::Kept(_)) {
            running.push((index, gpu.step(policy.clone(), record).await?, Vec::new()));
        }
    }
    for round in 0..steps {
        for (index, step, times) in &mut running {
            let start = Instant::now();
            let (loss, _) = step.run(&inputs(round, lr)).await?;
            let loss = loss.item::<f32>().await?;
            // The first round warms caches up.
            if round > 0 || steps == 1 {
                times.push(start.elapsed().as_secs_f64() * 1e3);
            }
            if let Measured::Kept(line) = &mut results[*index] {
                line.losses.push(loss);
            }
        }
    }
    for (index, _, times) in &running {
        if let Measured::Kept(line) = &mut results[*index] {
            line.step_ms_median = median(times);
        }
    }
    Ok(results)
}

/// One policy, the only step alive.
async fn alone(
    gpu: &Gpu,
    policy: &Policy,
    inputs: &Inputs<'_>,
    record: &dyn Fn(&Recorder) -> remat::Result<(Tensor, Tensor)>,
) -> Outcome<Measured> {
    let start = Instant::now();
    let step = match gpu.step(policy.clone(), record).await {
        Ok(step) => step,
        Err(remat::Error::BudgetTooSmall { budget_bytes, least_budget_bytes }) => {
            return Ok(Measured::Refused(Refusal {
                policy: policy.to_string(),
                refused: true,
                least_budget_bytes,
                budget_bytes,
            }));
        }
        Err(error) => return Err(error.into()),
    };
    let (loss, fingerprint) = step.run(&inputs(0, 0.0)).await?;
    loss.item::<f32>().await?;
    let first_step_ms = start.elapsed().as_secs_f64() * 1e3;
    let mut line = Line::of_plan(policy, &step);
    line.first_step_ms = first_step_ms;
    line.gradient_fingerprint = fingerprint_text(&fingerprint).await?;
    Ok(Measured::Kept(line))
}

/// Prints the results as lines of JSON or as a table.
pub(crate) fn print(results: &[Measured], json: bool) -> Outcome<()> {
    if json {
        for result in results {
            match result {
                Measured::Kept(line) => println!("{}", serde_json::to_string(line)?),
                Measured::Refused(refusal) => println!("{}", serde_json::to_string(refusal)?),
            }
        }
        return Ok(());
    }
    println!(
        "{:<14} {:>13} {:>13} {:>13} {:>9} {:>9} {:>8}  fingerprint of the gradients",
        "policy", "planned peak", "measured", "activations", "step", "passes", "replays"
    );
    for result in results {
        match result {
            Measured::Kept(l) => println!(
                "{:<14} {:>13} {:>13} {:>13} {:>6.0} ms {:>9} {:>8}  {}",
                l.policy,
                megabytes(l.planned_peak_bytes),
                megabytes(l.measured_peak_bytes),
                megabytes(l.activation_peak_bytes),
                l.step_ms_median,
                l.passes,
                l.replayed_passes,
                l.gradient_fingerprint
            ),
            Measured::Refused(r) => println!(
                "{:<14} refused: {} bytes cannot be kept, the least budget is {} bytes",
                r.policy, r.budget_bytes, r.least_budget_bytes
            ),
        }
    }
    Ok(())
}
