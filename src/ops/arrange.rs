//! Shapes composed of other ops: parts, moved axes, padding by the tensor's own
//! elements, diagonals, and numbers at even distances.
//!
//! Names and meanings are those of PyTorch's functions of the same name.

use crate::dtype::Shape;
use crate::error::{Error, Result};
use crate::graph::{Recorder, Tensor};

/// Where [`Tensor::pad_with`] takes the added elements from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PadMode {
    /// Mirrored at the edge, which is not repeated.
    Reflect,
    /// The edge, repeated.
    Replicate,
    /// The other end.
    Circular,
}

fn argument(op: &'static str, argument: &'static str, value: String, detail: String) -> Error {
    Error::Argument { op, argument, value, detail }
}

impl Tensor {
    /// `axis` cut into at most `count` parts of `extent / count` elements,
    /// rounded up; the last may be shorter. Views.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there or a count of 0.
    pub fn chunk(&self, count: usize, axis: isize) -> Result<Vec<Self>> {
        let at = self.axis("chunk", axis)?;
        if count == 0 {
            return Err(argument("chunk", "count", "0".into(), "it must be at least 1".into()));
        }
        let extent = self.dims()[at];
        let size = extent.div_ceil(count).max(1);
        let mut sizes = vec![size; extent / size];
        if !extent.is_multiple_of(size) || sizes.is_empty() {
            sizes.push(extent % size);
        }
        self.split(axis, &sizes)
    }

    /// Every part of `axis`, which is dropped. Views; none for an empty axis.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there.
    pub fn unbind(&self, axis: isize) -> Result<Vec<Self>> {
        let at = self.axis("unbind", axis)?;
        if self.dims()[at] == 0 {
            return Ok(Vec::new());
        }
        self.split(axis, &vec![1; self.dims()[at]])?.iter().map(|part| part.squeeze(axis)).collect()
    }

    /// `axis` seen as several of `sizes`, whose product is its extent. A view.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there, [`Error::Shape`] if
    /// the sizes do not fit.
    pub fn unflatten(&self, axis: isize, sizes: &[usize]) -> Result<Self> {
        let at = self.axis("unflatten", axis)?;
        let dims = self.dims();
        self.reshape([&dims[..at], sizes, &dims[at + 1..]].concat())
    }

    /// Axis `from` moved to place `to`, the others in their order. A view.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there.
    pub fn movedim(&self, from: isize, to: isize) -> Result<Self> {
        let (from, to) = (self.axis("movedim", from)?, self.axis("movedim", to)?);
        let mut axes: Vec<isize> = (0..self.rank() as isize).collect();
        let moved = axes.remove(from);
        axes.insert(to, moved);
        self.permute(&axes)
    }

    /// Two axes exchanged: [`Tensor::transpose`] by NumPy's name.
    ///
    /// # Errors
    /// As [`Tensor::transpose`].
    pub fn swapaxes(&self, a: isize, b: isize) -> Result<Self> {
        self.transpose(a, b)
    }

    /// `pads[axis] = (before, after)` elements added to each axis, taken from
    /// the tensor itself as `mode` says.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `pads` has one entry per axis, and if an axis
    /// is too short: a reflection needs one element more than it adds on a side,
    /// a circular padding as many, a repeated edge one.
    pub fn pad_with(&self, pads: &[(usize, usize)], mode: PadMode) -> Result<Self> {
        const OP: &str = "pad_with";
        if pads.len() != self.rank() {
            let detail = format!("shape {} needs {} pairs", self.shape(), self.rank());
            return Err(argument(OP, "pads", format!("{pads:?}"), detail));
        }
        let mut padded = self.clone();
        for (at, &(before, after)) in pads.iter().enumerate() {
            let (axis, extent, most) = (at as isize, self.dims()[at], before.max(after));
            if most == 0 {
                continue;
            }
            let fits = match mode {
                PadMode::Reflect => most < extent,
                PadMode::Replicate => extent > 0,
                PadMode::Circular => most <= extent,
            };
            if !fits {
                let detail = format!("axis {at} of shape {} is too short for it ({mode:?})", self.shape());
                return Err(argument(OP, "pads", format!("({before}, {after})"), detail));
            }
            let side = |count: usize, is_before: bool| -> Result<Option<Self>> {
                if count == 0 {
                    return Ok(None);
                }
                Ok(Some(match (mode, is_before) {
                    (PadMode::Reflect, true) => padded.narrow(axis, 1, count)?.flip(&[axis])?,
                    (PadMode::Reflect, false) => padded.narrow(axis, extent - 1 - count, count)?.flip(&[axis])?,
                    (PadMode::Circular, true) => padded.narrow(axis, extent - count, count)?,
                    (PadMode::Circular, false) => padded.narrow(axis, 0, count)?,
                    (PadMode::Replicate, _) => {
                        let mut dims = padded.dims().to_vec();
                        dims[at] = count;
                        padded.narrow(axis, if is_before { 0 } else { extent - 1 }, 1)?.broadcast_to(dims)?
                    }
                }))
            };
            let parts: Vec<Self> =
                [side(before, true)?, Some(padded.clone()), side(after, false)?].into_iter().flatten().collect();
            padded = Self::cat(&parts, axis)?;
        }
        Ok(padded)
    }

    /// The diagonal of the last two axes: `y[.., i] = x[.., i, i + offset]`, or
    /// `x[.., i - offset, i]` for a negative offset. A view of a contiguous tensor.
    ///
    /// # Errors
    /// [`Error::Shape`] for fewer than two axes.
    pub fn diagonal(&self, offset: i32) -> Result<Self> {
        let &[.., rows, columns] = self.dims() else {
            let (shapes, detail) = (vec![self.shape().clone()], "it needs two axes or more".into());
            return Err(Error::Shape { op: "diagonal", shapes, detail });
        };
        let by = offset.unsigned_abs() as usize;
        let (count, start) = if offset >= 0 {
            (rows.min(columns.saturating_sub(by)), by)
        } else {
            (columns.min(rows.saturating_sub(by)), by.saturating_mul(columns))
        };
        let flat = self.flatten(-2, -1)?;
        if count == 0 {
            return flat.narrow(-1, 0, 0);
        }
        flat.slice(-1, start, start + (count - 1) * (columns + 1) + 1, columns + 1)
    }

    /// A square matrix with this `f32` vector on its diagonal `offset`, 0 elsewhere.
    ///
    /// # Errors
    /// [`Error::Shape`] unless this is a vector, [`Error::DType`] unless f32.
    pub fn diag(&self, offset: i32) -> Result<Self> {
        self.expect_float("diag", 0)?;
        let &[count] = self.dims() else {
            let (shapes, detail) = (vec![self.shape().clone()], "expected a vector [N]".into());
            return Err(Error::Shape { op: "diag", shapes, detail });
        };
        let by = offset.unsigned_abs() as usize;
        let side = count.saturating_add(by);
        if count == 0 {
            return self.recorder().zeros([side, side]);
        }
        let start = if offset >= 0 { by } else { by.saturating_mul(side) };
        let total = side.saturating_mul(side);
        // Rows one longer than the matrix' move on by one column each.
        let rows = self.unsqueeze(-1)?.pad(&[(0, 0), (0, side)], 0.0)?.flatten(0, 1)?;
        let kept = rows.narrow(0, 0, ((count - 1) * (side + 1) + 1).min(total - start))?;
        let after = total - start - kept.dims()[0];
        kept.pad(&[(start, after)], 0.0)?.reshape([side, side])
    }

    /// Grids of coordinates of these vectors, each of shape `[len_0, len_1, ..]`
    /// and constant along all axes but its own (PyTorch's `indexing="ij"`). Views.
    ///
    /// # Errors
    /// [`Error::Shape`] if one is no vector.
    pub fn meshgrid(vectors: &[&Self]) -> Result<Vec<Self>> {
        let mut shape = Vec::with_capacity(vectors.len());
        for vector in vectors {
            let &[extent] = vector.dims() else {
                let shapes = vectors.iter().map(|v| v.shape().clone()).collect();
                return Err(Error::Shape { op: "meshgrid", shapes, detail: "expected vectors".into() });
            };
            shape.push(extent);
        }
        let grid = |(at, vector): (usize, &&Self)| {
            let mut dims = vec![1; shape.len()];
            dims[at] = shape[at];
            vector.reshape(dims)?.broadcast_to(shape.clone())
        };
        vectors.iter().enumerate().map(grid).collect()
    }
}

impl Recorder {
    /// `start, start + step, ..` up to, not including, `end`, as `i32`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a step of 0 or of the wrong sign.
    pub fn arange_i32(&self, start: i32, end: i32, step: i32) -> Result<Tensor> {
        let distance = i64::from(end) - i64::from(start);
        if step == 0 || distance.signum() * i64::from(step.signum()) < 0 {
            let detail = format!("it must be a step from {start} towards {end}");
            return Err(argument("arange_i32", "step", step.to_string(), detail));
        }
        let count = distance.unsigned_abs().div_ceil(u64::from(step.unsigned_abs()));
        let places = self.arange(usize::try_from(count).unwrap_or(usize::MAX))?.to_i32()?;
        places.mul_scalar(step)?.add_scalar(start)
    }

    /// `start + i step` for all `i` for which this is before `end`, as `f32`.
    ///
    /// # Errors
    /// [`Error::Argument`] for a step that is 0, not finite or of the wrong sign.
    pub fn arange_f32(&self, start: f32, end: f32, step: f32) -> Result<Tensor> {
        let count = ((f64::from(end) - f64::from(start)) / f64::from(step)).ceil();
        // Places up to 2^24 are whole in f32.
        if step == 0.0 || !(0.0..=16_777_216.0).contains(&count) {
            let detail = format!("it must lead from {start} to {end} in at most 2^24 steps");
            return Err(argument("arange_f32", "step", step.to_string(), detail));
        }
        self.arange(count as usize)?.to_f32()?.mul_scalar(step)?.add_scalar(start)
    }

    /// `count` numbers at even distances from `start` to `end`, both included.
    ///
    /// # Errors
    /// Only if the recording was planned already.
    pub fn linspace(&self, start: f32, end: f32, count: usize) -> Result<Tensor> {
        let places = self.arange(count)?.to_f32()?;
        if count < 2 {
            return places.add_scalar(start);
        }
        // From both ends, so that each is met exactly.
        let step = ((f64::from(end) - f64::from(start)) / (count - 1) as f64) as f32;
        let up = places.mul_scalar(step)?.add_scalar(start)?;
        let down = places.rsub_scalar((count - 1) as f32)?.mul_scalar(-step)?.add_scalar(end)?;
        places.lt_scalar((count / 2) as f32)?.where_(&up, &down)
    }

    /// Ones where row and column are the same, 0 elsewhere: `[rows, columns]`, `f32`.
    ///
    /// # Errors
    /// Only if the recording was planned already.
    pub fn eye(&self, rows: usize, columns: usize) -> Result<Tensor> {
        let shape = Shape(vec![rows, columns]);
        self.iota(shape.clone(), 0)?.eq(&self.iota(shape, 1)?)?.to_f32()
    }
}
