//! Conversions between data types, only where asked for.
//!
//! Float to integer rounds towards zero; a value out of range saturates and NaN
//! gives 0, as in Rust. `i32` and `u32` keep their bits. `true` is 1; a number
//! is true unless it is 0. No gradient flows through integers.
//!
//! ```text
//! f32 -> f16   the nearest, of two the even one; infinity from 65520 on    dx = g as f32
//! f16 -> f32   exact                                                       dx = g as f16
//! ```
//!
//! Both are told from bits, subnormals included, and are the same on every adapter.

use super::{ElementCall, ElementwiseOp, GradientCall, Lowering, Op};
use crate::dtype::{DType, TensorType};
use crate::error::Result;
use crate::fuse::HALF;
use crate::graph::Tensor;

const CAST: &str = include_str!("../../shaders/shared/math_cast.wgsl");

/// The name of the conversion to `f32`, which fusion knows.
pub(crate) const TO_F32: &str = "to_f32";

#[derive(Debug)]
struct Cast {
    from: DType,
    to: DType,
}

impl Op for Cast {
    fn name(&self) -> &'static str {
        match self.to {
            DType::F32 => TO_F32,
            DType::F16 => "to_f16",
            DType::I32 => "to_i32",
            DType::U32 => "to_u32",
            DType::Bool => "to_bool",
        }
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![TensorType::new(self.to, inputs[0].shape.clone())])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let floats = self.from.is_float() && self.to.is_float();
        Ok(vec![if floats { Some(call.grad()?.to_dtype(self.from)?) } else { None }])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}
impl ElementwiseOp for Cast {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        let x = &call.operands[0];
        match (self.from, self.to) {
            (DType::F32 | DType::F16, DType::I32) => format!("float_to_i32({x})"),
            (DType::F32 | DType::F16, DType::U32) => format!("float_to_u32({x})"),
            // What follows in the same pass sees the half, too.
            (from, DType::F16) if from != DType::Bool => format!("round_to_half(f32({x}))"),
            (_, to) => format!("{}({x})", to.wgsl_value()),
        }
    }
    fn functions(&self) -> &'static [&'static str] {
        match (self.from, self.to) {
            (DType::F32 | DType::F16, DType::I32 | DType::U32) => &[CAST],
            (DType::F32 | DType::I32 | DType::U32, DType::F16) => &[HALF],
            _ => &[],
        }
    }
}

impl Tensor {
    /// As `dtype`, by the rule of [`Tensor::to_f32`] and its like.
    ///
    /// # Errors
    /// As [`Tensor::to_f32`].
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        self.cast(dtype)
    }

    fn cast(&self, to: DType) -> Result<Self> {
        if self.dtype() == to {
            return Ok(self.clone());
        }
        let cast = Cast { from: self.dtype(), to };
        match self.before_reshape().filter(|_| cast.from == DType::F16 && to == DType::F32) {
            // The kernel that made it can store it converted.
            Some(base) => base.apply(cast)?.reshape(self.shape().clone()),
            None => self.apply(cast),
        }
    }

    /// What this is a reshape of.
    fn before_reshape(&self) -> Option<Self> {
        let (id, ty) = self.recorder().with_graph(|graph| {
            // A recording that was planned has no values any more.
            graph.values.get(self.id().index())?;
            let node = graph.node(graph.producer(self.id())?);
            let base = *node.inputs.first().filter(|_| node.op.name() == "reshape")?;
            Some((base, graph.value(base).ty.clone()))
        })?;
        Some(Self::new(self.recorder().clone(), id, ty))
    }

    /// As `f32`; integers above 2^24 round.
    ///
    /// # Errors
    /// Only if the recording was planned already.
    pub fn to_f32(&self) -> Result<Self> {
        self.cast(DType::F32)
    }

    /// As `f16`: the nearest, of two equally near the even one; infinity from
    /// 65520 on.
    ///
    /// # Errors
    /// As [`Tensor::to_f32`].
    pub fn to_f16(&self) -> Result<Self> {
        self.cast(DType::F16)
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
