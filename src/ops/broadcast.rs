//! `broadcast_to`: repeats axes of extent 1, NumPy's rule. A view: the stride of
//! a repeated axis is 0. Its gradient is the sum over the repeated axes.

use super::{GradientCall, Lowering, Op, ViewOp};
use crate::dtype::{Layout, Shape, TensorType};
use crate::error::{Error, Result};
use crate::graph::Tensor;

#[derive(Debug)]
struct BroadcastTo {
    shape: Shape,
}

impl Op for BroadcastTo {
    fn name(&self) -> &'static str {
        "broadcast_to"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let from = &inputs[0].shape;
        if from.broadcast(&self.shape).as_ref() == Some(&self.shape) {
            Ok(vec![TensorType::new(inputs[0].dtype, self.shape.clone())])
        } else {
            Err(Error::Shape {
                op: "broadcast_to",
                shapes: vec![from.clone(), self.shape.clone()],
                detail: "each axis, counted from the last, must be equal or 1".into(),
            })
        }
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(call.grad()?.sum_to(call.inputs[0].shape())?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::View(self)
    }
}

impl ViewOp for BroadcastTo {
    fn view(&self, input: &Layout) -> Option<Layout> {
        let added = self.shape.rank() - input.shape.rank();
        let mut strides = vec![0; self.shape.rank()];
        for (axis, stride) in input.strides.iter().enumerate() {
            if input.shape.0[axis] != 1 {
                strides[axis + added] = *stride;
            }
        }
        Some(Layout { shape: self.shape.clone(), strides, offset: input.offset })
    }
}

impl Tensor {
    /// This tensor repeated to `shape`. Costs nothing.
    ///
    /// # Errors
    /// [`Error::Shape`] if an axis is neither equal nor 1.
    pub fn broadcast_to(&self, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        if *self.shape() == shape {
            return Ok(self.clone());
        }
        self.apply(BroadcastTo { shape })
    }

    /// Both tensors repeated to their common shape.
    pub(crate) fn broadcast_with(&self, other: &Self, op: &'static str) -> Result<(Self, Self)> {
        let shape = self.shape().broadcast(other.shape()).ok_or_else(|| Error::Shape {
            op,
            shapes: vec![self.shape().clone(), other.shape().clone()],
            detail: "each axis, counted from the last, must be equal or 1".into(),
        })?;
        Ok((self.broadcast_to(shape.clone())?, other.broadcast_to(shape)?))
    }

    /// The sum over the axes that a broadcast from `shape` to this tensor's shape repeated.
    ///
    /// # Errors
    /// [`Error::Shape`] if `shape` does not broadcast to this tensor's.
    pub fn sum_to(&self, shape: &Shape) -> Result<Self> {
        if self.shape() == shape {
            return Ok(self.clone());
        }
        let added = self.rank().checked_sub(shape.rank()).ok_or_else(|| Error::Shape {
            op: "sum_to",
            shapes: vec![self.shape().clone(), shape.clone()],
            detail: "the target has more axes".into(),
        })?;
        let axes: Vec<isize> = (0..self.rank())
            .filter(|&axis| axis < added || (shape.0[axis - added] == 1 && self.dims()[axis] != 1))
            .map(|axis| axis as isize)
            .collect();
        self.sum(&axes, true)?.reshape(shape.clone())
    }
}
