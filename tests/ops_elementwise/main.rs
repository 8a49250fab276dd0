//! Elementwise ops, shape ops, casts and random numbers: against PyTorch's
//! values, at the edges of their ranges, and in the middle of a graph.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;
mod functions;
mod reference;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use common::naive::Naive;
use remat::dtype::{DType, Shape, TensorType};
use remat::error::{Error, Result};
use remat::graph::{Recorder, Tensor};
use remat::ops::random::random_uniform;
use remat::ops::{GradientCall, KernelCalls, KernelContext, KernelOp, Lowering, Op};
use remat::random::philox;
use remat::shared::Shared;

type Inputs = BTreeMap<String, Vec<u32>>;

/// One device for the whole binary: several dispatching at once crash some drivers.
fn device() -> MutexGuard<'static, Naive> {
    static DEVICE: OnceLock<Mutex<Naive>> = OnceLock::new();
    DEVICE.get_or_init(|| Mutex::new(Naive::new())).lock().unwrap_or_else(PoisonError::into_inner)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}
fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|w| f32::from_bits(*w)).collect()
}
fn inputs<const N: usize>(list: [(&str, Vec<u32>); N]) -> Inputs {
    list.into_iter().map(|(name, words)| (name.to_owned(), words)).collect()
}

/// A loss that is never computed: its gradient towards each operand of the
/// first half is the operand of the second half. It seeds backward with any
/// incoming gradient, so that every op stands in the middle of a graph.
#[derive(Debug)]
struct Seeded;

impl Op for Seeded {
    fn name(&self) -> &'static str {
        "seeded"
    }
    fn output_types(&self, _: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![TensorType::new(DType::F32, [])])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let half = call.inputs.len() / 2;
        Ok((0..2 * half).map(|i| (i < half).then(|| call.inputs[half + i].clone())).collect())
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Kernel(self)
    }
}
impl KernelOp for Seeded {
    fn kernels(&self, _: &KernelContext<'_>) -> Result<KernelCalls> {
        unreachable!("nothing reads the loss")
    }
}

/// Gradients of `sum(y * seed)` with respect to `wrt`.
fn gradients(y: &Tensor, seed: &Tensor, wrt: &[&Tensor]) -> Result<Vec<Tensor>> {
    let loss = y.recorder().record(Shared::new(Seeded), &[y, seed])?.swap_remove(0);
    y.recorder().gradients(&loss, wrt)
}

/// Values and gradients of a function of one variable at `points`, against `f64`.
fn at_points(record: impl Fn(&Tensor) -> Result<Tensor>, points: &[f32]) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
    let n = points.len();
    let data = inputs([("x", bits(points)), ("g", bits(&vec![1.0; n]))]);
    let out = device()
        .run_recording(&data, |r| {
            let x = r.input::<f32>("x", [n])?;
            let g = r.input::<f32>("g", [n])?;
            let y = record(&x)?;
            let first = gradients(&y, &g, &[&x])?.swap_remove(0);
            let second = gradients(&first, &g, &[&x])?.swap_remove(0);
            Ok(vec![y, first, second])
        })
        .unwrap();
    (floats(&out[0]), floats(&out[1]), floats(&out[2]))
}

const EXTREMES: [f32; 15] =
    [-3e38, -1e20, -1e4, -89.0, -44.0, -20.0, -1.0, 0.0, 1.0, 20.0, 44.0, 89.0, 1e4, 1e20, 3e38];

#[test]
fn activations_are_finite_and_right_far_out() {
    type Function = fn(&Tensor) -> Result<Tensor>;
    // The limits for large |x|: value over x or value, and slope, on each side.
    let cases: [(&str, Function, [f32; 2], [f32; 2]); 8] = [
        ("tanh", |x| x.tanh(), [-1.0, 1.0], [0.0, 0.0]),
        ("sigmoid", |x| x.sigmoid(), [0.0, 1.0], [0.0, 0.0]),
        ("gelu", |x| x.gelu(), [0.0, f32::INFINITY], [0.0, 1.0]),
        ("gelu_tanh", |x| x.gelu_tanh(), [0.0, f32::INFINITY], [0.0, 1.0]),
        ("silu", |x| x.silu(), [0.0, f32::INFINITY], [0.0, 1.0]),
        ("mish", |x| x.mish(), [0.0, f32::INFINITY], [0.0, 1.0]),
        ("softplus", |x| x.softplus(), [0.0, f32::INFINITY], [0.0, 1.0]),
        ("erf", |x| x.erf(), [-1.0, 1.0], [0.0, 0.0]),
    ];
    for (name, f, values, slopes) in cases {
        let (y, dy, ddy) = at_points(f, &EXTREMES);
        for (i, &x) in EXTREMES.iter().enumerate() {
            assert!(
                y[i].is_finite() && dy[i].is_finite() && ddy[i].is_finite(),
                "{name}({x}): {} {} {}",
                y[i],
                dy[i],
                ddy[i]
            );
            if x.abs() >= 20.0 {
                let side = usize::from(x > 0.0);
                let value = if values[side].is_infinite() { x } else { values[side] };
                assert!((y[i] - value).abs() <= 1e-6 * value.abs().max(1.0), "{name}({x}) = {}", y[i]);
                assert!((dy[i] - slopes[side]).abs() < 1e-6, "{name}'({x}) = {}", dy[i]);
                assert!(ddy[i].abs() < 1e-6, "{name}''({x}) = {}", ddy[i]);
            }
        }
    }
}

#[test]
fn sine_and_cosine_are_accurate_to_a_hundred() {
    let points: Vec<f32> = (-5000..=5000).map(|i| i as f32 * 0.02).collect();
    let (s, c, _) = at_points(|x| x.sin(), &points);
    let mut worst = 0.0_f64;
    for ((&x, s), c) in points.iter().zip(s).zip(c) {
        let x = f64::from(x);
        worst = worst.max((f64::from(s) - x.sin()).abs()).max((f64::from(c) - x.cos()).abs());
    }
    assert!(worst < 5e-7, "{worst}");
}

/// Second derivatives against central differences of first ones, in f64 from
/// the formulas of a few closed forms.
#[test]
fn functions_are_differentiable_twice() {
    type Function = fn(&Tensor) -> Result<Tensor>;
    let cases: [(&str, Function, bool); 27] = [
        ("exp", |x| x.exp(), false),
        ("ln", |x| x.ln(), true),
        ("sqrt", |x| x.sqrt(), true),
        ("rsqrt", |x| x.rsqrt(), true),
        ("recip", |x| x.recip(), true),
        ("sqr", |x| x.sqr(), false),
        ("sin", |x| x.sin(), false),
        ("cos", |x| x.cos(), false),
        ("tanh", |x| x.tanh(), false),
        ("sigmoid", |x| x.sigmoid(), false),
        ("gelu", |x| x.gelu(), false),
        ("gelu_tanh", |x| x.gelu_tanh(), false),
        ("silu", |x| x.silu(), false),
        ("softplus", |x| x.softplus(), false),
        ("mish", |x| x.mish(), false),
        ("elu", |x| x.elu(0.7), false),
        ("erf", |x| x.erf(), false),
        ("log1p", |x| x.log1p(), true),
        ("expm1", |x| x.expm1(), false),
        ("powf", |x| x.powf(2.5), true),
        ("hardswish", |x| x.hardswish(), false),
        ("mul", |x| x.mul(x)?.mul(x), false),
        ("div", |x| x.div(&x.add_scalar(3.0)?), false),
        ("pow", |x| x.pow(x), true),
        ("rdiv", |x| x.add_scalar(3.0)?.rdiv_scalar(2.0), false),
        ("remainder", |x| x.sqr()?.remainder(&x.add_scalar(10.0)?), true),
        ("clamp", |x| x.sqr()?.clamp(0.5, 1.5), false),
    ];
    let centres: Vec<f32> = (0..12).map(|i| 0.13 + i as f32 * 0.17).collect();
    for (name, f, positive) in cases {
        let h = 1.0 / 64.0;
        for sign in if positive { &[1.0_f32][..] } else { &[1.0, -1.0][..] } {
            let points: Vec<f32> = centres.iter().flat_map(|c| [sign * c - h, sign * c, sign * c + h]).collect();
            let (y, dy, ddy) = at_points(f, &points);
            for i in 0..centres.len() {
                let (l, m, r) = (3 * i, 3 * i + 1, 3 * i + 2);
                // A kink inside the step makes the difference quotient meaningless.
                let bend = (ddy[l] - ddy[r]).abs();
                if bend > 1.0 + 0.5 * ddy[m].abs() {
                    continue;
                }
                let slope = (y[r] - y[l]) / (2.0 * h);
                let curve = (dy[r] - dy[l]) / (2.0 * h);
                let near = |a: f32, b: f32| (a - b).abs() < 0.01 + 0.02 * b.abs();
                let skips = matches!(name, "clamp" | "hardswish") && (bend > 1e-6 || (dy[l] - dy[r]).abs() > 0.5);
                if !skips {
                    assert!(near(slope, dy[m]), "{name}'({}) = {} but the quotient is {slope}", points[m], dy[m]);
                    assert!(near(curve, ddy[m]), "{name}''({}) = {} but the quotient is {curve}", points[m], ddy[m]);
                }
            }
        }
    }
}

#[test]
fn integers_casts_and_logic() {
    let a = [7_i32, -7, 5, i32::MIN, 0];
    let b = [2_i32, 2, -3, 3, 4];
    let f = [f32::NAN, 1e20, -1e20, -2.9, 2.9];
    let data = inputs([
        ("a", a.iter().map(|v| *v as u32).collect()),
        ("b", b.iter().map(|v| *v as u32).collect()),
        ("f", bits(&f)),
    ]);
    let out = device()
        .run_recording(&data, |g| {
            let (a, b, f) = (g.input::<i32>("a", [5])?, g.input::<i32>("b", [5])?, g.input::<f32>("f", [5])?);
            let odd = a.remainder(&g.full_i32([], 2)?)?.eq_scalar(1)?;
            Ok(vec![
                a.add(&b)?,
                a.div(&b)?,
                a.remainder(&b)?,
                a.maximum(&b)?,
                f.to_i32()?,
                f.to_u32()?,
                odd.logical_and(&a.gt_scalar(5)?)?.logical_not()?.to_u32()?,
                f.isnan()?.logical_or(&f.isinf()?)?.to_f32()?,
                a.neg()?.to_f32()?,
                f.to_bool()?.to_i32()?,
            ])
        })
        .unwrap();
    let signed = |i: usize| out[i].iter().map(|w| *w as i32).collect::<Vec<_>>();
    assert_eq!(signed(0), [9, -5, 2, i32::MIN + 3, 4]);
    assert_eq!(signed(1), [3, -3, -1, i32::MIN / 3, 0]);
    assert_eq!(signed(2), [1, 1, -1, i32::MIN.rem_euclid(3), 0]);
    assert_eq!(signed(3), [7, 2, 5, 3, 4]);
    assert_eq!(signed(4), f.map(|v| v as i32));
    assert_eq!(out[5], f.map(|v| v as u32));
    assert_eq!(out[6], [0, 1, 1, 1, 1]);
    assert_eq!(floats(&out[7]), [1.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(floats(&out[8]), a.map(|v| v.wrapping_neg() as f32));
    assert_eq!(signed(9), [1, 1, 1, 1, 1]);
}

#[test]
fn classes_of_floats_and_nan_in_extrema() {
    let x = [f32::NAN, -f32::NAN, f32::INFINITY, 1.0, f32::NEG_INFINITY, 0.0];
    let out = device()
        .run_recording(&inputs([("x", bits(&x))]), |g| {
            let x = g.input::<f32>("x", [6])?;
            let one = g.full([], 1.0)?;
            Ok(vec![
                x.isnan()?.to_f32()?,
                x.isinf()?.to_f32()?,
                x.isfinite()?.to_f32()?,
                x.maximum(&one)?,
                x.minimum(&one)?,
                x.relu()?,
                x.clamp(-1.0, 2.0)?,
                x.isnan()?.where_(&g.zeros([])?, &x)?,
            ])
        })
        .unwrap();
    assert_eq!(floats(&out[0]), [1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(floats(&out[1]), [0.0, 0.0, 1.0, 0.0, 1.0, 0.0]);
    assert_eq!(floats(&out[2]), [0.0, 0.0, 0.0, 1.0, 0.0, 1.0]);
    for words in &out[3..7] {
        assert!(floats(words)[..2].iter().all(|v| v.is_nan()), "{:?}", floats(words));
    }
    assert_eq!(floats(&out[3])[2..], [f32::INFINITY, 1.0, 1.0, 1.0]);
    assert_eq!(floats(&out[7])[..2], [0.0, 0.0]);
}

#[test]
fn constants_reach_the_shader_unharmed() {
    let values = [0.1, 1e-38, 16_777_217.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -0.0, f32::MIN_POSITIVE];
    let out = device().run_recording(&Inputs::new(), |g| values.iter().map(|v| g.full([3], *v)).collect()).unwrap();
    for (words, value) in out.iter().zip(values) {
        assert_eq!(words, &[value.to_bits(); 3], "{value}");
    }
}

#[test]
fn power_follows_c() {
    let a = [0.0, 0.0, 0.0, -2.0, -2.0, -2.0, 1.0, -8.0, 2.0, -0.0];
    let b = [0.0, 2.0, -1.0, 3.0, 2.0, 0.5, 1e30, 0.0, -2.0, 3.0];
    let out = device()
        .run_recording(&inputs([("a", bits(&a)), ("b", bits(&b))]), |g| {
            Ok(vec![g.input::<f32>("a", [10])?.pow(&g.input::<f32>("b", [10])?)?])
        })
        .unwrap();
    for (i, y) in floats(&out[0]).into_iter().enumerate() {
        let expected = f32::powf(a[i], b[i]);
        assert!(
            (y.is_nan() && expected.is_nan()) || (y - expected).abs() <= 1e-6 * expected.abs() || y == expected,
            "{} ^ {} = {y}, not {expected}",
            a[i],
            b[i]
        );
    }
}

#[test]
fn empty_shapes_are_legal_everywhere() {
    let data = inputs([("x", vec![]), ("y", vec![]), ("s", bits(&[2.0])), ("seed", vec![1]), ("step", vec![0])]);
    let out = device()
        .run_recording(&data, |g| {
            let (x, y) = (g.input::<f32>("x", [0])?, g.input::<f32>("y", [3, 0])?);
            let s = g.input::<f32>("s", [])?;
            let all = y.mul(&s)?.gelu()?.masked_fill(&y.gt_scalar(0.0)?, 1.0)?.dropout(0.5)?;
            let seed = g.zeros([0, 3])?;
            let grad = gradients(&all.t()?, &seed, &[&y])?.swap_remove(0);
            Ok(vec![
                x.add(&s)?,
                all.permute(&[1, 0])?.reshape([0, 3])?,
                grad,
                y.pad(&[(0, 0), (1, 1)], 5.0)?,
                x.narrow(0, 0, 0)?.to_i32()?.to_f32()?,
                y.tril(0)?,
                g.rand_uniform([0])?,
                g.iota([0, 4], 1)?,
            ])
        })
        .unwrap();
    for (i, words) in out.iter().enumerate() {
        if i == 3 {
            assert_eq!(floats(words), [5.0; 6]);
        } else {
            assert!(words.is_empty(), "{i}");
        }
    }
}

#[test]
fn a_grid_beyond_one_axis_is_split() {
    // Odd, so that no vectors of four are formed; and past 2^24, where f32 cannot count.
    for n in [65_535 * 256 + 1, (1 << 24) + 1] {
        let x: Vec<u32> = (0..n as u32).collect();
        let out = device()
            .run_recording(&inputs([("x", x)]), |g| {
                let x = g.input::<u32>("x", [n])?;
                Ok(vec![x.mul_scalar(3_u32)?.add(&g.arange(n)?)?])
            })
            .unwrap();
        assert!(out[0].iter().enumerate().all(|(i, w)| *w == 4 * i as u32), "{n}");
    }
}

#[test]
fn sizes_that_cannot_be_addressed_are_refused() {
    for shape in [vec![1 << 16, 1 << 16], vec![(1 << 32) - 1], vec![1 << 31, 2], vec![1 << 20, 1 << 20, 1 << 30]] {
        let recorder = Recorder::new();
        let x = recorder.input::<f32>("x", [1]).unwrap();
        let y = x.broadcast_to(Shape(vec![1; shape.len()])).unwrap().broadcast_to(shape.clone()).unwrap();
        let y = y.add_scalar(1.0).unwrap();
        let graph = recorder.finish(&[("y".into(), &y)]).unwrap();
        let result = remat::fuse::fuse(&graph, &remat::profile::DeviceProfile::default());
        assert!(matches!(result, Err(Error::Limit { .. })), "{shape:?}: {result:?}");
    }
    let recorder = Recorder::new();
    let x = recorder.input::<f32>("x", [1]).unwrap();
    let y = x.broadcast_to([1 << 30]).unwrap().add_scalar(1.0).unwrap();
    let graph = recorder.finish(&[("y".into(), &y)]).unwrap();
    let program = remat::fuse::fuse(&graph, &remat::profile::DeviceProfile::default()).unwrap();
    let groups: u64 = program.passes[0].grid.iter().map(|&n| u64::from(n)).product();
    assert!(groups * 256 * 4 >= 1 << 30);
}

#[test]
fn philox_gives_the_known_answers() {
    // Random123 1.14, tests/kat_vectors, philox4x32 10.
    let all = u32::MAX;
    assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    assert_eq!(philox([all; 4], [all; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    assert_eq!(
        philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
        [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
    );
}

#[test]
fn dropout_draws_the_hosts_numbers_and_its_gradient_the_same() {
    for shape in [vec![33, 4], vec![5, 7]] {
        let n: usize = shape.iter().product();
        let x: Vec<f32> = (0..n).map(|i| i as f32 + 1.0).collect();
        let data = inputs([("x", bits(&x)), ("g", bits(&vec![1.0; n])), ("seed", vec![77]), ("step", vec![5])]);
        let out = device()
            .run_recording(&data, |r| {
                let (x, g) = (r.input::<f32>("x", shape.clone())?, r.input::<f32>("g", shape.clone())?);
                let u = r.rand_uniform(shape.clone())?;
                let y = x.dropout(0.25)?;
                let dx = gradients(&y, &g, &[&x])?.swap_remove(0);
                let z = y.dropout(0.25)?;
                Ok(vec![u, y, dx, z, r.bernoulli(shape.clone(), 0.5)?.to_f32()?])
            })
            .unwrap();
        let scale = 1.0_f32 / 0.75;
        for (i, &x) in x.iter().enumerate() {
            let at = i as u32;
            assert_eq!(floats(&out[0])[i], random_uniform(at, 0, 5, 77));
            let kept = random_uniform(at, 1, 5, 77) >= 0.25;
            assert_eq!(floats(&out[1])[i], if kept { x * scale } else { 0.0 });
            assert_eq!(floats(&out[2])[i], if kept { scale } else { 0.0 });
            let again = kept && random_uniform(at, 2, 5, 77) >= 0.25;
            assert_eq!(floats(&out[3])[i] != 0.0, again);
            assert_eq!(floats(&out[4])[i] != 0.0, random_uniform(at, 3, 5, 77) < 0.5);
        }
    }
    let r = Recorder::new();
    let x = r.input::<f32>("x", [4]).unwrap();
    assert_eq!(x.dropout(0.0).unwrap().id(), x.id());
    for p in [1.0, -0.1, f32::NAN, 2.0] {
        assert!(matches!(x.dropout(p), Err(Error::Argument { op: "dropout", .. })), "{p}");
    }
}

#[test]
fn causal_fill_masks_what_comes_later() {
    for (t, s) in [(4, 8), (3, 3), (5, 7)] {
        let n = 2 * t * s;
        let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
        let out = device()
            .run_recording(&inputs([("x", bits(&x)), ("g", bits(&vec![1.0; n]))]), |r| {
                let (x, g) = (r.input::<f32>("x", [2, t, s])?, r.input::<f32>("g", [2, t, s])?);
                let y = x.mul_scalar(0.5)?.causal_fill(-1e30)?;
                let dx = gradients(&y, &g, &[&x])?.swap_remove(0);
                Ok(vec![y, dx, x.triu(1)?])
            })
            .unwrap();
        for (i, &x) in x.iter().enumerate() {
            let (row, column) = (i / s % t, i % s);
            let kept = column <= row + s - t;
            assert_eq!(floats(&out[0])[i], if kept { 0.5 * x } else { -1e30 }, "{t} {s} {i}");
            assert_eq!(floats(&out[1])[i], if kept { 0.5 } else { 0.0 });
            assert_eq!(floats(&out[2])[i], if column > row { x } else { 0.0 });
        }
    }
}

#[test]
fn split_gives_views_and_joins_their_gradients() {
    // Widths of four and odd ones, an empty part, one whose gradient is missing, and more than bind at once.
    for sizes in [vec![4, 8, 4], vec![3, 0, 2, 1], vec![1; 9]] {
        let n: usize = sizes.iter().sum();
        let x: Vec<f32> = (0..2 * n * 3).map(|i| i as f32).collect();
        let out = device()
            .run_recording(&inputs([("x", bits(&x))]), |r| {
                let x = r.input::<f32>("x", [2, n, 3])?;
                let parts = x.split(1, &sizes)?;
                let last = parts.len() - 1;
                let mut sum = parts[0].mul_scalar(0.0)?.sum(&[0, 1, 2], false)?;
                for (i, part) in parts.iter().enumerate().take(last) {
                    sum = sum.add(&part.sqr()?.mul_scalar(0.5 * (i + 1) as f32)?.sum(&[0, 1, 2], false)?)?;
                }
                Ok(vec![r.gradients(&sum, &[&x])?.swap_remove(0), parts[last].neg()?])
            })
            .unwrap();
        let part_of = |column: usize| {
            let mut end = 0;
            sizes.iter().position(|size| {
                end += size;
                column < end
            })
        };
        let gradient = floats(&out[0]);
        let mut tail = floats(&out[1]).into_iter();
        for (i, x) in x.iter().enumerate() {
            let part = part_of(i / 3 % n).unwrap();
            let factor = if part == sizes.len() - 1 { 0.0 } else { (part + 1) as f32 };
            assert_eq!(gradient[i], factor * x, "{sizes:?} {i}");
            if part == sizes.len() - 1 {
                assert_eq!(tail.next(), Some(-x));
            }
        }
    }
    let r = Recorder::new();
    let x = r.input::<f32>("x", [4]).unwrap();
    assert!(matches!(x.split(0, &[1, 2]), Err(Error::Argument { op: "split", .. })));
    assert!(matches!(x.split(0, &[]), Err(Error::Argument { op: "split", .. })));
}

#[test]
fn wrong_operands_are_typed_errors() {
    let r = Recorder::new();
    let f = r.input::<f32>("f", [2, 3]).unwrap();
    let i = r.input::<i32>("i", [2, 3]).unwrap();
    let other = r.input::<f32>("o", [4]).unwrap();
    assert!(matches!(f.add(&other), Err(Error::Shape { op: "add", .. })));
    assert!(matches!(f.mul(&i), Err(Error::DType { op: "mul", operand: 1, .. })));
    assert!(matches!(i.exp(), Err(Error::DType { op: "exp", .. })));
    assert!(matches!(i.add_scalar(1.0), Err(Error::DType { op: "add_scalar", .. })));
    assert!(matches!(f.permute(&[0, 0]), Err(Error::Argument { op: "permute", .. })));
    assert!(matches!(f.permute(&[0]), Err(Error::Argument { op: "permute", .. })));
    assert!(matches!(f.narrow(1, 2, 2), Err(Error::Argument { op: "narrow", .. })));
    assert!(matches!(f.narrow(1, 2, usize::MAX), Err(Error::Argument { op: "narrow", .. })));
    assert!(matches!(f.slice(1, 0, 3, 0), Err(Error::Argument { op: "slice", .. })));
    assert!(matches!(f.reshape([4]), Err(Error::Shape { op: "reshape", .. })));
    assert!(matches!(f.squeeze(0), Err(Error::Argument { op: "squeeze", .. })));
    assert!(matches!(f.clamp(1.0, 0.0), Err(Error::Argument { op: "clamp", .. })));
    assert!(matches!(f.masked_fill(&f, 0.0), Err(Error::DType { op: "masked_fill", operand: 1, .. })));
    assert!(matches!(f.where_(&f, &f), Err(Error::DType { op: "where", operand: 0, .. })));
    assert!(matches!(other.tril(0), Err(Error::Shape { op: "tril", .. })));
}
