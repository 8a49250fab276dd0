//! Images at other sizes: adaptive average pooling, nearest and bilinear resize,
//! pixel shuffle.
//!
//! ```text
//! y = R x C^T      R [HO, H], C [WO, W]: each output row and column a mix of input ones
//! ```
//!
//! The mixes are small constant matrices, so value and gradients are matrix products.
//! Windows and weights are PyTorch's (`adaptive_avg_pool2d`, `interpolate`).

use crate::error::{Error, Result};
use crate::graph::Tensor;

/// The mix of inputs for each of `outputs` places along an axis of `inputs`.
fn mix(inputs: usize, outputs: usize, weights: impl Fn(usize) -> Vec<(usize, f64)>) -> Vec<f32> {
    let mut matrix = vec![0.0_f32; inputs * outputs];
    for place in 0..outputs {
        for (source, weight) in weights(place) {
            matrix[place * inputs + source] += weight as f32;
        }
    }
    matrix
}

fn pooling(inputs: usize, outputs: usize) -> Vec<f32> {
    mix(inputs, outputs, |place| {
        let (start, end) = (place * inputs / outputs, ((place + 1) * inputs).div_ceil(outputs));
        (start..end).map(|source| (source, 1.0 / (end - start) as f64)).collect()
    })
}

fn nearest(inputs: usize, outputs: usize) -> Vec<f32> {
    mix(inputs, outputs, |place| vec![((place * inputs / outputs).min(inputs - 1), 1.0)])
}

fn linear(inputs: usize, outputs: usize, align_corners: bool) -> Vec<f32> {
    mix(inputs, outputs, |place| {
        let at = if align_corners {
            place as f64 * (inputs - 1) as f64 / (outputs.max(2) - 1) as f64
        } else {
            ((place as f64 + 0.5) * inputs as f64 / outputs as f64 - 0.5).max(0.0)
        };
        let low = (at.floor() as usize).min(inputs - 1);
        let high = (low + 1).min(inputs - 1);
        let part = at - low as f64;
        vec![(low, 1.0 - part), (high, part)]
    })
}

impl Tensor {
    fn resampled(
        &self,
        op: &'static str,
        size: [usize; 2],
        weights: impl Fn(usize, usize) -> Vec<f32>,
    ) -> Result<Self> {
        self.expect_float(op, 0)?;
        let &[batch, channels, height, width] = self.dims() else {
            let shapes = vec![self.shape().clone()];
            return Err(Error::Shape { op, shapes, detail: "expected [N, C, H, W]".into() });
        };
        if height == 0 || width == 0 || size.contains(&0) {
            return Err(Error::Argument {
                op,
                argument: "size",
                value: format!("{size:?}"),
                detail: format!("neither it nor the image {height} x {width} may be empty"),
            });
        }
        let recorder = self.recorder();
        let rows = recorder.constant(&weights(height, size[0]), [size[0], height])?;
        let columns = recorder.constant(&weights(width, size[1]), [size[1], width])?;
        let wide = self.reshape([batch.saturating_mul(channels).saturating_mul(height), width])?;
        let narrowed = wide.matmul_t(&columns)?.reshape([batch * channels, height, size[1]])?;
        rows.matmul(&narrowed)?.reshape([batch, channels, size[0], size[1]])
    }

    /// The mean over windows that divide `[N, C, H, W]` into `size` rows and columns,
    /// overlapping where they do not divide evenly (`adaptive_avg_pool2d`).
    ///
    /// # Errors
    /// [`Error::Shape`] unless four axes, [`Error::Argument`] for an empty image or
    /// size, [`Error::DType`] unless `f32`.
    pub fn adaptive_avg_pool2d(&self, size: [usize; 2]) -> Result<Self> {
        self.resampled("adaptive_avg_pool2d", size, pooling)
    }

    /// `[N, C, H, W]` at another size, each place from the nearest
    /// (`interpolate(mode="nearest")`).
    ///
    /// # Errors
    /// As [`Tensor::adaptive_avg_pool2d`].
    pub fn upsample_nearest2d(&self, size: [usize; 2]) -> Result<Self> {
        self.resampled("upsample_nearest2d", size, nearest)
    }

    /// `[N, C, H, W]` at another size, each place mixed from the four around it
    /// (`interpolate(mode="bilinear")`, with or without `align_corners`).
    ///
    /// # Errors
    /// As [`Tensor::adaptive_avg_pool2d`].
    pub fn upsample_bilinear2d(&self, size: [usize; 2], align_corners: bool) -> Result<Self> {
        self.resampled("upsample_bilinear2d", size, |inputs, outputs| linear(inputs, outputs, align_corners))
    }

    /// `[N, C r r, H, W]` to `[N, C, H r, W r]` (`pixel_shuffle`; Shi et al. 2016).
    ///
    /// # Errors
    /// [`Error::Shape`] unless four axes with a multiple of `factor^2` channels.
    pub fn pixel_shuffle(&self, factor: usize) -> Result<Self> {
        let area = factor.saturating_mul(factor);
        match *self.dims() {
            [n, c, h, w] if area > 0 && c % area == 0 => self
                .reshape([n, c / area, factor, factor, h, w])?
                .permute(&[0, 1, 4, 2, 5, 3])?
                .reshape([n, c / area, h.saturating_mul(factor), w.saturating_mul(factor)]),
            _ => Err(self.unshuffled("pixel_shuffle", factor, "channels in multiples of factor^2")),
        }
    }

    /// `[N, C, H r, W r]` to `[N, C r r, H, W]`, the inverse of [`Tensor::pixel_shuffle`].
    ///
    /// # Errors
    /// [`Error::Shape`] unless four axes with rows and columns in multiples of `factor`.
    pub fn pixel_unshuffle(&self, factor: usize) -> Result<Self> {
        match *self.dims() {
            [n, c, h, w] if factor > 0 && h % factor == 0 && w % factor == 0 => self
                .reshape([n, c, h / factor, factor, w / factor, factor])?
                .permute(&[0, 1, 3, 5, 2, 4])?
                .reshape([n, c.saturating_mul(factor * factor), h / factor, w / factor]),
            _ => Err(self.unshuffled("pixel_unshuffle", factor, "rows and columns in multiples of factor")),
        }
    }

    fn unshuffled(&self, op: &'static str, factor: usize, what: &str) -> Error {
        let detail = format!("factor {factor} needs [N, C, H, W] with {what}");
        Error::Shape { op, shapes: vec![self.shape().clone()], detail }
    }
}
