//! Elementwise arithmetic of two tensors, with broadcasting.
//!
//! ```text
//! add  a + b    d/da = g          d/db = g
//! ```

use super::{ElementCall, ElementwiseOp, GradientCall, Lowering, Op};
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::graph::Tensor;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Add,
}

#[derive(Debug)]
struct Binary(Kind);

impl Op for Binary {
    fn name(&self) -> &'static str {
        match self.0 {
            Kind::Add => "add",
        }
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        if inputs[0].dtype != inputs[1].dtype {
            return Err(Error::DType {
                op: self.name(),
                operand: 1,
                found: inputs[1].dtype,
                expected: "the type of operand 0",
            });
        }
        if inputs[0].dtype == DType::Bool {
            return Err(Error::DType { op: self.name(), operand: 0, found: DType::Bool, expected: "f32, i32 or u32" });
        }
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let g = call.grad()?;
        Ok(match self.0 {
            Kind::Add => vec![Some(g.clone()), Some(g.clone())],
        })
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for Binary {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        let (a, b) = (&call.operands[0], &call.operands[1]);
        match self.0 {
            Kind::Add => format!("{a} + {b}"),
        }
    }
}

impl Tensor {
    fn binary(&self, kind: Kind, other: &Self) -> Result<Self> {
        let (a, b) = self.broadcast_with(other, Binary(kind).name())?;
        a.apply_with(Binary(kind), &[&b])
    }

    /// `self + other`, with broadcasting.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::DType`] if the operands do not fit.
    pub fn add(&self, other: &Self) -> Result<Self> {
        self.binary(Kind::Add, other)
    }
}
