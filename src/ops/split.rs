//! `split`: an axis cut into consecutive parts, each a view.
//!
//! ```text
//! split  y_k = x[start_k .. start_k + size_k]     d/dx = the gradients of all parts, `cat`
//! ```
//!
//! The same as a `narrow` per part forward; backward it takes one pass and one
//! value instead of a padded value per part and their sum.

use super::{GradientCall, Lowering, Op, ViewOp};
use crate::dtype::{Layout, TensorType};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::shared::Shared;

#[derive(Debug)]
struct Split {
    axis: usize,
    sizes: Vec<usize>,
}

impl Op for Split {
    fn name(&self) -> &'static str {
        "split"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let part = |&size: &usize| {
            let mut ty = inputs[0].clone();
            ty.shape.0[self.axis] = size;
            ty
        };
        Ok(self.sizes.iter().map(part).collect())
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let parts = call
            .grads
            .iter()
            .zip(call.outputs)
            .map(|(grad, output)| match grad {
                Some(grad) => Ok(grad.clone()),
                None => output.filled(0.0),
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(vec![Some(Tensor::cat(&parts, self.axis as isize)?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::View(self)
    }
}

impl ViewOp for Split {
    fn view(&self, input: &Layout) -> Option<Layout> {
        self.view_output(0, input)
    }
    fn view_output(&self, output: usize, input: &Layout) -> Option<Layout> {
        let mut layout = input.clone();
        layout.shape.0[self.axis] = self.sizes[output];
        if layout.shape.element_count() > 0 {
            let start: usize = self.sizes[..output].iter().sum();
            layout.offset += start as u64 * input.strides[self.axis];
        }
        Some(layout)
    }
}

impl Tensor {
    /// `axis` cut into consecutive parts of `sizes`; views. Cheaper backward
    /// than one [`Tensor::narrow`] per part.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there, no parts, or sizes
    /// whose sum is not the axis' extent.
    pub fn split(&self, axis: isize, sizes: &[usize]) -> Result<Vec<Self>> {
        let at = self.axis("split", axis)?;
        let extent = self.dims()[at];
        let sum = sizes.iter().try_fold(0_usize, |sum, size| sum.checked_add(*size));
        if sum != Some(extent) || sizes.is_empty() {
            return Err(Error::Argument {
                op: "split",
                argument: "sizes",
                value: format!("{sizes:?}"),
                detail: format!("axis {axis} of shape {} has {extent} parts, which they must add up to", self.shape()),
            });
        }
        if sizes.len() == 1 {
            return Ok(vec![self.clone()]);
        }
        self.recorder().record(Shared::new(Split { axis: at, sizes: sizes.to_vec() }), &[self])
    }
}
