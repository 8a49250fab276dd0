//! A decoder in Llama's manner (Touvron et al. 2023): root mean square norms, rotary
//! positions, grouped queries, a gated feed-forward part, no biases. Parameters are
//! named as in the published checkpoints, without their leading `model.`.

use super::{
    AttentionConfig, Embedding, KeyValueCache, Linear, Module, MultiHeadAttention, ProjectionLayout, RmsNorm, dotted,
};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::params::{Param, Params};

/// `down_proj(silu(gate_proj(x)) * up_proj(x))` (Shazeer 2020).
#[derive(Debug, Clone)]
pub struct SwiGlu {
    gate_proj: Linear,
    up_proj: Linear,
    down_proj: Linear,
}

impl SwiGlu {
    /// A layer named `name`, without biases.
    ///
    /// # Errors
    /// [`Error::StateConflict`] if the names are taken by state of another type.
    pub fn new(params: &Params, name: &str, width: usize, hidden: usize) -> Result<Self> {
        let linear = |what: &str, ins, outs| Linear::new(params, &dotted(name, what), ins, outs, false);
        Ok(Self {
            gate_proj: linear("gate_proj", width, hidden)?,
            up_proj: linear("up_proj", width, hidden)?,
            down_proj: linear("down_proj", hidden, width)?,
        })
    }
}

impl Module for SwiGlu {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.down_proj.forward(&self.gate_proj.forward(x)?.silu()?.mul(&self.up_proj.forward(x)?)?)
    }
    fn parameters(&self) -> Vec<Param> {
        [&self.gate_proj, &self.up_proj, &self.down_proj].into_iter().flat_map(Module::parameters).collect()
    }
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        vec![&mut self.gate_proj, &mut self.up_proj, &mut self.down_proj]
    }
}

/// Sizes of a [`Llama`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LlamaConfig {
    /// `V`.
    pub vocabulary: usize,
    /// `C`.
    pub width: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Query heads.
    pub heads: usize,
    /// Heads of keys and values.
    pub key_value_heads: usize,
    /// Width of the feed-forward part.
    pub hidden: usize,
    /// Base of the rotary positions, usually 10,000.
    pub rotary_base: f32,
}

#[derive(Debug, Clone)]
struct Block {
    input_layernorm: RmsNorm,
    self_attn: MultiHeadAttention,
    post_attention_layernorm: RmsNorm,
    mlp: SwiGlu,
}

impl Block {
    /// The block with the part that mixes tokens given.
    fn with_attention(&self, x: &Tensor, attention: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let x = x.add(&attention(&self.input_layernorm.forward(x)?)?)?;
        x.add(&self.mlp.forward(&self.post_attention_layernorm.forward(&x)?)?)
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.with_attention(x, |x| self.self_attn.forward(x))
    }
    fn parameters(&self) -> Vec<Param> {
        let mut all = self.input_layernorm.parameters();
        all.extend(self.self_attn.parameters());
        all.extend(self.post_attention_layernorm.parameters());
        all.extend(self.mlp.parameters());
        all
    }
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        vec![&mut self.input_layernorm, &mut self.self_attn, &mut self.post_attention_layernorm, &mut self.mlp]
    }
}

/// The model: `embed_tokens`, `layers.N..`, `norm`, `lm_head`.
#[derive(Debug, Clone)]
pub struct Llama {
    embed_tokens: Embedding,
    layers: Vec<Block>,
    norm: RmsNorm,
    lm_head: Linear,
    /// Heads of keys and values, and their width.
    key_value_heads: [usize; 2],
}

impl Llama {
    /// A model with embeddings of standard deviation 0.02 and PyTorch's default
    /// linear layers.
    ///
    /// # Errors
    /// [`Error::Argument`] for sizes that do not fit each other.
    pub fn new(params: &Params, config: &LlamaConfig) -> Result<Self> {
        let width = config.width;
        let attention = AttentionConfig {
            key_value_heads: config.key_value_heads,
            bias: false,
            causal: true,
            rotary_base: Some(config.rotary_base),
            layout: ProjectionLayout::Separate,
            ..AttentionConfig::new(width, config.heads)
        };
        attention.check("llama")?;
        let block = |i: usize| {
            let name = |what: &str| format!("layers.{i}.{what}");
            Ok(Block {
                input_layernorm: RmsNorm::new(params, &name("input_layernorm"), width)?,
                self_attn: MultiHeadAttention::new(params, &name("self_attn"), attention)?,
                post_attention_layernorm: RmsNorm::new(params, &name("post_attention_layernorm"), width)?,
                mlp: SwiGlu::new(params, &name("mlp"), width, config.hidden)?,
            })
        };
        Ok(Self {
            embed_tokens: Embedding::new(params, "embed_tokens", config.vocabulary, width, 0.02)?,
            layers: (0..config.layers).map(block).collect::<Result<_>>()?,
            norm: RmsNorm::new(params, "norm", width)?,
            lm_head: Linear::new(params, "lm_head", width, config.vocabulary, false)?,
            key_value_heads: [config.key_value_heads, width / config.heads],
        })
    }

    /// An empty cache named `name` for [`Self::decode`] of `batch` sequences of at most
    /// `capacity` tokens.
    ///
    /// # Errors
    /// [`Error::StateConflict`] if the names are taken by state of another type.
    pub fn cache(&self, params: &Params, name: &str, batch: usize, capacity: usize) -> Result<KeyValueCache> {
        let [heads, width] = self.key_value_heads;
        KeyValueCache::new(params, name, self.layers.len(), [batch, heads, capacity, width])
    }

    /// Logits `[B, T, V]` for `T` more tokens `ids [B, T]` after those of the cache, to
    /// which it appends them. Equal to the last rows of [`Module::forward`] of all
    /// tokens up to the order of sums.
    ///
    /// # Errors
    /// [`Error::Shape`] if the indices do not fit; [`Error::Argument`] inside a
    /// checkpoint segment.
    pub fn decode(&self, ids: &Tensor, cache: &KeyValueCache) -> Result<Tensor> {
        let step = cache.append(ids.recorder(), tokens(ids)?)?;
        let mut x = self.embed_tokens.forward(ids)?;
        for (layer, block) in self.layers.iter().enumerate() {
            x = block.with_attention(&x, |x| block.self_attn.decode(x, &step, layer))?;
        }
        self.lm_head.forward(&self.norm.forward(&x)?)
    }
}

/// `T` of indices `[B, T]`.
fn tokens(ids: &Tensor) -> Result<usize> {
    let &[_, t] = ids.dims() else {
        let shapes = vec![ids.shape().clone()];
        return Err(Error::Shape { op: "llama", shapes, detail: "expected token indices [B, T]".into() });
    };
    Ok(t)
}

impl Module for Llama {
    /// Logits `[B, T, V]` for token indices `[B, T]` (`i32` or `u32`). Every block is
    /// a checkpoint segment named `layerN`.
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        tokens(ids)?;
        let recorder = ids.recorder();
        let mut x = self.embed_tokens.forward(ids)?;
        for (i, block) in self.layers.iter().enumerate() {
            x = recorder.checkpoint_named(&format!("layer{i}"), x, |x| block.forward(&x))?;
        }
        self.lm_head.forward(&self.norm.forward(&x)?)
    }
    fn parameters(&self) -> Vec<Param> {
        let mut all = self.embed_tokens.parameters();
        all.extend(self.layers.iter().flat_map(Module::parameters));
        all.extend(self.norm.parameters());
        all.extend(self.lm_head.parameters());
        all
    }
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        let mut all: Vec<&mut dyn Module> = vec![&mut self.embed_tokens];
        all.extend(self.layers.iter_mut().map(|block| block as &mut dyn Module));
        all.push(&mut self.norm);
        all.push(&mut self.lm_head);
        all
    }
}
