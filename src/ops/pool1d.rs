//! Pooling and transposed convolution of sequences `[N, C, L]`: those of images of one row.

use super::Conv2dOptions;
use crate::error::{Error, Result};
use crate::graph::Tensor;

impl Tensor {
    /// `[N, C, L]` as `[N, C, 1, L]`.
    fn one_row(&self, op: &'static str) -> Result<Self> {
        self.expect_float(op, 0)?;
        let &[batch, channels, length] = self.dims() else {
            let shapes = vec![self.shape().clone()];
            return Err(Error::Shape { op, shapes, detail: "expected [N, C, L]".into() });
        };
        self.reshape([batch, channels, 1, length])
    }

    /// The largest element of each window of `[N, C, L]`, and its place in the sequence
    /// as `u32`; `(L + 2 padding - kernel) / stride + 1` windows
    /// (`F.max_pool1d(return_indices=True)`).
    ///
    /// # Errors
    /// As [`Tensor::max_pool2d`].
    pub fn max_pool1d_with_indices(&self, kernel: usize, stride: usize, padding: usize) -> Result<(Self, Self)> {
        let row = self.one_row("max_pool1d")?;
        let (y, places) = row.max_pool2d_with_indices([1, kernel], [1, stride], [0, padding])?;
        Ok((y.squeeze(2)?, places.squeeze(2)?))
    }

    /// The largest element of each window of `[N, C, L]` (`F.max_pool1d`).
    ///
    /// # Errors
    /// As [`Tensor::max_pool2d`].
    pub fn max_pool1d(&self, kernel: usize, stride: usize, padding: usize) -> Result<Self> {
        Ok(self.max_pool1d_with_indices(kernel, stride, padding)?.0)
    }

    /// The mean of each window of `[N, C, L]`, zeros beyond the edge counting only if
    /// `count_include_pad` (`F.avg_pool1d`).
    ///
    /// # Errors
    /// As [`Tensor::avg_pool2d`].
    pub fn avg_pool1d(&self, kernel: usize, stride: usize, padding: usize, count_include_pad: bool) -> Result<Self> {
        let row = self.one_row("avg_pool1d")?;
        row.avg_pool2d([1, kernel], [1, stride], [0, padding], count_include_pad)?.squeeze(2)
    }

    /// The means of `size` windows that cover `[N, C, L]`: `[N, C, size]`
    /// (`F.adaptive_avg_pool1d`).
    ///
    /// # Errors
    /// As [`Tensor::adaptive_avg_pool2d`].
    pub fn adaptive_avg_pool1d(&self, size: usize) -> Result<Self> {
        self.one_row("adaptive_avg_pool1d")?.adaptive_avg_pool2d([1, size])?.squeeze(2)
    }

    /// The largest elements of `size` windows that cover `[N, C, L]`: `[N, C, size]`
    /// (`F.adaptive_max_pool1d`).
    ///
    /// # Errors
    /// As [`Tensor::adaptive_max_pool2d`].
    pub fn adaptive_max_pool1d(&self, size: usize) -> Result<Self> {
        self.one_row("adaptive_max_pool1d")?.adaptive_max_pool2d([1, size])?.squeeze(2)
    }

    /// The transpose of [`Tensor::conv1d`], of `[N, C, L]` with `weight [C, O / groups, K]`:
    /// `[N, O, (L - 1) s - 2 p + d (K - 1) + 1 + output_padding]` (`F.conv_transpose1d`).
    /// `options` hold for columns: rows have a stride and dilation of 1 and no padding.
    ///
    /// # Errors
    /// As [`Tensor::conv_transpose2d`].
    pub fn conv_transpose1d(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        options: Conv2dOptions,
        output_padding: usize,
    ) -> Result<Self> {
        const OP: &str = "conv_transpose1d";
        let (row, weight) = (self.one_row(OP)?, weight.one_row(OP)?);
        let flat = Conv2dOptions {
            stride: [1, options.stride[1]],
            padding: [0, options.padding[1]],
            dilation: [1, options.dilation[1]],
            groups: options.groups,
        };
        row.conv_transpose2d(&weight, bias, flat, [0, output_padding])?.squeeze(2)
    }
}
