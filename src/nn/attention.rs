//! Multi-head attention with grouped queries and rotary positions.

use super::{Linear, Module, dotted};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::AttentionOptions;
use crate::params::{Param, Params};

/// Sizes of a [`MultiHeadAttention`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionConfig {
    /// `C`, of inputs and outputs.
    pub width: usize,
    /// Query heads; divides the width into an even part.
    pub heads: usize,
    /// Heads of keys and values; divides `heads`.
    pub key_value_heads: usize,
    /// Whether the projections have biases.
    pub bias: bool,
    /// A position sees itself and what came before it.
    pub causal: bool,
    /// Base of rotary positions on queries and keys; without one, none.
    pub rotary_base: Option<f32>,
}

impl AttentionConfig {
    /// As many heads for keys and values as for queries, biases, no mask, no positions.
    #[must_use]
    pub const fn new(width: usize, heads: usize) -> Self {
        Self { width, heads, key_value_heads: heads, bias: true, causal: false, rotary_base: None }
    }
}

/// `o_proj(attention(q_proj(x), k_proj(y), v_proj(y)))` over heads; `y` is `x` in
/// self-attention. Projections are named as those of Llama's attention.
#[derive(Debug, Clone)]
pub struct MultiHeadAttention {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    config: AttentionConfig,
}

impl MultiHeadAttention {
    /// A layer named `name`.
    ///
    /// # Errors
    /// [`Error::Argument`] unless the heads divide the width and the key and value
    /// heads divide them; with rotary positions a head's width must be even.
    pub fn new(params: &Params, name: &str, config: AttentionConfig) -> Result<Self> {
        let AttentionConfig { width, heads, key_value_heads, bias, .. } = config;
        let wrong = |argument, value: usize, detail: String| {
            Err(Error::Argument { op: "multi_head_attention", argument, value: value.to_string(), detail })
        };
        if heads == 0 || !width.is_multiple_of(heads) {
            return wrong("heads", heads, format!("it must divide the width {width}"));
        }
        if key_value_heads == 0 || !heads.is_multiple_of(key_value_heads) {
            return wrong("key_value_heads", key_value_heads, format!("it must divide the {heads} heads"));
        }
        let head = width / heads;
        if config.rotary_base.is_some() && head % 2 != 0 {
            return wrong("heads", heads, format!("rotary positions turn pairs, and a head is {head} wide"));
        }
        let linear = |what: &str, outputs| Linear::new(params, &dotted(name, what), width, outputs, bias);
        Ok(Self {
            q_proj: linear("q_proj", width)?,
            k_proj: linear("k_proj", key_value_heads * head)?,
            v_proj: linear("v_proj", key_value_heads * head)?,
            o_proj: linear("o_proj", width)?,
            config,
        })
    }

    /// `[B, T, heads * D] -> [B, heads, T, D]`, a view.
    fn split(x: &Tensor, heads: usize) -> Result<Tensor> {
        let [b, t, c] = <[usize; 3]>::try_from(x.dims()).map_err(|_| Error::Shape {
            op: "multi_head_attention",
            shapes: vec![x.shape().clone()],
            detail: "expected [B, T, C]".into(),
        })?;
        x.reshape([b, t, heads, c / heads])?.permute(&[0, 2, 1, 3])
    }

    /// Attention of `x [B, T, C]` over `context [B, S, C]`, with a `mask` as of
    /// [`AttentionOptions`]. Rotary positions count from 0 in both.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::DType`] if the operands do not fit.
    pub fn attend(&self, x: &Tensor, context: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let config = &self.config;
        let mut q = Self::split(&self.q_proj.forward(x)?, config.heads)?;
        let mut k = Self::split(&self.k_proj.forward(context)?, config.key_value_heads)?;
        let v = Self::split(&self.v_proj.forward(context)?, config.key_value_heads)?;
        if let Some(base) = config.rotary_base {
            (q, k) = (q.rope(base, 0)?, k.rope(base, 0)?);
        }
        let options = AttentionOptions { causal: config.causal, mask, ..AttentionOptions::default() };
        let y = q.attention_with(&k, &v, options)?.permute(&[0, 2, 1, 3])?;
        self.o_proj.forward(&y.reshape(x.shape())?)
    }
}

impl Module for MultiHeadAttention {
    /// Self-attention without a mask but the causal one.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.attend(x, x, None)
    }
    fn parameters(&self) -> Vec<Param> {
        [&self.q_proj, &self.k_proj, &self.v_proj, &self.o_proj].into_iter().flat_map(Module::parameters).collect()
    }
}
