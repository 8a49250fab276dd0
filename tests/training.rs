//! Training follows PyTorch: losses, gradients, parameters, optimisers.
//!
//! `tests/reference/training.json` holds float64 losses of two models over all
//! their steps, `training.safetensors` their batches, first gradients and
//! parameters before and after.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;

use common::models::{Net, Reference, excess, policies, shared_gpu};
use remat::checkpoint::Policy;
use remat::dtype::Shape;
use remat::gpu::{Gpu, InputData};
use remat::nn::{Activation, GptConfig};
use remat::optim::{AdamW, AdamWConfig, Optimizer, Sgd, SgdConfig};
use remat::params::{Init, Params};
use remat::step::RecordedStep;

/// How far from float64 losses may be after any step.
const LOSS_RTOL: f64 = 1e-4;
/// AdamW moves an element by up to `lr` per step, whatever the gradient's size.
/// Final parameters are within this share of what they may have moved in all.
/// Where the true gradient is zero, rounding decides the direction and nothing
/// can be said: see [`Run::undecided`].
const FINAL_SHARE: f64 = 0.02;

#[derive(Clone, Copy)]
enum Run {
    Mlp,
    Gpt,
}

impl Run {
    const fn name(self) -> &'static str {
        match self {
            Self::Mlp => "mlp",
            Self::Gpt => "gpt",
        }
    }

    const fn lr(self) -> f32 {
        match self {
            Self::Mlp => 1e-3,
            Self::Gpt => 3e-3,
        }
    }

    /// `rtol` and `atol` (relative to the largest of the tensor) of the first
    /// gradients: the fixtures' own, without and with transcendentals.
    const fn gradient_tolerance(self) -> (f64, f64) {
        match self {
            Self::Mlp => (2e-5, 2e-6),
            Self::Gpt => (1e-4, 1e-5),
        }
    }

    /// True for an element that the loss does not depend on: a bias of the keys
    /// adds the same to every score of a row, which softmax takes away again.
    fn undecided(self, name: &str, index: usize, count: usize) -> bool {
        matches!(self, Self::Gpt) && name.ends_with("attn.qkv.bias") && (count / 3..2 * count / 3).contains(&index)
    }

    /// The model with the fixture's sizes, its parameters as initialised by the library.
    fn net(self, reference: &Reference, params: &Params) -> Net {
        let number = |key: &str| reference.number(self.name(), key);
        match self {
            Self::Mlp => Net::mlp(params, [number("d"), number("hidden"), number("blocks"), 8], 0.0),
            Self::Gpt => {
                let sizes = [number("vocab"), number("T"), number("d"), number("heads"), number("layers")];
                let [vocabulary, context, width, heads, layers] = sizes;
                let config = GptConfig {
                    activation: Activation::GeluTanh,
                    fused_qkv: true,
                    ..GptConfig::new(vocabulary, context, width, heads, layers)
                };
                Net::gpt(params, &config, 4)
            }
        }
    }

    /// The fixture's batch of a step.
    fn batch(self, reference: &Reference, step: usize) -> [(&'static str, InputData<'static>); 2] {
        ["x", "y"].map(|name| {
            let key = format!("{}/{name}{step}", self.name());
            let data = match self {
                Self::Mlp => reference.tensor::<f32>(&key).into(),
                Self::Gpt => reference.tensor::<i32>(&key).into(),
            };
            (name, data)
        })
    }
}

/// Parameters by name, from the fixture; every one of the model's is loaded.
fn load_initial(reference: &Reference, run: Run, params: &Params, trained: &[String]) {
    let initial = reference.under(&format!("{}/init/", run.name()));
    let names: Vec<&String> = initial.keys().collect();
    let mut ours: Vec<&String> = trained.iter().collect();
    ours.sort();
    assert_eq!(ours, names, "the model's names are the fixture's");
    let states = initial.iter().map(|(name, (shape, values))| (name.as_str(), Shape(shape.clone()), &values[..]));
    params.load_blocking(states).unwrap();
}

/// One run of all steps under a policy: losses, first gradients by name, final parameters by name.
struct Trained {
    losses: Vec<f32>,
    gradients: BTreeMap<String, Vec<f32>>,
    parameters: BTreeMap<String, Vec<f32>>,
}

fn train(gpu: &Gpu, reference: &Reference, run: Run, policy: Policy) -> Trained {
    let params = Params::new(gpu, 7);
    let net = run.net(reference, &params);
    let names = params.names();
    load_initial(reference, run, &params, &names);
    let optimizer = AdamW::new(&params, AdamWConfig::default()).unwrap();
    let step = gpu.step_blocking(policy, |g| net.train_and_show(g, &optimizer)).unwrap();
    let mut trained = Trained { losses: Vec::new(), gradients: BTreeMap::new(), parameters: BTreeMap::new() };
    for index in 0..reference.number(run.name(), "steps") {
        let [x, y] = run.batch(reference, index);
        let (loss, _, gradients) =
            step.run_blocking(&[x, y, ("lr", run.lr().into()), ("step", (index as u32).into())]).unwrap();
        trained.losses.push(loss.item_blocking().unwrap());
        if index == 0 {
            let read = names.iter().zip(&gradients).map(|(n, g)| (n.clone(), g.read_blocking().unwrap()));
            trained.gradients = read.collect();
        }
    }
    trained.parameters = names.iter().map(|n| (n.clone(), params.read_blocking(n).unwrap())).collect();
    trained
}

fn follows_pytorch(run: Run) {
    let (_turn, gpu) = shared_gpu();
    let reference = Reference::new();
    let recorded = {
        let params = Params::offline(0);
        let net = run.net(&reference, &params);
        let optimizer = AdamW::new(&params, AdamWConfig::default()).unwrap();
        RecordedStep::new(gpu.profile(), |g| net.train_and_show(g, &optimizer)).unwrap()
    };
    let expected = reference.numbers(run.name(), "losses");
    assert!(expected.len() >= 10);
    for policy in policies(&recorded) {
        let trained = train(&gpu, &reference, run, policy.clone());
        let worst = expected.iter().zip(&trained.losses).map(|(e, f)| (f64::from(*f) / e - 1.0).abs());
        let worst = worst.fold(0.0, |m: f64, v| if v.is_nan() { v } else { m.max(v) });
        let (rtol, atol) = run.gradient_tolerance();
        let gradients = compare(&reference, run, "grad0", &trained.gradients, |_, f, e| excess(f, e, rtol, atol));
        let moved = f64::from(run.lr()) * expected.len() as f64;
        let parameters = compare(&reference, run, "final", &trained.parameters, |name, found, expected| {
            let pairs = found.iter().zip(expected).enumerate();
            let decided = pairs.filter(|(i, _)| !run.undecided(name, *i, expected.len()));
            let off = decided.map(|(_, (f, e))| f64::from((f - e).abs()));
            off.fold(0.0, |m: f64, v| if v.is_nan() { v } else { m.max(v) }) / (FINAL_SHARE * moved)
        });
        println!(
            "{} under {policy}: losses within {worst:.1e}, first gradients at {:.3} of the tolerance ({}), \
             final parameters at {:.3} ({})",
            run.name(),
            gradients.0,
            gradients.1,
            parameters.0,
            parameters.1
        );
        assert_eq!(trained.losses.len(), expected.len());
        assert!(worst <= LOSS_RTOL, "{policy}: {:?} for {expected:?}", trained.losses);
        assert!(gradients.0 <= 1.0, "{policy}: gradient of {} is off", gradients.1);
        assert!(parameters.0 <= 1.0, "{policy}: final {} is off", parameters.1);
    }
}

/// The worst of all tensors under `RUN/KIND/`, and its name.
fn compare(
    reference: &Reference,
    run: Run,
    kind: &str,
    found: &BTreeMap<String, Vec<f32>>,
    measure: impl Fn(&str, &[f32], &[f32]) -> f64,
) -> (f64, String) {
    let expected = reference.under(&format!("{}/{kind}/", run.name()));
    assert!(expected.keys().eq(found.keys()), "the names are the fixture's");
    let all = expected.iter().map(|(name, (_, values))| (measure(name, &found[name], values), name.clone()));
    all.fold((0.0, String::new()), |m, v| if v.0.is_nan() || v.0 > m.0 { v } else { m })
}

#[test]
fn mlp_follows_pytorch_under_every_policy() {
    follows_pytorch(Run::Mlp);
}

#[test]
fn gpt_follows_pytorch_under_every_policy() {
    follows_pytorch(Run::Gpt);
}

/// Steps an optimiser on the fixture's gradients, comparing after each.
fn optimizer_follows_pytorch(run: &str, lr: f32, make: impl FnOnce(&Params) -> Box<dyn Optimizer>) {
    let (_turn, gpu) = shared_gpu();
    let reference = Reference::new();
    assert!((reference.run(run)["lr"].as_f64().unwrap() - f64::from(lr)).abs() < 1e-8);
    let params = Params::new(&gpu, 0);
    let initial = reference.tensor::<f32>(&format!("{run}/p0"));
    let param = params.create("p", [7, 9], Init::from(initial)).unwrap();
    let optimizer = make(&params);
    let step = gpu
        .step_blocking(Policy::None, |g| {
            let gradient = g.input::<f32>("gradient", [7, 9])?;
            optimizer.update(&param, &gradient)
        })
        .unwrap();
    // Plain SGD and its momentum do not read the number of the step.
    let counts = step.program().inputs.iter().any(|input| input.name == "step");
    let steps = reference.number(run, "steps");
    assert!(steps >= 5);
    for index in 0..steps {
        let gradient = reference.tensor::<f32>(&format!("{run}/g{index}"));
        let mut inputs = vec![("gradient", InputData::from(&gradient)), ("lr", lr.into())];
        if counts {
            inputs.push(("step", (index as u32).into()));
        }
        step.run_blocking(&inputs).unwrap();
        let expected = reference.tensor::<f32>(&format!("{run}/p{}", index + 1));
        let worst = excess(&params.read_blocking::<f32>("p").unwrap(), &expected, 1e-6, 1e-6);
        println!("{run} step {index}: {worst:.3} of the tolerance");
        assert!(worst <= 1.0, "{run}, step {index}: {worst} times the tolerance");
    }
}

#[test]
fn sgd_follows_pytorch() {
    optimizer_follows_pytorch("optim/sgd", 0.1, |params| Box::new(Sgd::new(params, SgdConfig::default()).unwrap()));
}

#[test]
fn sgd_with_momentum_follows_pytorch() {
    let config = SgdConfig { momentum: 0.9, ..SgdConfig::default() };
    optimizer_follows_pytorch("optim/sgd_momentum", 0.1, |params| Box::new(Sgd::new(params, config).unwrap()));
}

#[test]
fn adamw_follows_pytorch() {
    optimizer_follows_pytorch("optim/adamw", 0.01, |params| {
        Box::new(AdamW::new(params, AdamWConfig::default()).unwrap())
    });
}

/// The fixture's plain Adam, without decay and with decay added to the gradient.
#[test]
fn adam_follows_pytorch() {
    let plain = AdamWConfig { weight_decay: 0.0, decoupled: false, ..AdamWConfig::default() };
    optimizer_follows_pytorch("optim/adam", 0.01, |params| Box::new(AdamW::new(params, plain).unwrap()));
    let coupled = AdamWConfig { beta1: 0.8, beta2: 0.95, weight_decay: 0.1, ..plain };
    optimizer_follows_pytorch("optim/adam_wd", 0.01, |params| Box::new(AdamW::new(params, coupled).unwrap()));
}
