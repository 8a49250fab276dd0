//! Verified runs: replays are compared on the device with what was made first.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "common/engine.rs"]
mod engine;

use common::models::policies;
use remat::checkpoint::Policy;
use remat::error::{Error, Result};
use remat::gpu::{Executable, Gpu};
use remat::graph::{Recorder, Tensor};
use remat::inputs;
use remat::nn::{Gpt, GptConfig, Module};
use remat::optim::{AdamW, AdamWConfig, Optimizer};
use remat::params::{Init, Params};
use remat::plan::Space;
use remat::step::RecordedStep;

const IDS: [usize; 2] = [2, 16];

fn gpt(params: &Params, g: &Recorder) -> Result<Tensor> {
    let config = GptConfig { dropout: 0.2, ..GptConfig::new(29, IDS[1], 32, 2, 3) };
    let model = Gpt::new(params, &config)?;
    let (ids, targets) = (g.input::<i32>("ids", IDS)?, g.input::<i32>("targets", IDS)?);
    let logits = model.forward(&ids)?.reshape([IDS[0] * IDS[1], 29])?;
    let loss = logits.cross_entropy(&targets.reshape([IDS[0] * IDS[1]])?)?;
    AdamW::new(params, AdamWConfig::default())?.minimize(&loss)?;
    Ok(loss)
}

#[test]
fn every_replay_of_a_transformer_with_dropout_makes_the_same_bits() {
    let (_turn, gpu) = engine::gpu();
    let recorded = RecordedStep::new(gpu.profile(), |g| gpt(&Params::offline(0), g)).unwrap();
    let ids: Vec<i32> = (0..32).map(|i| i * 7 % 29).collect();
    let targets: Vec<i32> = (0..32).map(|i| (i * 5 + 3) % 29).collect();
    let mut losses: Option<Vec<f32>> = None;
    for policy in policies(&recorded) {
        let params = Params::new(&gpu, 0);
        let step = gpu.step_blocking(policy.clone(), |g| gpt(&params, g)).unwrap();
        let before = gpu.memory();
        let mut found = Vec::new();
        // A verified run between two others is a training step as they are.
        for index in 0..3_u32 {
            let inputs =
                inputs! { "ids" => &ids, "targets" => &targets, "lr" => 1e-2_f32, "step" => index, "seed" => 5_u32 };
            let loss = if index == 1 {
                let (loss, verified) = pollster::block_on(step.verify(inputs)).unwrap();
                let plan = step.plan();
                assert_eq!(verified.replayed_passes, plan.replayed_passes, "{policy}");
                assert_eq!(verified.values > 0, plan.replayed_passes > 0, "{policy}");
                assert!(verified.bytes >= 4 * u64::from(verified.values), "{policy}");
                println!("{policy}: {verified:?}");
                loss
            } else {
                step.run_blocking(inputs).unwrap()
            };
            found.push(loss.item_blocking::<f32>().unwrap());
        }
        assert_eq!(gpu.memory().total.live_bytes, before.total.live_bytes, "{policy}: the copies are gone");
        assert_eq!(losses.get_or_insert_with(|| found.clone()), &found, "{policy}");
    }
}

/// `y = gelu(x w0) w1` in a segment, and its gradients.
fn two_products(params: &Params, g: &Recorder) -> Result<Vec<Tensor>> {
    let x = g.input::<f32>("x", [8, 16])?;
    let init = || Init::Normal { mean: 0.0, std: 0.5 };
    let w0 = g.param(&params.create("w0", [16, 16], init())?)?;
    let w1 = g.param(&params.create("w1", [16, 16], init())?)?;
    let y = g.checkpoint(x, |x| x.matmul(&w0)?.gelu()?.matmul(&w1))?;
    let loss = y.sqr()?.sum_all()?;
    g.gradients(&loss, &[&w0, &w1])
}

/// The step whose replayed product is given the wrong weight.
fn with_a_fault(gpu: &Gpu, params: &Params) -> (Executable, usize, String) {
    let recorded = RecordedStep::new(gpu.profile(), |g| two_products(params, g)).unwrap();
    let mut plan = recorded.plan(&Policy::Segments).unwrap();
    let program = recorded.program().clone();
    let weight = |state: u32| plan.instances.iter().position(|i| i.location.space == Space::State(state)).unwrap();
    let (right, wrong) = (weight(0), weight(1));
    let at = plan.dispatches.iter().position(|d| d.replay && d.instances.iter().any(|i| i.0 as usize == right));
    let at = at.expect("the first product is replayed");
    for instance in &mut plan.dispatches[at].instances {
        if instance.0 as usize == right {
            instance.0 = wrong as u32;
        }
    }
    let pass = program.pass(plan.dispatches[at].pass).name.clone();
    (Executable::new_blocking(gpu, program, plan, params).unwrap(), at, pass)
}

#[test]
fn a_fault_in_a_second_run_is_named_and_the_engine_goes_on() {
    let (_turn, gpu) = engine::gpu();
    let params = Params::new(&gpu, 1);
    let (step, at, expected) = with_a_fault(&gpu, &params);
    let x: Vec<f32> = (0..128).map(|i| (i as f32 * 0.37).sin()).collect();
    let error = step.verify_blocking(&[("x", (&x).into())]).unwrap_err();
    let text = error.to_string();
    let Error::ReplayDiffers { dispatch, pass, words, first_word, .. } = error else { panic!("{error}") };
    assert_eq!((dispatch, &pass), (at, &expected));
    assert!(words > 0 && first_word < 128 && words <= 128, "{text}");
    assert!(text.contains(&expected) && text.contains("replayed"), "{text}");
    // Without the fault all is well, on the same device and state.
    let whole = gpu.step_blocking(Policy::Segments, |g| two_products(&params, g)).unwrap();
    let (_, verified) = pollster::block_on(whole.verify(inputs! { "x" => &x })).unwrap();
    assert!(verified.values > 0);
}

#[test]
fn what_is_wrong_with_the_inputs_is_told_first() {
    let (_turn, gpu) = engine::gpu();
    let params = Params::new(&gpu, 1);
    let step = gpu.step_blocking(Policy::Segments, |g| two_products(&params, g)).unwrap();
    let missing = pollster::block_on(step.verify(inputs! {})).unwrap_err();
    assert!(matches!(missing, Error::MissingInput { .. }), "{missing}");
}
