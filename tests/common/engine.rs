//! Recordings run by the real engine under every policy, compared bit by bit.
#![allow(
    clippy::allow_attributes,
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "shared by several tests, none of which uses all of it"
)]

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use remat::checkpoint::{ByteSize, Policy};
use remat::dtype::DType;
use remat::error::{Error, Result};
use remat::gpu::{Executable, Gpu, InputData, Output};
use remat::graph::{Recorder, Tensor};
use remat::params::{Init, Params};
use remat::plan::Plan;
use remat::step::RecordedStep;

pub type Inputs<'a> = [(&'a str, InputData<'a>)];

/// One device per process, one test at a time on it.
pub fn gpu() -> (MutexGuard<'static, ()>, Gpu) {
    static TURN: Mutex<()> = Mutex::new(());
    static GPU: OnceLock<Gpu> = OnceLock::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    (turn, GPU.get_or_init(|| Gpu::test_builder().build_blocking().unwrap()).clone())
}

/// The words of a value that a run handed back, whatever its type.
pub fn words(output: &Output) -> Vec<u32> {
    match output.ty().dtype {
        DType::F32 => output.read_blocking::<f32>().unwrap().into_iter().map(f32::to_bits).collect(),
        DType::I32 => output.read_blocking::<i32>().unwrap().into_iter().map(|v| v as u32).collect(),
        _ => output.read_blocking::<u32>().unwrap(),
    }
}

pub fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|&w| f32::from_bits(w)).collect()
}

pub fn record(gpu: &Gpu, body: impl FnOnce(&Recorder) -> Result<Vec<Tensor>>) -> RecordedStep<Vec<Tensor>> {
    RecordedStep::new(gpu.profile(), body).unwrap()
}

/// A plan that was proved, also where debug assertions are off.
pub fn planned(gpu: &Gpu, step: &RecordedStep<Vec<Tensor>>, policy: &Policy) -> Result<Plan> {
    let plan = step.plan(policy)?;
    remat::plan::check(step.program(), &plan, gpu.profile())?;
    Ok(plan)
}

/// The least budget of a recording, as the refusal of a budget of nothing names it.
pub fn least(step: &RecordedStep<Vec<Tensor>>) -> u64 {
    match step.plan(&Policy::Budget(ByteSize::new(0))) {
        Err(Error::BudgetTooSmall { least_budget_bytes, .. }) => least_budget_bytes,
        other => panic!("a budget of nothing: {other:?}"),
    }
}

/// Every policy that fits a recording with segments.
pub fn policies(step: &RecordedStep<Vec<Tensor>>) -> Vec<Policy> {
    let mut all = vec![Policy::None];
    if !step.program().segments.is_empty() {
        all.extend([Policy::Segments, Policy::Every(1), Policy::Every(2), Policy::Every(3), Policy::Sqrt]);
    }
    all.push(Policy::Budget(ByteSize::new(least(step))));
    all
}

/// What one recording gave under all policies.
#[derive(Debug)]
pub struct Ran {
    /// Words of each output, the same under every policy.
    pub outputs: Vec<Vec<u32>>,
    /// Policy and plan, policy none first, least budget last.
    pub plans: Vec<(Policy, Plan)>,
}

impl Ran {
    pub fn floats(&self, output: usize) -> Vec<f32> {
        floats(&self.outputs[output])
    }
    pub fn plan(&self, policy: Policy) -> &Plan {
        &self.plans.iter().find(|(p, _)| *p == policy).unwrap().1
    }
}

/// Runs a plan once; the words of its outputs.
pub fn run(
    gpu: &Gpu,
    step: &RecordedStep<Vec<Tensor>>,
    plan: Plan,
    params: &Params,
    inputs: &Inputs<'_>,
) -> Result<Vec<Vec<u32>>> {
    let planned = plan.planned_peak_bytes();
    let step = Executable::new_blocking(gpu, step.program().clone(), plan, params)?;
    let out = step.run_blocking(inputs)?;
    assert_eq!(step.measured_peak_bytes(), planned);
    Ok(out.outputs.iter().map(words).collect())
}

/// Runs a recording under every policy from the same state: outputs and the
/// state afterwards are the same bits under each.
pub fn run_all(gpu: &Gpu, params: &Params, step: &RecordedStep<Vec<Tensor>>, inputs: &Inputs<'_>) -> Ran {
    let before = params.read_all_blocking().unwrap();
    let mut first: Option<(Vec<Vec<u32>>, _)> = None;
    let mut plans = Vec::new();
    for policy in policies(step) {
        params.load_all_blocking(&before).unwrap();
        let plan = planned(gpu, step, &policy).unwrap();
        plans.push((policy.clone(), plan.clone()));
        let outputs = run(gpu, step, plan, params, inputs).unwrap();
        let after = params.read_all_blocking().unwrap();
        match &first {
            None => first = Some((outputs, after)),
            Some((expected, state)) => {
                assert_eq!(expected.len(), outputs.len());
                for (i, (a, b)) in expected.iter().zip(&outputs).enumerate() {
                    assert!(a == b, "output {i} differs between none and {policy}");
                }
                assert!(*state == after, "the state differs between none and {policy}");
            }
        }
    }
    params.load_all_blocking(&before).unwrap();
    Ran { outputs: first.unwrap().0, plans }
}

/// Numbers in -1..1 that look random, the same in every run.
pub fn noise(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    for _ in 0..4 {
        next();
    }
    (0..count).map(|_| next()).collect()
}

pub fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&v| f64::from(v)).collect()
}

/// A parameter for a test: its name, shape and the seed of its values.
pub type Weight<'a> = (&'a str, &'a [usize]);

/// Parameters with noise in them, and their values.
pub fn weights(gpu: &Gpu, list: &[Weight<'_>]) -> (Params, Vec<Vec<f64>>) {
    let params = Params::new(gpu, 1);
    let mut values = Vec::new();
    for (i, (name, shape)) in list.iter().enumerate() {
        let data = noise(shape.iter().product(), 100 + i as u32);
        values.push(wide(&data));
        params.create(name, *shape, Init::from(data)).unwrap();
    }
    (params, values)
}

/// |found - expected| <= tolerance * (|expected| + the largest |expected|).
pub fn assert_close(found: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: length");
    let largest = expected.iter().fold(1e-3_f64, |m, v| m.max(v.abs()));
    for (i, (&f, &e)) in found.iter().zip(expected).enumerate() {
        let fits = (f64::from(f) - e).abs() <= tolerance * (e.abs() + largest);
        assert!(fits, "{what}: element {i} is {f}, expected {e} (largest {largest})");
    }
}

/// The gradient of a plain function of several arrays by central differences.
pub fn differences(at: &[Vec<f64>], mut f: impl FnMut(&[Vec<f64>]) -> f64) -> Vec<Vec<f64>> {
    let step = 1e-5;
    let mut x = at.to_vec();
    let mut all = Vec::new();
    for array in 0..x.len() {
        let mut gradient = Vec::new();
        for i in 0..x[array].len() {
            let here = at[array][i];
            x[array][i] = here + step;
            let up = f(&x);
            x[array][i] = here - step;
            let down = f(&x);
            x[array][i] = here;
            gradient.push((up - down) / (2.0 * step));
        }
        all.push(gradient);
    }
    all
}

/// `x W^T + b` for `x [.., inputs]`, `w [outputs, inputs]`.
pub fn linear(x: &[f64], w: &[f64], b: &[f64], inputs: usize) -> Vec<f64> {
    let rows = x.chunks(inputs);
    rows.flat_map(|row| {
        let dot = |r: &[f64]| row.iter().zip(r).map(|(a, b)| a * b).sum::<f64>();
        w.chunks(inputs).enumerate().map(|(o, r)| dot(r) + b.get(o).copied().unwrap_or(0.0)).collect::<Vec<_>>()
    })
    .collect()
}

pub fn tanh(x: &[f64]) -> Vec<f64> {
    x.iter().map(|v| v.tanh()).collect()
}

pub fn add(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

pub fn mean_square(x: &[f64]) -> f64 {
    x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64
}
