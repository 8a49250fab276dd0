//! Scaled dot-product attention, composed of other ops:
//! `softmax(q k^T * scale + mask) v`.
//!
//! Shapes: `q [B, H, T, D]`, `k` and `v` `[B, H, S, D]`, result `[B, H, T, D]`;
//! any strides, so heads that are views of `[B, T, H, D]` cost no copy. Scale and
//! mask are fused into the store of the scores; what backward keeps is the
//! softmax alone, `[B, H, T, S]`.

use crate::error::{Error, Result};
use crate::graph::Tensor;

impl Tensor {
    /// Attention of the queries `self` over `keys` and `values`, with scale
    /// `1 / sqrt(D)`. `causal` lets query `t` see keys `0..=t` only.
    ///
    /// # Errors
    /// [`Error::Shape`] if the operands do not fit.
    pub fn attention(&self, keys: &Self, values: &Self, causal: bool) -> Result<Self> {
        let rank = self.rank();
        if rank < 3 || keys.rank() != rank || values.rank() != rank {
            return Err(Error::Shape {
                op: "attention",
                shapes: vec![self.shape().clone(), keys.shape().clone(), values.shape().clone()],
                detail: "expected [.., T, D], [.., S, D] and [.., S, D] with the same leading axes".into(),
            });
        }
        let width = self.dims()[rank - 1];
        let scale = 1.0 / (width.max(1) as f32).sqrt();
        let mut scores = self.matmul_t(keys)?.mul_scalar(scale)?;
        if causal {
            scores = scores.causal_fill(f32::NEG_INFINITY)?;
        }
        scores.softmax(-1)?.matmul(values)
    }
}
