//! Scaled dot-product attention, composed of other ops:
//! `softmax(q k^T * scale + mask) v`.
//!
//! Shapes: `q [B, H, T, D]`, `k` and `v` `[B, H, S, D]`, result `[B, H, T, D]`;
//! any strides, so heads that are views of `[B, T, H, D]` cost no copy. Scale and
//! mask are fused into the store of the scores; what backward keeps is the
//! softmax alone, `[B, H, T, S]`.

use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::graph::Tensor;

/// What [`Tensor::attention_with`] may be told.
#[derive(Debug, Clone, Copy, Default)]
pub struct AttentionOptions<'a> {
    /// Query `t` sees keys `0..=t` only, the last query the last key.
    pub causal: bool,
    /// Broadcasts to the scores `[.., T, S]`: of type bool, true where a key is
    /// seen; of type `f32`, added to the scores.
    pub mask: Option<&'a Tensor>,
    /// What scores are multiplied with; without one, `1 / sqrt(D)`.
    pub scale: Option<f32>,
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
    /// # Errors
    /// [`Error::Shape`] or [`Error::DType`] if the operands do not fit.
    pub fn attention_with(&self, keys: &Self, values: &Self, options: AttentionOptions<'_>) -> Result<Self> {
        const OP: &str = "attention";
        let rank = self.rank();
        let misfit = |detail: &str| Error::Shape {
            op: OP,
            shapes: vec![self.shape().clone(), keys.shape().clone(), values.shape().clone()],
            detail: detail.into(),
        };
        if rank < 3 || keys.rank() != rank || values.rank() != rank {
            return Err(misfit("expected [.., T, D], [.., S, D] and [.., S, D] with the same leading axes"));
        }
        let (heads, shared) = (self.dims()[rank - 3], keys.dims()[rank - 3]);
        if heads != shared {
            if shared == 0 || heads % shared != 0 || values.dims()[rank - 3] != shared {
                return Err(misfit("the number of query heads must be a multiple of that of keys and values"));
            }
            return self.grouped_attention(keys, values, options);
        }
        let width = self.dims()[rank - 1];
        let scale = options.scale.unwrap_or(1.0 / (width.max(1) as f32).sqrt());
        let mut scores = self.matmul_t(keys)?.mul_scalar(scale)?;
        if options.causal {
            scores = scores.causal_fill(f32::NEG_INFINITY)?;
        }
        match options.mask {
            Some(mask) if mask.dtype() == DType::Bool => {
                scores = scores.masked_fill(&mask.logical_not()?, f32::NEG_INFINITY)?;
            }
            Some(mask) => scores = scores.add(mask)?,
            None => {}
        }
        scores.softmax(-1)?.matmul(values)
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
                dims.splice(head..=head, if own { [shared, heads / shared] } else { [dims[head], 1] });
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
        let y = queries.attention_with(&keys, &values, spread)?;
        let mut dims = self.dims().to_vec();
        dims[at + 2] = values.dims()[last - 1];
        y.reshape(dims)
    }

    /// Rotary positions (Su et al. 2021) on `[.., T, D]`, rows at positions `first,
    /// first + 1, ..`: element `i` of the first half of a row and element `i` of the
    /// second are turned as a pair by the angle `position * base^(-2 i / D)`.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `D` is even and there are two axes or more,
    /// [`Error::DType`] unless `f32`.
    pub fn rope(&self, base: f32, first: usize) -> Result<Self> {
        const OP: &str = "rope";
        self.expect_float(OP, 0)?;
        let (rows, width) = match *self.dims() {
            [.., rows, width] if width % 2 == 0 => (rows, width),
            _ => {
                let shapes = vec![self.shape().clone()];
                return Err(Error::Shape { op: OP, shapes, detail: "expected [.., T, D] with an even D".into() });
            }
        };
        let half = width / 2;
        // On the host in f64: an angle of many turns would lose its digits in f32.
        let angle = |place: usize| {
            let (row, i) = (place / half, place % half);
            (first + row) as f64 * f64::from(base).powf(-2.0 * i as f64 / width as f64)
        };
        let table = |f: fn(f64) -> f64| -> Vec<f32> { (0..rows * half).map(|place| f(angle(place)) as f32).collect() };
        let recorder = self.recorder();
        let cos = recorder.constant(&table(f64::cos), [rows, half])?;
        let sin = recorder.constant(&table(f64::sin), [rows, half])?;
        let (low, high) = (self.narrow(-1, 0, half)?, self.narrow(-1, half, half)?);
        let turned_low = low.mul(&cos)?.sub(&high.mul(&sin)?)?;
        let turned_high = high.mul(&cos)?.add(&low.mul(&sin)?)?;
        Self::cat(&[turned_low, turned_high], -1)
    }
}
