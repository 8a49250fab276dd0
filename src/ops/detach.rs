//! `detach`: the same value, through which no gradient flows. A view.

use super::{GradientCall, Lowering, Op, ViewOp};
use crate::dtype::{Layout, TensorType};
use crate::error::Result;
use crate::graph::Tensor;

#[derive(Debug)]
struct Detach;

impl Op for Detach {
    fn name(&self) -> &'static str {
        "detach"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::View(self)
    }
}

impl ViewOp for Detach {
    fn view(&self, input: &Layout) -> Option<Layout> {
        Some(input.clone())
    }
}

impl Tensor {
    /// The same value as a constant of differentiation (`Tensor.detach`). A view.
    ///
    /// # Errors
    /// Only if the recording was planned already.
    pub fn detach(&self) -> Result<Self> {
        self.apply(Detach)
    }
}
