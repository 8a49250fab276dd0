//! `permute` and its kin: axes in another order, added, dropped or joined.
//! All are views and cost nothing; the gradient is the inverse view.

use super::{GradientCall, Lowering, Op, ViewOp};
use crate::dtype::{Layout, Shape, TensorType, count};
use crate::error::{Error, Result};
use crate::graph::Tensor;

/// Output axis `i` is input axis `axes[i]`.
#[derive(Debug)]
struct Permute {
    axes: Vec<usize>,
}

impl Op for Permute {
    fn name(&self) -> &'static str {
        "permute"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let dims: Vec<usize> = self.axes.iter().map(|&a| inputs[0].shape.0[a]).collect();
        Ok(vec![TensorType::new(inputs[0].dtype, dims)])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let mut axes = vec![0; self.axes.len()];
        for (to, &from) in self.axes.iter().enumerate() {
            axes[from] = to;
        }
        Ok(vec![Some(call.grad()?.apply(Self { axes })?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::View(self)
    }
}

impl ViewOp for Permute {
    fn view(&self, input: &Layout) -> Option<Layout> {
        Some(Layout {
            shape: Shape(self.axes.iter().map(|&a| input.shape.0[a]).collect()),
            strides: self.axes.iter().map(|&a| input.strides[a]).collect(),
            offset: input.offset,
        })
    }
}

impl Tensor {
    /// Axes in another order: output axis `i` is input axis `axes[i]`.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `axes` names every axis once.
    pub fn permute(&self, axes: &[isize]) -> Result<Self> {
        let resolved = axes.iter().map(|&a| self.axis("permute", a)).collect::<Result<Vec<usize>>>()?;
        let mut seen = resolved.clone();
        seen.sort_unstable();
        seen.dedup();
        if seen.len() != self.rank() || resolved.len() != self.rank() {
            return Err(Error::Argument {
                op: "permute",
                argument: "axes",
                value: format!("{axes:?}"),
                detail: format!("a tensor of shape {} needs each of its axes once", self.shape()),
            });
        }
        if resolved.iter().enumerate().all(|(i, &a)| i == a) {
            return Ok(self.clone());
        }
        self.apply(Permute { axes: resolved })
    }

    /// Two axes exchanged.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there.
    pub fn transpose(&self, a: isize, b: isize) -> Result<Self> {
        let (a, b) = (self.axis("transpose", a)?, self.axis("transpose", b)?);
        let mut axes: Vec<isize> = (0..self.rank() as isize).collect();
        axes.swap(a, b);
        self.permute(&axes)
    }

    /// The last two axes exchanged: the transpose of a matrix, or of each of a batch.
    ///
    /// # Errors
    /// [`Error::Argument`] for fewer than two axes.
    pub fn t(&self) -> Result<Self> {
        self.transpose(-2, -1)
    }

    /// An axis of extent 1 added before `axis`; `-1` adds it at the end.
    ///
    /// # Errors
    /// [`Error::Argument`] for a place that is not there.
    pub fn unsqueeze(&self, axis: isize) -> Result<Self> {
        let rank = self.rank() as isize;
        let at = if axis < 0 { axis + rank + 1 } else { axis };
        if !(0..=rank).contains(&at) {
            return Err(Error::Argument {
                op: "unsqueeze",
                argument: "axis",
                value: axis.to_string(),
                detail: format!("a tensor of shape {} has places {}..={rank}", self.shape(), -rank - 1),
            });
        }
        let mut dims = self.dims().to_vec();
        dims.insert(at as usize, 1);
        self.reshape(dims)
    }

    /// An axis of extent 1 dropped.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there or not of extent 1.
    pub fn squeeze(&self, axis: isize) -> Result<Self> {
        let at = self.axis("squeeze", axis)?;
        let mut dims = self.dims().to_vec();
        if dims.remove(at) != 1 {
            return Err(Error::Argument {
                op: "squeeze",
                argument: "axis",
                value: axis.to_string(),
                detail: format!("its extent must be 1 in shape {}", self.shape()),
            });
        }
        self.reshape(dims)
    }

    /// The axes `from..=to` joined into one.
    ///
    /// # Errors
    /// [`Error::Argument`] for axes that are not there or in the wrong order.
    pub fn flatten(&self, from: isize, to: isize) -> Result<Self> {
        let (first, last) = (self.axis("flatten", from)?, self.axis("flatten", to)?);
        if first > last {
            return Err(Error::Argument {
                op: "flatten",
                argument: "from",
                value: from.to_string(),
                detail: format!("it must not be after to = {to}"),
            });
        }
        let dims = self.dims();
        let joined = count(&dims[first..=last]);
        self.reshape([&dims[..first], &[joined], &dims[last + 1..]].concat())
    }

    /// This tensor repeated to `shape`, as [`Tensor::broadcast_to`].
    ///
    /// # Errors
    /// As [`Tensor::broadcast_to`].
    pub fn expand(&self, shape: impl Into<Shape>) -> Result<Self> {
        self.broadcast_to(shape)
    }
}
