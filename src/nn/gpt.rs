//! A pre-norm GPT: learned positions, causal attention, GELU, untied head.
//!
//! Shapes: `B` batch, `T` time, `C` width, `H` heads, `D = C / H`, `V` vocabulary.

use super::{Dropout, Embedding, LayerNorm, Linear, Module, dotted};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::params::{Param, Params};

/// Activation of the feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// Exact GELU, by the error function.
    Gelu,
    /// GELU by its tanh approximation (GPT-2's).
    GeluTanh,
}

/// Sizes of a [`Gpt`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GptConfig {
    /// `V`.
    pub vocabulary: usize,
    /// Longest context, `T`.
    pub context: usize,
    /// `C`.
    pub width: usize,
    /// `H`; divides `C`.
    pub heads: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Width of the feed-forward part, usually `4 C`.
    pub hidden: usize,
    /// Activation of the feed-forward part.
    pub activation: Activation,
    /// One linear layer for queries, keys and values (`attn.qkv`) instead of
    /// three (`attn.q`, `attn.k`, `attn.v`).
    pub fused_qkv: bool,
    /// Dropout on embeddings, attention's output and the feed-forward part.
    pub dropout: f32,
    /// Standard deviation of the first token and position embeddings.
    pub embedding_std: f32,
}

impl GptConfig {
    /// The sizes given, a feed-forward part four times as wide, exact GELU,
    /// separate projections, no dropout, embeddings of standard deviation 0.02 (GPT-2's).
    #[must_use]
    pub const fn new(vocabulary: usize, context: usize, width: usize, heads: usize, layers: usize) -> Self {
        Self {
            vocabulary,
            context,
            width,
            heads,
            layers,
            hidden: width.saturating_mul(4),
            activation: Activation::Gelu,
            fused_qkv: false,
            dropout: 0.0,
            embedding_std: 0.02,
        }
    }
}

#[derive(Debug, Clone)]
enum Projections {
    Fused(Linear),
    Separate { q: Linear, k: Linear, v: Linear },
}

/// `x += proj(attention(ln_1(x))); x += proj(act(fc(ln_2(x))))`.
#[derive(Debug, Clone)]
pub struct TransformerBlock {
    ln_1: LayerNorm,
    projections: Projections,
    attention_out: Linear,
    ln_2: LayerNorm,
    up: Linear,
    down: Linear,
    heads: usize,
    activation: Activation,
    dropout: Dropout,
}

impl TransformerBlock {
    /// A block named `name`.
    ///
    /// # Errors
    /// [`Error::Argument`] if the heads do not divide the width.
    pub fn new(params: &Params, name: &str, config: &GptConfig) -> Result<Self> {
        let width = config.width;
        if config.heads == 0 || !width.is_multiple_of(config.heads) {
            return Err(Error::Argument {
                op: "transformer_block",
                argument: "heads",
                value: config.heads.to_string(),
                detail: format!("it must divide the width {width}"),
            });
        }
        let linear = |suffix: &str, inputs, outputs| Linear::new(params, &dotted(name, suffix), inputs, outputs, true);
        let ln_1 = LayerNorm::new(params, &dotted(name, "ln_1"), width)?;
        let projections = if config.fused_qkv {
            Projections::Fused(linear("attn.qkv", width, width.saturating_mul(3))?)
        } else {
            Projections::Separate {
                q: linear("attn.q", width, width)?,
                k: linear("attn.k", width, width)?,
                v: linear("attn.v", width, width)?,
            }
        };
        Ok(Self {
            ln_1,
            projections,
            attention_out: linear("attn.proj", width, width)?,
            ln_2: LayerNorm::new(params, &dotted(name, "ln_2"), width)?,
            up: linear("mlp.fc", width, config.hidden)?,
            down: linear("mlp.proj", config.hidden, width)?,
            heads: config.heads,
            activation: config.activation,
            dropout: Dropout::new(config.dropout)?,
        })
    }

    /// `[B, T, C] -> [B, H, T, D]`, a view.
    fn split_heads(&self, x: &Tensor) -> Result<Tensor> {
        let [b, t, c] = three(x)?;
        x.reshape([b, t, self.heads, c / self.heads])?.permute(&[0, 2, 1, 3])
    }

    fn attention(&self, x: &Tensor) -> Result<Tensor> {
        let [b, t, c] = three(x)?;
        let (q, k, v) = match &self.projections {
            Projections::Separate { q, k, v } => (q.forward(x)?, k.forward(x)?, v.forward(x)?),
            Projections::Fused(qkv) => {
                let parts = qkv.forward(x)?.split(-1, &[c, c, c])?;
                (parts[0].clone(), parts[1].clone(), parts[2].clone())
            }
        };
        let heads = self.split_heads(&q)?.attention(&self.split_heads(&k)?, &self.split_heads(&v)?, true)?;
        self.attention_out.forward(&heads.permute(&[0, 2, 1, 3])?.reshape([b, t, c])?)
    }

    fn feed_forward(&self, x: &Tensor) -> Result<Tensor> {
        let h = self.up.forward(x)?;
        let h = match self.activation {
            Activation::Gelu => h.gelu()?,
            Activation::GeluTanh => h.gelu_tanh()?,
        };
        self.down.forward(&h)
    }
}

impl Module for TransformerBlock {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let attended = self.dropout.forward(&self.attention(&self.ln_1.forward(x)?)?)?;
        let x = x.add(&attended)?;
        let fed = self.dropout.forward(&self.feed_forward(&self.ln_2.forward(&x)?)?)?;
        x.add(&fed)
    }
    fn parameters(&self) -> Vec<Param> {
        let mut all = self.ln_1.parameters();
        match &self.projections {
            Projections::Fused(qkv) => all.extend(qkv.parameters()),
            Projections::Separate { q, k, v } => {
                all.extend([q, k, v].into_iter().flat_map(Module::parameters));
            }
        }
        all.extend(self.attention_out.parameters());
        all.extend(self.ln_2.parameters());
        all.extend(self.up.parameters());
        all.extend(self.down.parameters());
        all
    }
}

/// The model: parameters `wte`, `wpe`, `h.N...`, `ln_f`, `head`.
#[derive(Debug, Clone)]
pub struct Gpt {
    token: Embedding,
    position: Param,
    /// The blocks.
    pub blocks: Vec<TransformerBlock>,
    norm: LayerNorm,
    head: Linear,
    dropout: Dropout,
    context: usize,
}

impl Gpt {
    /// A model with normal embeddings and PyTorch's default linear layers.
    ///
    /// # Errors
    /// [`Error::Argument`] for sizes that do not fit each other.
    pub fn new(params: &Params, config: &GptConfig) -> Result<Self> {
        let token = Embedding::new(params, "wte", config.vocabulary, config.width, config.embedding_std)?;
        let init = crate::params::Init::Normal { mean: 0.0, std: config.embedding_std };
        let position = params.create("wpe.weight", [config.context, config.width], init)?;
        let blocks = (0..config.layers)
            .map(|i| TransformerBlock::new(params, &format!("h.{i}"), config))
            .collect::<Result<_>>()?;
        Ok(Self {
            token,
            position,
            blocks,
            norm: LayerNorm::new(params, "ln_f", config.width)?,
            head: Linear::new(params, "head", config.width, config.vocabulary, false)?,
            dropout: Dropout::new(config.dropout)?,
            context: config.context,
        })
    }

    /// The model for evaluation: without dropout, on the same parameters.
    #[must_use]
    pub fn eval(&self) -> Self {
        let mut model = self.clone();
        model.dropout = model.dropout.eval();
        for block in &mut model.blocks {
            block.dropout = block.dropout.eval();
        }
        model
    }

    /// Logits `[B, T, V]` for token indices `[B, T]` (i32 or u32), `T` at most the
    /// context. Every block is a checkpoint segment named `layerN`.
    ///
    /// # Errors
    /// [`Error::Shape`] if the indices do not fit.
    pub fn logits(&self, ids: &Tensor) -> Result<Tensor> {
        let &[_, t] = ids.dims() else {
            return Err(Error::Shape {
                op: "gpt",
                shapes: vec![ids.shape().clone()],
                detail: "expected token indices [B, T]".into(),
            });
        };
        if t > self.context {
            return Err(Error::Shape {
                op: "gpt",
                shapes: vec![ids.shape().clone()],
                detail: format!("T is longer than the context of {}", self.context),
            });
        }
        let recorder = ids.recorder();
        let positions = recorder.param(&self.position)?.narrow(0, 0, t)?;
        let mut x = self.dropout.forward(&self.token.forward(ids)?.add(&positions)?)?;
        for (i, block) in self.blocks.iter().enumerate() {
            x = recorder.checkpoint_named(&format!("layer{i}"), x, |x| block.forward(&x))?;
        }
        self.head.forward(&self.norm.forward(&x)?)
    }

    /// Its parameters, in the order in which they were created.
    #[must_use]
    pub fn parameters(&self) -> Vec<Param> {
        let mut all = self.token.parameters();
        all.push(self.position.clone());
        all.extend(self.blocks.iter().flat_map(Module::parameters));
        all.extend(self.norm.parameters());
        all.extend(self.head.parameters());
        all
    }
}

fn three(x: &Tensor) -> Result<[usize; 3]> {
    <[usize; 3]>::try_from(x.dims()).map_err(|_| Error::Shape {
        op: "transformer_block",
        shapes: vec![x.shape().clone()],
        detail: "expected [B, T, C]".into(),
    })
}
