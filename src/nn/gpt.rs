//! A pre-norm GPT: learned positions, causal attention, GELU, untied head.
//!
//! Shapes: `B` batch, `T` time, `C` width, `H` heads, `D = C / H`, `V` vocabulary.

use super::attention::Projections;
use super::{
    AttentionConfig, CacheStep, Dropout, Embedding, KeyValueCache, LayerNorm, Linear, Module, MultiHeadAttention,
    dotted,
};
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

/// `x += proj(attention(ln_1(x))); x += proj(act(fc(ln_2(x))))`.
#[derive(Debug, Clone)]
pub struct TransformerBlock {
    ln_1: LayerNorm,
    attention: MultiHeadAttention,
    ln_2: LayerNorm,
    up: Linear,
    down: Linear,
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
        let attention = AttentionConfig { causal: true, ..AttentionConfig::new(width, config.heads) };
        attention.check("transformer_block")?;
        let linear = |suffix: &str, inputs, outputs| Linear::new(params, &dotted(name, suffix), inputs, outputs, true);
        let ln_1 = LayerNorm::new(params, &dotted(name, "ln_1"), width)?;
        let projections = if config.fused_qkv {
            Projections::Packed(linear("attn.qkv", width, width.saturating_mul(3))?)
        } else {
            Projections::Separate {
                q: linear("attn.q", width, width)?,
                k: linear("attn.k", width, width)?,
                v: linear("attn.v", width, width)?,
            }
        };
        Ok(Self {
            ln_1,
            attention: MultiHeadAttention::of(projections, linear("attn.proj", width, width)?, attention)?,
            ln_2: LayerNorm::new(params, &dotted(name, "ln_2"), width)?,
            up: linear("mlp.fc", width, config.hidden)?,
            down: linear("mlp.proj", config.hidden, width)?,
            activation: config.activation,
            dropout: Dropout::new(config.dropout)?,
        })
    }

    /// The block with the part that mixes tokens given.
    fn with_attention(&self, x: &Tensor, attention: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let attended = self.dropout.forward(&attention(&self.ln_1.forward(x)?)?)?;
        let x = x.add(&attended)?;
        let fed = self.dropout.forward(&self.feed_forward(&self.ln_2.forward(&x)?)?)?;
        x.add(&fed)
    }

    /// The block on tokens `x [B, T, C]` that come after those of a cache, as its layer `layer`.
    ///
    /// # Errors
    /// As [`CacheStep::attend`].
    pub fn decode(&self, x: &Tensor, step: &CacheStep, layer: usize) -> Result<Tensor> {
        self.with_attention(x, |x| self.attention.decode(x, step, layer))
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
        self.with_attention(x, |x| self.attention.forward(x))
    }
    fn parameters(&self) -> Vec<Param> {
        let mut all = self.ln_1.parameters();
        all.extend(self.attention.parameters());
        all.extend(self.ln_2.parameters());
        all.extend(self.up.parameters());
        all.extend(self.down.parameters());
        all
    }
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        vec![&mut self.ln_1, &mut self.attention, &mut self.ln_2, &mut self.up, &mut self.down, &mut self.dropout]
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
    heads: usize,
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
            heads: config.heads,
        })
    }

    /// [`Module::forward`].
    ///
    /// # Errors
    /// [`Error::Shape`] if the indices do not fit.
    pub fn logits(&self, ids: &Tensor) -> Result<Tensor> {
        self.forward(ids)
    }

    /// An empty cache named `name` for [`Self::decode`] of `batch` sequences, as long as
    /// the context.
    ///
    /// # Errors
    /// [`Error::StateConflict`] if the names are taken by state of another type.
    pub fn cache(&self, params: &Params, name: &str, batch: usize) -> Result<KeyValueCache> {
        let head = self.position.ty().shape.dims().get(1).map_or(0, |width| width / self.heads.max(1));
        KeyValueCache::new(params, name, self.blocks.len(), [batch, self.heads, self.context, head])
    }

    /// Logits `[B, T, V]` for `T` more tokens `ids [B, T]` after those of the cache, to
    /// which it appends them. Equal to the last rows of [`Self::logits`] of all tokens
    /// up to the order of sums. Use [`Module::eval`]'s model.
    ///
    /// # Errors
    /// [`Error::Shape`] if the indices do not fit; [`Error::Argument`] inside a
    /// checkpoint segment.
    pub fn decode(&self, ids: &Tensor, cache: &KeyValueCache) -> Result<Tensor> {
        let step = cache.append(ids.recorder(), self.tokens(ids)?)?;
        let positions = ids.recorder().param(&self.position)?.embedding(step.positions())?;
        let mut x = self.dropout.forward(&self.token.forward(ids)?.add(&positions)?)?;
        for (layer, block) in self.blocks.iter().enumerate() {
            x = block.decode(&x, &step, layer)?;
        }
        self.head.forward(&self.norm.forward(&x)?)
    }

    /// `T` of indices `[B, T]`, at most the context.
    fn tokens(&self, ids: &Tensor) -> Result<usize> {
        let shapes = || vec![ids.shape().clone()];
        let &[_, t] = ids.dims() else {
            return Err(Error::Shape { op: "gpt", shapes: shapes(), detail: "expected token indices [B, T]".into() });
        };
        if t > self.context {
            let detail = format!("T is longer than the context of {}", self.context);
            return Err(Error::Shape { op: "gpt", shapes: shapes(), detail });
        }
        Ok(t)
    }
}

impl Module for Gpt {
    /// Logits `[B, T, V]` for token indices `[B, T]` (`i32` or `u32`), `T` at most the
    /// context. Every block is a checkpoint segment named `layerN`.
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let t = self.tokens(ids)?;
        let recorder = ids.recorder();
        let positions = recorder.param(&self.position)?.narrow(0, 0, t)?;
        let mut x = self.dropout.forward(&self.token.forward(ids)?.add(&positions)?)?;
        for (i, block) in self.blocks.iter().enumerate() {
            x = recorder.checkpoint_named(&format!("layer{i}"), x, |x| block.forward(&x))?;
        }
        self.head.forward(&self.norm.forward(&x)?)
    }
    fn parameters(&self) -> Vec<Param> {
        let mut all = self.token.parameters();
        all.push(self.position.clone());
        all.extend(self.blocks.iter().flat_map(Module::parameters));
        all.extend(self.norm.parameters());
        all.extend(self.head.parameters());
        all
    }
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        let mut all: Vec<&mut dyn Module> = vec![&mut self.token, &mut self.dropout];
        all.extend(self.blocks.iter_mut().map(|block| block as &mut dyn Module));
        all.push(&mut self.norm);
        all.push(&mut self.head);
        all
    }
}
