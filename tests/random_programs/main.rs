//! Random training steps under random policies and budgets, each compared with the
//! same step under policy none: bits of outputs, gradients and states, bytes,
//! replays, and what is left afterwards. A failure is shrunk to a small program.
//!
//! `REMAT_RANDOM_PROGRAMS`, `REMAT_RANDOM_SECONDS` and `REMAT_RANDOM_SEED` make longer
//! or other runs; see docs/testing.md.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/engine.rs"]
mod engine;
mod program;

use std::cell::Cell;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use remat::checkpoint::{ByteSize, Policy};
use remat::error::Error;
use remat::gpu::{Executable, Gpu};
use remat::graph::Tensor;
use remat::params::{Params, StateData};
use remat::plan::Plan;
use remat::step::RecordedStep;

use engine::{gpu, least, noise, planned, words};
use program::{NAMES, Program, ROWS, WIDTH, programs};

/// A policy, with budgets as places between the least one and none's peak.
#[derive(Debug, Clone)]
enum Choice {
    Segments,
    Every(usize),
    Sqrt,
    Revolve(usize),
    Nothing,
    Selective,
    Least,
    Kinds(&'static str),
    Only(usize),
    AllBut(usize),
    Budget(u64),
    Fraction(u8),
}

fn choices() -> impl Strategy<Value = Choice> {
    prop_oneof![
        3 => Just(Choice::Segments),
        2 => (1..4_usize).prop_map(Choice::Every),
        1 => Just(Choice::Sqrt),
        1 => (1..4_usize).prop_map(Choice::Revolve),
        1 => Just(Choice::Nothing),
        1 => Just(Choice::Selective),
        1 => Just(Choice::Least),
        1 => prop_oneof![Just("matmul"), Just("softmax"), Just("tanh")].prop_map(Choice::Kinds),
        1 => (0..2_usize).prop_map(Choice::Only),
        1 => (0..2_usize).prop_map(Choice::AllBut),
        6 => (0..=100_u64).prop_map(Choice::Budget),
        1 => (0..=100_u8).prop_map(Choice::Fraction),
    ]
}

type Recorded = RecordedStep<Vec<Tensor>>;

impl Choice {
    fn policy(&self, none: u64, least: u64) -> Policy {
        match self {
            Self::Segments => Policy::Segments,
            Self::Every(n) => Policy::Every(*n),
            Self::Sqrt => Policy::Sqrt,
            Self::Revolve(n) => Policy::Revolve(*n),
            Self::Nothing => Policy::Nothing,
            Self::Selective => Policy::Selective,
            Self::Least => Policy::LeastMemory,
            Self::Kinds(kind) => Policy::Kinds(vec![(*kind).to_owned()]),
            Self::Only(name) => Policy::Only(vec![NAMES[*name].to_owned()]),
            Self::AllBut(name) => Policy::AllBut(vec![NAMES[*name].to_owned()]),
            Self::Budget(percent) => Policy::Budget(ByteSize::new(least + none.saturating_sub(least) * percent / 100)),
            Self::Fraction(percent) => Policy::BudgetFraction(f64::from(*percent) / 100.0),
        }
    }
}

/// Everything that two runs gave: their outputs, and the states afterwards.
type Bits = (Vec<Vec<Vec<u32>>>, Vec<StateData>);

macro_rules! hold {
    ($condition:expr, $($text:tt)*) => {
        if !$condition {
            return Err(TestCaseError::fail(format!($($text)*)));
        }
    };
}

/// Runs a plan twice from `before`, so that the second step draws other masks and sees
/// the first one's states.
fn run_twice(
    gpu: &Gpu,
    step: &Recorded,
    plan: Plan,
    params: &Params,
    before: &[StateData],
) -> Result<Bits, TestCaseError> {
    let failed = |error: Error| TestCaseError::fail(error.to_string());
    params.load_all_blocking(before).map_err(failed)?;
    let distinct = plan.dispatches.iter().map(|d| d.pass).collect::<HashSet<_>>().len();
    let (peak, replays) = (plan.planned_peak_bytes(), plan.replayed_passes as usize);
    let executable = Executable::new_blocking(gpu, step.program().clone(), plan, params).map_err(failed)?;
    hold!(executable.measured_peak_bytes() == peak, "measured {}, planned {peak}", executable.measured_peak_bytes());
    let x = noise(ROWS * WIDTH, 9);
    let mut runs = Vec::new();
    for index in 0..2_u32 {
        let all = [("x", (&x).into()), ("seed", 7_u32.into()), ("step", index.into())];
        let wanted = |name: &str| step.program().inputs.iter().any(|input| input.name == name);
        let inputs: Vec<_> = all.into_iter().filter(|(name, _)| wanted(name)).collect();
        let run = executable.run_blocking(&inputs).map_err(failed)?;
        let encoded = run.dispatches as usize;
        hold!(encoded == distinct + replays, "{encoded} dispatches: {distinct} passes and {replays} replays planned");
        runs.push(run.outputs.iter().map(words).collect());
    }
    hold!(executable.measured_peak_bytes() == peak, "the peak grew to {}", executable.measured_peak_bytes());
    Ok((runs, params.read_all_blocking().map_err(failed)?))
}

/// What was covered.
#[derive(Debug, Default)]
struct Covered {
    programs: Cell<usize>,
    runs: Cell<usize>,
    passes: Cell<usize>,
    replays: Cell<usize>,
    with_replays: Cell<usize>,
}

fn add(cell: &Cell<usize>, count: usize) {
    cell.set(cell.get() + count);
}

fn check(gpu: &Gpu, program: &Program, choices: &[Choice], covered: &Covered) -> Result<(), TestCaseError> {
    let failed = |error: Error| TestCaseError::fail(error.to_string());
    let before_all = gpu.memory().total.live_bytes;
    {
        let params = Params::new(gpu, 1);
        let step = RecordedStep::new(gpu.profile(), |r| program::record(program, &params, r)).map_err(failed)?;
        params.materialize_blocking().map_err(failed)?;
        let before = params.read_all_blocking().map_err(failed)?;
        let none = planned(gpu, &step, &Policy::None).map_err(failed)?;
        let (none_peak, least_peak) = (none.planned_peak_bytes(), least(&step));
        let marked = none.replayed_passes > 0;
        add(&covered.passes, none.dispatches.len());
        let live = gpu.memory().total.live_bytes;
        let expected = run_twice(gpu, &step, none, &params, &before)?;
        for choice in choices {
            let policy = choice.policy(none_peak, least_peak);
            let plan = match planned(gpu, &step, &policy) {
                Ok(plan) => plan,
                // Nothing has that name or is of that kind, or there are no segments.
                Err(Error::Policy { .. }) => continue,
                Err(Error::BudgetTooSmall { budget_bytes, least_budget_bytes }) => {
                    hold!(matches!(policy, Policy::BudgetFraction(_)), "{policy} is no less than {least_peak}");
                    hold!(
                        budget_bytes < least_budget_bytes && least_budget_bytes == least_peak,
                        "{policy}: {budget_bytes} refused, {least_budget_bytes} named, {least_peak} is the least"
                    );
                    continue;
                }
                Err(error) => return Err(failed(error)),
            };
            if let Policy::Budget(budget) = policy {
                hold!(plan.planned_peak_bytes() <= budget.bytes(), "{policy}: takes {}", plan.planned_peak_bytes());
                hold!(
                    marked || budget.bytes() < none_peak || plan.replayed_passes == 0,
                    "{policy}: replays though all fits"
                );
            }
            add(&covered.runs, 1);
            add(&covered.replays, plan.replayed_passes as usize);
            add(&covered.with_replays, usize::from(plan.replayed_passes > 0));
            let found = run_twice(gpu, &step, plan, &params, &before)?;
            hold!(found.0 == expected.0, "{policy}: outputs or gradients differ from none's");
            hold!(found.1 == expected.1, "{policy}: states differ from none's");
            let now = gpu.memory().total.live_bytes;
            hold!(now == live, "{policy}: {now} bytes live after the step was dropped, {live} before it");
        }
    }
    let after = gpu.memory().total.live_bytes;
    hold!(after == before_all, "{after} bytes live after everything was dropped, {before_all} before");
    add(&covered.programs, 1);
    Ok(())
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}: a number")))
}

#[test]
fn every_policy_gives_the_bits_of_none_within_its_bytes() {
    let (_turn, gpu) = gpu();
    let wanted = setting("REMAT_RANDOM_PROGRAMS", 1000);
    let limit = Duration::from_secs(setting("REMAT_RANDOM_SECONDS", 300));
    let seed = setting("REMAT_RANDOM_SEED", 4);
    let (begun, covered) = (Instant::now(), Covered::default());
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let config = Config { cases: wanted as u32, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let cases = (programs(), prop::collection::vec(choices(), 3));
    let result = runner.run(&cases, |(program, choices)| {
        if begun.elapsed() >= limit {
            return Ok(());
        }
        check(&gpu, &program, &choices, &covered)
    });
    if let Err(TestError::Fail(why, (program, choices))) = result {
        panic!("{why}\n{choices:?}\n{program:#?}");
    }
    result.unwrap();
    println!(
        "seed {seed}: {} of {wanted} programs in {:.0} s, {} runs of two steps under other policies than none, \
         {} of them with replays; {} passes, {} replays",
        covered.programs.get(),
        begun.elapsed().as_secs_f64(),
        covered.runs.get(),
        covered.with_replays.get(),
        covered.passes.get(),
        covered.replays.get(),
    );
    assert!(covered.with_replays.get() * 4 > covered.runs.get(), "few plans replay: {covered:?}");
}
