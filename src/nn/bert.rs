//! An encoder in BERT's manner (Devlin et al. 2018): learned positions, norms after
//! the residuals, exact GELU. Parameters are named as in Hugging Face's
//! `BertModel`, first values are BERT's: normal weights of standard deviation 0.02,
//! biases 0. There is no dropout on attention's probabilities.

use super::attention::Projections;
use super::{AttentionConfig, Dropout, Embedding, LayerNorm, Linear, Module, MultiHeadAttention, dotted};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::params::{Init, Param, Params};

const OP: &str = "bert";

/// Sizes of a [`BertEncoder`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BertConfig {
    /// `V`.
    pub vocabulary: usize,
    /// Longest sequence, `T`.
    pub context: usize,
    /// Kinds of tokens (sentence A or B), usually 2.
    pub token_types: usize,
    /// `C`.
    pub width: usize,
    /// `H`; divides `C`.
    pub heads: usize,
    /// Number of blocks.
    pub layers: usize,
    /// Width of the feed-forward part, usually `4 C`.
    pub hidden: usize,
    /// Dropout on embeddings, attention's output and the feed-forward part.
    pub dropout: f32,
    /// Added to variances.
    pub eps: f32,
}

impl BertConfig {
    /// The sizes given, two kinds of tokens, a feed-forward part four times as wide,
    /// dropout 0.1 and eps 1e-12 (BERT's).
    #[must_use]
    pub const fn new(vocabulary: usize, context: usize, width: usize, heads: usize, layers: usize) -> Self {
        Self {
            vocabulary,
            context,
            token_types: 2,
            width,
            heads,
            layers,
            hidden: width.saturating_mul(4),
            dropout: 0.1,
            eps: 1e-12,
        }
    }
}

#[derive(Debug, Clone)]
struct Block {
    attention: MultiHeadAttention,
    attention_norm: LayerNorm,
    intermediate: Linear,
    output: Linear,
    output_norm: LayerNorm,
    dropout: Dropout,
}

impl Block {
    fn new(params: &Params, name: &str, config: &BertConfig) -> Result<Self> {
        let width = config.width;
        let attention = AttentionConfig::new(width, config.heads);
        attention.check(OP)?;
        let linear = |part: &str, sizes| {
            let weight = Init::Normal { mean: 0.0, std: 0.02 };
            Linear::with_init(params, &dotted(name, part), sizes, weight, Some(Init::Zeros))
        };
        let norm = |part: &str| -> Result<_> {
            Ok(LayerNorm { eps: config.eps, ..LayerNorm::new(params, &dotted(name, part), width)? })
        };
        let own = |part: &str| linear(&format!("attention.self.{part}"), [width, width]);
        let projections = Projections::Separate { q: own("query")?, k: own("key")?, v: own("value")? };
        let out = linear("attention.output.dense", [width, width])?;
        Ok(Self {
            attention: MultiHeadAttention::of(projections, out, attention)?,
            attention_norm: norm("attention.output.LayerNorm")?,
            intermediate: linear("intermediate.dense", [width, config.hidden])?,
            output: linear("output.dense", [config.hidden, width])?,
            output_norm: norm("output.LayerNorm")?,
            dropout: Dropout::new(config.dropout)?,
        })
    }

    fn encode(&self, x: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let attended = self.dropout.forward(&self.attention.attend(x, x, mask)?)?;
        let x = self.attention_norm.forward(&x.add(&attended)?)?;
        let fed = self.output.forward(&self.intermediate.forward(&x)?.gelu()?)?;
        self.output_norm.forward(&x.add(&self.dropout.forward(&fed)?)?)
    }
}

impl Module for Block {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.encode(x, None)
    }
    fn parameters(&self) -> Vec<Param> {
        let mut all = self.attention.parameters();
        all.extend(self.attention_norm.parameters());
        all.extend(self.intermediate.parameters());
        all.extend(self.output.parameters());
        all.extend(self.output_norm.parameters());
        all
    }
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        vec![
            &mut self.attention,
            &mut self.attention_norm,
            &mut self.intermediate,
            &mut self.output,
            &mut self.output_norm,
            &mut self.dropout,
        ]
    }
}

/// The model without a head: `embeddings..`, `encoder.layer.N..`.
///
/// ```text
/// x = LayerNorm(word[ids] + token_type[types] + position)
/// x = LayerNorm(x + attention(x)); x = LayerNorm(x + W2 gelu(W1 x + b1) + b2)      per block
/// ```
#[derive(Debug, Clone)]
pub struct BertEncoder {
    words: Embedding,
    positions: Embedding,
    token_types: Embedding,
    norm: LayerNorm,
    layers: Vec<Block>,
    dropout: Dropout,
}

impl BertEncoder {
    /// A model of the given sizes.
    ///
    /// # Errors
    /// [`Error::Argument`] for sizes that do not fit each other or a dropout outside
    /// `0 <= p < 1`; [`Error::StateConflict`] if the names are taken.
    pub fn new(params: &Params, config: &BertConfig) -> Result<Self> {
        let table = |part: &str, rows| Embedding::new(params, &format!("embeddings.{part}"), rows, config.width, 0.02);
        Ok(Self {
            words: table("word_embeddings", config.vocabulary)?,
            positions: table("position_embeddings", config.context)?,
            token_types: table("token_type_embeddings", config.token_types)?,
            norm: LayerNorm { eps: config.eps, ..LayerNorm::new(params, "embeddings.LayerNorm", config.width)? },
            layers: (0..config.layers)
                .map(|i| Block::new(params, &format!("encoder.layer.{i}"), config))
                .collect::<Result<_>>()?,
            dropout: Dropout::new(config.dropout)?,
        })
    }

    /// `[B, T, C]` for token indices `ids [B, T]` (`i32` or `u32`), `T` at most the
    /// context. `token_types [B, T]` are all 0 if not given; a token of the `bool` mask
    /// `[B, T]` that is false is seen by none (Hugging Face's `attention_mask`). Every
    /// block is a checkpoint segment named `layerN`.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::DType`] if the operands do not fit.
    pub fn encode(&self, ids: &Tensor, token_types: Option<&Tensor>, mask: Option<&Tensor>) -> Result<Tensor> {
        let misfit = |detail: &str| {
            let all = [Some(ids), token_types, mask];
            let shapes = all.into_iter().flatten().map(|t| t.shape().clone()).collect();
            Err(Error::Shape { op: OP, shapes, detail: detail.into() })
        };
        let &[b, t] = ids.dims() else { return misfit("expected token indices [B, T]") };
        if [token_types, mask].into_iter().flatten().any(|other| other.dims() != [b, t]) {
            return misfit("token types and mask must be [B, T] as the token indices");
        }
        let recorder = ids.recorder();
        let positions = recorder.param(&self.positions.weight)?;
        if t > positions.dims()[0] {
            return misfit("T is longer than the context");
        }
        let types = match token_types {
            Some(types) => self.token_types.forward(types)?,
            None => recorder.param(&self.token_types.weight)?.narrow(0, 0, 1)?,
        };
        let x = self.words.forward(ids)?.add(&types)?.add(&positions.narrow(0, 0, t)?)?;
        let mut x = self.dropout.forward(&self.norm.forward(&x)?)?;
        let seen = mask.map(|mask| mask.reshape([b, 1, 1, t])).transpose()?;
        for (i, block) in self.layers.iter().enumerate() {
            x = recorder.checkpoint_named(&format!("layer{i}"), x, |x| block.encode(&x, seen.as_ref()))?;
        }
        Ok(x)
    }
}

impl Module for BertEncoder {
    /// [`BertEncoder::encode`] of one sentence without a mask.
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        self.encode(ids, None, None)
    }
    fn parameters(&self) -> Vec<Param> {
        let tables = [&self.words, &self.positions, &self.token_types];
        let mut all: Vec<Param> = tables.into_iter().flat_map(Module::parameters).collect();
        all.extend(self.norm.parameters());
        all.extend(self.layers.iter().flat_map(Module::parameters));
        all
    }
    fn children_mut(&mut self) -> Vec<&mut dyn Module> {
        let mut all: Vec<&mut dyn Module> =
            vec![&mut self.words, &mut self.positions, &mut self.token_types, &mut self.norm, &mut self.dropout];
        all.extend(self.layers.iter_mut().map(|block| block as &mut dyn Module));
        all
    }
}
