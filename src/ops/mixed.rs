//! Products and differences of operands of two float types, for ops that keep
//! `f16` and compute with `f32` statistics.
//!
//! ```text
//! mul_as  a * b      da = g b, db = g a
//! sub_as  a - b      da = g,   db = -g
//! ```
//!
//! The result has the type asked for, each gradient that of its operand.
//! Arithmetic is `f32` in any case; no operand is copied to another type.

use super::{ElementCall, ElementwiseOp, GradientCall, Lowering, Op};
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::graph::Tensor;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Mul,
    Sub,
}

/// `a op b`, as `dtype`.
#[derive(Debug)]
struct Mixed {
    kind: Kind,
    dtype: DType,
}

impl Op for Mixed {
    fn name(&self) -> &'static str {
        match self.kind {
            Kind::Mul => "mul_as",
            Kind::Sub => "sub_as",
        }
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        for (operand, ty) in inputs.iter().enumerate() {
            if !ty.dtype.is_float() {
                return Err(Error::DType { op: self.name(), operand, found: ty.dtype, expected: "f32 or f16" });
            }
        }
        Ok(vec![TensorType::new(self.dtype, inputs[0].shape.clone())])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (a, b, g) = (&call.inputs[0], &call.inputs[1], call.grad()?);
        let left = || match self.kind {
            Kind::Mul => g.mul_as(b, a.dtype()),
            Kind::Sub => g.to_dtype(a.dtype()),
        };
        let right = || match self.kind {
            Kind::Mul => g.mul_as(a, b.dtype()),
            Kind::Sub => g.to_dtype(b.dtype())?.neg(),
        };
        Ok(vec![if call.needed[0] { Some(left()?) } else { None }, if call.needed[1] { Some(right()?) } else { None }])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for Mixed {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        let sign = if self.kind == Kind::Mul { "*" } else { "-" };
        format!("{} {sign} {}", call.operands[0], call.operands[1])
    }
}

impl Tensor {
    /// `self * other` as `dtype`, with broadcasting; plain `mul` where all is of one type.
    pub(super) fn mul_as(&self, other: &Self, dtype: DType) -> Result<Self> {
        if self.is_plain(other, dtype) { self.mul(other) } else { self.mixed(Kind::Mul, other, dtype) }
    }

    /// `self - other` as `dtype`, with broadcasting; plain `sub` where all is of one type.
    pub(super) fn sub_as(&self, other: &Self, dtype: DType) -> Result<Self> {
        if self.is_plain(other, dtype) { self.sub(other) } else { self.mixed(Kind::Sub, other, dtype) }
    }

    fn is_plain(&self, other: &Self, dtype: DType) -> bool {
        self.dtype() == dtype && other.dtype() == dtype
    }

    fn mixed(&self, kind: Kind, other: &Self, dtype: DType) -> Result<Self> {
        let op = Mixed { kind, dtype };
        let (a, b) = self.broadcast_with(other, op.name())?;
        a.apply_with(op, &[&b])
    }
}
