//! Models trained under every policy: equal bits, measured peaks as planned,
//! losses as natively and as PyTorch's.

use remat::gpu::Gpu;
use serde_json::{Value, json};

use super::{Outcome, text};
use crate::page::{fetch, fetch_text};
use crate::training::{self, MLPS, PolicyRun, agree, deviation, every_policy, summary};

const TOLERANCE: f64 = 1e-3;

/// The guide's model, by its index in [`MLPS`].
pub(super) async fn mlp(index: usize) -> Outcome {
    let native = native().await?;
    let gpu = Gpu::for_tests().await.map_err(text)?;
    let runs = every_policy(&gpu, &MLPS[index]).await.map_err(text)?;
    agree(&runs)?;
    let off = against(&runs, &losses(&native, MLPS[index].name)?)?;
    Ok(summary(&runs, off))
}

/// The reference's transformer.
pub(super) async fn gpt() -> Outcome {
    let native = native().await?;
    let (description, tensors) =
        (fetch_text("reference/training.json").await?, fetch("reference/training.safetensors").await?);
    let fixture = training::gpt(&description, &tensors).map_err(text)?;
    let gpu = Gpu::for_tests().await.map_err(text)?;
    let runs = every_policy(&gpu, &fixture).await.map_err(text)?;
    agree(&runs)?;
    let off = against(&runs, &fixture.losses)?;
    let off_native = against(&runs, &losses(&native, "gpt")?)?;
    let mut detail = summary(&runs, off);
    detail["loss_deviation_from_native"] = json!(off_native);
    Ok(detail)
}

fn against(runs: &[PolicyRun], expected: &[f64]) -> Result<f64, String> {
    let mut worst = 0.0_f64;
    for run in runs {
        let off = deviation(&run.losses, expected, TOLERANCE).map_err(|error| format!("{}: {error}", run.policy))?;
        worst = worst.max(off);
    }
    Ok(worst)
}

async fn native() -> Result<Value, String> {
    serde_json::from_str(&fetch_text("native.json").await?).map_err(text)
}

fn losses(native: &Value, name: &str) -> Result<Vec<f64>, String> {
    let losses = native[name].as_array().ok_or_else(|| format!("native.json has no {name}"))?;
    Ok(losses.iter().filter_map(Value::as_f64).collect())
}
