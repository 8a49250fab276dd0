//! Every op of the reference against PyTorch's numbers: alone, amid other ops, and
//! in a segment, where a replay has the same bits.
#![allow(clippy::unwrap_used, reason = "shared with the native tests: files of the project are as they should be")]

#[path = "../../../../tests/reference_ops/case.rs"]
mod case;
#[path = "../../../../tests/reference_ops/table.rs"]
mod table;

use std::future::poll_fn;
use std::task::Poll;

use case::{Case, Place, input_data};
use remat::checkpoint::Policy;
use remat::dtype::DType;
use remat::gpu::{Gpu, InputData, Output};
use serde_json::{Value, json};

use super::{Outcome, text};
use crate::page::{fetch, fetch_text};

/// Cases under way at a time: Firefox hands data back on a timer of 100 ms, whoever
/// waits for it.
const AT_A_TIME: usize = 8;

/// All cases of `ops.json` at every place.
pub(super) async fn every_case() -> Outcome {
    let cases: Vec<Value> = serde_json::from_str(&fetch_text("reference/ops.json").await?).map_err(text)?;
    let tensors = fetch("reference/ops.safetensors").await?;
    let gpu = Gpu::for_tests().await.map_err(text)?;
    let mut wrong = Vec::new();
    for some in cases.chunks(AT_A_TIME) {
        for differences in all(some.iter().map(|about| one_case(&gpu, about, &tensors))).await {
            wrong.extend(differences?);
        }
    }
    if wrong.is_empty() { Ok(json!({ "cases": cases.len() })) } else { Err(wrong.join("\n")) }
}

async fn one_case(gpu: &Gpu, about: &Value, tensors: &[u8]) -> Result<Vec<String>, String> {
    let case = Case::new(about, tensors).ok_or_else(|| format!("no line in the table: {about}"))?;
    let places = [
        (Place::Alone, Policy::None),
        (Place::Amid, Policy::None),
        (Place::Segment, Policy::None),
        (Place::Segment, Policy::Segments),
    ];
    let mut wrong = Vec::new();
    let mut runs = Vec::new();
    for results in all(places.into_iter().map(|(place, policy)| run(gpu, &case, place, policy))).await {
        let results = results.map_err(|error| format!("{}: {error}", case.id))?;
        wrong.extend(case.differences(&results));
        runs.push(results);
    }
    if runs[2] != runs[3] {
        wrong.push(format!("{}: other bits when replayed", case.id));
    }
    Ok(wrong)
}

async fn run(gpu: &Gpu, case: &Case<'_>, place: Place, policy: Policy) -> remat::Result<Vec<Vec<u32>>> {
    let step = gpu.step(policy, |g| case.record(g, place)).await?;
    let data = case.data();
    let inputs: Vec<(&str, InputData<'_>)> =
        data.iter().map(|(name, (dtype, words))| (name.as_str(), input_data(*dtype, words))).collect();
    let outputs = step.run(&inputs).await?;
    all(outputs.iter().map(words)).await.into_iter().collect()
}

async fn words(output: &Output) -> remat::Result<Vec<u32>> {
    Ok(match output.ty().dtype {
        DType::F32 => output.read::<f32>().await?.into_iter().map(f32::to_bits).collect(),
        DType::I32 => output.read::<i32>().await?.into_iter().map(i32::cast_unsigned).collect(),
        _ => output.read::<u32>().await?,
    })
}

/// Awaits all of them at once; their results in the order given.
async fn all<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, done) in waiting.iter_mut().zip(&mut done) {
            if done.is_none() {
                if let Poll::Ready(result) = future.as_mut().poll(context) {
                    *done = Some(result);
                }
            }
        }
        if done.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}
