//! The `gpt` run of the reference: its first parameters and batches, and
//! PyTorch's losses.

use remat::dtype::Shape;
use remat::gpu::{Gpu, InputData};
use remat::graph::{Recorder, Tensor};
use remat::nn::{Activation, Gpt, GptConfig, Module};
use remat::optim::{AdamW, AdamWConfig, Optimizer};
use remat::params::Params;
use remat::{Error, Result};
use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

use super::Training;

const FIRST: &str = "gpt/init/";
const LR: f32 = 3e-3;

/// Parameters by name.
type Named = (String, Vec<usize>, Vec<f32>);

/// The run as the reference has it.
#[derive(Debug, Clone)]
pub struct Fixture {
    config: GptConfig,
    first: Vec<Named>,
    batch: [usize; 2],
    batches: Vec<(Vec<i32>, Vec<i32>)>,
    /// PyTorch's losses, in double precision.
    pub losses: Vec<f64>,
}

fn broken(detail: impl std::fmt::Display) -> Error {
    Error::File { path: "the reference's gpt run".into(), detail: detail.to_string() }
}

/// Reads the run from the text of `training.json` and the bytes of `training.safetensors`.
///
/// # Errors
/// [`Error::File`] if something is not there.
pub fn gpt(description: &str, tensors: &[u8]) -> Result<Fixture> {
    let description: Value = serde_json::from_str(description).map_err(broken)?;
    let run = &description["gpt"];
    let size = |key: &str| {
        let size = run[key].as_u64().and_then(|n| usize::try_from(n).ok());
        size.ok_or_else(|| broken(format!("no size {key}")))
    };
    let mut config = GptConfig::new(size("vocab")?, size("T")?, size("d")?, size("heads")?, size("layers")?);
    config.activation = Activation::GeluTanh;
    config.fused_qkv = true;
    let losses: Vec<f64> = run["losses"].as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    let tensors = SafeTensors::deserialize(tensors).map_err(broken)?;
    let mut first = Vec::new();
    for (name, view) in tensors.iter() {
        if let Some(name) = name.strip_prefix(FIRST) {
            first.push((name.to_owned(), view.shape().to_vec(), words(&view, Dtype::F32, f32::from_le_bytes)?));
        }
    }
    let mut batch = [0; 2];
    let mut batches = Vec::new();
    for step in 0..losses.len() {
        let mut indices = |letter: &str| {
            let view = tensors.tensor(&format!("gpt/{letter}{step}")).map_err(broken)?;
            batch = view.shape().try_into().map_err(broken)?;
            words(&view, Dtype::I32, i32::from_le_bytes)
        };
        batches.push((indices("x")?, indices("y")?));
    }
    if losses.is_empty() || first.is_empty() {
        return Err(broken("no losses or no parameters"));
    }
    Ok(Fixture { config, first, batch, batches, losses })
}

fn words<T>(view: &safetensors::tensor::TensorView<'_>, dtype: Dtype, word: fn([u8; 4]) -> T) -> Result<Vec<T>> {
    if view.dtype() != dtype {
        return Err(broken(format!("a tensor of {:?} where {dtype:?} is meant", view.dtype())));
    }
    Ok(view.data().chunks_exact(4).map(|bytes| word([bytes[0], bytes[1], bytes[2], bytes[3]])).collect())
}

impl Training for Fixture {
    async fn start(&self, gpu: &Gpu) -> Result<Params> {
        let params = Params::new(gpu, 0);
        let model = Gpt::new(&params, &self.config)?;
        if model.parameters().len() != self.first.len() {
            return Err(broken(format!("{} parameters of {}", self.first.len(), model.parameters().len())));
        }
        let first = |(name, shape, values): &'_ Named| (name.clone(), Shape::from(shape.clone()), values.clone());
        let first: Vec<_> = self.first.iter().map(first).collect();
        params
            .load(first.iter().map(|(name, shape, values)| (name.as_str(), shape.clone(), values.as_slice())))
            .await?;
        Ok(params)
    }

    fn record(&self, params: &Params, recorder: &Recorder) -> Result<(Tensor, Tensor)> {
        let (x, y) = (recorder.input::<i32>("x", self.batch)?, recorder.input::<i32>("y", self.batch)?);
        let rows = self.batch[0] * self.batch[1];
        let logits = Gpt::new(params, &self.config)?.logits(&x)?.reshape([rows, self.config.vocabulary])?;
        let loss = logits.cross_entropy(&y.reshape([rows])?)?;
        let gradients = AdamW::new(params, AdamWConfig::default())?.minimize(&loss)?;
        Ok((loss, gradients.fingerprint(recorder)?))
    }

    fn steps(&self) -> usize {
        self.losses.len()
    }

    fn inputs(&self, step: usize) -> Vec<(&'static str, InputData<'_>)> {
        let (x, y) = &self.batches[step];
        vec![("x", x.into()), ("y", y.into()), ("lr", LR.into()), ("step", (step as u32).into())]
    }
}
