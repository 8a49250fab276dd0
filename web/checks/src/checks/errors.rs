//! What is refused is refused with a typed error, and the engine goes on.

use remat::Error;
use remat::checkpoint::{ByteSize, Policy};
use remat::gpu::{Gpu, Inject};
use remat::graph::{Recorder, Tensor};
use remat::inputs;
use remat::nn::Mlp;
use remat::optim::{AdamW, AdamWConfig, Optimizer};
use remat::params::Params;
use remat::step::Step;
use serde_json::json;

use super::{Outcome, text};

const SHAPE: [usize; 2] = [8, 32];

fn record(params: &Params, recorder: &Recorder) -> remat::Result<Tensor> {
    let x = recorder.input::<f32>("x", SHAPE)?;
    let loss = Mlp::new(params, SHAPE[1], 64, 2)?.forward_checkpointed(&x)?.mse_loss(&recorder.zeros(SHAPE)?)?;
    AdamW::new(params, AdamWConfig::default())?.minimize(&loss)?;
    Ok(loss)
}

async fn step(gpu: &Gpu, params: &Params, policy: Policy) -> remat::Result<Step<Tensor>> {
    gpu.step(policy, |recorder| record(params, recorder)).await
}

async fn run(step: &Step<Tensor>, index: u32) -> remat::Result<f32> {
    let x = vec![0.5_f32; SHAPE[0] * SHAPE[1]];
    step.run(inputs! { "x" => &x, "lr" => 1e-3_f32, "step" => index }).await?.item().await
}

/// The error of a result that should be one, if it is of the kind meant.
fn refused<T>(what: &str, result: remat::Result<T>, meant: impl Fn(&Error) -> bool) -> Result<String, String> {
    match result {
        Ok(_) => Err(format!("{what}: it was not refused")),
        Err(error) if meant(&error) => Ok(error.to_string()),
        Err(error) => Err(format!("{what}: refused with {error:?}")),
    }
}

/// Wrong inputs: unknown, missing, of the wrong length or type; shapes that do not fit.
pub(super) async fn wrong_inputs() -> Outcome {
    let gpu = Gpu::for_tests().await.map_err(text)?;
    let params = Params::new(&gpu, 1);
    let step = step(&gpu, &params, Policy::None).await.map_err(text)?;
    let (x, short, whole) = (vec![0.5_f32; 256], vec![0.5_f32; 255], vec![1_i32; 256]);
    let (lr, count) = (1e-3_f32, 0_u32);
    let mut said = Vec::new();
    let unknown = step.run(inputs! { "y" => &x, "lr" => lr, "step" => count }).await;
    said.push(refused("unknown", unknown, |error| matches!(error, Error::UnknownInput { name, .. } if name == "y"))?);
    let missing = step.run(inputs! { "x" => &x, "lr" => lr }).await;
    said.push(refused(
        "missing",
        missing,
        |error| matches!(error, Error::MissingInput { name, .. } if name == "step"),
    )?);
    let is_data = |error: &Error| matches!(error, Error::Data { name, .. } if name == "x");
    let length = step.run(inputs! { "x" => &short, "lr" => lr, "step" => count }).await;
    said.push(refused("length", length, is_data)?);
    let kind = step.run(inputs! { "x" => &whole, "lr" => lr, "step" => count }).await;
    said.push(refused("type", kind, is_data)?);
    let shapes = gpu.step(Policy::None, |recorder| {
        let (a, b) = (recorder.input::<f32>("a", [2, 3])?, recorder.input::<f32>("b", [4, 5])?);
        a.matmul(&b)
    });
    said.push(refused("shapes", shapes.await, |error| matches!(error, Error::Shape { .. }))?);
    let unknown = params.read::<f32>("blocks.0.0.wieght").await;
    said.push(refused("state", unknown, |error| matches!(error, Error::UnknownState { .. }))?);
    run(&step, 0).await.map_err(text)?;
    Ok(json!(said))
}

/// A budget that cannot be kept is refused before anything is allocated, and
/// the least budget that the refusal names can be.
pub(super) async fn budget() -> Outcome {
    let gpu = Gpu::for_tests().await.map_err(text)?;
    let params = Params::new(&gpu, 1);
    let before = gpu.memory();
    let small = step(&gpu, &params, Policy::Budget(ByteSize::new(1000))).await;
    let least = match small {
        Err(Error::BudgetTooSmall { budget_bytes: 1000, least_budget_bytes }) => least_budget_bytes,
        other => return Err(format!("a budget of 1000 bytes: {:?}", other.err())),
    };
    if gpu.memory() != before {
        return Err("something was allocated for a step that was refused".into());
    }
    let below = step(&gpu, &params, Policy::Budget(ByteSize::new(least - 1))).await;
    refused("a byte less", below, |error| matches!(error, Error::BudgetTooSmall { .. }))?;
    let kept = step(&gpu, &params, Policy::Budget(ByteSize::new(least))).await.map_err(text)?;
    run(&kept, 0).await.map_err(text)?;
    if kept.measured_peak_bytes() > least {
        return Err(format!("a budget of {least} bytes, and {} measured", kept.measured_peak_bytes()));
    }
    Ok(json!({ "least_budget_bytes": least, "measured_peak_bytes": kept.measured_peak_bytes() }))
}

/// Every allocation of a step is refused in turn: a typed error, nothing kept,
/// and the next attempt works.
pub(super) async fn allocation() -> Outcome {
    let gpu = Gpu::for_tests().await.map_err(text)?;
    let mut refusals = 0;
    loop {
        let params = Params::new(&gpu, 1);
        gpu.inject(Inject::AllocationFailure(refusals + 1));
        let tried = match step(&gpu, &params, Policy::Segments).await {
            Ok(step) => run(&step, 0).await,
            Err(error) => Err(error),
        };
        match tried {
            Ok(_) if refusals == 0 => return Err("no allocation was refused".into()),
            Ok(_) => break,
            Err(Error::OutOfMemory { size_bytes, .. }) if size_bytes > 0 => refusals += 1,
            Err(error) => return Err(format!("allocation {refusals}: {error:?}")),
        }
        let again = step(&gpu, &params, Policy::Segments).await.map_err(text)?;
        run(&again, 0).await.map_err(text)?;
        if refusals > 100 {
            return Err("a step makes more than 100 buffers".into());
        }
    }
    gpu.inject(Inject::AllocationFailure(0));
    let held = gpu.memory().total.live_bytes;
    Ok(json!({ "allocations_refused": refusals, "live_bytes_afterwards": held }))
}

/// A command that the device refuses is an error of a later call, once.
pub(super) async fn validation() -> Outcome {
    let gpu = Gpu::for_tests().await.map_err(text)?;
    let params = Params::new(&gpu, 1);
    let step = step(&gpu, &params, Policy::None).await.map_err(text)?;
    gpu.inject(Inject::ValidationError);
    // A page is told of it by an event, which need not come before the next call.
    let mut told = Ok(0.0);
    let mut calls = 0;
    while told.is_ok() && calls < 5 {
        calls += 1;
        told = run(&step, calls).await;
    }
    let said = refused("the command", told, |error| matches!(error, Error::Validation { .. }))?;
    run(&step, calls).await.map_err(text)?;
    Ok(json!({ "said": said, "told_at_call": calls }))
}

/// The device goes: every call says so, again and again, and a copy of the
/// state rebuilds it on another device.
pub(super) async fn device_loss() -> Outcome {
    let gpu = Gpu::for_tests().await.map_err(text)?;
    let params = Params::new(&gpu, 1);
    let old = step(&gpu, &params, Policy::Segments).await.map_err(text)?;
    run(&old, 0).await.map_err(text)?;
    let copy = params.read_all().await.map_err(text)?;
    let expected = run(&old, 1).await.map_err(text)?;
    let x = vec![0.5_f32; SHAPE[0] * SHAPE[1]];
    let late = old.run(inputs! { "x" => &x, "lr" => 1e-3_f32, "step" => 2_u32 }).await.map_err(text)?;
    gpu.inject(Inject::DeviceLoss);
    let lost = |error: &Error| matches!(error, Error::DeviceLost { .. });
    let mut said = String::new();
    for _ in 0..2 {
        said = refused("a read under way", late.item::<f32>().await, lost)?;
        refused("a run", run(&old, 3).await, lost)?;
        refused("a read of state", params.read::<f32>("blocks.0.0.weight").await, lost)?;
        refused("a write of state", params.write("blocks.0.0.bias", &[0.0_f32; 64]).await, lost)?;
        refused("waiting", gpu.wait_idle().await, lost)?;
        refused("a check", gpu.check(), lost)?;
        refused("another step", step(&gpu, &params, Policy::None).await, lost)?;
    }
    let new = Gpu::for_tests().await.map_err(text)?;
    let params = Params::new(&new, 2);
    let rebuilt = step(&new, &params, Policy::None).await.map_err(text)?;
    params.load_all(&copy).await.map_err(text)?;
    let loss = run(&rebuilt, 1).await.map_err(text)?;
    if loss.to_bits() != expected.to_bits() {
        return Err(format!("the rebuilt state has a loss of {loss}, the lost one had {expected}"));
    }
    Ok(json!({ "said": said, "loss": loss }))
}
