//! Choice by a condition.
//!
//! ```text
//! where        c ? a : b          a: c ? g : 0        b: c ? 0 : g
//! masked_fill  m ? value : x      m ? 0 : g
//! ```
//!
//! The value not chosen does not reach the result, NaN and infinity included,
//! nor its gradient.

use super::{ElementCall, ElementwiseOp, GradientCall, Lowering, Op, Scalar};
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::graph::Tensor;

fn expect_bool(op: &'static str, operand: usize, ty: &TensorType) -> Result<()> {
    if ty.dtype == DType::Bool { Ok(()) } else { Err(Error::DType { op, operand, found: ty.dtype, expected: "bool" }) }
}

/// `c ? a : b` of operands `c, a, b`.
#[derive(Debug)]
struct Where;

impl Op for Where {
    fn name(&self) -> &'static str {
        "where"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        expect_bool("where", 0, inputs[0])?;
        if inputs[1].dtype != inputs[2].dtype {
            return Err(Error::DType {
                op: "where",
                operand: 2,
                found: inputs[2].dtype,
                expected: "the type of operand 1",
            });
        }
        Ok(vec![inputs[1].clone()])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let (g, c) = (call.grad()?, &call.inputs[0]);
        let zero_where = |when| g.apply_with(MaskedFill { value: Scalar::F32(0.0), when }, &[c]);
        Ok(vec![
            None,
            if call.needed[1] { Some(zero_where(false)?) } else { None },
            if call.needed[2] { Some(zero_where(true)?) } else { None },
        ])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}
impl ElementwiseOp for Where {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        format!("select({}, {}, {})", call.operands[2], call.operands[1], call.operands[0])
    }
}

/// `value` where the mask is `when`, else `x`; operands `x, mask`.
#[derive(Debug)]
struct MaskedFill {
    value: Scalar,
    when: bool,
}

impl Op for MaskedFill {
    fn name(&self) -> &'static str {
        "masked_fill"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        self.value.expect("masked_fill", inputs[0])?;
        expect_bool("masked_fill", 1, inputs[1])?;
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let zero = Self { value: Scalar::F32(0.0), when: self.when };
        Ok(vec![Some(call.grad()?.apply_with(zero, &[&call.inputs[1]])?), None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}
impl ElementwiseOp for MaskedFill {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        let (x, mask, value) = (&call.operands[0], &call.operands[1], self.value.text(&call.words[0]));
        if self.when { format!("select({x}, {value}, {mask})") } else { format!("select({value}, {x}, {mask})") }
    }
    fn words(&self) -> Vec<u32> {
        vec![self.value.bits()]
    }
}

impl Tensor {
    /// `self ? a : b`, with broadcasting; `self` is bool, `a` and `b` of one type.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::DType`] if the operands do not fit.
    pub fn where_(&self, a: &Self, b: &Self) -> Result<Self> {
        let values = a.shape().broadcast(b.shape());
        let shape = values.and_then(|s| s.broadcast(self.shape())).ok_or_else(|| Error::Shape {
            op: "where",
            shapes: vec![self.shape().clone(), a.shape().clone(), b.shape().clone()],
            detail: "each axis, counted from the last, must be equal or 1".into(),
        })?;
        let (c, a, b) = (self.broadcast_to(&shape)?, a.broadcast_to(&shape)?, b.broadcast_to(&shape)?);
        c.apply_with(Where, &[&a, &b])
    }

    /// `value` where `mask` is true, else this tensor; the mask broadcasts to
    /// the tensor's shape.
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::DType`] if the operands do not fit.
    pub fn masked_fill(&self, mask: &Self, value: impl Into<Scalar>) -> Result<Self> {
        let mask = mask.broadcast_to(self.shape()).map_err(|_| Error::Shape {
            op: "masked_fill",
            shapes: vec![self.shape().clone(), mask.shape().clone()],
            detail: "the mask must broadcast to the tensor's shape".into(),
        })?;
        self.apply_with(MaskedFill { value: value.into(), when: true }, &[&mask])
    }
}
