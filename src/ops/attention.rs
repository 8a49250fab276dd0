//! Scaled dot-product attention, `softmax(q k^T * scale + mask) v`, and rotary positions.
//!
//! Shapes: `q [B, H, T, D]`, `k [B, HK, S, D]`, `v [B, HK, S, E]`, result
//! `[B, H, T, E]`; any strides, so heads that are views of `[B, T, H, D]` cost no
//! copy. `attention_kernels.rs` holds the kernels and the rule that says where they
//! are used; elsewhere it is composed of products and a softmax, whose scale and
//! mask are fused into the store of the scores.

use super::attention_kernels::{fused, is_fused};
use crate::dtype::{DType, Shape};
use crate::error::{Error, Result};
use crate::graph::Tensor;

/// Up to so many keys attention is composed. A matter of shapes, so that a recording
/// is the same on every machine.
const FEW_KEYS: usize = 128;

/// What [`Tensor::attention_with`] may be told.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttentionOptions<'a> {
    /// Query `t` sees keys `0..=t + causal_offset` only.
    pub causal: bool,
    /// The place among the keys of the first query, for `causal`. 0 is PyTorch's
    /// `is_causal`, also where `S` is not `T`; `S - T` lets the last query see the
    /// last key, as with keys kept from before.
    pub causal_offset: usize,
    /// Broadcasts to the scores `[.., T, S]`: of type bool, true where a key is
    /// seen; of type `f32`, added to the scores.
    pub mask: Option<&'a Tensor>,
    /// What scores are multiplied with; without one, `1 / sqrt(D)`.
    pub scale: Option<f32>,
    /// Probability with which each number of the softmax is set to 0, `0 <= p < 1`,
    /// as of [`Tensor::dropout`] (`dropout_p`). Above 0 attention is composed: its
    /// memory grows with `T S`.
    pub dropout: f32,
}

impl AttentionOptions<'_> {
    /// The factor of the scores for heads of `width`.
    fn scale_for(&self, width: usize) -> f32 {
        self.scale.unwrap_or(1.0 / (width.max(1) as f32).sqrt())
    }
}

impl Tensor {
    /// Attention of the queries `self` over `keys` and `values`, with scale
    /// `1 / sqrt(D)`. `causal` lets query `t` see keys `0..=t` only.
    ///
    /// # Errors
    /// As [`Tensor::attention_with`].
    pub fn attention(&self, keys: &Self, values: &Self, causal: bool) -> Result<Self> {
        self.attention_with(keys, values, AttentionOptions { causal, ..AttentionOptions::default() })
    }

    /// Attention of the queries `self [.., H, T, D]` over `keys [.., HK, S, D]` and
    /// `values [.., HK, S, E]`: `[.., H, T, E]`, as PyTorch's
    /// `scaled_dot_product_attention`. Where `H` is a multiple of `HK`, neighbouring
    /// query heads share keys and values (grouped queries; Ainslie et al. 2023); no
    /// copies of them are made. A query that sees no key gets zeros.
    ///
    /// Memory is linear in `T` and `S`: [`Tensor::attention_fused`] beyond 128 keys,
    /// [`Tensor::attention_composed`] up to there, where a row of scores is short and
    /// a software adapter takes longer to compile the kernels than they save.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::DType`] if the operands do not fit;
    /// [`Error::Argument`] for a dropout outside `0 <= p < 1`.
    pub fn attention_with(&self, keys: &Self, values: &Self, options: AttentionOptions<'_>) -> Result<Self> {
        check(self, keys, values, options.mask)?;
        if keys.dims()[keys.rank() - 2] <= FEW_KEYS || options.dropout != 0.0 {
            self.attention_composed(keys, values, options)
        } else {
            self.attention_fused(keys, values, options)
        }
    }

    /// [`Tensor::attention_with`] as one fused op, forward and backward, which keeps
    /// two numbers of each row for backward, where `D` and `E` are multiples of 4 up
    /// to 128, leading axes are equal and nothing is dropped; otherwise [`Tensor::attention_composed`],
    /// as are second derivatives and a mask's gradient.
    ///
    /// # Errors
    /// As [`Tensor::attention_with`].
    pub fn attention_fused(&self, keys: &Self, values: &Self, options: AttentionOptions<'_>) -> Result<Self> {
        check(self, keys, values, options.mask)?;
        if !is_fused(self, keys, values) || options.dropout != 0.0 {
            return self.attention_composed(keys, values, options);
        }
        let scale = options.scale_for(self.dims()[self.rank() - 1]);
        fused([self, keys, values], scale, options.causal.then_some(options.causal_offset), options.mask)
    }

    /// [`Tensor::attention_with`] as products and a softmax, which keeps the softmax
    /// `[.., H, T, S]` for backward.
    ///
    /// # Errors
    /// As [`Tensor::attention_with`].
    pub fn attention_composed(&self, keys: &Self, values: &Self, options: AttentionOptions<'_>) -> Result<Self> {
        check(self, keys, values, options.mask)?;
        let rank = self.rank();
        if self.dims()[rank - 3] != keys.dims()[rank - 3] {
            return self.grouped_attention(keys, values, options);
        }
        let mut scores = self.matmul_t(keys)?.mul_scalar(options.scale_for(self.dims()[rank - 1]))?;
        if options.causal {
            let diagonal = i32::try_from(options.causal_offset).unwrap_or(i32::MAX).min(1 << 30);
            scores = scores.causal_fill_from(diagonal, f32::NEG_INFINITY)?;
        }
        match options.mask {
            Some(mask) if mask.dtype() == DType::Bool => {
                scores = scores.masked_fill(&mask.logical_not()?, f32::NEG_INFINITY)?;
            }
            Some(mask) => scores = scores.add(&mask.to_dtype(scores.dtype())?)?,
            None => {}
        }
        scores.softmax(-1)?.dropout(options.dropout)?.matmul(values)
    }

    /// Each group of query heads as one more axis, over which keys and values broadcast.
    fn grouped_attention(&self, keys: &Self, values: &Self, options: AttentionOptions<'_>) -> Result<Self> {
        let at = self.rank() - 3;
        let (heads, shared) = (self.dims()[at], keys.dims()[at]);
        let mut grouped = self.dims().to_vec();
        grouped.splice(at..=at, [shared, heads / shared]);
        let axis = at as isize + 1;
        let mask = match options.mask {
            // A mask of its own per head is grouped as the queries are.
            Some(mask) if mask.rank() >= 3 => {
                let head = mask.rank() - 3;
                let mut dims = mask.dims().to_vec();
                let own = dims[head] == heads;
                dims.splice(head..=head, if own { [shared, heads / shared] } else { [1, 1] });
                Some(mask.reshape(dims)?)
            }
            other => other.cloned(),
        };
        let spread = AttentionOptions { mask: mask.as_ref(), ..options };
        let queries = self.reshape(grouped.clone())?;
        let mut expanded = grouped.clone();
        let last = expanded.len();
        let expand = |x: &Self, dims: &mut Vec<usize>| {
            dims[last - 2..].copy_from_slice(&x.dims()[at + 1..]);
            x.unsqueeze(axis)?.broadcast_to(dims.clone())
        };
        let (keys, values) = (expand(keys, &mut expanded)?, expand(values, &mut expanded)?);
        let y = queries.attention_composed(&keys, &values, spread)?;
        let mut dims = self.dims().to_vec();
        dims[at + 2] = values.dims()[last - 1];
        y.reshape(dims)
    }
}

/// Fails unless the ranks fit, the query heads are a multiple of the others, and the
/// mask is of numbers or truth values and broadcasts to the scores.
fn check(queries: &Tensor, keys: &Tensor, values: &Tensor, mask: Option<&Tensor>) -> Result<()> {
    const OP: &str = "attention";
    let rank = queries.rank();
    let misfit = |detail: &str| Error::Shape {
        op: OP,
        shapes: [queries, keys, values].into_iter().chain(mask).map(|t| t.shape().clone()).collect(),
        detail: detail.into(),
    };
    if rank < 3 || keys.rank() != rank || values.rank() != rank {
        return Err(misfit("expected [.., T, D], [.., S, D] and [.., S, E] with the same leading axes"));
    }
    let [heads, shared, of_values] = [queries, keys, values].map(|t| t.dims()[rank - 3]);
    if heads != shared && (shared == 0 || heads % shared != 0 || of_values != shared) {
        return Err(misfit("the number of query heads must be a multiple of that of keys and values"));
    }
    let Some(mask) = mask else { return Ok(()) };
    if mask.dtype() != DType::Bool && !mask.dtype().is_float() {
        return Err(Error::DType { op: OP, operand: 3, found: mask.dtype(), expected: "bool, f32 or f16" });
    }
    // Leading axes of keys may be wider than the queries'; products say where they do not fit.
    let scores = Shape([&[heads, queries.dims()[rank - 2]], &keys.dims()[rank - 2..rank - 1]].concat());
    let last = Shape(mask.dims()[mask.rank().saturating_sub(3)..].to_vec());
    if scores.broadcast(&last) != Some(scores) {
        return Err(misfit("the mask must broadcast to the scores [.., H, T, S]"));
    }
    Ok(())
}
