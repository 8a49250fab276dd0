//! Low-rank adapters of linear layers (Hu et al. 2021).
//!
//! ```text
//! y = x W^T + b + s dropout(x) A^T B^T      s = alpha / rank
//! ```
//!
//! `W [out, in]` and `b` are frozen; `A [rank, in]` and `B [out, rank]` are trained.
//! Names and first values are those of the peft library: `NAME.lora_A.weight`, as
//! a linear layer's weight; `NAME.lora_B.weight`, zeros, so that an adapter changes
//! nothing at first. The base keeps its name `NAME.weight`.

use super::{Dropout, Linear, Module, dotted};
use crate::error::{Error, Result};
use crate::graph::{Recorder, Tensor};
use crate::params::{Init, Param};

/// Sizes of a [`Lora`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoraConfig {
    /// Rank of what is added to the weight; at least 1.
    pub rank: usize,
    /// What is added is multiplied with `alpha / rank`.
    pub alpha: f32,
    /// Dropout on the adapter's input while training.
    pub dropout: f32,
}

impl LoraConfig {
    /// This rank, `alpha` 8 (peft's), no dropout.
    #[must_use]
    pub const fn new(rank: usize) -> Self {
        Self { rank, alpha: 8.0, dropout: 0.0 }
    }
}

/// A linear layer's adapter.
#[derive(Debug, Clone)]
pub struct Lora {
    /// `lora_A.weight`, `[rank, in]`.
    pub a: Param,
    /// `lora_B.weight`, `[out, rank]`.
    pub b: Param,
    /// `alpha / rank`.
    pub scale: f32,
    /// On the input.
    pub dropout: Dropout,
}

impl Lora {
    /// What the adapter adds; `b` is the part wanted of its `B`.
    pub(super) fn forward(&self, x: &Tensor, b: Tensor) -> Result<Tensor> {
        let a = x.recorder().param(&self.a)?;
        self.dropout.forward(x)?.linear(&a, None)?.linear(&b, None)?.mul_scalar(self.scale)
    }
}

/// Freezes every parameter of `model` and gives adapters to those of its linear
/// layers whose names are, or end with, one of `targets` (`"q_proj"`,
/// `"mlp.fc"`). Hands back the adapters' parameters, the only ones that
/// [`crate::optim::Gradients::of`] then finds in the model.
///
/// ```
/// use remat::nn::{Llama, LlamaConfig, LoraConfig, add_lora};
/// # let config = LlamaConfig { vocabulary: 32, width: 8, layers: 2, heads: 2, key_value_heads: 1, hidden: 12, rotary_base: 1e4 };
/// # let params = remat::params::Params::offline(0);
/// let mut model = Llama::new(&params, &config)?;
/// let trained = add_lora(&mut model, &["q_proj", "v_proj"], LoraConfig::new(4))?;
/// assert_eq!(trained[1].name(), "layers.0.self_attn.q_proj.lora_B.weight");
/// # Ok::<(), remat::Error>(())
/// ```
///
/// # Errors
/// [`Error::Argument`] for a rank of 0, an `alpha` that is not finite, a dropout
/// outside `0 <= p < 1`, a target that no linear layer has or one that has an adapter
/// already; nothing is changed then. [`Error::StateConflict`] if the names are taken.
pub fn add_lora(model: &mut dyn Module, targets: &[&str], config: LoraConfig) -> Result<Vec<Param>> {
    let wrong = |argument, value: String, detail: String| Err(Error::Argument { op: "lora", argument, value, detail });
    if config.rank == 0 {
        return wrong("rank", "0".into(), "expected at least 1".into());
    }
    if !config.alpha.is_finite() {
        return wrong("alpha", config.alpha.to_string(), "expected a finite number".into());
    }
    let dropout = Dropout::new(config.dropout)?;
    let base = model.parameters();
    let linears = model.linears_mut();
    let is =
        |name: &str, target: &str| name.strip_suffix(target).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    for target in targets {
        if !linears.iter().any(|linear| is(linear.name(), target)) {
            let names: Vec<&str> = linears.iter().map(|linear| linear.name()).collect();
            let detail = format!("no linear layer is named so; there are {}", names.join(", "));
            return wrong("targets", format!("{target:?}"), detail);
        }
    }
    let chosen: Vec<&mut Linear> =
        linears.into_iter().filter(|linear| targets.iter().any(|target| is(linear.name(), target))).collect();
    if let Some(taken) = chosen.iter().find(|linear| linear.lora.is_some()) {
        return wrong("targets", format!("{:?}", taken.name()), "it has an adapter already; merge that first".into());
    }
    base.iter().for_each(Param::freeze);
    let mut adapters = Vec::new();
    for linear in chosen {
        let lora = adapter(linear, config, dropout)?;
        adapters.extend([lora.a.clone(), lora.b.clone()]);
        linear.lora = Some(lora);
    }
    Ok(adapters)
}

fn adapter(linear: &Linear, config: LoraConfig, dropout: Dropout) -> Result<Lora> {
    let weight = linear.weight.ty();
    let &[outputs, inputs] = weight.shape.dims() else {
        let detail = "a linear layer's weight must be [out, in]".into();
        return Err(Error::Shape { op: "lora", shapes: vec![weight.shape.clone()], detail });
    };
    let params = linear.weight.params();
    let name = |part: &str| dotted(linear.name(), part);
    Ok(Lora {
        a: params.create(&name("lora_A.weight"), [config.rank, inputs], Linear::first_values(inputs))?,
        b: params.create(&name("lora_B.weight"), [outputs, config.rank], Init::Zeros)?,
        scale: config.alpha / config.rank as f32,
        dropout,
    })
}

/// Records that every adapter of `model` becomes part of its layer's weight,
/// `W <- W + s B A` and `B <- 0`, and takes the adapters off the layers (peft's
/// `merge_and_unload`). One run of the recording merges; as `B` is zero then, steps
/// recorded with the adapters stay right, and a second run changes nothing.
///
/// # Errors
/// [`Error::Argument`] if the recording uses another [`crate::params::Params`].
pub fn merge_lora(model: &mut dyn Module, recorder: &Recorder) -> Result<()> {
    for linear in model.linears_mut() {
        let Some(lora) = &linear.lora else { continue };
        let [weight, a, b] = [&linear.weight, &lora.a, &lora.b].map(|param| recorder.param(param));
        let (weight, b) = (weight?, b?);
        let merged = weight.add(&b.matmul(&a?)?.mul_scalar(lora.scale)?)?;
        recorder.assign(&linear.weight, &merged)?;
        recorder.assign(&lora.b, &recorder.zeros(b.shape())?)?;
        linear.lora = None;
    }
    Ok(())
}
