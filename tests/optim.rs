//! Optimisers, clipping, averages, accumulation, loss scaling and schedules
//! against PyTorch's values and f64 references.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "tests")]

mod common;

use common::models::{Net, Reference, excess, noise, shared_gpu};
use remat::checkpoint::Policy;
use remat::gpu::{Gpu, InputData};
use remat::optim::schedule::{Constant, Cosine, Exponential, Linear, OneCycle, Polynomial, Schedule, Step};
use remat::optim::{
    Accumulator, Adafactor, AdafactorConfig, Adagrad, AdagradConfig, Adam, AdamConfig, AdamW, AdamWConfig, Ema,
    Gradients, Group, Lion, LionConfig, LossScaler, LossScalerConfig, Optimizer, RmsProp, RmsPropConfig, Sgd,
    SgdConfig,
};
use remat::params::{Init, Params};

/// Steps an optimiser on given gradients of one parameter; its values after each step.
fn stepped(
    gpu: &Gpu,
    shape: &[usize],
    first: &[f32],
    gradients: &[Vec<f32>],
    lr: f32,
    make: impl FnOnce(&Params) -> Box<dyn Optimizer>,
) -> Vec<Vec<f32>> {
    let params = Params::new(gpu, 0);
    let param = params.create("p", shape, Init::from(first.to_vec())).unwrap();
    let optimizer = make(&params);
    let step = gpu
        .step_blocking(Policy::None, |g| {
            let gradient = g.input::<f32>("gradient", shape)?;
            optimizer.update(&param, &gradient)
        })
        .unwrap();
    let counts = step.program().inputs.iter().any(|input| input.name == "step");
    let run = |(index, gradient): (usize, &Vec<f32>)| {
        let mut inputs = vec![("gradient", InputData::from(gradient)), ("lr", lr.into())];
        if counts {
            inputs.push(("step", (index as u32).into()));
        }
        step.run_blocking(&inputs).unwrap();
        params.read_blocking::<f32>("p").unwrap()
    };
    gradients.iter().enumerate().map(run).collect()
}

fn follows_fixture(run: &str, make: impl FnOnce(&Params) -> Box<dyn Optimizer>) {
    let (_turn, gpu) = shared_gpu();
    let reference = Reference::new();
    let lr = reference.run(run)["lr"].as_f64().unwrap() as f32;
    let steps = reference.number(run, "steps");
    assert!(steps >= 5);
    let gradients: Vec<Vec<f32>> = (0..steps).map(|i| reference.tensor(&format!("{run}/g{i}"))).collect();
    let found = stepped(&gpu, &[7, 9], &reference.tensor::<f32>(&format!("{run}/p0")), &gradients, lr, make);
    for (index, found) in found.iter().enumerate() {
        let worst = excess(found, &reference.tensor::<f32>(&format!("{run}/p{}", index + 1)), 1e-6, 1e-6);
        assert!(worst <= 1.0, "{run}, step {index}: {worst} times the tolerance");
    }
}

#[test]
fn adam_and_rmsprop_follow_pytorch() {
    follows_fixture("optim/adam", |p| Box::new(Adam::new(p, AdamConfig::default()).unwrap()));
    let decayed = AdamConfig { beta1: 0.8, beta2: 0.95, weight_decay: 0.1, ..AdamConfig::default() };
    follows_fixture("optim/adam_wd", |p| Box::new(Adam::new(p, decayed).unwrap()));
    follows_fixture("optim/rmsprop", |p| Box::new(RmsProp::new(p, RmsPropConfig::default()).unwrap()));
}

/// Compares with an f64 formula on one element: `(p, moments, g, step) -> p`.
fn follows_formula(
    name: &str,
    make: impl Fn(&Params) -> Box<dyn Optimizer>,
    formula: impl Fn(f64, &mut [f64; 3], f64, u32) -> f64,
) {
    let (_turn, gpu) = shared_gpu();
    for count in [12, 7] {
        let first = noise(count, 3);
        let gradients: Vec<Vec<f32>> = (0..5).map(|i| noise(count, 10 + i)).collect();
        let found = stepped(&gpu, &[count], &first, &gradients, 0.05, &make);
        let mut state: Vec<(f64, [f64; 3])> = first.iter().map(|&p| (f64::from(p), [0.0; 3])).collect();
        for (step, (found, gradient)) in found.iter().zip(&gradients).enumerate() {
            for ((p, moments), &g) in state.iter_mut().zip(gradient) {
                *p = formula(*p, moments, f64::from(g), step as u32);
            }
            let expected: Vec<f32> = state.iter().map(|(p, _)| *p as f32).collect();
            let worst = excess(found, &expected, 1e-6, 1e-6);
            assert!(worst <= 1.0, "{name} of {count}, step {step}: {worst} times the tolerance");
        }
    }
}

const LR: f64 = 0.05_f32 as f64;

#[test]
fn optimisers_follow_their_formulas() {
    let config = SgdConfig { momentum: 0.9, weight_decay: 0.1, dampening: 0.3, ..SgdConfig::default() };
    follows_formula(
        "dampened sgd",
        |p| Box::new(Sgd::new(p, config).unwrap()),
        |p, s, g, step| {
            let d = g + 0.1 * p;
            s[0] = if step == 0 { d } else { 0.9 * s[0] + 0.7 * d };
            p - LR * s[0]
        },
    );
    let config = SgdConfig { momentum: 0.9, nesterov: true, ..SgdConfig::default() };
    follows_formula(
        "nesterov",
        |p| Box::new(Sgd::new(p, config).unwrap()),
        |p, s, g, _| {
            s[0] = 0.9 * s[0] + g;
            p - LR * (g + 0.9 * s[0])
        },
    );
    let config = AdagradConfig { lr_decay: 0.1, weight_decay: 0.1, initial_accumulator_value: 0.2, eps: 1e-10 };
    follows_formula(
        "adagrad",
        |p| Box::new(Adagrad::new(p, config).unwrap()),
        |p, s, g, step| {
            let d = g + 0.1 * p;
            s[0] += d * d;
            p - LR / (1.0 + 0.1 * f64::from(step)) * d / ((0.2 + s[0]).sqrt() + 1e-10)
        },
    );
    follows_formula(
        "lion",
        |p| Box::new(Lion::new(p, LionConfig { weight_decay: 0.1, ..LionConfig::default() }).unwrap()),
        |p, s, g, _| {
            let c = 0.9 * s[0] + 0.1 * g;
            s[0] = 0.99 * s[0] + 0.01 * g;
            p * (1.0 - LR * 0.1) - LR * c.signum()
        },
    );
    for (centered, momentum) in [(false, 0.8), (true, 0.0), (true, 0.8)] {
        let config = RmsPropConfig { alpha: 0.9, eps: 1e-3, weight_decay: 0.1, momentum, centered };
        follows_formula(
            "rmsprop",
            |p| Box::new(RmsProp::new(p, config).unwrap()),
            |p, s, g, _| {
                let d = g + 0.1 * p;
                s[0] = 0.9 * s[0] + 0.1 * d * d;
                s[1] += if centered { 0.1 * (d - s[1]) } else { 0.0 };
                s[2] = momentum * s[2] + d / ((s[0] - s[1] * s[1]).sqrt() + 1e-3);
                p - LR * s[2]
            },
        );
    }
}

#[test]
fn adafactor_follows_its_formula() {
    let (_turn, gpu) = shared_gpu();
    let (rows, columns) = (5, 7);
    let first = noise(rows * columns, 3);
    let gradients: Vec<Vec<f32>> = (0..4).map(|i| noise(rows * columns, 10 + i)).collect();
    let config = AdafactorConfig { weight_decay: 0.1, ..AdafactorConfig::default() };
    let make = |p: &Params| -> Box<dyn Optimizer> { Box::new(Adafactor::new(p, config).unwrap()) };
    let rms = |x: &[f64]| (x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64).sqrt();
    for matrix in [true, false] {
        let shape: &[usize] = if matrix { &[rows, columns] } else { &[rows * columns] };
        let found = stepped(&gpu, shape, &first, &gradients, 0.05, make);
        let mut p: Vec<f64> = first.iter().map(|&v| f64::from(v)).collect();
        let (mut r, mut c, mut v) = (vec![0.0; rows], vec![0.0; columns], vec![0.0; p.len()]);
        for (step, (found, gradient)) in found.iter().zip(&gradients).enumerate() {
            let g: Vec<f64> = gradient.iter().map(|&v| f64::from(v)).collect();
            let t = (step + 1) as f64;
            let b = t.powf(-0.8);
            let alpha = rms(&p).max(1e-3) * LR.min(1.0 / t.sqrt());
            if matrix {
                for (i, r) in r.iter_mut().enumerate() {
                    let mean = (0..columns).map(|j| g[i * columns + j].powi(2)).sum::<f64>() / columns as f64;
                    *r += b * (mean - *r);
                }
                for (j, c) in c.iter_mut().enumerate() {
                    let mean = (0..rows).map(|i| g[i * columns + j].powi(2)).sum::<f64>() / rows as f64;
                    *c += b * (mean - *c);
                }
                let mean = r.iter().sum::<f64>() / rows as f64;
                for (i, v) in v.iter_mut().enumerate() {
                    *v = r[i / columns] * c[i % columns] / mean;
                }
            } else {
                v.iter_mut().zip(&g).for_each(|(v, g)| *v += b * (g * g - *v));
            }
            let u: Vec<f64> = g.iter().zip(&v).map(|(g, v)| g / v.sqrt()).collect();
            let limit = rms(&u).max(1.0);
            p.iter_mut().zip(&u).for_each(|(p, u)| *p = *p * (1.0 - LR * 0.1) - alpha / limit * u);
            let expected: Vec<f32> = p.iter().map(|&v| v as f32).collect();
            let worst = excess(found, &expected, 2e-6, 2e-6);
            assert!(worst <= 1.0, "step {step}, matrix {matrix}: {worst} times the tolerance");
        }
    }
}

#[test]
fn groups_have_their_own_rate_and_decay() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 0);
    let all: Vec<_> = ["w", "b", "slow"]
        .iter()
        .map(|n| params.create(n, vec![2; 1 + usize::from(*n != "b")], Init::Ones).unwrap())
        .collect();
    let sgd = Sgd::new(&params, SgdConfig { weight_decay: 0.5, ..SgdConfig::default() })
        .unwrap()
        .with_group(Group::of(&all[2..]).lr_factor(0.1))
        .unwrap()
        .with_group(Group::vectors().weight_decay(0.0))
        .unwrap();
    let step = gpu
        .step_blocking(Policy::None, |g| all.iter().try_for_each(|p| sgd.update(p, &g.ones(p.ty().shape.clone())?)))
        .unwrap();
    step.run_blocking(&[("lr", 0.1_f32.into())]).unwrap();
    for (name, expected) in [("w", 0.85), ("b", 0.9), ("slow", 0.985)] {
        let found = params.read_blocking::<f32>(name).unwrap();
        assert!(found.iter().all(|v| (v - expected).abs() < 1e-6), "{name}: {found:?}");
    }
    let negative = Group::vectors().lr_factor(-1.0);
    assert!(Sgd::new(&params, SgdConfig::default()).unwrap().with_group(negative).is_err());
}

/// Gradients given as inputs, in a step that hands back what `record` makes.
fn given(params: &Params, g: &remat::graph::Recorder, shapes: &[Vec<usize>]) -> remat::Result<Gradients> {
    let entry = |(i, shape): (usize, &Vec<usize>)| {
        let param = params.create(&format!("p{i}"), shape, Init::Zeros)?;
        Ok((param, g.input::<f32>(&format!("g{i}"), shape)?))
    };
    Ok(Gradients { entries: shapes.iter().enumerate().map(entry).collect::<remat::Result<_>>()?, guard: None })
}

#[test]
fn clipping_follows_pytorch() {
    let (_turn, gpu) = shared_gpu();
    let reference = Reference::new();
    let all = reference.under("clip/");
    let count = all.keys().filter(|k| k.starts_with('g')).count();
    let source = |i: usize| &all[&format!("g{i}")];
    assert!(count >= 2);
    let shapes: Vec<Vec<usize>> = (0..count).map(|i| source(i).0.clone()).collect();
    let params = Params::new(&gpu, 0);
    let step = gpu
        .step_blocking(Policy::None, |g| {
            let clipped = given(&params, g, &shapes)?.clip_norm(g, 1.5)?;
            let gradients: Vec<_> = clipped.gradients.entries.into_iter().map(|(_, t)| t).collect();
            Ok((clipped.total_norm, clipped.non_finite, gradients))
        })
        .unwrap();
    let names: Vec<String> = (0..count).map(|i| format!("g{i}")).collect();
    let inputs: Vec<(&str, InputData<'_>)> =
        names.iter().enumerate().map(|(i, n)| (n.as_str(), (&source(i).1).into())).collect();
    let (norm, non_finite, gradients) = step.run_blocking(&inputs).unwrap();
    let expected = reference.run("clip")["total_norm"].as_f64().unwrap();
    assert!((f64::from(norm.item_blocking::<f32>().unwrap()) / expected - 1.0).abs() < 1e-6);
    assert_eq!(non_finite.item_blocking::<u32>().unwrap(), 0);
    for (i, gradient) in gradients.iter().enumerate() {
        let worst = excess(&gradient.read_blocking().unwrap(), &all[&format!("clipped{i}")].1, 1e-6, 1e-6);
        assert!(worst <= 1.0, "gradient {i}: {worst} times the tolerance");
    }
}

#[test]
fn gradients_that_are_not_finite_are_counted() {
    let (_turn, gpu) = shared_gpu();
    let shapes = [vec![5003], vec![4, 3000], vec![0]];
    let params = Params::new(&gpu, 0);
    let step = gpu
        .step_blocking(Policy::None, |g| {
            let gradients = given(&params, g, &shapes)?;
            let (norm, value) = (gradients.clip_norm(g, 1.0)?, gradients.clip_value(g, 0.25)?);
            let first = |c: &remat::optim::Clipped| c.gradients.entries[0].1.clone();
            let values = (first(&norm), first(&value));
            Ok((norm.total_norm, norm.non_finite, value.non_finite, values.0, values.1))
        })
        .unwrap();
    let (mut a, b) = (noise(5003, 1), noise(12_000, 2));
    let squares: f64 = a.iter().chain(&b).map(|&v| f64::from(v).powi(2)).sum();
    let none: [f32; 0] = [];
    let inputs = |a: &[f32]| [("g0", a.to_vec().into()), ("g1", b.clone().into()), ("g2", none.to_vec().into())];
    let (norm, count, ..) = step.run_blocking(&inputs(&a)).unwrap();
    assert!((f64::from(norm.item_blocking::<f32>().unwrap()) / squares.sqrt() - 1.0).abs() < 1e-6);
    assert_eq!(count.item_blocking::<u32>().unwrap(), 0);
    a[17] = f32::NAN;
    a[5002] = f32::NEG_INFINITY;
    let (norm, count, again, by_norm, by_value) = step.run_blocking(&inputs(&a)).unwrap();
    assert!(norm.item_blocking::<f32>().unwrap().is_nan());
    assert_eq!((count.item_blocking::<u32>().unwrap(), again.item_blocking::<u32>().unwrap()), (2, 2));
    assert!(by_norm.read_blocking::<f32>().unwrap().iter().all(|v| v.is_nan()));
    let by_value = by_value.read_blocking::<f32>().unwrap();
    assert!(by_value[17].is_nan());
    // All others are limited, and what is within is left alone.
    assert!(by_value.iter().zip(&a).enumerate().all(|(i, (v, a))| i == 17 || *v == a.clamp(-0.25, 0.25)));
}

#[test]
fn averages_follow_and_swap() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 0);
    let p = params.create("p", [5], Init::Constant(2.0)).unwrap();
    let ema = Ema::new(&params, 0.9).unwrap();
    let list = [p];
    let update = gpu.step_blocking(Policy::None, |g| ema.update(g, &list)).unwrap();
    let swap = gpu.step_blocking(Policy::None, |g| ema.swap(g, &list)).unwrap();
    let read = |name: &str| params.read_blocking::<f32>(name).unwrap()[4];
    update.run_blocking(&[]).unwrap();
    assert_eq!(read("ema.p"), 2.0);
    params.write_blocking("p", &[3.0_f32; 5]).unwrap();
    update.run_blocking(&[]).unwrap();
    assert!((read("ema.p") - 2.1).abs() < 1e-6);
    swap.run_blocking(&[]).unwrap();
    assert!((read("p") - 2.1).abs() < 1e-6);
    assert_eq!(read("ema.p"), 3.0);
    swap.run_blocking(&[]).unwrap();
    assert_eq!(read("p"), 3.0);
}

/// Case 23: eight micro-batches are one batch eight times as large.
#[test]
fn micro_batches_equal_one_batch() {
    let (_turn, gpu) = shared_gpu();
    let (width, hidden, micro, k) = (12, 20, 4, 8);
    let (x, y) = (noise(k * micro * width, 1), noise(k * micro * width, 2));
    let mut results = Vec::new();
    for whole in [true, false] {
        let params = Params::new(&gpu, 5);
        let net = Net::mlp(&params, [width, hidden, 2, if whole { k * micro } else { micro }], 0.0);
        let trained = params.all();
        let sgd = Sgd::new(&params, SgdConfig { momentum: 0.9, ..SgdConfig::default() }).unwrap();
        if whole {
            let step = gpu.step_blocking(Policy::None, |g| net.train(g, &sgd)).unwrap();
            for _ in 0..2 {
                step.run_blocking(&[("x", (&x).into()), ("y", (&y).into()), ("lr", 0.1_f32.into())]).unwrap();
            }
        } else {
            let accumulator = Accumulator::new(&params, k).unwrap();
            let add = gpu.step_blocking(Policy::None, |g| accumulator.add(&Gradients::of(&net.loss(g)?)?)).unwrap();
            let last = gpu
                .step_blocking(Policy::None, |g| sgd.apply(&accumulator.finish(&Gradients::of(&net.loss(g)?)?)?))
                .unwrap();
            let apply = gpu.step_blocking(Policy::None, |g| accumulator.apply(g, &sgd, &trained)).unwrap();
            let sums: u64 = trained.iter().map(|p| p.ty().size_bytes()).sum();
            let states: u64 = add.program().states.iter().map(|s| s.ty.size_bytes()).sum();
            assert_eq!(states, 2 * sums, "the plan counts the accumulators");
            let mut live = None;
            // Both ways: adding all and applying, or finishing with the last.
            for finish in [false, true] {
                for i in 0..k {
                    let part = i * micro * width..(i + 1) * micro * width;
                    let mut inputs = vec![("x", x[part.clone()].to_vec().into()), ("y", y[part].to_vec().into())];
                    if finish && i == k - 1 {
                        inputs.push(("lr", 0.1_f32.into()));
                        last.run_blocking(&inputs).unwrap();
                    } else {
                        add.run_blocking(&inputs).unwrap();
                    }
                    let bytes = gpu.memory().total.live_bytes;
                    assert_eq!(*live.get_or_insert(bytes), bytes, "live bytes after micro-batch {i}");
                }
                if !finish {
                    apply.run_blocking(&[("lr", 0.1_f32.into())]).unwrap();
                }
            }
            for p in &trained {
                let left = params.read_blocking::<f32>(&format!("accumulator.{}", p.name())).unwrap();
                assert!(left.iter().all(|v| *v == 0.0));
            }
        }
        let read = |p: &remat::params::Param| params.read_blocking::<f32>(p.name()).unwrap();
        results.push(trained.iter().map(read).collect::<Vec<_>>());
    }
    for (whole, parts) in results[0].iter().zip(&results[1]) {
        let worst = excess(parts, whole, 1e-5, 1e-6);
        assert!(worst <= 1.0, "{worst} times the tolerance");
    }
    assert!(Accumulator::new(&Params::offline(0), 0).is_err());
}

#[test]
fn loss_scaling_skips_and_recovers() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 0);
    let p = params.create("p", [6], Init::Ones).unwrap();
    let config = LossScalerConfig { init_scale: 8.0, growth_interval: 2, ..LossScalerConfig::default() };
    let scaler = LossScaler::new(&params, config).unwrap();
    let adamw = AdamW::new(&params, AdamWConfig::default()).unwrap();
    let step = gpu
        .step_blocking(Policy::None, |g| {
            let loss = g.param(&p)?.mul(&g.input::<f32>("x", [6])?)?.sum(&[], false)?;
            let gradients = scaler.unscale(g, &Gradients::of(&scaler.scale(&loss)?)?)?;
            adamw.apply(&gradients)
        })
        .unwrap();
    let plain = Params::new(&gpu, 0);
    let q = plain.create("p", [6], Init::Ones).unwrap();
    let adamw = AdamW::new(&plain, AdamWConfig::default()).unwrap();
    let unscaled = gpu
        .step_blocking(Policy::None, |g| {
            adamw.minimize(&g.param(&q)?.mul(&g.input::<f32>("x", [6])?)?.sum(&[], false)?).map(|_| ())
        })
        .unwrap();
    let lr = || ("lr", 0.01_f32.into());
    let mut updates = 0_u32;
    for (index, scale) in [8.0, 16.0, 8.0, 8.0, 16.0].into_iter().enumerate() {
        let mut x = noise(6, index as u32 + 1);
        let skipped = index == 2;
        if skipped {
            x[3] = f32::INFINITY;
        }
        let before = params.read_blocking::<f32>("p").unwrap();
        step.run_blocking(&[("x", (&x).into()), lr()]).unwrap();
        if skipped {
            assert_eq!(params.read_blocking::<f32>("p").unwrap(), before);
        } else {
            unscaled.run_blocking(&[("x", (&x).into()), lr(), ("step", updates.into())]).unwrap();
            updates += 1;
        }
        assert_eq!(params.read_blocking::<f32>("scaler.scale").unwrap(), [scale], "after step {index}");
        assert_eq!(params.read_blocking::<u32>("scaler.updates").unwrap(), [updates]);
        for name in ["p", "adamw.p.exp_avg", "adamw.p.exp_avg_sq"] {
            let (found, expected) = (params.read_blocking::<f32>(name), plain.read_blocking::<f32>(name));
            assert_eq!(found.unwrap(), expected.unwrap(), "{name} after step {index}: powers of two are exact");
        }
    }
    assert!(LossScaler::new(&params, LossScalerConfig { init_scale: 0.0, ..config }).is_err());
}

#[test]
fn schedules_follow_pytorch() {
    let reference = Reference::new();
    let linear = Linear { base: 0.1, start_factor: 0.25, end_factor: 1.0, total_iters: 5 };
    let all: [(&str, &dyn Schedule); 5] = [
        ("step", &Step { base: 0.1, step_size: 4, gamma: 0.5 }),
        ("cosine", &Cosine { base: 0.1, t_max: 10, eta_min: 0.01 }),
        ("exponential", &Exponential { base: 0.1, gamma: 0.9 }),
        ("linear", &linear),
        ("one_cycle", &OneCycle::new(0.1, 20)),
    ];
    assert_eq!(reference.run("schedules").as_object().unwrap().len(), all.len());
    for (name, schedule) in all {
        let expected = reference.run("schedules")[name]["lr"].as_array().unwrap();
        assert!(expected.len() >= 8);
        for (step, expected) in expected.iter().enumerate() {
            let (found, expected) = (schedule.lr(step as u64), expected.as_f64().unwrap());
            assert!((found - expected).abs() <= 1e-6 * expected.abs() + 1e-12, "{name} {step}: {found}, {expected}");
        }
    }
    let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-12, "{found} for {expected}");
    near(Constant { base: 0.3 }.lr(1000), 0.3);
    let polynomial = Polynomial { base: 0.1, total_iters: 4, power: 2.0 };
    near(polynomial.lr(1), 0.05625);
    near(polynomial.lr(4), 0.0);
    near(polynomial.lr(9), 0.0);
    let warm = Cosine { base: 0.1, t_max: 10, eta_min: 0.01 }.warm_up(4);
    near(warm.lr(0), 0.025);
    near(warm.lr(3), 0.1);
    near(warm.lr(4), 0.1);
    near(warm.lr(9), 0.055);
    // Nothing divides by zero.
    for schedule in [&OneCycle::new(0.1, 0) as &dyn Schedule, &OneCycle::new(0.1, 1), &OneCycle::new(0.1, 2)] {
        assert!((0..4).all(|s| schedule.lr(s).is_finite()));
    }
    assert!(Cosine { base: 0.1, t_max: 0, eta_min: 0.0 }.lr(3).is_finite());
    assert!(Linear { total_iters: 0, ..linear }.lr(0).is_finite());
}

/// Rate and number of the step are inputs of a run: one recording follows any schedule.
#[test]
fn a_schedule_drives_one_recording() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 0);
    let p = params.create("p", [8], Init::Ones).unwrap();
    let sgd = Sgd::new(&params, SgdConfig::default()).unwrap();
    let step = gpu.step_blocking(Policy::None, |g| sgd.update(&p, &g.input::<f32>("gradient", [8])?)).unwrap();
    let schedule = Polynomial { base: 0.1, total_iters: 6, power: 2.0 }.warm_up(3);
    let before = gpu.memory().total.live_bytes;
    let mut expected = 1.0_f64;
    let mut rates = Vec::new();
    for index in 0..9 {
        let lr = schedule.lr(index) as f32;
        step.run_blocking(&[("gradient", vec![0.5_f32; 8].into()), ("lr", lr.into())]).unwrap();
        expected -= 0.5 * f64::from(lr);
        rates.push(lr);
        let found = params.read_blocking::<f32>("p").unwrap();
        assert!(found.iter().all(|v| (f64::from(*v) - expected).abs() < 1e-6), "{index}: {found:?}, {expected}");
    }
    assert!(rates.windows(2).filter(|pair| pair[0] != pair[1]).count() >= 7, "{rates:?}");
    assert_eq!(gpu.memory().total.live_bytes, before);
}
