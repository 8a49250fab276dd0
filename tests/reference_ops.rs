//! Every case of `tests/reference/ops.json` whose op has a line in the table:
//! values and gradients against PyTorch's, computed in f64, within the
//! tolerances of `tests/reference/README.md`.
//!
//! Each alone, amid other ops, and in a segment.
//!
//! A new op needs a line in [`table::TABLE`] and a higher [`COVERED`].
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "common/engine.rs"]
mod engine;
#[path = "reference_ops/table.rs"]
mod table;

use std::collections::BTreeMap;

use common::naive::Naive;
use remat::dtype::{DType, TensorType};
use remat::error::Result;
use remat::gpu::InputData;
use remat::graph::{Recorder, Tensor};
use remat::params::Params;
use remat::step::RecordedStep;
use safetensors::SafeTensors;
use serde_json::Value;

/// Cases that pass, at least: coverage does not shrink unnoticed.
const COVERED: usize = 155;

/// Ops whose values are built on transcendental functions of WGSL, which are
/// allowed rtol 1e-4 and atol 1e-5.
const TRANSCENDENTAL: &[&str] = &[
    "attention",
    "bce_with_logits",
    "cos",
    "cross_entropy",
    "elu",
    "erf",
    "exp",
    "expm1",
    "gelu",
    "gelu_tanh",
    "kl_div",
    "ln",
    "log1p",
    "log_softmax",
    "logsumexp",
    "mish",
    "pow",
    "powf",
    "rope",
    "sigmoid",
    "silu",
    "sin",
    "softmax",
    "softplus",
    "tanh",
];

/// Where in a graph a case's op stands.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Place {
    /// Between inputs and outputs.
    Alone,
    /// Between other ops, which leave every number as it is: times 2, times 0.5.
    Amid,
    /// The same in a segment, run by the engine under every policy with equal bits.
    Segment,
}

/// Where the cases run.
enum Runner {
    Naive(Naive),
    Engine(remat::gpu::Gpu),
}

impl Runner {
    /// Runs a recording: the one place that knows how.
    fn run(
        &self,
        inputs: &BTreeMap<String, (DType, Vec<u32>)>,
        record: impl FnOnce(&Recorder) -> Result<Vec<Tensor>>,
    ) -> Result<Vec<Vec<u32>>> {
        match self {
            Self::Naive(device) => {
                let words = inputs.iter().map(|(name, (_, words))| (name.clone(), words.clone())).collect();
                device.run_recording(&words, record)
            }
            Self::Engine(gpu) => {
                let step = RecordedStep::new(gpu.profile(), record)?;
                let given: Vec<(&str, InputData<'_>)> =
                    inputs.iter().map(|(name, (dtype, words))| (name.as_str(), input_data(*dtype, words))).collect();
                Ok(engine::run_all(gpu, &Params::new(gpu, 0), &step, &given).outputs)
            }
        }
    }
}

fn input_data(dtype: DType, words: &[u32]) -> InputData<'static> {
    if dtype == DType::F32 {
        words.iter().map(|&w| f32::from_bits(w)).collect::<Vec<_>>().into()
    } else {
        words.iter().map(|w| w.cast_signed()).collect::<Vec<_>>().into()
    }
}

/// The same numbers by way of two more ops.
fn there_and_back(x: &Tensor) -> Result<Tensor> {
    if x.dtype() == DType::F32 { x.mul_scalar(2.0_f32)?.mul_scalar(0.5_f32) } else { Ok(x.clone()) }
}

/// The case's tensors by name.
struct Fixture<'a> {
    file: SafeTensors<'a>,
    id: &'a str,
}

impl Fixture<'_> {
    fn words(&self, name: &str) -> Option<Vec<u32>> {
        self.file.tensor(&format!("{}/{name}", self.id)).ok().map(|view| bytemuck::pod_collect_to_vec(view.data()))
    }

    fn ty(&self, name: &str) -> TensorType {
        let view = self.file.tensor(&format!("{}/{name}", self.id)).unwrap();
        let dtype = if view.dtype() == safetensors::Dtype::F32 { DType::F32 } else { DType::I32 };
        TensorType::new(dtype, view.shape())
    }
}

/// What is wrong with `found`, if anything is.
fn difference(case: &Value, name: &str, ty: &TensorType, found: &[u32], expected: &[u32]) -> Option<String> {
    let what = format!("{}/{name}", case["id"].as_str().unwrap());
    if found.len() != expected.len() {
        return Some(format!("{what} has {} elements, not {}", found.len(), expected.len()));
    }
    if ty.dtype != DType::F32 {
        return (found != expected).then(|| format!("{what}: {found:?}, expected {expected:?}"));
    }
    let transcendental = TRANSCENDENTAL.contains(&case["op"].as_str().unwrap());
    let (rtol, least) = if transcendental { (1e-4, 1e-5) } else { (2e-5, 2e-6) };
    let floats = |words: &[u32]| words.iter().map(|w| f64::from(f32::from_bits(*w))).collect::<Vec<_>>();
    let (found, expected) = (floats(found), floats(expected));
    let largest = expected.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    let atol = (2e-6 * largest).max(least);
    let wrong = found.iter().zip(&expected).position(|(f, e)| {
        let close = (f - e).abs() <= atol + rtol * e.abs();
        !(close || f == e || (f.is_nan() && e.is_nan()))
    })?;
    Some(format!("{what}[{wrong}]: {}, expected {}", found[wrong], expected[wrong]))
}

/// Runs one case; the differences found.
fn check(runner: &Runner, place: Place, fixture: &Fixture<'_>, case: &Value, op: table::Record) -> Result<Vec<String>> {
    let count = |key: &str| usize::try_from(case[key].as_u64().unwrap()).unwrap();
    let mut data = BTreeMap::new();
    for i in 0..count("inputs") {
        let name = format!("in{i}");
        let (dtype, words) = (fixture.ty(&name).dtype, fixture.words(&name).unwrap());
        data.insert(name, (dtype, words));
    }
    let mut names = Vec::new();
    if case["grad"].as_bool().unwrap() {
        for o in 0..count("outputs") {
            data.extend(fixture.words(&format!("gout{o}")).map(|words| (format!("gout{o}"), (DType::F32, words))));
        }
    }
    let out = runner.run(&data, |g| {
        let x: Vec<Tensor> = (0..count("inputs"))
            .map(|i| g.typed_input(&format!("in{i}"), fixture.ty(&format!("in{i}"))))
            .collect::<Result<_>>()?;
        let amid = |x: &[Tensor]| -> Result<Vec<Tensor>> {
            let y = op(g, &x.iter().map(there_and_back).collect::<Result<Vec<_>>>()?, &case["attrs"])?;
            y.iter().map(there_and_back).collect()
        };
        let mut results = match place {
            Place::Alone => op(g, &x, &case["attrs"])?,
            Place::Amid => amid(&x)?,
            Place::Segment => g.checkpoint(x.clone(), |x| amid(&x))?,
        };
        assert_eq!(results.len(), count("outputs"), "{}", fixture.id);
        let mut loss = g.zeros([])?;
        for (o, y) in results.iter().enumerate() {
            let expected = fixture.ty(&format!("out{o}"));
            // The file has no scalars: they are [1] there.
            let same = *y.shape() == expected.shape || (y.rank() == 0 && expected.shape.dims() == [1]);
            assert!(same, "{}/out{o} is {}, expected {}", fixture.id, y.shape(), expected.shape);
            names.push(format!("out{o}"));
            if data.contains_key(&format!("gout{o}")) {
                let gout = g.input::<f32>(&format!("gout{o}"), y.shape())?;
                loss = loss.add(&y.mul(&gout)?.sum_all()?)?;
            }
        }
        let wanted: Vec<usize> = (0..x.len()).filter(|i| fixture.words(&format!("gin{i}")).is_some()).collect();
        if case["grad"].as_bool().unwrap() {
            results.extend(g.gradients(&loss, &wanted.iter().map(|&i| &x[i]).collect::<Vec<_>>())?);
            names.extend(wanted.iter().map(|i| format!("gin{i}")));
        }
        Ok(results)
    })?;
    let differences = names
        .iter()
        .zip(&out)
        .filter_map(|(name, found)| difference(case, name, &fixture.ty(name), found, &fixture.words(name).unwrap()));
    Ok(differences.collect())
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
    for case in &cases {
        let (id, op) = (case["id"].as_str().unwrap(), case["op"].as_str().unwrap());
        let Some((_, record)) = table::TABLE.iter().find(|(name, _)| *name == op) else {
            not_yet.push(id);
            continue;
        };
        if table::NOT_YET.contains(&id) {
            not_yet.push(id);
            continue;
        }
        let fixture = Fixture { file: SafeTensors::deserialize(&bytes).unwrap(), id };
        match check(&runner, place, &fixture, case, *record) {
            Ok(differences) if differences.is_empty() => passed += 1,
            Ok(differences) => wrong.extend(differences),
            Err(error) => wrong.push(format!("{id}: {error}")),
        }
    }
    println!("{place:?}: {passed} of {} cases pass; not yet: {}", cases.len(), not_yet.join(", "));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(passed >= COVERED, "{passed} cases pass, {COVERED} did before");
}
