//! Multi-head attention with grouped queries, rotary positions and a cache.

use super::{CacheStep, Dropout, Linear, Module, dotted};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::{AttentionOptions, RopeOptions};
use crate::params::{Init, Param, Params};

const OP: &str = "multi_head_attention";

/// How the projections of a [`MultiHeadAttention`] are kept, named and initialised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ProjectionLayout {
    /// As PyTorch's `nn.MultiheadAttention`: `in_proj_weight`, queries', keys' and
    /// values' rows one below the other, uniform in `+-sqrt(6 / (rows + width))`
    /// (Xavier), `in_proj_bias` and `out_proj.bias` 0, `out_proj.weight` as a linear
    /// layer's.
    #[default]
    Packed,
    /// Linear layers `q_proj`, `k_proj`, `v_proj` and `o_proj`, as in Llama's checkpoints.
    Separate,
}

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
    /// Rotary positions turn neighbours, not an element of each half of a head.
    pub interleaved: bool,
    /// Names and first values.
    pub layout: ProjectionLayout,
    /// Dropout on the softmax while training, as PyTorch's layer has it; above 0 the
    /// softmax `[B, H, T, S]` is kept. A cache is decoded without.
    pub dropout: f32,
}

impl AttentionConfig {
    /// As many heads for keys and values as for queries, biases, no mask, no
    /// positions, no dropout, PyTorch's names.
    #[must_use]
    pub const fn new(width: usize, heads: usize) -> Self {
        Self {
            width,
            heads,
            key_value_heads: heads,
            bias: true,
            causal: false,
            rotary_base: None,
            interleaved: false,
            layout: ProjectionLayout::Packed,
            dropout: 0.0,
        }
    }

    fn head_width(&self) -> usize {
        self.width / self.heads
    }

    pub(super) fn check(&self, op: &'static str) -> Result<()> {
        let Self { width, heads, key_value_heads, .. } = *self;
        let wrong = |argument, value: usize, detail: String| {
            Err(Error::Argument { op, argument, value: value.to_string(), detail })
        };
        if heads == 0 || !width.is_multiple_of(heads) {
            return wrong("heads", heads, format!("it must divide the width {width}"));
        }
        if key_value_heads == 0 || !heads.is_multiple_of(key_value_heads) {
            return wrong("key_value_heads", key_value_heads, format!("it must divide the {heads} heads"));
        }
        Dropout::new(self.dropout)?;
        let head = self.head_width();
        if self.rotary_base.is_some() && !head.is_multiple_of(2) {
            return wrong("heads", heads, format!("rotary positions turn pairs, and a head is {head} wide"));
        }
        Ok(())
    }
}

/// The linear layers before attention.
#[derive(Debug, Clone)]
pub(super) enum Projections {
    /// Rows for queries, keys and values, in this order.
    Packed(Linear),
    /// One layer each.
    Separate {
        /// Of queries.
        q: Linear,
        /// Of keys.
        k: Linear,
        /// Of values.
        v: Linear,
    },
}

/// `out(attention(q(x), k(y), v(y)))` over heads; `y` is `x` in self-attention.
#[derive(Debug, Clone)]
pub struct MultiHeadAttention {
    projections: Projections,
    out: Linear,
    config: AttentionConfig,
    dropout: Dropout,
}

impl MultiHeadAttention {
    /// A layer named `name`; [`ProjectionLayout`] says its parameters' names.
    ///
    /// # Errors
    /// [`Error::Argument`] unless the heads divide the width and the key and value
    /// heads divide them; with rotary positions a head's width must be even; unless
    /// `0 <= dropout < 1`.
    pub fn new(params: &Params, name: &str, config: AttentionConfig) -> Result<Self> {
        config.check(OP)?;
        let AttentionConfig { width, bias, .. } = config;
        let shared = config.key_value_heads * config.head_width();
        let linear = |what: &str, outputs| Linear::new(params, &dotted(name, what), width, outputs, bias);
        match config.layout {
            ProjectionLayout::Packed => {
                let rows = width + 2 * shared;
                let bound = (6.0 / (rows + width).max(1) as f32).sqrt();
                let init = Init::Uniform { low: -bound, high: bound };
                let weight = params.create(&dotted(name, "in_proj_weight"), [rows, width], init)?;
                let zeros = |what: &str| params.create(&dotted(name, what), [rows], Init::Zeros);
                let packed = Linear::of(weight, bias.then(|| zeros("in_proj_bias")).transpose()?);
                let (weight, zeros) = (Linear::first_values(width), bias.then_some(Init::Zeros));
                let out = Linear::with_init(params, &dotted(name, "out_proj"), [width, width], weight, zeros)?;
                Self::of(Projections::Packed(packed), out, config)
            }
            ProjectionLayout::Separate => {
                let (q, k, v) = (linear("q_proj", width)?, linear("k_proj", shared)?, linear("v_proj", shared)?);
                Self::of(Projections::Separate { q, k, v }, linear("o_proj", width)?, config)
            }
        }
    }

    /// A layer of these linear layers, which fit `config`.
    pub(super) fn of(projections: Projections, out: Linear, config: AttentionConfig) -> Result<Self> {
        config.check(OP)?;
        Ok(Self { projections, out, config, dropout: Dropout::new(config.dropout)? })
    }

    /// Queries `[B, HQ, T, D]`, keys and values `[B, H, S, D]`.
    fn project(&self, x: &Tensor, context: &Tensor) -> Result<[Tensor; 3]> {
        let (queries, shared) = (self.config.width, self.config.key_value_heads * self.config.head_width());
        let [q, k, v] = match &self.projections {
            Projections::Separate { q, k, v } => [q.forward(x)?, k.forward(context)?, v.forward(context)?],
            Projections::Packed(packed) if x.id() == context.id() => {
                let parts = packed.forward(x)?.split(-1, &[queries, shared, shared])?;
                [parts[0].clone(), parts[1].clone(), parts[2].clone()]
            }
            Projections::Packed(packed) => {
                let parts = packed.forward_part(context, queries, 2 * shared)?.split(-1, &[shared, shared])?;
                [packed.forward_part(x, 0, queries)?, parts[0].clone(), parts[1].clone()]
            }
        };
        let split = |x: &Tensor, heads: usize| {
            let [b, t, c] = <[usize; 3]>::try_from(x.dims()).map_err(|_| Error::Shape {
                op: OP,
                shapes: vec![x.shape().clone()],
                detail: "expected [B, T, C]".into(),
            })?;
            x.reshape([b, t, heads, c / heads])?.permute(&[0, 2, 1, 3])
        };
        let shared_heads = self.config.key_value_heads;
        Ok([split(&q, self.config.heads)?, split(&k, shared_heads)?, split(&v, shared_heads)?])
    }

    /// `out` of heads `[B, HQ, T, D]`, in the shape of `x`.
    fn join(&self, heads: &Tensor, x: &Tensor) -> Result<Tensor> {
        self.out.forward(&heads.permute(&[0, 2, 1, 3])?.reshape(x.shape())?)
    }

    /// Attention of `x [B, T, C]` over `context [B, S, C]`, with a `mask` as of
    /// [`AttentionOptions`]. Rotary positions count from 0 in both.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::DType`] if the operands do not fit.
    pub fn attend(&self, x: &Tensor, context: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let config = &self.config;
        let [mut q, mut k, v] = self.project(x, context)?;
        if let Some(base) = config.rotary_base {
            let rope = RopeOptions { base, first: 0, interleaved: config.interleaved };
            (q, k) = (q.rope_with(rope)?, k.rope_with(rope)?);
        }
        let dropout = if self.dropout.training { self.dropout.p } else { 0.0 };
        let options = AttentionOptions { causal: config.causal, mask, dropout, ..AttentionOptions::default() };
        self.join(&q.attention_with(&k, &v, options)?, x)
    }

    /// Causal self-attention of tokens `x [B, T, C]` that come after those of a cache,
    /// as its layer `layer`. Rotary positions go on where the cache ends.
    ///
    /// # Errors
    /// As [`CacheStep::attend`].
    pub fn decode(&self, x: &Tensor, step: &CacheStep, layer: usize) -> Result<Tensor> {
        let [mut q, mut k, v] = self.project(x, x)?;
        if let Some(base) = self.config.rotary_base {
            let [cos, sin] = step.turns(base, self.config.head_width())?;
            let turn = |x: &Tensor| x.rotate(&cos, &sin, self.config.interleaved);
            (q, k) = (turn(&q)?, turn(&k)?);
        }
        self.join(&step.attend(layer, &q, &k, &v)?, x)
    }
}

impl Module for MultiHeadAttention {
    /// Self-attention without a mask but the causal one.
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.attend(x, x, None)
    }
    fn parameters(&self) -> Vec<Param> {
        let mut all = match &self.projections {
            Projections::Packed(packed) => packed.parameters(),
            Projections::Separate { q, k, v } => [q, k, v].into_iter().flat_map(Module::parameters).collect(),
        };
        all.extend(self.out.parameters());
        all
    }
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        let mut all: Vec<&mut dyn Module> = match &mut self.projections {
            Projections::Packed(packed) => vec![packed],
            Projections::Separate { q, k, v } => vec![q, k, v],
        };
        all.push(&mut self.out);
        all.push(&mut self.dropout);
        all
    }
}
