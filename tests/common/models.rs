//! What the tests of the whole engine share: one device, the models in small,
//! every policy, reference runs, comparison.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock};

use remat::checkpoint::{ByteSize, Policy};
use remat::dtype::Element;
use remat::error::{Error, Result};
use remat::gpu::{Gpu, InputData};
use remat::graph::{Recorder, Tensor};
use remat::nn::{Gpt, GptConfig, Mlp};
use remat::optim::Optimizer;
use remat::params::Params;
use remat::step::RecordedStep;

/// One device per process, one test at a time on it.
pub(crate) fn shared_gpu() -> (MutexGuard<'static, ()>, Gpu) {
    static TURN: Mutex<()> = Mutex::new(());
    static GPU: OnceLock<Gpu> = OnceLock::new();
    let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let gpu = GPU.get_or_init(|| Gpu::test_builder().build_blocking().expect("a device")).clone();
    (turn, gpu)
}

/// The fixtures of `tests/reference/training.*`, by name.
pub(crate) struct Reference {
    json: serde_json::Value,
    file: &'static safetensors::SafeTensors<'static>,
}

impl Reference {
    pub(crate) fn new() -> Self {
        static FILE: OnceLock<safetensors::SafeTensors<'static>> = OnceLock::new();
        let file = FILE.get_or_init(|| {
            safetensors::SafeTensors::deserialize(include_bytes!("../reference/training.safetensors"))
                .expect("a safetensors file")
        });
        let json = serde_json::from_str(include_str!("../reference/training.json")).expect("JSON");
        Self { json, file }
    }

    /// What `training.json` says of a run.
    pub(crate) fn run(&self, run: &str) -> &serde_json::Value {
        &self.json[run]
    }

    pub(crate) fn number(&self, run: &str, key: &str) -> usize {
        self.json[run][key].as_u64().expect("a number") as usize
    }

    pub(crate) fn numbers(&self, run: &str, key: &str) -> Vec<f64> {
        let list = self.json[run][key].as_array().expect("a list");
        list.iter().map(|v| v.as_f64().expect("a number")).collect()
    }

    /// The tensor of this name, as 32-bit elements.
    pub(crate) fn tensor<T: Element>(&self, name: &str) -> Vec<T> {
        bytemuck::pod_collect_to_vec(self.file.tensor(name).expect("a tensor of the fixture").data())
    }

    /// Shape and values of every tensor under a prefix, by the rest of its name.
    pub(crate) fn under(&self, prefix: &str) -> BTreeMap<String, (Vec<usize>, Vec<f32>)> {
        let all = self.file.names().into_iter().filter_map(|name| Some((name, name.strip_prefix(prefix)?)));
        all.map(|(name, rest)| {
            let shape = self.file.tensor(name).expect("listed").shape().to_vec();
            (rest.to_owned(), (shape, self.tensor(name)))
        })
        .collect()
    }
}

/// A model with the shapes of its batch.
pub(crate) enum Net {
    /// Mean squared error to `y`; inputs `x`, `y` `[batch, width]`.
    Mlp { model: Mlp, batch: usize, width: usize },
    /// Cross-entropy to `y`; inputs `x`, `y` `[batch, context]`.
    Gpt { model: Gpt, batch: usize, context: usize, vocabulary: usize },
}

impl Net {
    /// A chain of blocks, each a segment.
    pub(crate) fn mlp(params: &Params, [width, hidden, blocks, batch]: [usize; 4], dropout: f32) -> Self {
        let model = Mlp::with_dropout(params, width, hidden, blocks, dropout).expect("a model");
        Self::Mlp { model, batch, width }
    }

    /// A transformer, each block a segment.
    pub(crate) fn gpt(params: &Params, config: &GptConfig, batch: usize) -> Self {
        let model = Gpt::new(params, config).expect("a model");
        Self::Gpt { model, batch, context: config.context, vocabulary: config.vocabulary }
    }

    pub(crate) fn loss(&self, g: &Recorder) -> Result<Tensor> {
        match self {
            Self::Mlp { model, batch, width } => {
                let (x, y) = (g.input::<f32>("x", [*batch, *width])?, g.input::<f32>("y", [*batch, *width])?);
                model.forward_checkpointed(&x)?.mse_loss(&y)
            }
            Self::Gpt { model, batch, context, vocabulary } => {
                let (x, y) = (g.input::<i32>("x", [*batch, *context])?, g.input::<i32>("y", [*batch, *context])?);
                let logits = model.logits(&x)?.reshape([batch * context, *vocabulary])?;
                logits.cross_entropy(&y.reshape([batch * context])?)
            }
        }
    }

    /// A training step: the loss and the gradients' fingerprint.
    pub(crate) fn train(&self, g: &Recorder, optimizer: &dyn Optimizer) -> Result<(Tensor, Tensor)> {
        let loss = self.loss(g)?;
        let gradients = optimizer.minimize(&loss)?;
        Ok((loss, gradients.fingerprint(g)?))
    }

    /// A training step that hands back every gradient: loss, fingerprint, gradients in parameter order.
    pub(crate) fn train_and_show(
        &self,
        g: &Recorder,
        optimizer: &dyn Optimizer,
    ) -> Result<(Tensor, Tensor, Vec<Tensor>)> {
        let loss = self.loss(g)?;
        let gradients = optimizer.minimize(&loss)?;
        let fingerprint = gradients.fingerprint(g)?;
        Ok((loss, fingerprint, gradients.entries.into_iter().map(|(_, gradient)| gradient).collect()))
    }

    /// Batch number `step` of made-up data: `x` and `y`.
    pub(crate) fn batch(&self, step: u32) -> [(&'static str, InputData<'static>); 2] {
        let make = |seed: u32| -> InputData<'static> {
            match self {
                Self::Mlp { batch, width, .. } => noise(batch * width, seed).into(),
                Self::Gpt { batch, context, vocabulary, .. } => {
                    let ids = noise(batch * context, seed);
                    ids.iter().map(|v| ((v + 1.0) * 0.499 * *vocabulary as f32) as i32).collect::<Vec<_>>().into()
                }
            }
        };
        [("x", make(2 * step + 1)), ("y", make(2 * step + 2))]
    }
}

/// Numbers in -1..1 that look random, the same in every run.
pub(crate) fn noise(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12_345);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// The least budget that a recording can keep, from the refusal of one byte.
pub(crate) fn least_budget<O: remat::graph::TensorTree>(recorded: &RecordedStep<O>) -> u64 {
    match recorded.plan(&Policy::Budget(ByteSize::new(1))) {
        Err(Error::BudgetTooSmall { least_budget_bytes, .. }) => least_budget_bytes,
        other => panic!("a budget of one byte gave {:?}", other.map(|plan| plan.peak)),
    }
}

/// Every kind of policy: none first, then a budget halfway between none's peak
/// and the least, and the least budget last.
pub(crate) fn policies<O: remat::graph::TensorTree>(recorded: &RecordedStep<O>) -> Vec<Policy> {
    let least = least_budget(recorded);
    let none = recorded.plan(&Policy::None).expect("a plan").peak.total();
    let budget = |bytes| Policy::Budget(ByteSize::new(bytes));
    vec![
        Policy::None,
        Policy::Segments,
        Policy::Every(2),
        Policy::Sqrt,
        Policy::Revolve(2),
        Policy::Selective,
        budget(least.midpoint(none)),
        budget(least),
    ]
}

/// Where `found` is furthest from `expected`, in multiples of `atol + rtol |expected|`, with
/// `atol` relative to the largest expected value. At most 1 is within the tolerance.
pub(crate) fn excess(found: &[f32], expected: &[f32], rtol: f64, atol: f64) -> f64 {
    assert_eq!(found.len(), expected.len(), "length");
    let largest = expected.iter().fold(0.0_f64, |m, &v| m.max(f64::from(v).abs()));
    let one = |(&f, &e): (&f32, &f32)| {
        let (f, e) = (f64::from(f), f64::from(e));
        (f - e).abs() / (atol * largest + rtol * e.abs()).max(f64::MIN_POSITIVE)
    };
    // NaN counts as the worst.
    found.iter().zip(expected).map(one).fold(0.0, |m, v| if v.is_nan() || v > m { v } else { m })
}

/// Resident bytes of this process.
pub(crate) fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}
