//! Every case of `tests/reference/ops.json` whose op has a line in the table:
//! values and gradients against PyTorch's, computed in f64, within the
//! tolerances of `tests/reference/README.md`.
//!
//! Each alone, amid other ops, and in a segment. The browsers run the same
//! (`web/checks/src/checks/ops.rs`).
//!
//! A new op needs a line in [`table::TABLE`] and a higher [`COVERED`].
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "reference_ops/case.rs"]
mod case;
mod common;
#[path = "common/engine.rs"]
mod engine;
#[path = "reference_ops/table.rs"]
mod table;

use case::{Case, Place, input_data};
use common::naive::Naive;
use remat::error::Result;
use remat::gpu::InputData;
use remat::params::Params;
use remat::step::RecordedStep;
use serde_json::Value;

/// Cases that pass, at least: coverage does not shrink unnoticed.
const COVERED: usize = 155;

/// Where the cases run.
enum Runner {
    Naive(Naive),
    /// Under every policy, with equal bits.
    Engine(remat::gpu::Gpu),
}

impl Runner {
    fn run(&self, case: &Case<'_>, place: Place) -> Result<Vec<Vec<u32>>> {
        let data = case.data();
        match self {
            Self::Naive(device) => {
                let words = data.iter().map(|(name, (_, words))| (name.clone(), words.clone())).collect();
                device.run_recording(&words, |g| case.record(g, place))
            }
            Self::Engine(gpu) => {
                let step = RecordedStep::new(gpu.profile(), |g| case.record(g, place))?;
                let given: Vec<(&str, InputData<'_>)> =
                    data.iter().map(|(name, (dtype, words))| (name.as_str(), input_data(*dtype, words))).collect();
                Ok(engine::run_all(gpu, &Params::new(gpu, 0), &step, &given).outputs)
            }
        }
    }
}

#[test]
fn every_case_in_the_table_agrees_with_pytorch() {
    every_case(Place::Alone);
}

#[test]
fn every_case_amid_other_ops_agrees_with_pytorch() {
    every_case(Place::Amid);
}

#[test]
fn every_case_in_a_segment_agrees_with_pytorch_and_has_the_same_bits_under_every_policy() {
    every_case(Place::Segment);
}

fn every_case(place: Place) {
    let cases: Vec<Value> = serde_json::from_str(include_str!("reference/ops.json")).unwrap();
    let bytes = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/reference/ops.safetensors")).unwrap();
    let runner = if place == Place::Segment { Runner::Engine(engine::gpu().1) } else { Runner::Naive(Naive::new()) };
    let (mut passed, mut wrong, mut not_yet) = (0, Vec::new(), Vec::new());
    for about in &cases {
        let Some(case) = Case::new(about, &bytes) else {
            not_yet.push(about["id"].as_str().unwrap());
            continue;
        };
        let found = runner.run(&case, place);
        match found.map(|found| case.differences(&found)) {
            Ok(differences) if differences.is_empty() => passed += 1,
            Ok(differences) => wrong.extend(differences),
            Err(error) => wrong.push(format!("{}: {error}", case.id)),
        }
    }
    println!("{place:?}: {passed} of {} cases pass; not yet: {}", cases.len(), not_yet.join(", "));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(passed >= COVERED, "{passed} cases pass, {COVERED} did before");
}
