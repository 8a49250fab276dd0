//! Keys and values of the tokens so far, kept for generation.

use std::collections::BTreeMap;
use std::sync::Mutex;

use super::dotted;
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::fuse::program::Category;
use crate::graph::{Recorder, Tensor};
use crate::ops::AttentionOptions;
use crate::params::{Init, Param, Params};
use crate::shared::lock;

const OP: &str = "key_value_cache";

/// Keys and values of every attention layer of a model, for `capacity` (`S`) tokens
/// of `B` sequences: the states `NAME.N.keys` and `NAME.N.values` `[B, H, S, D]`, and
/// `NAME.length`, `u32 [1]`, how many tokens they hold.
///
/// A step that records [`super::Llama::decode`] or [`super::Gpt::decode`] appends its
/// tokens. Shapes are fixed, so one step for one token serves a whole generation, and
/// one for more tokens may read the prompt before it. A token beyond the capacity is
/// not kept, and its row of the result is NaN.
///
/// ```no_run
/// # fn example(gpu: &remat::gpu::Gpu, params: &remat::params::Params, model: &remat::nn::Llama) -> remat::Result<()> {
/// use remat::checkpoint::Policy;
/// let cache = model.cache(params, "cache", 1, 256)?;
/// let prompt = gpu.step_blocking(Policy::None, |g| model.decode(&g.input::<i32>("ids", [1, 4])?, &cache))?;
/// let next = gpu.step_blocking(Policy::None, |g| model.decode(&g.input::<i32>("ids", [1, 1])?, &cache))?;
/// let logits = prompt.run_blocking(&[("ids", vec![5, 17, 2, 9].into())])?;
/// let logits = next.run_blocking(&[("ids", vec![3].into())])?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct KeyValueCache {
    layers: Vec<[Param; 2]>,
    length: Param,
    capacity: usize,
}

impl KeyValueCache {
    /// An empty cache named `name` for `layers` attention layers of `heads` key and
    /// value heads of `head_width` each.
    ///
    /// # Errors
    /// [`Error::StateConflict`] if the names are taken by state of another type.
    pub fn new(
        params: &Params,
        name: &str,
        layers: usize,
        [batch, heads, capacity, head_width]: [usize; 4],
    ) -> Result<Self> {
        let state = |part: &str, ty| params.create_typed(&dotted(name, part), ty, Category::Other, Init::Zeros);
        let pair = |layer: usize| {
            let ty = TensorType::new(DType::F32, [batch, heads, capacity, head_width]);
            Ok([state(&format!("{layer}.keys"), ty.clone())?, state(&format!("{layer}.values"), ty)?])
        };
        let layers = (0..layers).map(pair).collect::<Result<_>>()?;
        Ok(Self { layers, length: state("length", TensorType::new(DType::U32, [1]))?, capacity })
    }

    /// Its states: keys and values of each layer, then the length.
    #[must_use]
    pub fn states(&self) -> Vec<Param> {
        self.layers.iter().flatten().chain([&self.length]).cloned().collect()
    }

    /// Records that the cache is empty again.
    ///
    /// # Errors
    /// As [`Recorder::assign`].
    pub fn clear(&self, recorder: &Recorder) -> Result<()> {
        recorder.assign(&self.length, &recorder.full_u32([1], 0)?)
    }

    /// Records that `tokens` (`T`) more are appended; every layer then attends once.
    ///
    /// # Errors
    /// [`Error::Argument`] for more tokens than the capacity, for a second call in one
    /// recording, and inside a checkpoint segment: a replay of it would attend over keys and values that the step has
    /// not kept.
    pub fn append(&self, recorder: &Recorder, tokens: usize) -> Result<CacheStep> {
        refuse_segment(recorder)?;
        if tokens > self.capacity {
            let detail = format!("the cache has room for {}", self.capacity);
            return Err(Error::Argument { op: OP, argument: "tokens", value: tokens.to_string(), detail });
        }
        let length = recorder.param(&self.length)?;
        // No cache is longer than what a u32 counts: its elements are addressed by one.
        let count = u32::try_from(tokens).unwrap_or(u32::MAX);
        recorder.assign(&self.length, &length.add_scalar(count)?)?;
        let positions = recorder.iota([tokens], 0)?.add(&length)?;
        // For each place of the cache the number of the token that comes to it. Before
        // the first it wraps to one beyond every token.
        let token = recorder.iota([self.capacity], 0)?.sub(&length)?;
        let written = token.lt_scalar(count)?;
        let token = token.masked_fill(&written.logical_not()?, 0_u32)?;
        let place = recorder.iota([tokens, self.capacity], 1)?;
        let seen = place.le(&positions.unsqueeze(1)?)?;
        // 1, and NaN beyond the capacity.
        let kept = recorder.ones([self.capacity, 1])?.embedding(&positions)?;
        let written = written.unsqueeze(1)?;
        Ok(CacheStep { cache: self.clone(), positions, token, written, seen, kept, turns: Mutex::default() })
    }
}

/// Fails inside a checkpoint segment.
fn refuse_segment(recorder: &Recorder) -> Result<()> {
    let Some(segment) = recorder.scope().segment else { return Ok(()) };
    let name = recorder.with_graph(|graph| graph.segments.get(segment.index()).map(|s| s.name.clone()));
    Err(Error::Argument {
        op: OP,
        argument: "segment",
        value: name.unwrap_or_default(),
        detail: "a key-value cache is written here, inside a checkpoint segment, which is replayed in backward: \
                 record generation outside of checkpoint"
            .into(),
    })
}

/// Tokens being appended to a [`KeyValueCache`], as one recording sees it.
#[derive(Debug)]
pub struct CacheStep {
    cache: KeyValueCache,
    /// `u32 [T]`.
    positions: Tensor,
    /// `u32 [S]`.
    token: Tensor,
    /// `bool [S, 1]`.
    written: Tensor,
    /// `bool [T, S]`.
    seen: Tensor,
    /// `[T, 1]`.
    kept: Tensor,
    /// Cosines and sines of the positions, by base and width, made once for all layers.
    turns: Mutex<BTreeMap<(u32, usize), [Tensor; 2]>>,
}

impl CacheStep {
    /// The positions of the tokens, `u32 [T]`.
    #[must_use]
    pub fn positions(&self) -> &Tensor {
        &self.positions
    }

    /// Cosines and sines `[T, D / 2]` of rotary positions of the tokens.
    ///
    /// # Errors
    /// As [`Recorder::rope_tables`].
    pub(super) fn turns(&self, base: f32, width: usize) -> Result<[Tensor; 2]> {
        let key = (base.to_bits(), width);
        if let Some(turns) = lock(&self.turns).get(&key) {
            return Ok(turns.clone());
        }
        let [cos, sin] = self.positions.recorder().rope_tables(base, width, 0, self.cache.capacity)?;
        let turns = [cos.embedding(&self.positions)?, sin.embedding(&self.positions)?];
        lock(&self.turns).insert(key, turns.clone());
        Ok(turns)
    }

    /// Attention of `queries [B, HQ, T, D]` over what the layer has kept and `keys` and
    /// `values [B, H, T, D]`, which are kept too. A token sees itself and what came
    /// before it.
    ///
    /// # Errors
    /// [`Error::Argument`] for a layer that the cache does not have or inside a
    /// checkpoint segment; [`Error::Shape`] if the operands do not fit.
    pub fn attend(&self, layer: usize, queries: &Tensor, keys: &Tensor, values: &Tensor) -> Result<Tensor> {
        refuse_segment(queries.recorder())?;
        let Some([kept_keys, kept_values]) = self.cache.layers.get(layer) else {
            let detail = format!("the cache is one of {} layers", self.cache.layers.len());
            return Err(Error::Argument { op: OP, argument: "layer", value: layer.to_string(), detail });
        };
        let (keys, values) = (self.keep(kept_keys, keys)?, self.keep(kept_values, values)?);
        let options = AttentionOptions { mask: Some(&self.seen), ..AttentionOptions::default() };
        queries.attention_with(&keys, &values, options)?.mul(&self.kept)
    }

    /// The state with these tokens at their places; recorded as its next value.
    fn keep(&self, state: &Param, fresh: &Tensor) -> Result<Tensor> {
        let expected = state.ty().shape.dims();
        let (tokens, dims) = (self.positions.dims()[0], fresh.dims());
        if dims.len() != 4 || dims[..2] != expected[..2] || dims[2] != tokens || dims[3] != expected[3] {
            let shapes = vec![fresh.shape().clone(), state.ty().shape.clone()];
            let detail = format!("expected [B, H, T, D] for {tokens} tokens and a cache [B, H, S, D]");
            return Err(Error::Shape { op: OP, shapes, detail });
        }
        let recorder = fresh.recorder();
        let spread = if tokens == 1 { fresh.clone() } else { fresh.index_select(2, &self.token)? };
        let all = self.written.where_(&spread, &recorder.param(state)?)?;
        recorder.assign(state, &all)?;
        Ok(all)
    }
}
