//! Convolution, pooling and norms: against plain f64 loops, in segments, and the
//! `cnn` run of `tests/reference/training.json` with its running statistics.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
#[path = "common/engine.rs"]
mod engine;

use common::models::{Reference, excess, noise, policies, shared_gpu};
use remat::checkpoint::Policy;
use remat::dtype::Shape;
use remat::error::Result;
use remat::graph::{Recorder, Tensor};
use remat::nn::{BatchNorm2d, Conv2d, Linear, Module};
use remat::ops::Conv2dOptions;
use remat::optim::{Optimizer, Sgd, SgdConfig};
use remat::params::Params;
use remat::step::RecordedStep;

/// The model of the fixture: three segments of convolution, batch norm and ReLU.
struct Cnn {
    blocks: Vec<(Conv2d, BatchNorm2d)>,
    fc: Linear,
}

impl Cnn {
    fn new(params: &Params) -> Self {
        let blocks = [(1, 8, 1), (8, 16, 2), (16, 16, 2)].into_iter().enumerate().map(|(i, (ins, outs, stride))| {
            let options = Conv2dOptions::new(stride, 1);
            let conv = Conv2d::new(params, &format!("convs.{i}"), [ins, outs], 3, options, false).unwrap();
            (conv, BatchNorm2d::new(params, &format!("bns.{i}"), outs).unwrap())
        });
        let blocks = blocks.collect();
        Self { blocks, fc: Linear::new(params, "fc", 16, 10, true).unwrap() }
    }

    fn train(&self, g: &Recorder, optimizer: &dyn Optimizer) -> Result<(Tensor, Vec<Tensor>)> {
        let mut h = g.input::<f32>("x", [6, 1, 12, 12])?;
        for (conv, norm) in &self.blocks {
            h = g.checkpoint(h, |h| norm.forward(&conv.forward(&h)?)?.relu())?;
        }
        let logits = self.fc.forward(&h.mean(&[2, 3], false)?)?;
        let loss = logits.cross_entropy(&g.input::<i32>("y", [6])?)?;
        let gradients = optimizer.minimize(&loss)?;
        Ok((loss, gradients.entries.into_iter().map(|(_, gradient)| gradient).collect()))
    }
}

#[test]
fn cnn_follows_pytorch_under_every_policy_running_statistics_too() {
    let (_turn, gpu) = shared_gpu();
    let reference = Reference::new();
    let config = SgdConfig { momentum: 0.9, ..SgdConfig::default() };
    let recorded = {
        let params = Params::offline(0);
        let (cnn, sgd) = (Cnn::new(&params), Sgd::new(&params, config).unwrap());
        RecordedStep::new(gpu.profile(), |g| cnn.train(g, &sgd)).unwrap()
    };
    let expected = reference.numbers("cnn", "losses");
    let mut first_bits: Option<Vec<Vec<f32>>> = None;
    for policy in policies(&recorded) {
        let params = Params::new(&gpu, 0);
        let (cnn, sgd) = (Cnn::new(&params), Sgd::new(&params, config).unwrap());
        let initial = reference.under("cnn/init/");
        let states = initial.iter().map(|(name, (shape, values))| (name.as_str(), Shape(shape.clone()), &values[..]));
        params.load_blocking(states).unwrap();
        let step = gpu.step_blocking(policy.clone(), |g| cnn.train(g, &sgd)).unwrap();
        let mut losses = Vec::new();
        for index in 0..expected.len() {
            let x: Vec<f32> = reference.tensor(&format!("cnn/x{index}"));
            let y: Vec<i32> = reference.tensor(&format!("cnn/y{index}"));
            let (loss, gradients) =
                step.run_blocking(&[("x", (&x).into()), ("y", (&y).into()), ("lr", 0.05_f32.into())]).unwrap();
            losses.push(loss.item_blocking::<f32>().unwrap());
            if index == 0 {
                let read: Vec<Vec<f32>> = gradients.iter().map(|g| g.read_blocking().unwrap()).collect();
                assert!(first_bits.get_or_insert_with(|| read.clone()) == &read, "{policy}: other gradients");
            }
        }
        let worst = expected.iter().zip(&losses).map(|(e, &f)| (f64::from(f) / e - 1.0).abs());
        let worst = worst.fold(0.0, |m: f64, v| if v.is_nan() { v } else { m.max(v) });
        assert!(worst <= 1e-4, "{policy}: {losses:?} for {expected:?}");
        let mut furthest = (0.0, String::new());
        for (name, (_, values)) in reference.under("cnn/final/") {
            if name.ends_with("num_batches_tracked") {
                assert_eq!(params.read_blocking::<i32>(&name).unwrap(), [expected.len() as i32], "{policy}: {name}");
                continue;
            }
            let off = excess(&params.read_blocking::<f32>(&name).unwrap(), &values, 1e-5, 1e-5);
            assert!(off <= 1.0, "{policy}: final {name} is off by {off} of the tolerance");
            if off >= furthest.0 {
                furthest = (off, name);
            }
        }
        println!("cnn under {policy}: losses within {worst:.1e}, final state at {:.3} ({})", furthest.0, furthest.1);
    }
}

/// Sizes of a convolution and how it moves.
struct Case {
    batch: usize,
    channels: [usize; 2],
    input: [usize; 2],
    kernel: [usize; 2],
    options: Conv2dOptions,
}

/// Calls `each` with the flat places of y, x and w of every product.
fn products(case: &Case, output: [usize; 2], mut each: impl FnMut(usize, usize, usize)) {
    let Conv2dOptions { stride, padding, dilation, groups } = case.options;
    let [ins, outs] = case.channels.map(|c| c / groups);
    for n in 0..case.batch {
        for o in 0..case.channels[1] {
            for (i, j) in (0..output[0]).flat_map(|i| (0..output[1]).map(move |j| (i, j))) {
                for c in 0..ins {
                    for (k, l) in (0..case.kernel[0]).flat_map(|k| (0..case.kernel[1]).map(move |l| (k, l))) {
                        let a = (i * stride[0] + k * dilation[0]).wrapping_sub(padding[0]);
                        let b = (j * stride[1] + l * dilation[1]).wrapping_sub(padding[1]);
                        if a < case.input[0] && b < case.input[1] {
                            let channel = o / outs * ins + c;
                            let y = ((n * case.channels[1] + o) * output[0] + i) * output[1] + j;
                            let x = ((n * case.channels[0] + channel) * case.input[0] + a) * case.input[1] + b;
                            let w = ((o * ins + c) * case.kernel[0] + k) * case.kernel[1] + l;
                            each(y, x, w);
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn convolutions_and_their_gradients_agree_with_plain_loops_in_segments_too() {
    let (_turn, gpu) = engine::gpu();
    let options = |stride, padding, dilation, groups| Conv2dOptions { stride, padding, dilation, groups };
    let cases = [
        Case {
            batch: 3,
            channels: [5, 7],
            input: [9, 11],
            kernel: [3, 2],
            options: options([2, 1], [1, 0], [1, 2], 1),
        },
        // Long sums over many rows: the weight's gradient comes in parts.
        Case {
            batch: 4,
            channels: [2, 3],
            input: [70, 33],
            kernel: [3, 3],
            options: options([1, 1], [1, 1], [1, 1], 1),
        },
        Case { batch: 2, channels: [6, 9], input: [8, 8], kernel: [3, 3], options: options([2, 3], [2, 1], [1, 1], 3) },
        Case { batch: 1, channels: [1, 1], input: [1, 1], kernel: [1, 1], options: options([1, 1], [0, 0], [1, 1], 1) },
        // Rows that keep a length in fours have kernels of their own: tiles of 16, 8 and 4
        // columns, channels that fill no tile, groups, rows that grow, shrink and stay.
        Case {
            batch: 2,
            channels: [3, 11],
            input: [5, 32],
            kernel: [3, 3],
            options: options([1, 1], [1, 1], [1, 1], 1),
        },
        Case {
            batch: 2,
            channels: [10, 6],
            input: [7, 24],
            kernel: [2, 3],
            options: options([1, 1], [0, 1], [1, 1], 2),
        },
        Case {
            batch: 3,
            channels: [6, 9],
            input: [1, 12],
            kernel: [3, 3],
            options: options([1, 1], [2, 1], [1, 1], 3),
        },
        Case {
            batch: 1,
            channels: [9, 17],
            input: [4, 16],
            kernel: [1, 1],
            options: options([1, 1], [0, 0], [1, 1], 1),
        },
        Case { batch: 1, channels: [2, 1], input: [6, 4], kernel: [4, 1], options: options([1, 1], [1, 0], [1, 1], 1) },
        Case {
            batch: 4,
            channels: [2, 3],
            input: [150, 8],
            kernel: [1, 3],
            options: options([1, 1], [0, 1], [1, 1], 1),
        },
    ];
    for case in &cases {
        let weight_shape = [case.channels[1], case.channels[0] / case.options.groups, case.kernel[0], case.kernel[1]];
        let x_shape = [case.batch, case.channels[0], case.input[0], case.input[1]];
        let x = noise(x_shape.iter().product(), 1);
        let w = noise(weight_shape.iter().product(), 2);
        let mut output = [0; 2];
        let inputs: [(&str, remat::gpu::InputData<'_>); 2] = [("x", (&x).into()), ("w", (&w).into())];
        let step = engine::record(&gpu, |g| {
            let (x, w) = (g.input::<f32>("x", x_shape)?, g.input::<f32>("w", weight_shape)?);
            // In the middle of a graph: halves go in, and the square comes out.
            let y = g.checkpoint((x.clone(), w.clone()), |(x, w)| {
                x.mul_scalar(0.5_f32)?.conv2d(&w.mul_scalar(2.0_f32)?, None, case.options)?.tanh()
            })?;
            output = [y.dims()[2], y.dims()[3]];
            let loss = y.mul(&y)?.sum_all()?;
            let mut all = g.gradients(&loss, &[&x, &w])?;
            all.push(y);
            Ok(all)
        });
        // Under every policy, with equal bits.
        let ran = engine::run_all(&gpu, &Params::new(&gpu, 0), &step, &inputs);
        let found: Vec<Vec<f32>> = ran.outputs.iter().map(|words| engine::floats(words)).collect();
        let mut y = vec![0.0_f64; found[2].len()];
        products(case, output, |at, from, by| y[at] += f64::from(x[from]) * f64::from(w[by]));
        let y: Vec<f64> = y.iter().map(|v| v.tanh()).collect();
        let (mut dx, mut dw) = (vec![0.0_f64; x.len()], vec![0.0_f64; w.len()]);
        products(case, output, |at, from, by| {
            let g = 2.0 * y[at] * (1.0 - y[at] * y[at]);
            dx[from] += g * f64::from(w[by]);
            dw[by] += g * f64::from(x[from]);
        });
        for (name, found, expected) in [("dx", &found[0], &dx), ("dw", &found[1], &dw), ("y", &found[2], &y)] {
            let expected: Vec<f32> = expected.iter().map(|&v| v as f32).collect();
            let off = excess(found, &expected, 1e-4, 1e-5);
            assert!(off <= 1.0, "{name} of {weight_shape:?} over {x_shape:?} is off by {off} of the tolerance");
        }
    }
}

#[test]
fn windows_places_and_norms_in_segments_have_the_same_bits_under_every_policy() {
    let (_turn, gpu) = engine::gpu();
    let (x, s) = (noise(2 * 3 * 6 * 8, 1), noise(2 * 3 * 6 * 3, 2));
    let ids: Vec<i32> = (0..s.len() as i32).map(|i| (i * 5 + 2) % 9).collect();
    let step = engine::record(&gpu, |g| {
        let (x, s) = (g.input::<f32>("x", [2, 3, 6, 8])?, g.input::<f32>("s", [2, 3, 6, 3])?);
        let ids = g.input::<i32>("ids", [2, 3, 6, 3])?;
        let h = g.checkpoint((x.clone(), s.clone()), |(x, s)| {
            let h = x.mul(&x)?.scatter(3, &ids, &s.tanh()?)?;
            let (h, _, _) = h.batch_norm_train(None, None, 1e-5)?;
            h.relu()
        })?;
        let h = g.checkpoint(h, |h| {
            let columns = h.sigmoid()?.unfold([3, 3], Conv2dOptions::new(1, 1))?;
            columns.mul(&columns)?.fold([6, 8], [3, 3], Conv2dOptions::new(1, 1))
        })?;
        let h = g.checkpoint(h, |h| {
            let h = h.add(&h.instance_norm(None, None, 1e-5)?)?;
            h.adaptive_max_pool2d([4, 5])?.add(&h.max_pool2d([2, 2], [2, 2], [0, 0])?.adaptive_avg_pool2d([4, 5])?)
        })?;
        let loss = h.mul(&h)?.sum_all()?;
        let mut all = g.gradients(&loss, &[&x, &s])?;
        all.push(loss);
        Ok(all)
    });
    let inputs: [(&str, remat::gpu::InputData<'_>); 3] =
        [("x", (&x).into()), ("s", (&s).into()), ("ids", (&ids).into())];
    let ran = engine::run_all(&gpu, &Params::new(&gpu, 0), &step, &inputs);
    assert!(ran.plan(Policy::Segments).replayed_passes > 0);
    let (dx, ds) = (ran.floats(0), ran.floats(1));
    assert!(dx.iter().chain(&ds).all(|v| v.is_finite()));
    assert!(dx.iter().any(|&v| v != 0.0) && ds.iter().any(|&v| v != 0.0));
}

#[test]
fn wrong_convolutions_and_windows_are_typed_errors() {
    let recorder = Recorder::new();
    let x = recorder.input::<f32>("x", [1, 4, 5, 5]).unwrap();
    let w = |shape: [usize; 4]| recorder.zeros(shape).unwrap();
    let with = |stride, groups| Conv2dOptions { groups, ..Conv2dOptions::new(stride, 0) };
    for (weight, options) in [
        (w([2, 3, 3, 3]), with(1, 1)),
        (w([2, 4, 6, 3]), with(1, 1)),
        (w([2, 4, 0, 3]), with(1, 1)),
        (w([3, 2, 3, 3]), with(1, 2)),
        (w([2, 4, 3, 3]), with(0, 1)),
        (w([2, 4, 3, 3]), with(1, 0)),
        (w([2, 4, 3, 3]), Conv2dOptions { dilation: [usize::MAX, 1], ..with(1, 1) }),
        (w([2, 4, 3, 3]), Conv2dOptions { padding: [usize::MAX, 1], ..with(1, 1) }),
    ] {
        let error = x.conv2d(&weight, None, options).unwrap_err().to_string();
        assert!(error.contains("conv2d"), "{error}");
    }
    for (kernel, stride, padding) in
        [([6, 2], [1, 1], [0, 0]), ([0, 2], [1, 1], [0, 0]), ([2, 2], [1, 0], [0, 0]), ([2, 2], [1, 1], [2, 0])]
    {
        let error = x.max_pool2d(kernel, stride, padding).unwrap_err().to_string();
        assert!(error.contains("max_pool2d"), "{error}");
    }
    assert!(x.adaptive_avg_pool2d([0, 1]).is_err());
    assert!(x.pixel_shuffle(3).is_err());
    assert!(x.group_norm(3, None, None, 1e-5).is_err());
    let norm = BatchNorm2d::new(&Params::offline(0), "bn", 4).unwrap();
    let single = recorder.input::<f32>("single", [1, 4, 1, 1]).unwrap();
    let error = norm.forward(&single).unwrap_err().to_string();
    assert!(error.contains("batch_norm") && error.contains("[1, 4, 1, 1]"), "{error}");
    // Nothing to compute is legal.
    let none = recorder.input::<f32>("none", [0, 4, 5, 5]).unwrap();
    assert_eq!(none.conv2d(&w([2, 4, 3, 3]), None, with(1, 1)).unwrap().dims(), [0, 2, 3, 3]);
}
