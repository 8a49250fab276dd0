//! Every op of the reference against PyTorch's numbers, in a segment that is
//! kept and in one that is replayed: the bits are the same.
#![allow(clippy::unwrap_used, reason = "shared with the native tests: files of the project are as they should be")]

#[path = "../../../tests/reference_ops/case.rs"]
mod case;
#[path = "../../../tests/reference_ops/table.rs"]
mod table;

use case::{Case, Place, input_data};
use remat::checkpoint::Policy;
use remat::dtype::DType;
use remat::gpu::{Gpu, InputData, Output};
use serde_json::{Value, json};

use super::{Outcome, text};
use crate::page::{fetch, fetch_text};

/// All cases of `ops.json`, each under two policies.
pub(super) async fn every_case() -> Outcome {
    let cases: Vec<Value> = serde_json::from_str(&fetch_text("reference/ops.json").await?).map_err(text)?;
    let tensors = fetch("reference/ops.safetensors").await?;
    let gpu = Gpu::for_tests().await.map_err(text)?;
    let mut wrong = Vec::new();
    for about in &cases {
        let case = Case::new(about, &tensors).ok_or_else(|| format!("no line in the table: {about}"))?;
        let kept = run(&gpu, &case, Policy::None).await.map_err(|error| format!("{}: {error}", case.id))?;
        let replayed = run(&gpu, &case, Policy::Segments).await.map_err(|error| format!("{}: {error}", case.id))?;
        wrong.extend(case.differences(&kept));
        if kept != replayed {
            wrong.push(format!("{}: other bits when replayed", case.id));
        }
    }
    if wrong.is_empty() { Ok(json!({ "cases": cases.len() })) } else { Err(wrong.join("\n")) }
}

async fn run(gpu: &Gpu, case: &Case<'_>, policy: Policy) -> remat::Result<Vec<Vec<u32>>> {
    let step = gpu.step(policy, |g| case.record(g, Place::Segment)).await?;
    let data = case.data();
    let inputs: Vec<(&str, InputData<'_>)> =
        data.iter().map(|(name, (dtype, words))| (name.as_str(), input_data(*dtype, words))).collect();
    let mut results = Vec::new();
    for output in step.run(&inputs).await? {
        results.push(words(&output).await?);
    }
    Ok(results)
}

async fn words(output: &Output) -> remat::Result<Vec<u32>> {
    Ok(match output.ty().dtype {
        DType::F32 => output.read::<f32>().await?.into_iter().map(f32::to_bits).collect(),
        DType::I32 => output.read::<i32>().await?.into_iter().map(i32::cast_unsigned).collect(),
        _ => output.read::<u32>().await?,
    })
}
