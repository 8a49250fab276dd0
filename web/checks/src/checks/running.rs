//! Running again and again, and never blocking.

use remat::checkpoint::Policy;
use remat::gpu::{Gpu, LimitsMode};
use remat::graph::{Recorder, Tensor};
use remat::inputs;
use remat::nn::Mlp;
use remat::optim::{AdamW, AdamWConfig, Optimizer};
use remat::params::Params;
use remat::step::Step;
use serde_json::json;
use web_time::Instant;

use super::{Outcome, text};
use crate::page::{Ticks, is_firefox, module_bytes};
use crate::report::Reporter;

const WARM_UP: u32 = 500;
const RUNS: u32 = 10_000;
/// What a browser's own bookkeeping may add. A step that left as little as 8 KiB
/// behind with every run would go beyond it.
const FLAT_LIMIT_BYTES: u64 = 64 << 20;
const SHAPE: [usize; 2] = [4, 8];

async fn tiny(gpu: &Gpu) -> remat::Result<(Params, Step<Tensor>)> {
    let params = Params::new(gpu, 3);
    let model = Mlp::new(&params, SHAPE[1], 16, 2)?;
    let optimizer = AdamW::new(&params, AdamWConfig::default())?;
    let record = |recorder: &Recorder| {
        let x = recorder.input::<f32>("x", SHAPE)?;
        let loss = model.forward_checkpointed(&x)?.mse_loss(&recorder.zeros(SHAPE)?)?;
        optimizer.minimize(&loss)?;
        Ok(loss)
    };
    let step = gpu.step(Policy::Segments, record).await?;
    Ok((params, step))
}

/// What replays make is compared on the device with what was made first.
pub(super) async fn verified() -> Outcome {
    let gpu = Gpu::for_tests().await.map_err(text)?;
    let (_params, step) = tiny(&gpu).await.map_err(text)?;
    let x = batch();
    let inputs = inputs! { "x" => &x, "lr" => 1e-3_f32, "step" => 0_u32 };
    let (loss, verified) = step.verify(inputs).await.map_err(text)?;
    let loss = loss.item::<f32>().await.map_err(text)?;
    if verified.values == 0 || !loss.is_finite() {
        return Err(format!("{verified:?}, loss {loss}"));
    }
    Ok(json!({ "replayed_passes": verified.replayed_passes, "values": verified.values, "bytes": verified.bytes }))
}

fn batch() -> Vec<f32> {
    (0..SHAPE[0] * SHAPE[1]).map(|i| (i as f32 * 0.37).fract() - 0.5).collect()
}

/// A step that was planned once runs 10,000 times: the engine holds what it held,
/// and neither the module nor the browser grows.
pub(super) async fn ten_thousand_runs(report: Reporter) -> Outcome {
    // Without poison: what is run here is what a page runs.
    let gpu = Gpu::builder().limits(LimitsMode::WebGpuDefaults).build().await.map_err(text)?;
    let (_params, step) = tiny(&gpu).await.map_err(text)?;
    let x = batch();
    let run = async |index: u32| step.run(inputs! { "x" => &x, "lr" => 1e-3_f32, "step" => index }).await.map_err(text);
    let mut first = 0.0;
    for index in 0..WARM_UP {
        let loss = run(index).await?;
        if index == 0 {
            first = loss.item::<f32>().await.map_err(text)?;
        }
    }
    gpu.wait_idle().await.map_err(text)?;
    let (engine, module) = (gpu.memory(), module_bytes());
    let runs = RUNS;
    let resident = report.start_flat("ten thousand runs", FLAT_LIMIT_BYTES).await?;
    let start = Instant::now();
    let mut last = first;
    for index in 0..runs {
        let loss = run(WARM_UP + index).await?;
        if (index + 1) % (runs / 10) == 0 {
            last = loss.item::<f32>().await.map_err(text)?;
        }
    }
    gpu.wait_idle().await.map_err(text)?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    let resident_after = report.end_flat().await?;
    if gpu.memory() != engine {
        return Err(format!("the engine held {engine:?} and now holds {:?}", gpu.memory()));
    }
    if module_bytes() != module {
        return Err(format!("the module's memory grew from {module} to {} bytes", module_bytes()));
    }
    if last.is_nan() || last >= first {
        return Err(format!("the loss went from {first} to {last}"));
    }
    Ok(json!({
        "runs": runs,
        "ms_per_run": ms / f64::from(runs),
        "engine_bytes": engine.total.reserved_bytes,
        "module_bytes": module,
        "resident_bytes": [resident, resident_after],
        "loss": [first, last],
        "firefox": is_firefox(),
    }))
}

/// A read completes though nothing else is submitted, and the page's event loop
/// goes on while runs and reads are awaited.
pub(super) async fn no_blocking() -> Outcome {
    let gpu = Gpu::for_tests().await.map_err(text)?;
    let (params, step) = tiny(&gpu).await.map_err(text)?;
    let x = batch();
    let ticks = Ticks::start()?;
    let loss = step.run(inputs! { "x" => &x, "lr" => 1e-3_f32, "step" => 0_u32 }).await.map_err(text)?;
    let start = Instant::now();
    loss.item::<f32>().await.map_err(text)?;
    let first_read_ms = start.elapsed().as_secs_f64() * 1e3;
    // Read once more, now that the device has nothing to do.
    gpu.wait_idle().await.map_err(text)?;
    let start = Instant::now();
    loss.item::<f32>().await.map_err(text)?;
    let idle_read_ms = start.elapsed().as_secs_f64() * 1e3;
    params.read::<f32>("blocks.0.0.weight").await.map_err(text)?;
    let before = ticks.count();
    for index in 0..50_u32 {
        let loss = step.run(inputs! { "x" => &x, "lr" => 1e-3_f32, "step" => index }).await.map_err(text)?;
        loss.item::<f32>().await.map_err(text)?;
    }
    let during = ticks.count() - before;
    if during < 5 {
        return Err(format!("timers fired {during} times while 50 runs were awaited"));
    }
    Ok(json!({ "first_read_ms": first_read_ms, "idle_read_ms": idle_read_ms, "timers_during_50_runs": during }))
}
