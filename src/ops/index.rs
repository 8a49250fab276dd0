//! Values told from an element's place: counting, triangles, causal masks.
//! Nothing is stored for them; they are computed where they are used.
//!
//! ```text
//! iota           y[.., i, ..] = i along one axis
//! tril           y[.., r, c] = c <= r + d ? x : 0
//! triu           y[.., r, c] = c >= r + d ? x : 0
//! causal_fill    y[.., r, c] = c <= r + d ? x : value
//! ```
//!
//! The gradient of the last three keeps `g` where `x` was kept.

use super::kernel::word;
use super::{ElementCall, ElementwiseOp, GradientCall, Lowering, Op, Scalar};
use crate::dtype::{DType, Shape, TensorType, count};
use crate::error::{Error, Result};
use crate::graph::{Recorder, Tensor};
use crate::shared::Shared;

const QUOTIENT: &str = include_str!("../../shaders/shared/quotient.wgsl");
const TRIANGLE: &str = include_str!("../../shaders/shared/triangle.wgsl");

/// Each element's place along one axis, as `u32`.
#[derive(Debug)]
struct Iota {
    shape: Shape,
    axis: usize,
}

impl Op for Iota {
    fn name(&self) -> &'static str {
        "iota"
    }
    fn output_types(&self, _: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![TensorType::new(DType::U32, self.shape.clone())])
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(Vec::new())
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for Iota {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        format!("{} / {} % {}", call.index, call.words[0], call.words[1])
    }
    fn words(&self) -> Vec<u32> {
        let inner = count(&self.shape.0[self.axis + 1..]) as u64;
        vec![word(inner), word(self.shape.0[self.axis] as u64)]
    }
}

/// `x` on one side of a diagonal of the last two axes, `value` on the other.
#[derive(Debug, Clone)]
struct Triangle {
    /// Keep `column <= row + diagonal`, else `column >= row + diagonal`.
    lower: bool,
    diagonal: i32,
    value: Scalar,
    rows: usize,
    columns: usize,
    /// Whether `quotient` is right for every row.
    divides_by_float: bool,
}

impl Op for Triangle {
    fn name(&self) -> &'static str {
        if self.lower { "tril" } else { "triu" }
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        self.value.expect(self.name(), inputs[0])?;
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(call.grad()?.apply(Self { value: Scalar::F32(0.0), ..self.clone() })?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for Triangle {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        let (x, index, w) = (&call.operands[0], call.index, call.words);
        let value = self.value.text(&w[3]);
        let keeps = if self.divides_by_float { "behind_by_float" } else { "behind" };
        let behind = format!("{keeps}({index}, {}, {}) + bitcast<i32>({})", w[0], w[1], w[2]);
        format!("select({value}, {x}, {behind} {} 0)", if self.lower { ">=" } else { "<=" })
    }
    fn words(&self) -> Vec<u32> {
        vec![word(self.columns as u64), word(self.rows as u64), self.diagonal as u32, self.value.bits()]
    }
    fn functions(&self) -> &'static [&'static str] {
        &[QUOTIENT, TRIANGLE]
    }
    fn flops(&self) -> f64 {
        4.0
    }
}

impl Recorder {
    /// Each element's place along `axis` as `u32`; nothing is stored for it.
    ///
    /// # Errors
    /// [`Error::Argument`] for an axis that is not there.
    pub fn iota(&self, shape: impl Into<Shape>, axis: usize) -> Result<Tensor> {
        let shape = shape.into();
        if axis >= shape.rank() {
            return Err(Error::Argument {
                op: "iota",
                argument: "axis",
                value: axis.to_string(),
                detail: format!("shape {shape} has {} axes", shape.rank()),
            });
        }
        Ok(self.record(Shared::new(Iota { shape, axis }), &[])?.swap_remove(0))
    }

    /// `0, 1, .., count - 1` as `u32`, of shape `[count]`.
    ///
    /// # Errors
    /// Only if the recording was planned already.
    pub fn arange(&self, count: usize) -> Result<Tensor> {
        self.iota([count], 0)
    }
}

impl Tensor {
    fn triangle(&self, op: &'static str, lower: bool, diagonal: i32, value: Scalar) -> Result<Self> {
        value.expect(op, self.ty())?;
        let &[.., rows, columns] = self.dims() else {
            return Err(Error::Shape {
                op,
                shapes: vec![self.shape().clone()],
                detail: "it needs two axes or more, rows and columns last".into(),
            });
        };
        let count = self.element_count();
        let divides_by_float = count < 1 << 30 && count / (columns.max(1) as u64) < 1 << 21;
        self.apply(Triangle { lower, diagonal, value, rows, columns, divides_by_float })
    }

    /// The lower triangle of the last two axes: where `column <= row + diagonal`; 0 elsewhere.
    ///
    /// # Errors
    /// [`Error::Shape`] for fewer than two axes, [`Error::DType`] unless f32.
    pub fn tril(&self, diagonal: i32) -> Result<Self> {
        self.triangle("tril", true, diagonal, Scalar::F32(0.0))
    }

    /// The upper triangle of the last two axes: where `column >= row + diagonal`; 0 elsewhere.
    ///
    /// # Errors
    /// As [`Tensor::tril`].
    pub fn triu(&self, diagonal: i32) -> Result<Self> {
        self.triangle("triu", false, diagonal, Scalar::F32(0.0))
    }

    /// Scores `[.., T, S]` of queries against keys with `value` wherever the
    /// key comes after the query, the last query seeing the last key: kept
    /// where `column <= row + (S - T)`. No mask is stored, forward or backward.
    ///
    /// # Errors
    /// As [`Tensor::tril`].
    pub fn causal_fill(&self, value: f32) -> Result<Self> {
        let diagonal = match *self.dims() {
            [.., rows, columns] => columns as i64 - rows as i64,
            _ => 0,
        };
        self.causal_fill_from(diagonal.clamp(-(1 << 30), 1 << 30) as i32, value)
    }

    /// [`Tensor::causal_fill`] with the first row's last kept column given.
    pub(super) fn causal_fill_from(&self, diagonal: i32, value: f32) -> Result<Self> {
        self.triangle("causal_fill", true, diagonal, Scalar::F32(value))
    }
}
