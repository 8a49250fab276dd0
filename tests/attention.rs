//! Attention by kernels against attention as products and a softmax: values, first
//! and second gradients, under every policy; what no key is seen gives; memory.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "common/engine.rs"]
mod engine;

use std::collections::BTreeMap;

use common::models::noise;
use common::naive::Naive;
use remat::checkpoint::Policy;
use remat::dtype::DType;
use remat::error::{Error, Result};
use remat::gpu::InputData;
use remat::graph::{Recorder, Tensor};
use remat::ops::AttentionOptions;
use remat::params::Params;
use remat::profile::{AdapterClass, DeviceProfile};
use remat::step::RecordedStep;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mask {
    No,
    /// Numbers, of this shape, some of them -infinity.
    Added([usize; 4]),
    /// Truth values, of this shape.
    Truths([usize; 4]),
}

#[derive(Debug, Clone, Copy)]
struct Case {
    batch: usize,
    heads: [usize; 2],
    rows: [usize; 2],
    widths: [usize; 2],
    causal: Option<usize>,
    mask: Mask,
}

const PLAIN: Case = Case { batch: 2, heads: [4, 4], rows: [16, 16], widths: [8, 8], causal: None, mask: Mask::No };

/// Odd sizes; every combination that changes what a kernel does.
const CASES: &[Case] = &[
    PLAIN,
    Case { causal: Some(0), ..PLAIN },
    Case { rows: [1, 1], ..PLAIN },
    Case { rows: [1, 33], widths: [20, 20], ..PLAIN },
    Case { rows: [33, 33], widths: [20, 20], causal: Some(0), ..PLAIN },
    Case { rows: [33, 7], causal: Some(0), ..PLAIN },
    Case { rows: [7, 33], causal: Some(26), ..PLAIN },
    Case { rows: [7, 33], causal: Some(usize::MAX), ..PLAIN },
    Case { rows: [9, 13], widths: [4, 12], ..PLAIN },
    Case { rows: [9, 13], widths: [12, 4], mask: Mask::Truths([1, 1, 9, 13]), ..PLAIN },
    Case { heads: [6, 2], rows: [33, 33], causal: Some(0), ..PLAIN },
    Case { heads: [6, 1], rows: [5, 21], mask: Mask::Added([2, 6, 5, 21]), ..PLAIN },
    Case { heads: [4, 2], rows: [10, 10], causal: Some(0), mask: Mask::Truths([2, 1, 1, 10]), ..PLAIN },
    Case { rows: [11, 14], mask: Mask::Added([1, 4, 11, 1]), ..PLAIN },
    Case { batch: 1, heads: [2, 2], rows: [10, 12], widths: [72, 40], causal: Some(2), ..PLAIN },
    Case { batch: 1, heads: [2, 1], rows: [9, 9], widths: [128, 128], ..PLAIN },
];

impl Case {
    fn shapes(&self) -> [[usize; 4]; 3] {
        let Self { batch, heads: [h, hk], rows: [t, s], widths: [d, e], .. } = *self;
        [[batch, h, t, d], [batch, hk, s, d], [batch, hk, s, e]]
    }

    fn data(&self) -> Vec<Vec<f32>> {
        let mut all: Vec<Vec<f32>> =
            self.shapes().iter().zip(1..).map(|(s, seed)| noise(s.iter().product(), seed)).collect();
        if let Mask::Added(shape) | Mask::Truths(shape) = self.mask {
            let mut mask = noise(shape.iter().product(), 9);
            // A third of the keys is not seen.
            mask.iter_mut().filter(|v| **v < -0.33).for_each(|v| *v = f32::NEG_INFINITY);
            all.push(mask);
        }
        all
    }

    /// Attention of `2 q`, `k`, `v` and the mask, inside a segment; its input is
    /// another op's output, and its output feeds another.
    fn record(&self, g: &Recorder, fused: bool) -> Result<(Vec<Tensor>, Tensor)> {
        let mut x: Vec<Tensor> =
            self.shapes().iter().zip(["q", "k", "v"]).map(|(s, n)| g.input::<f32>(n, *s)).collect::<Result<_>>()?;
        let mut mask = None;
        if let Mask::Added(shape) | Mask::Truths(shape) = self.mask {
            let given = g.input::<f32>("mask", shape)?;
            if matches!(self.mask, Mask::Truths(_)) {
                mask = Some(given.gt_scalar(-1.0_f32)?);
            } else {
                mask = Some(given.clone());
                x.push(given);
            }
        }
        let y = g.checkpoint(x[0].clone(), |q| {
            let options = AttentionOptions {
                causal: self.causal.is_some(),
                causal_offset: self.causal.unwrap_or(0),
                mask: mask.as_ref(),
                ..AttentionOptions::default()
            };
            let q = q.mul_scalar(2.0_f32)?;
            let y = if fused {
                q.attention_fused(&x[1], &x[2], options)?
            } else {
                q.attention_composed(&x[1], &x[2], options)?
            };
            y.mul_scalar(0.5_f32)
        })?;
        Ok((x, y))
    }

    /// The output, and the gradients of a loss that weighs its elements differently.
    fn outputs(&self, g: &Recorder, fused: bool, twice: bool) -> Result<Vec<Tensor>> {
        let (x, y) = self.record(g, fused)?;
        let weights = g.constant(&noise(y.element_count() as usize, 77), y.shape().clone())?;
        let loss = y.sqr()?.mul_scalar(0.3_f32)?.add(&y.mul(&weights)?)?.sum_all()?;
        let wrt: Vec<&Tensor> = x.iter().collect();
        let first = g.gradients(&loss, &wrt)?;
        if !twice {
            return Ok([vec![y], first].concat());
        }
        let mut sum: Option<Tensor> = None;
        for gradient in &first[..3] {
            let square = gradient.sqr()?.sum_all()?;
            sum = Some(match sum {
                None => square,
                Some(sum) => sum.add(&square)?,
            });
        }
        g.gradients(&sum.unwrap(), &wrt)
    }

    fn compare(&self, twice: bool, tolerance: f64) {
        let (_turn, gpu) = engine::gpu();
        let data = self.data();
        let inputs: Vec<(&str, InputData<'_>)> =
            ["q", "k", "v", "mask"].into_iter().zip(&data).map(|(n, d)| (n, d.into())).collect();
        let [fused, composed] = [true, false].map(|fused| {
            let step = engine::record(&gpu, |g| self.outputs(g, fused, twice));
            let has = |name: &str| step.program().passes.iter().any(|p| p.kind == name);
            assert_eq!(has("attention"), fused, "{self:?}");
            if !twice {
                assert_eq!(has("attention_grad_queries"), fused, "{self:?}");
            }
            engine::run_all(&gpu, &Params::new(&gpu, 0), &step, &inputs)
        });
        let outputs = composed.outputs.len();
        let [fused, composed] = [fused, composed].map(|ran| (0..outputs).map(|i| ran.floats(i)).collect::<Vec<_>>());
        self.assert_same(&fused, &composed, tolerance);
    }

    /// The kernels that another class of device gets, run here: the variants differ in
    /// tiles alone.
    fn compare_for(&self, class: AdapterClass, naive: &Naive, tolerance: f64) {
        let words = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
        let inputs: BTreeMap<String, Vec<u32>> =
            ["q", "k", "v", "mask"].map(str::to_owned).into_iter().zip(self.data().into_iter().map(words)).collect();
        let [fused, composed] = [(class, true), (AdapterClass::Cpu, false)].map(|(class, fused)| {
            let profile = DeviceProfile::webgpu_defaults(class);
            let step = RecordedStep::new(&profile, |g| self.outputs(g, fused, false)).unwrap();
            let (outputs, _) = naive.run(step.program(), &inputs, &BTreeMap::new());
            outputs.iter().map(|words| engine::floats(words)).collect::<Vec<_>>()
        });
        self.assert_same(&fused, &composed, tolerance);
    }

    /// Where one key is seen, gradients of scores cancel to 0: errors are measured
    /// against the largest number of the case, not of one output.
    fn assert_same(&self, fused: &[Vec<f32>], composed: &[Vec<f32>], tolerance: f64) {
        assert_eq!(fused.len(), composed.len());
        let largest = composed.iter().flatten().fold(0.0_f32, |m, v| m.max(v.abs()));
        for (output, (fused, composed)) in fused.iter().zip(composed).enumerate() {
            assert_eq!(fused.len(), composed.len());
            for (i, (f, e)) in fused.iter().zip(composed).enumerate() {
                let fits = f64::from((f - e).abs()) <= tolerance * f64::from(e.abs() + largest);
                assert!(fits, "{self:?}, output {output}: element {i} is {f}, expected {e} of {largest}");
            }
        }
    }
}

#[test]
fn values_and_gradients_are_those_of_products_and_a_softmax() {
    for case in CASES {
        case.compare(false, 1e-5);
    }
}

#[test]
fn the_kernels_for_a_gpu_give_the_same() {
    let (_turn, _gpu) = engine::gpu();
    let naive = Naive::new();
    for case in CASES {
        case.compare_for(AdapterClass::Discrete, &naive, 1e-5);
    }
}

#[test]
fn second_gradients_are_those_of_products_and_a_softmax() {
    for index in [0, 3, 6, 9, 11] {
        CASES[index].compare(true, 1e-4);
    }
}

/// Rows whose every key is hidden by a number: -infinity gives zeros, the lowest
/// finite number the mean of the values, and the gradients that belong to them.
#[test]
fn rows_that_see_nothing_are_defined() {
    let (_turn, gpu) = engine::gpu();
    let data: Vec<Vec<f32>> = (1..4).map(|seed| noise(2 * 9 * 8, seed)).collect();
    let inputs: Vec<(&str, InputData<'_>)> =
        ["q", "k", "v"].into_iter().zip(&data).map(|(n, d)| (n, d.into())).collect();
    let run = |hide: f32, fused: bool| {
        let step = engine::record(&gpu, |g| {
            let [q, k, v] = ["q", "k", "v"].map(|n| g.input::<f32>(n, [1, 2, 9, 8]));
            let (q, k, v) = (q?, k?, v?);
            // Every second row is hidden.
            let mut rows = vec![0.0_f32; 9];
            rows.iter_mut().step_by(2).for_each(|r| *r = hide);
            let mask = g.constant(&rows, [9, 1])?;
            let options = AttentionOptions { mask: Some(&mask), ..AttentionOptions::default() };
            let y = if fused { q.attention_with(&k, &v, options)? } else { q.attention_composed(&k, &v, options)? };
            let gradients = g.gradients(&y.sqr()?.sum_all()?, &[&q, &k, &v])?;
            Ok([vec![y], gradients].concat())
        });
        engine::run_all(&gpu, &Params::new(&gpu, 0), &step, &inputs)
    };
    for hide in [f32::NEG_INFINITY, f32::MIN, -1e30] {
        let (fused, composed) = (run(hide, true), run(hide, false));
        for output in 0..4 {
            let what = format!("hidden by {hide}, output {output}");
            engine::assert_close(&fused.floats(output), &engine::wide(&composed.floats(output)), 1e-5, &what);
        }
        let first = fused.floats(0)[..8].to_vec();
        if hide == f32::NEG_INFINITY {
            assert_eq!(first, [0.0; 8]);
        } else {
            let mean = |e: usize| (0..9).map(|s| data[2][s * 8 + e]).sum::<f32>() / 9.0;
            assert!((0..8).all(|e| (first[e] - mean(e)).abs() < 1e-6), "{first:?}");
        }
    }
}

/// The first query sees the first key, as PyTorch's `is_causal` has it, unless told otherwise.
#[test]
fn causal_counts_from_the_first_key() {
    let (_turn, gpu) = engine::gpu();
    let (ones, v): (Vec<f32>, Vec<f32>) = (vec![1.0; 20], (0..20).map(|i| (i / 4) as f32).collect());
    let step = engine::record(&gpu, |g| {
        let (q, v) = (g.input::<f32>("q", [1, 3, 4])?, g.input::<f32>("v", [1, 5, 4])?);
        let k = g.zeros([1, 5, 4])?;
        let from = |causal_offset| AttentionOptions { causal: true, causal_offset, ..AttentionOptions::default() };
        let mut all = vec![q.attention_fused(&k, &v, from(0))?];
        for offset in [0, 2, 9] {
            all.push(q.attention_fused(&k, &v, from(offset))?);
            all.push(q.attention_composed(&k, &v, from(offset))?);
        }
        Ok(all)
    });
    let inputs: [(&str, InputData<'_>); 2] = [("q", (&ones[..12]).into()), ("v", (&v).into())];
    let ran = engine::run_all(&gpu, &Params::new(&gpu, 0), &step, &inputs);
    // Scores are equal, so a row is the mean of the first keys' numbers.
    let expected = [[0.0, 0.5, 1.0], [0.0, 0.5, 1.0], [1.0, 1.5, 2.0], [2.0, 2.0, 2.0]];
    for output in 0..7 {
        let rows = expected[usize::div_ceil(output, 2)];
        let wide: Vec<f64> = rows.iter().flat_map(|&r| [r; 4]).collect();
        engine::assert_close(&ran.floats(output), &wide, 1e-6, &format!("output {output}"));
    }
}

/// One tensor as queries, keys, values and mask.
#[test]
fn an_operand_may_be_the_mask_too() {
    let (_turn, gpu) = engine::gpu();
    let data = noise(2 * 8 * 8, 5);
    let [fused, composed] = [true, false].map(|fused| {
        let step = engine::record(&gpu, |g| {
            let x = g.input::<f32>("x", [2, 8, 8])?;
            let mask = x.narrow(0, 0, 1)?;
            let options = AttentionOptions { mask: Some(&mask), ..AttentionOptions::default() };
            let y = if fused { x.attention_fused(&x, &x, options)? } else { x.attention_composed(&x, &x, options)? };
            Ok([vec![y.clone()], g.gradients(&y.sqr()?.sum_all()?, &[&x])?].concat())
        });
        engine::run_all(&gpu, &Params::new(&gpu, 0), &step, &[("x", (&data).into())])
    });
    for output in 0..2 {
        let expected = engine::wide(&composed.floats(output));
        engine::assert_close(&fused.floats(output), &expected, 1e-5, &format!("output {output}"));
    }
}

/// The planned activation peak of attention, forward and backward, at a length.
fn peak(time: usize, fused: bool) -> u64 {
    let profile = DeviceProfile { max_binding_bytes: 1 << 32, max_buffer_bytes: 1 << 32, ..DeviceProfile::default() };
    let step = RecordedStep::new(&profile, |g| {
        let [q, k, v] = ["q", "k", "v"].map(|n| g.input::<f32>(n, [1, 8, time, 64]));
        let (q, k, v) = (q?, k?, v?);
        let options = AttentionOptions { causal: true, ..AttentionOptions::default() };
        let y = if fused { q.attention_fused(&k, &v, options)? } else { q.attention_composed(&k, &v, options)? };
        g.gradients(&y.sqr()?.sum_all()?, &[&q, &k, &v])
    })
    .unwrap();
    step.plan(&Policy::None).unwrap().activation_peak_bytes
}

#[test]
fn few_keys_are_composed_and_more_fused() {
    let kinds = |keys: usize| {
        let step = RecordedStep::new(&DeviceProfile::default(), |g| {
            let q = g.input::<f32>("q", [1, 2, 300, 16])?;
            let k = g.input::<f32>("k", [1, 2, keys, 16])?;
            q.attention(&k, &k, false)
        })
        .unwrap();
        step.program().passes.iter().any(|pass| pass.kind == "attention")
    };
    assert_eq!([1, 128, 129, 512].map(kinds), [false, false, true, true]);
}

#[test]
fn memory_grows_with_the_length_not_with_its_square() {
    let lengths = [512, 1024, 2048, 4096];
    let [fused, composed] = [true, false].map(|fused| lengths.map(|t| peak(t, fused)));
    println!("activation peak at {lengths:?}: {fused:?} bytes fused, {composed:?} composed");
    for pair in fused.windows(2) {
        assert!(pair[1] <= 2 * pair[0] + 4096, "twice the length takes {} for {}", pair[1], pair[0]);
    }
    // What the test would see if scores were made.
    assert!(composed[3] > 12 * composed[1] && fused[3] < composed[3] / 16);
}

#[test]
fn what_does_not_fit_is_a_typed_error_and_other_widths_are_composed() {
    fn with(mask: &Tensor) -> AttentionOptions<'_> {
        AttentionOptions { mask: Some(mask), ..AttentionOptions::default() }
    }
    let g = Recorder::new();
    let zeros = |dims: [usize; 4]| g.zeros(dims).unwrap();
    let (q, k) = (zeros([2, 4, 3, 8]), zeros([2, 2, 5, 8]));
    let ids = g.full_i32([3, 5], 1).unwrap();
    let error = q.attention_fused(&k, &k, with(&ids)).unwrap_err();
    assert!(matches!(error, Error::DType { op: "attention", operand: 3, found: DType::I32, .. }), "{error}");
    for dims in [[2, 4, 5, 3], [1, 2, 3, 5]] {
        let mask = zeros(dims);
        for fused in [true, false] {
            let wrong =
                if fused { q.attention_fused(&k, &k, with(&mask)) } else { q.attention_composed(&k, &k, with(&mask)) };
            let error = wrong.unwrap_err();
            assert!(matches!(error, Error::Shape { op: "attention", .. }), "{error}");
            assert!(error.to_string().contains(&format!("{dims:?}")), "{error}");
        }
    }
    for (heads, other) in [(3, 2), (4, 3)] {
        let error = zeros([2, heads, 3, 8]).attention(&zeros([2, other, 5, 8]), &zeros([2, other, 5, 8]), false);
        assert!(matches!(error, Err(Error::Shape { op: "attention", .. })), "{error:?}");
    }
    let profile = DeviceProfile::webgpu_defaults(AdapterClass::Cpu);
    for (width, fused) in [(6, false), (128, true), (132, false)] {
        let step = RecordedStep::new(&profile, |g| {
            let x = g.input::<f32>("x", [1, 1, 6, width])?;
            x.attention_fused(&x, &x, AttentionOptions { causal: true, ..AttentionOptions::default() })
        });
        let has = step.unwrap().program().passes.iter().any(|p| p.kind == "attention");
        assert_eq!(has, fused, "heads {width} wide");
    }
}
