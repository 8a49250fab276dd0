//! Training in mixed precision: parameters in f32, everything else in halves.

use remat::Result;
use remat::checkpoint::{ByteSize, Policy};
use remat::dtype::{DType, f16};
use remat::fuse::program::{Category, Program};
use remat::gpu::Gpu;
use remat::graph::{Recorder, Tensor};
use remat::nn::{Activation, GptConfig};
use remat::optim::{AdamW, AdamWConfig, Gradients, LossScaler, LossScalerConfig, Optimizer};
use remat::params::{Init, Params};
use remat::plan::Plan;
use remat::profile::DeviceProfile;
use remat::step::RecordedStep;

use crate::casts::outputs;
use crate::engine::{floats, gpu, noise, record, run_all, words};
use crate::models::{Net, Reference, least_budget};

/// The fixture's model, computing in `dtype`; loss and fingerprint of the gradients.
struct Trainer {
    net: Net,
    optimizer: AdamW,
    scaler: LossScaler,
    dtype: DType,
}

impl Trainer {
    fn new(reference: &Reference, params: &Params, dtype: DType) -> Self {
        let sizes = ["vocab", "T", "d", "heads", "layers"].map(|key| reference.number("gpt", key));
        let [vocabulary, context, width, heads, layers] = sizes;
        let config = GptConfig {
            activation: Activation::GeluTanh,
            fused_qkv: true,
            ..GptConfig::new(vocabulary, context, width, heads, layers)
        };
        let net = Net::gpt(params, &config, 4);
        let optimizer = AdamW::new(params, AdamWConfig::default()).unwrap();
        let scaler = LossScaler::new(params, LossScalerConfig::default()).unwrap();
        Self { net, optimizer, scaler, dtype }
    }

    fn record(&self, g: &Recorder) -> Result<(Tensor, Tensor)> {
        let loss = g.autocast(self.dtype, || self.net.loss(g))?;
        let gradients = Gradients::of(&self.scaler.scale(&loss)?)?;
        let gradients = self.scaler.unscale(g, &gradients)?;
        self.optimizer.apply(&gradients)?;
        Ok((loss, gradients.fingerprint(g)?))
    }
}

/// Losses, fingerprints and final states' bytes of all the fixture's steps.
struct Trained {
    losses: Vec<f32>,
    fingerprints: Vec<Vec<u32>>,
    states: Vec<Vec<u8>>,
    updates: u32,
    peak: u64,
}

fn train(gpu: &Gpu, reference: &Reference, dtype: DType, policy: Policy) -> Trained {
    let params = Params::new(gpu, 7);
    let trainer = Trainer::new(reference, &params, dtype);
    let initial = reference.under("gpt/init/");
    let states = initial.iter().map(|(name, (shape, values))| (name.as_str(), shape.into(), &values[..]));
    params.load_blocking(states).unwrap();
    let step = gpu.step_blocking(policy, |g| trainer.record(g)).unwrap();
    let (mut losses, mut fingerprints) = (Vec::new(), Vec::new());
    for index in 0..reference.number("gpt", "steps") {
        let batch = |name: &str| reference.tensor::<i32>(&format!("gpt/{name}{index}"));
        let inputs = [("x", batch("x").into()), ("y", batch("y").into()), ("lr", 3e-3_f32.into())];
        let (loss, fingerprint) = step.run_blocking(&inputs).unwrap();
        losses.push(loss.item_blocking().unwrap());
        fingerprints.push(words(&fingerprint));
    }
    let states = params.read_all_blocking().unwrap().into_iter().map(|s| s.bytes).collect();
    let updates = params.read_blocking::<u32>("scaler.updates").unwrap()[0];
    Trained { losses, fingerprints, states, updates, peak: step.plan().peak.total() }
}

#[test]
fn the_gpt_in_halves_follows_the_one_in_f32_under_every_policy() {
    let (_turn, gpu) = gpu();
    let reference = Reference::new();
    let recorded = |dtype| {
        let params = Params::offline(0);
        let trainer = Trainer::new(&reference, &params, dtype);
        RecordedStep::new(gpu.profile(), |g| trainer.record(g)).unwrap()
    };
    let full = train(&gpu, &reference, DType::F32, Policy::None);
    let least = least_budget(&recorded(DType::F16));
    let mut first: Option<Trained> = None;
    for policy in [Policy::None, Policy::Segments, Policy::Budget(ByteSize::new(least))] {
        let half = train(&gpu, &reference, DType::F16, policy.clone());
        assert_eq!(half.losses.len(), full.losses.len());
        assert_eq!(half.updates as usize, half.losses.len(), "no update was skipped");
        let off = half.losses.iter().zip(&full.losses).map(|(h, f)| (h / f - 1.0).abs());
        let worst = off.fold(0.0, |m: f32, v| if v.is_nan() { v } else { m.max(v) });
        println!(
            "{policy}: losses within {worst:.1e} of f32's over {} steps, {} to {}; peak {} (f32, none: {})",
            half.losses.len(),
            half.losses[0],
            half.losses.last().unwrap(),
            half.peak,
            full.peak
        );
        assert!(worst <= 0.02, "{policy}: {:?} for {:?}", half.losses, full.losses);
        assert!(half.losses.iter().zip(&full.losses).any(|(h, f)| h != f), "halves round");
        match &first {
            None => first = Some(half),
            Some(none) => {
                assert_eq!(none.losses, half.losses, "{policy}");
                assert_eq!(none.fingerprints, half.fingerprints, "{policy}");
                assert!(none.states == half.states, "{policy}: the states differ");
            }
        }
    }
}

/// Bytes of everything that the forward pass makes, and the most that lies at once.
fn forward_bytes(program: &Program, plan: &Plan) -> (u64, u64) {
    let made = program.storages.iter().filter(|s| s.category == Category::Activation).map(|s| s.bytes).sum();
    (made, plan.peak.arena)
}

#[test]
fn halves_count_two_bytes_in_the_plan() {
    // Large enough that parameters' copies do not decide.
    let config = GptConfig::new(64, 64, 64, 4, 3);
    let of = |dtype| {
        let params = Params::offline(0);
        let net = Net::gpt(&params, &config, 16);
        let adam = AdamW::new(&params, AdamWConfig::default()).unwrap();
        let step = RecordedStep::new(&DeviceProfile::default(), |g| {
            let loss = g.autocast(dtype, || net.loss(g))?;
            adam.minimize(&loss)?;
            Ok(loss)
        })
        .unwrap();
        let plan = step.plan(&Policy::None).unwrap();
        remat::plan::check(step.program(), &plan, &DeviceProfile::default()).unwrap();
        forward_bytes(step.program(), &plan)
    };
    let ((full, full_arena), (half, half_arena)) = (of(DType::F32), of(DType::F16));
    println!("activations {full} -> {half}, arena {full_arena} -> {half_arena}");
    assert!(half * 100 <= full * 56, "activations {full} -> {half}");
    assert!(half_arena * 100 <= full_arena * 60, "arena {full_arena} -> {half_arena}");
}

/// Casts inside segments; one weight cast in two of them.
#[test]
fn case_14_a_weight_cast_in_two_segments() {
    let (_turn, gpu) = gpu();
    let params = Params::new(&gpu, 1);
    let weight = params.create("w", [8, 8], Init::from(noise(64, 3))).unwrap();
    let step = record(&gpu, |g| {
        let loss = g.autocast(DType::F16, || {
            let x = g.constant(&noise(64, 4), [8, 8])?.to_f16()?;
            let h =
                g.checkpoint(x, |x| x.matmul_t(&g.param(&weight)?)?.tanh()?.matmul_t(&g.param(&weight)?)?.tanh())?;
            let h = g.checkpoint(h, |h| h.matmul_t(&g.param(&weight)?)?.tanh())?;
            h.to_f32()?.sqr()?.sum_all()
        })?;
        let gradient = g.gradients(&loss, &[&g.param(&weight)?])?.swap_remove(0);
        assert_eq!(gradient.dtype(), DType::F32);
        Ok(vec![loss, gradient])
    });
    let casts = |plan: &Plan| {
        let name = |d: &remat::plan::Dispatch| step.program().pass(d.pass).name == "to_f16";
        plan.dispatches.iter().filter(|d| name(d)).count()
    };
    let ran = run_all(&gpu, &params, &step, &[]);
    let weights = step.program().passes.iter().filter(|p| p.name == "to_f16" && p.segment.is_some()).count();
    assert_eq!(weights, 2, "one cast in each segment, however often the segment reads it");
    assert!(casts(ran.plan(Policy::Segments)) > casts(ran.plan(Policy::None)), "a replay repeats the cast");
    // Against the same in f64.
    let (w, x) = (noise(64, 3), noise(64, 4));
    let times = |x: &[f64], w: &[f64]| -> Vec<f64> {
        let row = |r: usize| (0..8).map(move |c| (r, c));
        let all = (0..8).flat_map(row);
        all.map(|(r, c)| (0..8).map(|k| x[8 * r + k] * w[8 * c + k]).sum::<f64>().tanh()).collect()
    };
    let wide = |v: &[f32]| v.iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
    let loss = |w: &[f64]| times(&times(&times(&wide(&x), w), w), w).iter().map(|v| v * v).sum::<f64>();
    let mut at = wide(&w);
    assert!((f64::from(ran.floats(0)[0]) / loss(&at) - 1.0).abs() < 5e-3);
    let gradient: Vec<f64> = (0..64)
        .map(|i| {
            let here = at[i];
            let mut moved = |by: f64| {
                at[i] = here + by;
                let value = loss(&at);
                at[i] = here;
                value
            };
            (moved(1e-5) - moved(-1e-5)) / 2e-5
        })
        .collect();
    let largest = gradient.iter().fold(0.0_f64, |m, v| m.max(v.abs()));
    for (i, (found, expected)) in ran.floats(1).iter().zip(&gradient).enumerate() {
        assert!((f64::from(*found) - expected).abs() <= 0.01 * largest, "{i}: {found}, expected {expected}");
    }
}

#[test]
fn case_45_sums_of_halves_accumulate_in_f32() {
    let ones = vec![f16::ONE; 70_000];
    let out = outputs(&[("x", (&ones).into())], |g| {
        let x = g.input::<f16>("x", [70_000])?;
        let row = x.reshape([1, 70_000])?;
        let product = row.mul_scalar(0.5_f32)?.matmul_t(&row)?;
        Ok(vec![x.mean_all()?, x.sum_all()?, x.reshape([35_000, 2])?.mean(&[0], false)?, product])
    });
    let read = |i: usize| out[i].read_blocking::<f16>().unwrap();
    assert_eq!(read(0), [f16::ONE]);
    assert_eq!(read(1), [f16::INFINITY], "70,000 is more than a half holds");
    assert_eq!(read(2), [f16::ONE; 2]);
    assert_eq!(read(3), [f16::from_f32(35_000.0)]);
}

/// No kernel of mixed precision asks for a feature: every adapter runs it.
#[test]
fn case_48_halves_need_no_feature() {
    let params = Params::offline(0);
    let reference = Reference::new();
    let trainer = Trainer::new(&reference, &params, DType::F16);
    let step = RecordedStep::new(&DeviceProfile::default(), |g| trainer.record(g)).unwrap();
    let packs = step.program().kernels.iter().filter(|k| k.source.contains("pack_halves(")).count();
    assert!(packs > 10, "{packs} kernels store halves");
    for kernel in &step.program().kernels {
        for word in ["enable ", "requires ", "f16", "subgroup"] {
            assert!(!kernel.source.contains(word), "{} names {word}", kernel.name);
        }
    }
}

/// A gradient that overflows skips the update and halves the scale, on the device.
#[test]
fn an_overflow_in_halves_skips_the_update() {
    let (_turn, gpu) = gpu();
    let params = Params::new(&gpu, 1);
    let weight = params.create("w", [4], Init::from(vec![1.0, 2.0, 3.0, 4.0])).unwrap();
    let adam = AdamW::new(&params, AdamWConfig::default()).unwrap();
    let config = LossScalerConfig { init_scale: 524_288.0, ..LossScalerConfig::default() };
    let scaler = LossScaler::new(&params, config).unwrap();
    let step = gpu
        .step_blocking(Policy::None, |g| {
            let loss = g.autocast(DType::F16, || g.param(&weight)?.sqr()?.to_f32()?.sum_all())?;
            let gradients = scaler.unscale(g, &Gradients::of(&scaler.scale(&loss)?)?)?;
            adam.apply(&gradients)?;
            Ok(loss)
        })
        .unwrap();
    let read = |name: &str| {
        floats(&params.read_blocking::<f32>(name).unwrap().iter().map(|v| v.to_bits()).collect::<Vec<_>>())
    };
    // The scale itself, the first gradient, is infinite in f16 until it has come down to 32768: four times.
    let mut skipped = 0;
    for _ in 0..6 {
        let before = read("w");
        step.run_blocking(&[("lr", 0.1_f32.into())]).unwrap();
        if read("w") == before {
            skipped += 1;
        }
    }
    assert_eq!(skipped, 4);
    assert_eq!(params.read_blocking::<u32>("scaler.updates").unwrap(), [2]);
    assert_eq!(read("scaler.scale"), [32_768.0]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let g = Recorder::new();
    let params = Params::offline(0);
    let weight = params.create("w", [4, 4], Init::Ones).unwrap();
    let half = g.input::<f16>("x", [4, 4]).unwrap();
    let full = g.state(&weight).unwrap();
    let message = |r: Result<Tensor>| r.unwrap_err().to_string();
    assert!(message(half.matmul(&full)).contains("matmul"));
    assert!(message(half.add(&full)).contains("add"));
    assert!(message(g.autocast(DType::I32, || g.param(&weight))).contains("autocast"));
    // Updates are of f32; a parameter of halves is no master copy.
    let short = params
        .create_typed("h", remat::dtype::TensorType::new(DType::F16, [4]), Category::Parameter, Init::Ones)
        .unwrap();
    let adam = AdamW::new(&params, AdamWConfig::default()).unwrap();
    let loss = g.state(&short).unwrap().to_f32().unwrap().sum_all().unwrap();
    assert!(adam.minimize(&loss).unwrap_err().to_string().contains("adamw"));
    // The scope ends with the closure.
    assert_eq!(g.autocast_dtype(), None);
    assert_eq!(g.param(&weight).unwrap().dtype(), DType::F32);
}

/// Layers take `f32` inside `autocast`, as a user's images come; integers stay.
#[test]
fn layers_convert_their_input() {
    use remat::nn::{
        BatchNorm2d, Conv1d, Conv2d, ConvTranspose2d, GroupNorm, InstanceNorm, LayerNorm, Linear, Module, RmsNorm,
    };
    use remat::ops::Conv2dOptions;
    let (params, plain) = (Params::offline(3), Conv2dOptions::default());
    let linear = Linear::new(&params, "linear", 8, 8, true).unwrap();
    let layers: Vec<(&str, Box<dyn Module>, &[usize])> = vec![
        ("linear", Box::new(linear), &[4, 8]),
        ("layer_norm", Box::new(LayerNorm::new(&params, "ln", 8).unwrap()), &[4, 8]),
        ("rms_norm", Box::new(RmsNorm::new(&params, "rms", 8).unwrap()), &[4, 8]),
        ("group_norm", Box::new(GroupNorm::new(&params, "group", 2, 4).unwrap()), &[2, 4, 4, 4]),
        ("instance_norm", Box::new(InstanceNorm::new(&params, "instance", 4, true).unwrap()), &[2, 4, 4, 4]),
        ("batch_norm", Box::new(BatchNorm2d::new(&params, "batch", 4).unwrap()), &[2, 4, 4, 4]),
        ("batch_norm eval", Box::new(BatchNorm2d::new(&params, "eval", 4).unwrap().eval()), &[2, 4, 4, 4]),
        ("conv2d", Box::new(Conv2d::new(&params, "c2", [4, 4], 3, plain, true).unwrap()), &[2, 4, 4, 4]),
        ("transposed", Box::new(ConvTranspose2d::new(&params, "t2", [4, 4], 2, plain, true).unwrap()), &[2, 4, 4, 4]),
        ("conv1d", Box::new(Conv1d::new(&params, "c1", [4, 4], 3, 1, 1, true).unwrap()), &[2, 4, 8]),
    ];
    for (name, layer, shape) in &layers {
        let g = Recorder::new();
        let x = g.input::<f32>("x", *shape).unwrap();
        let outside = layer.forward(&x).unwrap();
        assert_eq!(outside.dtype(), DType::F32, "{name}");
        let g = Recorder::new();
        let x = g.input::<f32>("x", *shape).unwrap();
        let (y, loss) = g
            .autocast(DType::F16, || {
                let y = layer.forward(&x)?;
                Ok((y.clone(), y.to_f32()?.sqr()?.sum_all()?))
            })
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(y.dtype(), DType::F16, "{name}");
        let weights: Vec<Tensor> = layer.parameters().iter().map(|p| g.state(p).unwrap()).collect();
        let weights: Vec<&Tensor> = weights.iter().collect();
        for gradient in g.gradients(&loss, &weights).unwrap() {
            assert_eq!(gradient.dtype(), DType::F32, "{name}");
        }
    }
}
