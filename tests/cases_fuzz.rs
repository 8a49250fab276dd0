//! Random recordings of random ops with random operands, mostly but not always
//! fitting, planned under random policies: each is a plan that is proved, or a
//! typed error; never a panic. Small ones run, and every policy gives the same
//! bits. Seeds are fixed; the time is bounded.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/engine.rs"]
mod engine;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use engine::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use remat::checkpoint::{ByteSize, Policy};
use remat::dtype::DType;
use remat::error::{Error, Result};
use remat::gpu::InputData;
use remat::graph::{Recorder, Tensor};
use remat::optim::{Gradients, Optimizer, Sgd, SgdConfig};
use remat::params::{Init, Params};
use remat::profile::DeviceProfile;
use remat::step::RecordedStep;

/// One thing done to a recording.
#[derive(Debug, Clone)]
struct Act {
    kind: u8,
    a: u16,
    b: u16,
    c: u16,
    /// Acts inside a segment.
    inside: Vec<Act>,
}

#[derive(Debug, Clone)]
struct Case {
    acts: Vec<Act>,
    dims: [usize; 3],
    policy: u8,
    amount: u32,
    train: bool,
}

fn act() -> impl Strategy<Value = Act> {
    let leaf = (any::<u8>(), any::<u16>(), any::<u16>(), any::<u16>()).prop_map(|(kind, a, b, c)| Act {
        kind,
        a,
        b,
        c,
        inside: Vec::new(),
    });
    leaf.clone().prop_recursive(3, 24, 6, move |inner| {
        (leaf.clone(), prop::collection::vec(inner, 0..6)).prop_map(|(act, inside)| Act { inside, ..act })
    })
}

fn case() -> impl Strategy<Value = Case> {
    let extent = || prop_oneof![8 => 1_usize..6, 1 => Just(0), 1 => 6_usize..40];
    let acts = prop::collection::vec(act(), 1..14);
    (acts, [extent(), extent(), extent()], any::<u8>(), any::<u32>(), any::<bool>())
        .prop_map(|(acts, dims, policy, amount, train)| Case { acts, dims, policy, amount, train })
}

/// The tensors so far, of every type.
struct Values {
    all: Vec<Tensor>,
    refused: usize,
    made: usize,
}

impl Values {
    fn pick(&self, index: u16) -> &Tensor {
        // Mostly recent ones.
        let back = usize::from(index % 6).min(self.all.len() - 1);
        let at = if index.is_multiple_of(5) { usize::from(index) % self.all.len() } else { self.all.len() - 1 - back };
        &self.all[at]
    }
    fn keep(&mut self, result: Result<Tensor>) {
        match result {
            Ok(tensor) => {
                self.made += 1;
                self.all.push(tensor);
            }
            Err(error) => {
                self.refused += 1;
                assert!(!error.to_string().is_empty());
                assert!(!matches!(error, Error::PlanCheck { .. } | Error::Validation { .. }), "{error}");
            }
        }
    }
}

fn perform(r: &Recorder, params: &Params, act: &Act, values: &mut Values) {
    if !act.inside.is_empty() {
        let before = values.all.clone();
        let result = r.checkpoint(before, |inside| {
            values.all = inside;
            act.inside.iter().for_each(|act| perform(r, params, act, values));
            // Now and then the closure itself fails, with its segment half recorded.
            if act.c.is_multiple_of(11) {
                Err(Error::Policy { policy: "fuzz".into(), detail: "given up".into() })
            } else {
                Ok(())
            }
        });
        assert_eq!(result.is_err(), act.c.is_multiple_of(11));
        return;
    }
    let (x, y, z) = (values.pick(act.a).clone(), values.pick(act.b).clone(), values.pick(act.c).clone());
    let axis = (act.b % 7) as isize - 3;
    let (small, number) = (usize::from(act.c % 5), f32::from(act.c) / 1000.0 - 20.0);
    let w = |shape: &[usize]| {
        let name = format!("w{shape:?}");
        params.create(&name, shape, Init::Constant(0.1)).and_then(|p| r.param(&p))
    };
    let last = x.dims().last().copied().unwrap_or(1);
    let result = match act.kind % 64 {
        0 => x.add(&y),
        1 => x.mul(&y),
        2 => x.sub(&y),
        3 => x.div(&y),
        4 => x.maximum(&y),
        5 => x.pow(&y),
        6 => x.remainder(&y),
        7 => x.matmul(&y),
        8 => x.matmul_t(&y),
        9 => w(&[1 + small, last]).and_then(|w| x.linear(&w, None)),
        10 => w(&[last, last]).and_then(|w| x.matmul(&w)),
        11 => x.tanh(),
        12 => x.exp(),
        13 => x.gelu(),
        14 => x.relu(),
        15 => x.sqrt(),
        16 => x.sin(),
        17 => x.neg(),
        18 => x.recip(),
        19 => x.softmax(axis),
        20 => x.log_softmax(axis),
        21 => w(&[last]).and_then(|w| x.layer_norm(Some(&w), None, 1e-5)),
        22 => x.sum(&[axis], act.a.is_multiple_of(2)),
        23 => x.mean(&[axis, 0], act.a.is_multiple_of(2)),
        24 => x.max(&[axis], act.a.is_multiple_of(2)),
        25 => x.var(&[axis], false, act.a.is_multiple_of(2)),
        26 => x.argmax(axis, act.a.is_multiple_of(2)),
        27 => x.sum_all(),
        28 => x.transpose(axis, -1),
        29 => x.t(),
        30 => x.flatten(0, axis),
        31 => x.unsqueeze(axis),
        32 => x.squeeze(axis),
        33 => x.narrow(axis, small, 1),
        34 => x.slice(axis, small, usize::from(act.a % 6), 1 + small % 3),
        35 => x.select(axis, small),
        36 => x.pad(&vec![(small, 1); x.rank()], number),
        37 => Tensor::cat(&[&x, &y, &z], axis),
        38 => Tensor::stack(&[&x, &x], axis),
        39 => x.split(axis, &[1, small]).map(|mut parts| parts.swap_remove(parts.len() - 1)),
        40 => x.gt(&y),
        41 => x.eq(&y),
        42 => z.where_(&x, &y),
        43 => x.masked_fill(&z, number),
        44 => x.isnan().and_then(|m| m.logical_not()),
        45 => x.to_i32(),
        46 => x.to_f32(),
        47 => x.to_bool(),
        48 => x.dropout(f32::from(act.c % 12) / 10.0),
        49 => r.rand_uniform(x.shape().clone()),
        50 => x.embedding(&y),
        51 => w(&[7, 3]).and_then(|w| w.embedding(&x)),
        52 => x.cross_entropy(&y),
        53 => x.mse_loss(&y),
        54 => x.attention(&y, &z, act.a.is_multiple_of(2)),
        55 => x.tril(i32::from(act.c) - 3),
        56 => x.reshape([usize::from(act.b % 9), small]),
        57 => x.broadcast_to([small, last, last]),
        58 => x.add_scalar(number),
        59 => x.mul_scalar(i32::from(act.c)),
        60 => x.clamp(-1.0, number),
        61 => r.iota(x.shape().clone(), small).and_then(|i| i.to_f32()),
        62 => r.gradients(&x, &[&y]).map(|mut g| g.swap_remove(0)),
        _ => x.digest().map(|d| d.named("digest")),
    };
    values.keep(result);
}

fn policy(case: &Case) -> Policy {
    match case.policy % 13 {
        0 => Policy::None,
        1 | 2 => Policy::Segments,
        3 => Policy::Every(case.amount as usize % 4),
        4 => Policy::Sqrt,
        5 => Policy::Budget(ByteSize::new(u64::from(case.amount % 100_000))),
        6 => Policy::Budget(ByteSize::new(0)),
        7 => Policy::Revolve(case.amount as usize % 4),
        8 => Policy::Selective,
        9 => Policy::Nothing,
        10 => Policy::LeastMemory,
        11 => Policy::Kinds(vec!["matmul".into()]),
        _ => Policy::BudgetFraction(f64::from(case.amount % 120) / 100.0),
    }
}

fn build(case: &Case, params: &Params, profile: &DeviceProfile) -> (Result<RecordedStep<Vec<Tensor>>>, [usize; 2]) {
    let mut counts = [0; 2];
    let step = RecordedStep::new(profile, |r| {
        let [a, b, c] = case.dims;
        let all = vec![
            r.input::<i32>("ids", [a, b])?,
            r.input::<f32>("x", [a, b, c])?,
            r.param(&params.create("p", [b, c], Init::Constant(0.3))?)?,
            r.input::<f32>("y", [a, b])?,
        ];
        let mut values = Values { all, refused: 0, made: 0 };
        case.acts.iter().for_each(|act| perform(r, params, act, &mut values));
        counts = [values.made, values.refused];
        let mut outputs = vec![values.pick(1).clone(), values.pick(2).clone()];
        let floats = values.all.iter().rev().find(|t| t.dtype() == DType::F32).unwrap();
        let loss = floats.sum_all()?;
        match Gradients::of(&loss) {
            Ok(gradients) if case.train => Sgd::new(params, SgdConfig::default())?.apply(&gradients)?,
            Ok(gradients) => outputs.extend(gradients.entries.into_iter().map(|(_, g)| g)),
            Err(error) => assert!(matches!(error, Error::NoGradient { .. }), "{error}"),
        }
        outputs.push(loss);
        Ok(outputs)
    });
    (step, counts)
}

/// Plans a case; what came of it, in a word.
fn plan_case(case: &Case) -> (&'static str, [usize; 2]) {
    let profile = DeviceProfile::default();
    let (step, counts) = build(case, &Params::offline(1), &profile);
    let step = match step {
        Ok(step) => step,
        Err(Error::Limit { .. }) => return ("limit", counts),
        Err(error) => panic!("recording: {error}"),
    };
    let what = match step.plan(&policy(case)) {
        Ok(plan) => {
            remat::plan::check(step.program(), &plan, &profile).unwrap();
            if plan.replayed_passes > 0 { "replays" } else { "plan" }
        }
        Err(Error::BudgetTooSmall { budget_bytes, least_budget_bytes }) => {
            assert!(budget_bytes < least_budget_bytes);
            let plan = step.plan(&Policy::Budget(ByteSize::new(least_budget_bytes))).unwrap();
            assert!(plan.planned_peak_bytes() <= least_budget_bytes);
            "least budget"
        }
        Err(Error::Policy { .. }) => "policy",
        Err(error) => panic!("planning: {error}"),
    };
    (what, counts)
}

fn cases(seed: u8, bound: Duration, mut each: impl FnMut(&Case)) -> usize {
    let config = Config { failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[seed; 32]));
    let (begun, strategy) = (Instant::now(), case());
    let mut count = 0;
    while begun.elapsed() < bound && count < 4000 {
        let case = strategy.new_tree(&mut runner).unwrap().current();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| each(&case))) {
            let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
            panic!("case {count}: {text}\n{case:#?}");
        }
        count += 1;
    }
    count
}

#[test]
fn random_recordings_are_planned_or_refused() {
    let mut seen = std::collections::BTreeMap::<&str, usize>::new();
    let (mut made, mut refused) = (0, 0);
    let count = cases(11, Duration::from_secs(14), |case| {
        let (what, [m, r]) = plan_case(case);
        *seen.entry(what).or_default() += 1;
        (made, refused) = (made + m, refused + r);
    });
    println!("{count} recordings, {made} ops and {refused} refusals: {seen:?}");
    assert!(
        count > 100 && made > 2 * count && refused > count / 4,
        "{count} recordings, {made} ops, {refused} refused"
    );
    for what in ["plan", "replays", "policy", "least budget"] {
        assert!(seen.contains_key(what), "nothing came to {what}: {seen:?}");
    }
}

#[test]
fn random_recordings_give_the_same_bits_under_every_policy() {
    let (_turn, gpu) = gpu();
    let (mut replayed, mut compared) = (0, 0);
    let count = cases(23, Duration::from_secs(20), |case| {
        let case = Case { train: false, ..case.clone() };
        let params = Params::new(&gpu, 1);
        let Ok(step) = build(&case, &params, gpu.profile()).0 else { return };
        let given: Vec<(String, InputData<'_>)> = step
            .program()
            .inputs
            .iter()
            .map(|input| {
                let n = input.ty.shape.element_count() as usize;
                let data = match input.ty.dtype {
                    DType::F32 => noise(n, 3).into(),
                    DType::I32 => (0..n as i32).map(|i| i % 3).collect::<Vec<_>>().into(),
                    _ => vec![5_u32; n].into(),
                };
                (input.name.clone(), data)
            })
            .collect();
        let given: Vec<_> = given.iter().map(|(n, d)| (n.as_str(), d.clone())).collect();
        let mut first: Option<Vec<Vec<u32>>> = None;
        let mut all = vec![Policy::None, Policy::Budget(ByteSize::new(least(&step)))];
        if !step.program().segments.is_empty() {
            all.push(Policy::Segments);
        }
        for policy in all {
            let plan = planned(&gpu, &step, &policy).unwrap();
            replayed += plan.replayed_passes;
            let outputs = run(&gpu, &step, plan, &params, &given).unwrap();
            let expected = first.get_or_insert_with(|| outputs.clone());
            assert!(*expected == outputs, "{policy} differs from none");
            compared += 1;
        }
    });
    println!("{count} recordings, {compared} runs, {replayed} replayed passes");
    assert!(compared > 40 && replayed > 20, "{count} recordings, {compared} runs, {replayed} replayed passes");
}
