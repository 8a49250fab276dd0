//! Segments whose ops choose, sort, multiply up or draw: the same bits as without
//! segments, under every policy; and what a batch norm in a segment keeps.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/engine.rs"]
mod engine;

use engine::*;
use remat::checkpoint::Policy;
use remat::error::Result;
use remat::graph::{Recorder, Tensor};
use remat::inputs;
use remat::nn::{BatchNorm2d, Module};
use remat::params::Params;

type Body = fn(&Recorder, &Tensor) -> Result<Tensor>;

/// What may be done to a `[6, 8]` tensor in a segment.
const BODIES: &[(&str, Body)] = &[
    ("sort", |_, h| h.sort(1, true)?.0.mul(h)),
    ("argsort", |_, h| h.gather(0, &h.argsort(0, false)?)?.mul(h)),
    ("topk", |_, h| Tensor::cat(&[h.topk(3, 1, true)?.0, h.topk(5, -1, false)?.0], 1)),
    ("median", |_, h| h.median(0, true)?.mul(h)),
    ("max_and_argmax", |r, h| {
        let hot = h.argmax(1, false)?.one_hot(8)?.to_f32()?;
        h.max(&[1], true)?.mul(h)?.add(&hot)?.add(&r.zeros([6, 8])?)
    }),
    ("cumprod", |_, h| h.cumprod(1)?.mul(h)),
    ("cumsum", |_, h| h.cumsum(0)?.mul(h)),
    ("prod", |_, h| h.prod(&[0], true)?.mul(h)),
    ("gather", |r, h| h.gather(1, &r.rand_int([6, 8], 0, 8)?)?.mul(h)),
    ("scatter_add", |r, h| h.scatter_add(0, &r.rand_int([6, 8], 0, 6)?, h)?.mul(h)),
    ("rand_uniform", |r, h| r.rand_uniform([6, 8])?.mul(h)),
    ("rand_normal", |r, h| h.add(&r.rand_normal([6, 8])?)?.tanh()),
    ("bernoulli", |r, h| h.masked_fill(&r.bernoulli([6, 8], 0.3)?, 0.0)),
    ("permutation", |r, h| h.index_select(1, &r.permutation(8)?)?.mul(h)),
    ("dropout", |_, h| h.dropout(0.4)?.tanh()?.dropout(0.2)),
];

#[test]
fn choices_and_draws_in_a_segment_are_bit_equal_to_those_without() {
    let (_turn, gpu) = gpu();
    let x = noise(6 * 4, 3);
    for (name, body) in BODIES {
        let (params, _) = weights(&gpu, &[("a", &[8, 4]), ("b", &[8, 8])]);
        let build = |segment: bool| {
            record(&gpu, |r| {
                let [a, b] = ["a", "b"].map(|name| r.param(&params.get(name).unwrap()));
                let (a, b) = (a?, b?);
                let inside = |x: Tensor| -> Result<Tensor> {
                    let h = x.linear(&a, None)?.tanh()?;
                    body(r, &h)?.linear(&b, None)
                };
                let x = r.input::<f32>("x", [6, 4])?;
                let y = if segment { r.checkpoint(x, inside)? } else { inside(x)? };
                let loss = y.tanh()?.sqr()?.mean_all()?;
                Ok([vec![loss.clone()], r.gradients(&loss, &[&a, &b])?].concat())
            })
        };
        let (plain, segment) = (build(false), build(true));
        for step in [0_u32, 5] {
            let all = inputs! { "x" => &x, "seed" => 9_u32, "step" => step };
            let of = |recorded: &remat::step::RecordedStep<Vec<Tensor>>| -> Vec<(&str, remat::gpu::InputData<'_>)> {
                let known = &recorded.program().inputs;
                all.iter().filter(|(n, _)| known.iter().any(|i| i.name == *n)).cloned().collect()
            };
            let without =
                run(&gpu, &plain, planned(&gpu, &plain, &Policy::None).unwrap(), &params, &of(&plain)).unwrap();
            let ran = run_all(&gpu, &params, &segment, &of(&segment));
            assert!(ran.plan(Policy::Segments).replayed_passes > 0, "{name}: nothing is replayed");
            // An order is decided once, under every policy: replays read it.
            let sorts = |plan: &remat::plan::Plan| {
                let program = segment.program();
                plan.dispatches.iter().filter(|d| program.pass(d.pass).name == "argsort").count()
            };
            let once = sorts(ran.plan(Policy::None));
            assert_eq!(once > 0, ["sort", "argsort", "topk", "median", "permutation"].contains(name), "{name}");
            for (policy, plan) in &ran.plans {
                assert_eq!(sorts(plan), once, "{name}: sorted again under {policy}");
            }
            for (output, (found, expected)) in ran.outputs.iter().zip(&without).enumerate() {
                assert_eq!(found, expected, "{name}, step {step}: output {output}");
                let values = floats(found);
                assert!(values.iter().all(|v| v.is_finite()) && values.iter().any(|v| *v != 0.0), "{name}: {values:?}");
            }
        }
    }
}

#[test]
fn case_2_batch_norm_in_a_segment_moves_its_running_statistics_once_a_step() {
    let (_turn, gpu) = gpu();
    let (n, c, area) = (4, 3, 6);
    let batches: Vec<Vec<f32>> = (1..4).map(|seed| noise(n * c * area, seed)).collect();
    // Momentum 0.1, unbiased variances, three steps.
    let (mut mean, mut var) = (vec![0.0_f64; c], vec![1.0_f64; c]);
    let count = (n * area) as f64;
    for batch in &batches {
        for channel in 0..c {
            let values: Vec<f64> = batch
                .chunks(area)
                .enumerate()
                .filter(|(i, _)| i % c == channel)
                .flat_map(|(_, v)| v.iter().map(|&v| 2.0 * f64::from(v) + 0.5))
                .collect();
            let m = values.iter().sum::<f64>() / count;
            let v = values.iter().map(|x| (x - m) * (x - m)).sum::<f64>() / (count - 1.0);
            mean[channel] = 0.9 * mean[channel] + 0.1 * m;
            var[channel] = 0.9 * var[channel] + 0.1 * v;
        }
    }
    let mut first: Option<Vec<remat::params::StateData>> = None;
    for segment in [false, true] {
        for policy in [Policy::None, Policy::Segments, Policy::Every(1), Policy::Sqrt] {
            if !segment && policy != Policy::None {
                continue;
            }
            let params = Params::new(&gpu, 1);
            let norm = BatchNorm2d::new(&params, "bn", c).unwrap();
            assert_eq!(norm.momentum, 0.1);
            let step = gpu
                .step_blocking(policy.clone(), |r| {
                    let x = r.input::<f32>("x", [n, c, 2, 3])?;
                    // Twice what comes in and a half: the statistics are of a value that is replayed.
                    let inside = |x: Tensor| {
                        let x = x.mul_scalar(2.0_f32)?.add_scalar(0.5_f32)?;
                        norm.forward(&x)?.tanh()
                    };
                    let y = if segment { r.checkpoint(x, inside)? } else { inside(x)? };
                    let loss = y.sqr()?.mean_all()?;
                    let weights = [r.param(&norm.weight)?, r.param(&norm.bias)?];
                    let gradients = r.gradients(&loss, &[&weights[0], &weights[1]])?;
                    Ok((loss, gradients))
                })
                .unwrap();
            assert_eq!(step.plan().replayed_passes > 0, segment && policy != Policy::None, "{policy}");
            for batch in &batches {
                step.run_blocking(inputs! { "x" => batch }).unwrap();
            }
            let read = |name: &str| params.read_blocking::<f32>(name).unwrap();
            assert_close(&read("bn.running_mean"), &mean, 1e-6, "mean");
            assert_close(&read("bn.running_var"), &var, 1e-6, "variance");
            assert_eq!(params.read_blocking::<i32>("bn.num_batches_tracked").unwrap(), [3], "{policy}");
            let states = params.read_all_blocking().unwrap();
            assert_eq!(*first.get_or_insert_with(|| states.clone()), states, "{policy}, segment {segment}");
        }
    }
}
