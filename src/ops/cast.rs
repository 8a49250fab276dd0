//! Conversions between data types, only where asked for.
//!
//! Float to integer rounds towards zero; a value out of range saturates and NaN
//! gives 0, as in Rust. `i32` and `u32` keep their bits. `true` is 1; a number
//! is true unless it is 0. No gradient flows through integers.

use super::{ElementCall, ElementwiseOp, GradientCall, Lowering, Op};
use crate::dtype::{DType, TensorType};
use crate::error::Result;
use crate::graph::Tensor;

const CAST: &str = include_str!("../../shaders/shared/math_cast.wgsl");

#[derive(Debug)]
struct Cast {
    from: DType,
    to: DType,
}

impl Op for Cast {
    fn name(&self) -> &'static str {
        match self.to {
            DType::F32 => "to_f32",
            DType::I32 => "to_i32",
            DType::U32 => "to_u32",
            DType::Bool => "to_bool",
        }
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![TensorType::new(self.to, inputs[0].shape.clone())])
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}
impl ElementwiseOp for Cast {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        let x = &call.operands[0];
        match (self.from, self.to) {
            (DType::F32, DType::I32) => format!("float_to_i32({x})"),
            (DType::F32, DType::U32) => format!("float_to_u32({x})"),
            (_, to) => format!("{}({x})", to.wgsl_value()),
        }
    }
    fn functions(&self) -> &'static [&'static str] {
        match (self.from, self.to) {
            (DType::F32, DType::I32 | DType::U32) => &[CAST],
            _ => &[],
        }
    }
}

impl Tensor {
    fn cast(&self, to: DType) -> Result<Self> {
        if self.dtype() == to { Ok(self.clone()) } else { self.apply(Cast { from: self.dtype(), to }) }
    }

    /// As `f32`; integers above 2^24 round.
    ///
    /// # Errors
    /// Only if the recording was planned already.
    pub fn to_f32(&self) -> Result<Self> {
        self.cast(DType::F32)
    }

    /// As `i32`.
    ///
    /// # Errors
    /// As [`Tensor::to_f32`].
    pub fn to_i32(&self) -> Result<Self> {
        self.cast(DType::I32)
    }

    /// As `u32`.
    ///
    /// # Errors
    /// As [`Tensor::to_f32`].
    pub fn to_u32(&self) -> Result<Self> {
        self.cast(DType::U32)
    }

    /// True where not 0 (NaN is true).
    ///
    /// # Errors
    /// As [`Tensor::to_f32`].
    pub fn to_bool(&self) -> Result<Self> {
        self.cast(DType::Bool)
    }
}
