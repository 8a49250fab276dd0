//! `reshape`: the same elements in row-major order under another shape. A view
//! where strides suffice, else a copy and a view. Its gradient is the reshape back.

use super::{GradientCall, Lowering, Op, ViewOp};
use crate::dtype::{Layout, Shape, TensorType};
use crate::error::{Error, Result};
use crate::graph::Tensor;

#[derive(Debug)]
struct Reshape {
    shape: Shape,
}

impl Op for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        if inputs[0].shape.element_count() == self.shape.element_count() {
            Ok(vec![TensorType::new(inputs[0].dtype, self.shape.clone())])
        } else {
            Err(Error::Shape {
                op: "reshape",
                shapes: vec![inputs[0].shape.clone(), self.shape.clone()],
                detail: format!(
                    "{} elements cannot become {}",
                    inputs[0].shape.element_count(),
                    self.shape.element_count()
                ),
            })
        }
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(call.grad()?.reshape(call.inputs[0].shape().clone())?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::View(self)
    }
}

impl ViewOp for Reshape {
    fn view(&self, input: &Layout) -> Option<Layout> {
        input.reshaped(&self.shape)
    }
}

impl Tensor {
    /// The same elements, in row-major order, in another shape with as many.
    ///
    /// # Errors
    /// [`Error::Shape`] if the numbers of elements differ.
    pub fn reshape(&self, shape: impl Into<Shape>) -> Result<Self> {
        let shape = shape.into();
        if *self.shape() == shape {
            return Ok(self.clone());
        }
        self.apply(Reshape { shape })
    }
}
