//! `full`: every element is one number. It is recomputed where it is needed,
//! never stored longer than its reader runs. It has no inputs, so no gradient.

use super::{ElementCall, ElementwiseOp, GradientCall, Lowering, Op};
use crate::dtype::{DType, Shape, TensorType};
use crate::error::Result;
use crate::graph::{Recorder, Tensor};
use crate::shared::Shared;

#[derive(Debug)]
struct Full {
    ty: TensorType,
    bits: u32,
}

impl Op for Full {
    fn name(&self) -> &'static str {
        "full"
    }
    fn output_types(&self, _: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![self.ty.clone()])
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(Vec::new())
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for Full {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        match self.ty.dtype {
            DType::Bool => format!("({} != 0u)", call.words[0]),
            dtype => format!("bitcast<{}>({})", dtype.wgsl_value(), call.words[0]),
        }
    }
    fn words(&self) -> Vec<u32> {
        vec![self.bits]
    }
    fn is_constant(&self) -> bool {
        true
    }
    fn flops(&self) -> f64 {
        0.0
    }
}

impl Tensor {
    /// A tensor of this one's type and shape, every element `value`.
    pub(crate) fn filled(&self, value: f32) -> Result<Self> {
        self.recorder().full_float(self.dtype(), self.shape(), value)
    }
}

impl Recorder {
    /// `value` in every element, `f16` or else `f32`.
    pub(crate) fn full_float(&self, dtype: DType, shape: impl Into<Shape>, value: f32) -> Result<Tensor> {
        match dtype {
            DType::F16 => {
                let rounded = half::f16::from_f32(value).to_f32();
                self.fill(TensorType::new(DType::F16, shape), rounded.to_bits())
            }
            _ => self.full(shape, value),
        }
    }

    fn fill(&self, ty: TensorType, bits: u32) -> Result<Tensor> {
        Ok(self.record(Shared::new(Full { ty, bits }), &[])?.swap_remove(0))
    }

    /// An `f32` tensor of one value; its bits reach the device unharmed,
    /// infinities and NaN included.
    ///
    /// # Errors
    /// Only if the recording was planned already.
    pub fn full(&self, shape: impl Into<Shape>, value: f32) -> Result<Tensor> {
        self.fill(TensorType::new(DType::F32, shape), value.to_bits())
    }

    /// An `i32` tensor of one value.
    ///
    /// # Errors
    /// As [`Recorder::full`].
    pub fn full_i32(&self, shape: impl Into<Shape>, value: i32) -> Result<Tensor> {
        self.fill(TensorType::new(DType::I32, shape), value as u32)
    }

    /// A `u32` tensor of one value.
    ///
    /// # Errors
    /// As [`Recorder::full`].
    pub fn full_u32(&self, shape: impl Into<Shape>, value: u32) -> Result<Tensor> {
        self.fill(TensorType::new(DType::U32, shape), value)
    }

    /// A `bool` tensor of one value.
    ///
    /// # Errors
    /// As [`Recorder::full`].
    pub fn full_bool(&self, shape: impl Into<Shape>, value: bool) -> Result<Tensor> {
        self.fill(TensorType::new(DType::Bool, shape), u32::from(value))
    }

    /// Zeros, as [`Recorder::full`] makes them.
    ///
    /// # Errors
    /// As [`Recorder::full`].
    pub fn zeros(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        self.full(shape, 0.0)
    }

    /// Ones, as [`Recorder::full`] makes them.
    ///
    /// # Errors
    /// As [`Recorder::full`].
    pub fn ones(&self, shape: impl Into<Shape>) -> Result<Tensor> {
        self.full(shape, 1.0)
    }
}
