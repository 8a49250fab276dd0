//! Rotary positions (Su et al. 2021).
//!
//! ```text
//! [a'; b'] = [a cos t - b sin t; b cos t + a sin t]      t = position base^(-2 i / D)
//! ```
//!
//! for the `D / 2` pairs `(a, b)` of a row: of element `i` of the first half and
//! element `i` of the second (Llama's and GPT-NeoX' order), or of elements `2 i` and
//! `2 i + 1` (interleaved: GPT-J's, and that of Su et al.).
//!
//! The cosines and sines of a base, width and range of positions are one constant
//! of a recording, however many layers ask for them.

use crate::error::{Error, Result};
use crate::graph::{Recorder, Tensor};

const OP: &str = "rope";

/// What [`Tensor::rope_with`] may be told.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeOptions {
    /// Base of the angles, usually 10,000.
    pub base: f32,
    /// Position of the first row; the next rows follow.
    pub first: usize,
    /// Pairs are neighbours, not an element of each half.
    pub interleaved: bool,
}

impl Recorder {
    /// Cosines and sines `[rows, width / 2]` of the angles of rotary positions `first,
    /// first + 1, ..`, for [`Tensor::rotate`]. Asked again, the same values.
    ///
    /// # Errors
    /// [`Error::Argument`] for an odd width or more than 2^32 - 1 angles.
    pub fn rope_tables(&self, base: f32, width: usize, first: usize, rows: usize) -> Result<[Tensor; 2]> {
        if !width.is_multiple_of(2) {
            let detail = "rotary positions turn pairs: expected an even width".into();
            return Err(Error::Argument { op: OP, argument: "width", value: width.to_string(), detail });
        }
        let half = width / 2;
        if rows.checked_mul(half).is_none_or(|angles| u32::try_from(angles).is_err()) {
            let detail = format!("{rows} rows of {half} angles are more than 2^32 - 1");
            return Err(Error::Argument { op: OP, argument: "rows", value: rows.to_string(), detail });
        }
        // On the host in f64: an angle of many turns would lose its digits in f32.
        let angle = |place: usize| {
            let (row, i) = (place / half, place % half);
            (first as f64 + row as f64) * f64::from(base).powf(-2.0 * i as f64 / width as f64)
        };
        let table = |name: &str, f: fn(f64) -> f64| {
            let key = format!("rope {name} {:08x} {width} {first} {rows}", base.to_bits());
            let values = || (0..rows * half).map(|place| f(angle(place)) as f32).collect::<Vec<_>>();
            self.shared_constant(key, values, [rows, half])
        };
        Ok([table("cos", f64::cos)?, table("sin", f64::sin)?])
    }
}

impl Tensor {
    /// [`Tensor::rope_with`] of this base, the first row at position `first`, pairs of
    /// an element of each half.
    ///
    /// # Errors
    /// As [`Tensor::rope_with`].
    pub fn rope(&self, base: f32, first: usize) -> Result<Self> {
        self.rope_with(RopeOptions { base, first, interleaved: false })
    }

    /// Rotary positions on `[.., T, D]`, as `options` say.
    ///
    /// # Errors
    /// [`Error::Shape`] unless `D` is even and there are two axes or more,
    /// [`Error::DType`] unless `f32`.
    pub fn rope_with(&self, options: RopeOptions) -> Result<Self> {
        let [.., rows, width] = *self.dims() else { return Err(self.unfit()) };
        if !width.is_multiple_of(2) {
            return Err(self.unfit());
        }
        let [cos, sin] = self.recorder().rope_tables(options.base, width, options.first, rows)?;
        self.rotate(&cos, &sin, options.interleaved)
    }

    /// Turns the pairs of each row of `[.., T, D]` by angles of these cosines and
    /// sines, `[T, D / 2]`.
    ///
    /// # Errors
    /// As [`Tensor::rope_with`]; [`Error::Shape`] if the tables do not fit.
    pub fn rotate(&self, cos: &Self, sin: &Self, interleaved: bool) -> Result<Self> {
        self.expect_float(OP, 0)?;
        let [.., rows, width] = *self.dims() else { return Err(self.unfit()) };
        if !width.is_multiple_of(2) {
            return Err(self.unfit());
        }
        let half = width / 2;
        if cos.dims() != [rows, half] || sin.dims() != [rows, half] {
            let shapes = [self, cos, sin].iter().map(|t| t.shape().clone()).collect();
            return Err(Error::Shape { op: OP, shapes, detail: "expected [.., T, D] and tables [T, D / 2]".into() });
        }
        let (a, b) = if interleaved {
            let pairs = self.unflatten(-1, &[half, 2])?;
            (pairs.select(-1, 0)?, pairs.select(-1, 1)?)
        } else {
            (self.narrow(-1, 0, half)?, self.narrow(-1, half, half)?)
        };
        let (cos, sin) = (&cos.to_dtype(self.dtype())?, &sin.to_dtype(self.dtype())?);
        let turned_a = a.mul(cos)?.sub(&b.mul(sin)?)?;
        let turned_b = b.mul(cos)?.add(&a.mul(sin)?)?;
        if interleaved {
            Self::stack(&[turned_a, turned_b], -1)?.reshape(self.shape())
        } else {
            Self::cat(&[turned_a, turned_b], -1)
        }
    }

    fn unfit(&self) -> Error {
        let detail = "expected [.., T, D] with an even D".into();
        Error::Shape { op: OP, shapes: vec![self.shape().clone()], detail }
    }
}
