//! The gradient checker, and the library's own ops checked by it; the same ops in
//! segments, and given integers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/engine.rs"]
mod engine;
#[path = "gradcheck/table.rs"]
mod table;

use std::collections::BTreeSet;

use remat::checkpoint::Policy;
use remat::dtype::{DType, TensorType};
use remat::error::{Error, Result};
use remat::gradcheck::{GradCheck, Sample};
use remat::graph::{Recorder, Tensor};
use remat::ops::{ElementCall, ElementwiseOp, GradientCall, Lowering, Op};
use remat::params::Params;
use remat::shared::Shared;
use table::{CHOICES, IMAGES, POSITIVE, SEVERAL, Table, UNARY};

/// The square, whose gradient is wrong by a factor or right.
#[derive(Debug)]
struct Square {
    factor: f32,
}

impl Op for Square {
    fn name(&self) -> &'static str {
        "square"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(call.grad()?.mul(&call.inputs[0])?.mul_scalar(self.factor)?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for Square {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        format!("{0} * {0}", call.operands[0])
    }
}

/// Shapes of a group's tensors and what is in them.
type Samples = Vec<(&'static [usize], Vec<f32>)>;

/// Every group of functions with the tensors that it is looked at with.
fn groups() -> [(Table, Samples); 5] {
    // Of size 0.25 to 1: away from kinks at 0.
    let noise = |shape: &'static [usize], seed| {
        let values = engine::noise(shape.iter().product(), seed);
        (shape, values.into_iter().map(|v| 0.75 * v + 0.25 * v.signum()).collect::<Vec<f32>>())
    };
    let positive = noise(&[3, 4], 2).1.into_iter().map(|v| 1.25 + 0.75 * v).collect();
    let apart = [7, 2, 11, 4, 0, 9, 5, 1, 10, 3, 8, 6].iter().map(|&v| v as f32 * 0.2 - 1.0).collect();
    [
        (UNARY, vec![noise(&[3, 4], 1)]),
        (POSITIVE, vec![(&[3, 4], positive)]),
        (SEVERAL, vec![noise(&[3, 4], 1), noise(&[3, 4], 3), noise(&[4], 4)]),
        (IMAGES, vec![noise(&[1, 4, 3, 4], 5), noise(&[4, 2, 2, 3], 6), noise(&[4], 7)]),
        (CHOICES, vec![(&[3, 4], apart)]),
    ]
}

#[test]
fn the_librarys_own_gradients_and_a_wrong_one() {
    let (_turn, gpu) = engine::gpu();
    let noise = || Sample::noise([3, 4], 1);
    let mut wrong = Vec::new();
    for (table, samples) in groups() {
        let elements: usize = samples.iter().map(|(_, values)| values.len()).sum();
        let samples: Vec<Sample> = samples.iter().map(|(shape, v)| Sample::new(*shape, v.clone())).collect();
        for (name, record) in table {
            match GradCheck::new(name).check_blocking(&gpu, &samples, record) {
                Ok(report) => assert_eq!(report.elements, elements, "{name}"),
                Err(error) => wrong.push(error.to_string()),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let square = |factor: f32| {
        move |g: &Recorder, x: &[Tensor]| Ok(g.record(Shared::new(Square { factor }), &[&x[0]])?.swap_remove(0))
    };
    GradCheck::new("square").check_blocking(&gpu, &[noise()], square(2.0)).unwrap();
    let error = GradCheck::new("square").check_blocking(&gpu, &[noise()], square(2.02)).unwrap_err();
    let Error::Gradient { ref op, input: 0, element: 0, recorded, difference } = error else { panic!("{error}") };
    assert_eq!(op, "square");
    assert!((recorded / difference - 1.01).abs() < 1e-3, "{error}");
    let short = Sample::new([3], [1.0]);
    assert!(matches!(
        GradCheck::new("square").check_blocking(&gpu, &[short], square(2.0)),
        Err(Error::Data { op: "gradcheck", .. })
    ));
}

/// Operations whose gradient cannot be compared with differences, and why.
const NO_DIFFERENCES: &[(&str, &[&str])] = &[
    (
        "they draw, from a seed and a step",
        &["rand_uniform", "rand_normal", "rand_int", "bernoulli", "permutation", "dropout"],
    ),
    (
        "they make truth values",
        &["logical_and", "logical_or", "logical_xor", "logical_not", "isnan", "isinf", "isfinite"],
    ),
    (
        "they compare",
        &["eq", "ne", "lt", "le", "gt", "ge", "eq_scalar", "ne_scalar", "lt_scalar", "le_scalar", "ge_scalar"],
    ),
    ("any and all are of truth values", &["any", "all"]),
    ("they make integers", &["argmax", "argmin", "argsort", "one_hot", "digest", "to_i32", "to_u32", "to_bool"]),
    ("they take no tensor", &["full", "full_i32", "full_u32", "full_bool", "zeros", "ones", "eye", "linspace"]),
    ("... nor do these", &["iota", "arange", "arange_i32", "arange_f32"]),
    ("halves round: tests/half", &["to_f16"]),
    ("it stops gradients: ops_kernels/values.rs", &["detach"]),
    ("it writes a state: cases_checkpoint.rs", &["assign"]),
];

#[test]
fn every_operation_of_the_documentation_is_checked_by_differences_or_listed_with_a_reason() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    let document = read("docs/ops.md");
    let section = document.split("\n## ").find(|part| part.starts_with("Operations")).unwrap();
    let operations: BTreeSet<&str> =
        section.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    assert!(operations.len() > 200, "{} operations", operations.len());
    let table = read("tests/gradcheck/table.rs");
    let checked = |name: &str| table.contains(&format!(".{name}(")) || table.contains(&format!("::{name}("));
    let excused: BTreeSet<&str> = NO_DIFFERENCES.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    let missing: Vec<&&str> = operations.iter().filter(|name| !checked(name) && !excused.contains(*name)).collect();
    assert!(missing.is_empty(), "neither checked nor excused: {missing:?}");
    let stale: Vec<&&str> = excused.iter().filter(|name| !operations.contains(*name)).collect();
    assert!(stale.is_empty(), "excused, but there are none: {stale:?}");
}

/// Each function in the middle of a segment that is replayed: its gradients have the
/// bits of those without a segment, under every policy.
#[test]
fn every_function_in_a_segment_has_gradients_of_equal_bits() {
    let (_turn, gpu) = engine::gpu();
    let params = Params::new(&gpu, 0);
    let mut replays = 0;
    for (table, samples) in groups() {
        let names: Vec<String> = (0..samples.len()).map(|i| format!("x{i}")).collect();
        let inputs: Vec<(&str, remat::gpu::InputData<'_>)> =
            names.iter().zip(&samples).map(|(name, (_, values))| (name.as_str(), values.into())).collect();
        for (name, function) in table {
            let record = |segment: bool| {
                engine::record(&gpu, |g| {
                    let x: Vec<Tensor> = names
                        .iter()
                        .zip(&samples)
                        .map(|(name, (shape, _))| g.input::<f32>(name, *shape))
                        .collect::<Result<_>>()?;
                    let inside = |x: Vec<Tensor>| {
                        // Twice and half: every operand is made in the segment.
                        let made = x.iter().map(|x| x.mul_scalar(2.0_f32)?.mul_scalar(0.5_f32));
                        function(g, &made.collect::<Result<Vec<_>>>()?)?.sqr()?.tanh()
                    };
                    let y = if segment { g.checkpoint(x.clone(), inside)? } else { inside(x.clone())? };
                    let loss = y.mul(&y)?.sum_all()?;
                    Ok([vec![y], g.gradients(&loss, &x.iter().collect::<Vec<_>>())?].concat())
                })
            };
            let plain = record(false);
            let plan = engine::planned(&gpu, &plain, &Policy::None).unwrap();
            let expected = engine::run(&gpu, &plain, plan, &params, &inputs).unwrap();
            let segment = record(true);
            let ran = engine::run_all(&gpu, &params, &segment, &inputs);
            assert_eq!(ran.outputs, expected, "{name}: other bits in a segment");
            assert!(ran.floats(1).iter().all(|v| v.is_finite()), "{name}: {:?}", ran.floats(1));
            replays += usize::from(ran.plan(Policy::Segments).replayed_passes > 0);
        }
    }
    let functions: usize = groups().iter().map(|(table, _)| table.len()).sum();
    assert!(replays * 10 >= functions * 9, "{replays} of {functions} segments are replayed");
}

/// Given integers, a function has an integer result or is refused: nothing becomes a
/// float unasked.
#[test]
fn integers_do_not_silently_become_floats() {
    let (mut kept, mut refused) = (0, 0);
    for dtype in [DType::I32, DType::U32, DType::Bool] {
        for (table, samples) in groups() {
            for (name, function) in table {
                let g = Recorder::new();
                let x = samples.iter().enumerate().map(|(i, (shape, _))| match dtype {
                    DType::Bool => g.full_bool(*shape, true),
                    _ => g.typed_input(&format!("x{i}"), TensorType::new(dtype, *shape)),
                });
                match function(&g, &x.collect::<Result<Vec<_>>>().unwrap()) {
                    Ok(y) if name.starts_with("to_dtype") => assert!(y.dtype().is_float()),
                    Ok(y) => {
                        assert!(!y.dtype().is_float(), "{name} of {dtype} gives {}", y.dtype());
                        kept += 1;
                    }
                    Err(Error::DType { .. }) => refused += 1,
                    Err(other) => panic!("{name} of {dtype}: {other}"),
                }
            }
        }
    }
    println!("{kept} results of integers, {refused} refusals");
    assert!(kept > 50 && refused > 200, "{kept} kept, {refused} refused");
}
