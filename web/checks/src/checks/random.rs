//! Random numbers against a plain generator, whose words the native tests expect too.

#[path = "../../../../tests/random/case.rs"]
mod case;

use remat::checkpoint::Policy;
use remat::dtype::DType;
use remat::gpu::Gpu;
use serde_json::json;

use super::{Outcome, text};

/// Uniform numbers, truth values, permutations and masks bit by bit; normal numbers to 1e-5.
pub(super) async fn draws() -> Outcome {
    let gpu = Gpu::for_tests().await.map_err(text)?;
    let step = gpu.step(Policy::None, case::record).await.map_err(text)?;
    let (mut wrong, mut furthest) = (Vec::new(), 0.0_f64);
    for run in case::RUNS {
        let outputs = step.run(&[("seed", run.0.into()), ("step", run.1.into())]).await.map_err(text)?;
        let mut found = Vec::new();
        for output in &outputs {
            found.push(match output.ty().dtype {
                DType::F32 => output.read::<f32>().await.map_err(text)?.into_iter().map(f32::to_bits).collect(),
                DType::I32 => output.read::<i32>().await.map_err(text)?.into_iter().map(i32::cast_unsigned).collect(),
                _ => output.read::<u32>().await.map_err(text)?,
            });
        }
        let (differences, worst) = case::differences(&found, run);
        wrong.extend(differences);
        furthest = furthest.max(worst);
    }
    if wrong.is_empty() { Ok(json!({ "normal_off_by": furthest })) } else { Err(wrong.join("\n")) }
}
