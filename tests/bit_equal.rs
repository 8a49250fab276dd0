//! The same bits under every policy, with dropout.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeSet;

use common::models::{Net, policies, shared_gpu};
use remat::checkpoint::Policy;
use remat::gpu::Gpu;
use remat::nn::GptConfig;
use remat::optim::{AdamW, AdamWConfig};
use remat::params::{Params, StateData};
use remat::step::{RecordedStep, Step};

const DROPOUT: f32 = 0.1;

#[derive(Clone, Copy, Debug)]
enum Kind {
    Mlp,
    Gpt,
}

impl Kind {
    fn net(self, params: &Params) -> Net {
        match self {
            Self::Mlp => Net::mlp(params, [24, 96, 5, 96], DROPOUT),
            Self::Gpt => {
                let config = GptConfig { dropout: DROPOUT, ..GptConfig::new(19, 12, 16, 2, 5) };
                Net::gpt(params, &config, 3)
            }
        }
    }
}

/// State, model and optimiser; the same for the same seed.
fn model(gpu: &Gpu, kind: Kind, seed: u64) -> (Params, Net, AdamW) {
    let params = Params::new(gpu, seed);
    let net = kind.net(&params);
    let optimizer = AdamW::new(&params, AdamWConfig::default()).unwrap();
    (params, net, optimizer)
}

/// Every policy; those that replay do so in this recording.
fn all_policies(gpu: &Gpu, kind: Kind, show: bool) -> Vec<Policy> {
    let params = Params::offline(0);
    let net = kind.net(&params);
    let optimizer = AdamW::new(&params, AdamWConfig::default()).unwrap();
    let profile = gpu.profile();
    let replayed = |plan: remat::Result<remat::plan::Plan>| plan.unwrap().replayed_passes;
    let (all, counts): (Vec<Policy>, Vec<u32>) = if show {
        let recorded = RecordedStep::new(profile, |g| net.train_and_show(g, &optimizer)).unwrap();
        policies(&recorded).into_iter().map(|p| (p.clone(), replayed(recorded.plan(&p)))).unzip()
    } else {
        let recorded = RecordedStep::new(profile, |g| net.train(g, &optimizer)).unwrap();
        policies(&recorded).into_iter().map(|p| (p.clone(), replayed(recorded.plan(&p)))).unzip()
    };
    for (policy, replayed) in all.iter().zip(&counts) {
        // A budget replays only where that lowers the peak.
        let by_region = matches!(policy, Policy::Segments | Policy::Every(_) | Policy::Sqrt);
        assert!(*replayed > 0 || !by_region, "{kind:?} under {policy} replays nothing");
        assert!(*replayed == 0 || *policy != Policy::None, "{kind:?} replays {replayed} passes under none");
    }
    println!("{kind:?}: replayed passes {counts:?}");
    all
}

fn run<O: remat::graph::TensorTree>(
    step: &Step<O>,
    net: &Net,
    index: u32,
    lr: f32,
    seed: u32,
) -> O::With<remat::gpu::Output> {
    let [x, y] = net.batch(index);
    step.run_blocking(&[x, y, ("lr", lr.into()), ("step", index.into()), ("seed", seed.into())]).unwrap()
}

fn fingerprints(kind: Kind) {
    let (_turn, gpu) = shared_gpu();
    let policies = all_policies(&gpu, kind, false);
    let mut seen = BTreeSet::new();
    for model_seed in [1, 2] {
        let (_params, net, optimizer) = model(&gpu, kind, model_seed);
        // Learning rate 0: every run sees the same parameters.
        let steps: Vec<_> = policies
            .iter()
            .map(|policy| gpu.step_blocking(policy.clone(), |g| net.train(g, &optimizer)).unwrap())
            .collect();
        let mut losses = BTreeSet::new();
        for seed in [0, 1, 77] {
            let results: Vec<(u32, Vec<u32>)> = steps
                .iter()
                .map(|step| {
                    let (loss, fingerprint) = run(step, &net, 0, 0.0, seed);
                    let loss = loss.item_blocking::<f32>().unwrap();
                    assert!(loss.is_finite());
                    (loss.to_bits(), fingerprint.read_blocking::<u32>().unwrap())
                })
                .collect();
            for (policy, result) in policies.iter().zip(&results) {
                assert_eq!(*result, results[0], "{kind:?}, seed {seed}: {policy} differs from none");
            }
            println!("{kind:?}, model {model_seed}, seed {seed}: {:08x?}", results[0].1);
            losses.insert(results[0].0);
            seen.insert(results[0].1.clone());
        }
        assert_eq!(losses.len(), 3, "the loss depends on the seed: dropout is on");
    }
    assert_eq!(seen.len(), 6, "every seed has gradients of its own");
}

#[test]
fn mlp_fingerprints_are_equal_under_every_policy() {
    fingerprints(Kind::Mlp);
}

#[test]
fn gpt_fingerprints_are_equal_under_every_policy() {
    fingerprints(Kind::Gpt);
}

/// Each parameter's gradient itself, not its digest.
fn gradients(kind: Kind) {
    let (_turn, gpu) = shared_gpu();
    let mut first: Option<Vec<Vec<u32>>> = None;
    for policy in all_policies(&gpu, kind, true) {
        let (params, net, optimizer) = model(&gpu, kind, 3);
        let names = params.names();
        let step = gpu.step_blocking(policy.clone(), |g| net.train_and_show(g, &optimizer)).unwrap();
        let (_, _, gradients) = run(&step, &net, 4, 1e-3, 5);
        let bits: Vec<Vec<u32>> =
            gradients.iter().map(|g| g.read_blocking::<f32>().unwrap().iter().map(|v| v.to_bits()).collect()).collect();
        assert_eq!(bits.len(), names.len(), "a gradient for every parameter");
        for (name, bits) in names.iter().zip(&bits) {
            let values = bits.iter().map(|b| f32::from_bits(*b));
            assert!(values.clone().all(f32::is_finite), "{policy}: the gradient of {name} is finite");
            assert!(values.clone().any(|v| v != 0.0), "{policy}: the gradient of {name} is not all zero");
        }
        let expected = first.get_or_insert_with(|| bits.clone());
        for ((name, found), expected) in names.iter().zip(&bits).zip(expected.iter()) {
            assert_eq!(found, expected, "{kind:?} under {policy}: the gradient of {name} differs from none's");
        }
    }
    println!("{kind:?}: {} gradients are equal to the bit", first.unwrap().len());
}

#[test]
fn mlp_gradients_are_equal_under_every_policy() {
    gradients(Kind::Mlp);
}

#[test]
fn gpt_gradients_are_equal_under_every_policy() {
    gradients(Kind::Gpt);
}

/// Parameters and moments after 50 steps.
fn fifty_steps(kind: Kind) {
    let (_turn, gpu) = shared_gpu();
    let mut first: Option<(Vec<u32>, Vec<StateData>)> = None;
    for policy in all_policies(&gpu, kind, false) {
        let (params, net, optimizer) = model(&gpu, kind, 11);
        let initial = params.read_all_blocking().unwrap();
        let step = gpu.step_blocking(policy.clone(), |g| net.train(g, &optimizer)).unwrap();
        let losses: Vec<u32> = (0..50)
            .map(|index| {
                let (loss, _) = run(&step, &net, index, 3e-3, 13);
                loss.item_blocking::<f32>().unwrap().to_bits()
            })
            .collect();
        let states = params.read_all_blocking().unwrap();
        assert_eq!(states.len(), 3 * initial.len(), "two moments for each parameter");
        for state in &states {
            let values = state.values::<f32>().unwrap();
            assert!(values.iter().all(|v| v.is_finite()), "{policy}: {} is finite", state.name);
            let before = initial.iter().find(|s| s.name == state.name);
            let moved = before.map_or_else(|| values.iter().any(|v| *v != 0.0), |before| before.bytes != state.bytes);
            assert!(moved, "{policy}: {} has not moved in 50 steps", state.name);
        }
        let (expected_losses, expected) = first.get_or_insert_with(|| (losses.clone(), states.clone()));
        assert_eq!(losses, *expected_losses, "{kind:?} under {policy}: losses differ from none's");
        for (found, expected) in states.iter().zip(expected.iter()) {
            assert_eq!(found.name, expected.name);
            assert!(found.bytes == expected.bytes, "{kind:?} under {policy}: {} differs from none's", found.name);
        }
    }
    let (losses, states) = first.unwrap();
    let loss = |i: usize| f32::from_bits(losses[i]);
    println!("{kind:?}: {} states equal to the bit after 50 steps, loss {} to {}", states.len(), loss(0), loss(49));
}

#[test]
fn mlp_states_are_equal_after_fifty_steps() {
    fifty_steps(Kind::Mlp);
}

#[test]
fn gpt_states_are_equal_after_fifty_steps() {
    fifty_steps(Kind::Gpt);
}
