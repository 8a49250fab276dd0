//! Saving and loading: a training that goes on from a file has the bits of one that
//! never stopped, with every optimiser; files that do not fit are refused whole.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/engine.rs"]
mod engine;

use std::collections::BTreeMap;

use engine::gpu;
use remat::checkpoint::Policy;
use remat::dtype::DType;
use remat::error::{Error, Result};
use remat::gpu::{Gpu, InputData};
use remat::graph::{Recorder, Tensor};
use remat::nn::{BatchNorm2d, Dropout, Linear, Mlp, Module};
use remat::optim::*;
use remat::params::{Param, Params, StateData};
use remat::save::SavedState;

const ROWS: usize = 6;
const WIDTH: usize = 5;

/// Records what makes one step of a loss and its parameters.
type Update = fn(&Recorder, &Params, &Tensor, &[Param]) -> Result<()>;

fn minimize(optimizer: &dyn Optimizer, loss: &Tensor) -> Result<()> {
    optimizer.minimize(loss).map(drop)
}

/// Every optimiser in every form that keeps other states, and whatever else remembers something.
const UPDATES: &[(&str, Update)] = &[
    ("adamw", |_, p, loss, _| minimize(&AdamW::new(p, AdamWConfig::default())?, loss)),
    ("adam", |_, p, loss, _| minimize(&Adam::new(p, AdamConfig::default())?, loss)),
    ("sgd", |_, p, loss, _| minimize(&Sgd::new(p, SgdConfig::default())?, loss)),
    ("sgd with momentum", |_, p, loss, _| {
        let config = SgdConfig { momentum: 0.9, weight_decay: 0.01, nesterov: true, dampening: 0.0 };
        minimize(&Sgd::new(p, config)?, loss)
    }),
    ("sgd with dampening", |_, p, loss, _| {
        minimize(&Sgd::new(p, SgdConfig { momentum: 0.9, dampening: 0.5, ..SgdConfig::default() })?, loss)
    }),
    ("rmsprop", |_, p, loss, _| minimize(&RmsProp::new(p, RmsPropConfig::default())?, loss)),
    ("rmsprop, centered, with momentum", |_, p, loss, _| {
        let config = RmsPropConfig { centered: true, momentum: 0.9, ..RmsPropConfig::default() };
        minimize(&RmsProp::new(p, config)?, loss)
    }),
    ("adagrad", |_, p, loss, _| minimize(&Adagrad::new(p, AdagradConfig::default())?, loss)),
    ("lion", |_, p, loss, _| minimize(&Lion::new(p, LionConfig::default())?, loss)),
    ("adafactor", |_, p, loss, _| minimize(&Adafactor::new(p, AdafactorConfig::default())?, loss)),
    ("adamw in groups, clipped", |r, p, loss, _| {
        let groups = Group::vectors().weight_decay(0.0).lr_factor(2.0);
        let adamw = AdamW::new(p, AdamWConfig::default())?.with_group(groups)?;
        adamw.apply(&Gradients::of(loss)?.clip_norm(r, 0.1)?.gradients)
    }),
    ("averages", |r, p, loss, all| {
        minimize(&Sgd::new(p, SgdConfig::default())?, loss)?;
        Ema::new(p, 0.9)?.update(r, all)
    }),
    ("an accumulator", |_, p, loss, _| Accumulator::new(p, 4)?.add(&Gradients::of(loss)?)),
    ("a loss scaler", |r, p, loss, _| {
        let config = LossScalerConfig { init_scale: 8.0, growth_interval: 2, ..LossScalerConfig::default() };
        let scaler = LossScaler::new(p, config)?;
        let gradients = scaler.unscale(r, &Gradients::of(&scaler.scale(loss)?)?)?;
        AdamW::new(p, AdamWConfig::default())?.apply(&gradients)
    }),
];

/// A small model with its step.
struct Run {
    params: Params,
    step: remat::step::Step<Tensor>,
}

impl Run {
    fn new(gpu: &Gpu, policy: Policy, update: Update) -> Self {
        // A seed of its own for each: what is loaded must not depend on first values.
        static SEEDS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        let params = Params::new(gpu, SEEDS.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
        let (one, norm, two) = (
            Linear::new(&params, "one", WIDTH, 7, true).unwrap(),
            BatchNorm2d::new(&params, "norm", 7).unwrap(),
            Linear::new(&params, "two", 7, WIDTH, true).unwrap(),
        );
        let all = [one.parameters(), norm.parameters(), two.parameters()].concat();
        let trained: Vec<Param> = all.into_iter().filter(|p| !p.name().contains("running")).collect();
        let record = |r: &Recorder| {
            let x = r.input::<f32>("x", [ROWS, WIDTH])?;
            let y = r.checkpoint(x, |x| {
                let h = one.forward(&x)?.reshape([ROWS, 7, 1, 1])?;
                let h = Dropout::new(0.2)?.forward(&norm.forward(&h)?.tanh()?)?;
                two.forward(&h.reshape([ROWS, 7])?)
            })?;
            let loss = y.sub_scalar(1.0)?.sqr()?.mean_all()?;
            update(r, &params, &loss, &trained)?;
            Ok(loss)
        };
        let step = gpu.step_blocking(policy, record).unwrap();
        Self { params, step }
    }

    /// Runs these steps; their losses by bits.
    fn train(&self, steps: std::ops::Range<u32>) -> Vec<u32> {
        let run = |index: u32| {
            let x: Vec<f32> = (0..ROWS * WIDTH).map(|i| ((i as u32 + 13 * index) as f32 * 0.7).sin()).collect();
            let lr = 0.05 / (1 + index) as f32;
            let all: [(&str, InputData<'_>); 4] =
                [("x", x.into()), ("lr", lr.into()), ("step", index.into()), ("seed", 9_u32.into())];
            let known = |name: &str| self.step.program().inputs.iter().any(|input| input.name == name);
            let given: Vec<_> = all.into_iter().filter(|(name, _)| known(name)).collect();
            self.step.run_blocking(&given).unwrap().item_blocking::<f32>().unwrap().to_bits()
        };
        steps.map(run).collect()
    }

    fn state(&self) -> Vec<StateData> {
        let mut all = self.params.read_all_blocking().unwrap();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        all
    }

    fn saved(&self, texts: &[(&str, &str)]) -> SavedState {
        let texts = texts.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
        pollster::block_on(self.params.saved_state(texts)).unwrap()
    }
}

#[test]
fn a_resumed_training_has_the_bits_of_one_that_never_stopped() {
    let (_turn, gpu) = gpu();
    for (name, update) in UPDATES {
        let whole = Run::new(&gpu, Policy::None, *update);
        // The files begin with the same values.
        let first = whole.saved(&[]);
        let losses = whole.train(0..7);
        let before = Run::new(&gpu, Policy::None, *update);
        pollster::block_on(before.params.restore(&first)).unwrap();
        let mut again = before.train(0..3);
        let file = before.saved(&[("step", "3")]).to_safetensors().unwrap();
        drop(before);
        // Under another policy: it changes no bit either.
        let after = Run::new(&gpu, Policy::Segments, *update);
        let read = SavedState::from_safetensors(&file).unwrap();
        assert_eq!(read.value::<u32>("step").unwrap(), Some(3), "{name}");
        pollster::block_on(after.params.restore(&read)).unwrap();
        again.extend(after.train(3..7));
        assert_eq!(again, losses, "losses with {name}");
        assert!(after.state() == whole.state(), "state with {name}");
    }
}

#[test]
fn moments_left_out_change_the_training() {
    // So that the test above is known to see moments at all.
    let (_turn, gpu) = gpu();
    let update = UPDATES[0].1;
    let whole = Run::new(&gpu, Policy::None, update);
    whole.train(0..3);
    let saved = whole.saved(&[]);
    let losses = whole.train(3..7);
    let run = Run::new(&gpu, Policy::None, update);
    let parameters: Vec<StateData> = saved.states.into_iter().filter(|s| !s.name.starts_with("adamw.")).collect();
    run.params.load_all_blocking(&parameters).unwrap();
    assert_ne!(run.train(3..7), losses);
}

#[test]
fn the_same_state_gives_the_same_file_and_texts_survive() {
    let (_turn, gpu) = gpu();
    let run = Run::new(&gpu, Policy::None, UPDATES[13].1);
    run.train(0..2);
    let texts = [("characters", "\n \"\\ü\u{1}x"), ("step", "2"), ("a", ""), ("width", "7"), ("z", "{},:[]")];
    let saved = run.saved(&texts);
    let file = saved.to_safetensors().unwrap();
    for _ in 0..4 {
        assert!(run.saved(&texts).to_safetensors().unwrap() == file, "another file for the same state");
    }
    let read = SavedState::from_safetensors(&file).unwrap();
    let mut expected: BTreeMap<String, String> =
        texts.iter().map(|(key, text)| ((*key).to_owned(), (*text).to_owned())).collect();
    expected.insert("format".into(), "remat".into());
    assert_eq!(read.metadata, expected);
    assert_eq!(read.states.len(), saved.states.len());
    for state in &read.states {
        let own = saved.states.iter().find(|s| s.name == state.name).unwrap();
        assert!((own.ty == state.ty || own.ty.dtype == DType::Bool) && own.bytes == state.bytes, "{}", state.name);
    }
    // The header's length keeps the data aligned.
    assert_eq!(u64::from_le_bytes(file[..8].try_into().unwrap()) % 8, 0);
    assert!(matches!(read.value::<u32>("characters"), Err(Error::File { .. })));
    assert_eq!(read.value::<u32>("height").unwrap(), None);
    // A file of nothing, and texts alone.
    let nothing = SavedState::default().to_safetensors().unwrap();
    assert!(SavedState::from_safetensors(&nothing).unwrap().states.is_empty());
}

#[test]
fn files_that_do_not_fit_are_refused_by_name_and_change_nothing() {
    let (_turn, gpu) = gpu();
    let run = Run::new(&gpu, Policy::None, UPDATES[0].1);
    run.train(0..2);
    let (state, saved) = (run.state(), run.saved(&[]));
    let refused = |saved: &SavedState, parts: &[&str]| {
        let error = pollster::block_on(run.params.restore(saved)).unwrap_err();
        for part in parts {
            assert!(error.to_string().contains(part), "{error} does not say {part}");
        }
        assert!(run.state() == state, "a refused file changed something");
        error
    };
    let without = |name: &str| {
        let states = saved.states.iter().filter(|s| s.name != name).cloned().collect();
        SavedState { states, ..saved.clone() }
    };
    let error =
        refused(&without("adamw.two.weight.exp_avg"), &["no tensor \"adamw.two.weight.exp_avg\"", "[5, 7]", "1 of"]);
    assert!(matches!(error, Error::File { .. }));
    let mut extra = saved.clone();
    extra.states[0].name = "h.0.weight".into();
    refused(&extra, &["no tensor \"one.weight\""]);
    extra.states.push(saved.states[0].clone());
    let error = refused(&extra, &["\"h.0.weight\" (f32 ", "no state here"]);
    assert!(matches!(error, Error::File { .. }));
    let mut shape = saved.clone();
    shape.states[0].ty.shape = [WIDTH, 7].into();
    let error = refused(&shape, &["one.weight", "[7, 5]", "[5, 7]"]);
    assert!(matches!(error, Error::Data { .. }));
    let file = saved.to_safetensors().unwrap();
    for cut in [0, 7, 8, 100, file.len() - 1] {
        let error = SavedState::from_safetensors(&file[..cut]).unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{cut}: {error}");
    }
    assert!(matches!(SavedState::from_safetensors(b"\x89PNG\r\n\x1a\n and so on"), Err(Error::File { .. })));
    run.train(2..3);
}

#[test]
fn a_file_is_replaced_whole() {
    let (_turn, gpu) = gpu();
    let params = Params::new(&gpu, 1);
    Mlp::with_dropout(&params, 4, 8, 1, 0.0).unwrap();
    let folder = std::env::temp_dir().join(format!("remat-save-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("state.safetensors");
    std::fs::write(&path, "an older file").unwrap();
    let saved = pollster::block_on(params.saved_state(BTreeMap::from([("step".into(), "5".into())]))).unwrap();
    saved.to_file(&path).unwrap();
    let read = SavedState::from_file(&path).unwrap();
    assert_eq!(read.value::<u32>("step").unwrap(), Some(5));
    pollster::block_on(params.restore(&read)).unwrap();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "something was left beside the file");
    std::fs::remove_dir_all(&folder).unwrap();
}
