//! Elementwise arithmetic of two tensors, with NumPy's broadcasting, and of a
//! tensor and a number.
//!
//! ```text
//! add        a + b          g                     g
//! sub        a - b          g                    -g
//! mul        a * b          g b                   g a
//! div        a / b          g / b                -g y / b
//! maximum    max(a, b)      g [a > b]             g [b > a]       half each where equal
//! minimum    min(a, b)      g [a < b]             g [b < a]       half each where equal
//! pow        a ^ b          g b a^(b-1)           g y ln a        0 where b = 0; where a = 0 and b >= 0
//! remainder  a - b floor(a/b)  g                 -g floor(a / b)
//! fmod       a - b trunc(a/b)  g                 -g trunc(a / b)
//! ```
//!
//! The columns are the value `y`, its gradient towards `a` and towards `b`.
//! A NaN operand gives NaN in `maximum` and `minimum`, as in PyTorch.

use super::{ElementCall, ElementwiseOp, GradientCall, Lowering, Op};
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::graph::Tensor;

const POW: &str = include_str!("../../shaders/shared/math_pow.wgsl");
const EXTREMA: &str = include_str!("../../shaders/shared/math_extrema.wgsl");

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Add,
    Sub,
    Mul,
    Div,
    Maximum,
    Minimum,
    Pow,
    Remainder,
    Fmod,
}

#[derive(Debug)]
struct Binary {
    kind: Kind,
    dtype: DType,
}

impl Binary {
    const fn name_of(kind: Kind) -> &'static str {
        match kind {
            Kind::Add => "add",
            Kind::Sub => "sub",
            Kind::Mul => "mul",
            Kind::Div => "div",
            Kind::Maximum => "maximum",
            Kind::Minimum => "minimum",
            Kind::Pow => "pow",
            Kind::Remainder => "remainder",
            Kind::Fmod => "fmod",
        }
    }
}

impl Op for Binary {
    fn name(&self) -> &'static str {
        Self::name_of(self.kind)
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let found = inputs[0].dtype;
        let fits = if self.kind == Kind::Pow { found.is_float() } else { found != DType::Bool };
        if !fits {
            let expected = if self.kind == Kind::Pow { "f32 or f16" } else { "f32, f16, i32 or u32" };
            return Err(Error::DType { op: self.name(), operand: 0, found, expected });
        }
        same_types(self.name(), inputs)?;
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let g = call.grad()?;
        let (a, b, y) = (&call.inputs[0], &call.inputs[1], &call.outputs[0]);
        let left = || match self.kind {
            Kind::Add | Kind::Sub | Kind::Remainder | Kind::Fmod => Ok(g.clone()),
            Kind::Mul => g.mul(b),
            Kind::Div => g.div(b),
            Kind::Maximum => g.apply_with(ExtremumGrad { greater: true }, &[a, b]),
            Kind::Minimum => g.apply_with(ExtremumGrad { greater: false }, &[a, b]),
            Kind::Pow => {
                let slope = g.mul(b)?.mul(&a.pow(&b.add_scalar(-1.0)?)?)?;
                slope.masked_fill(&b.eq_scalar(0.0)?, 0.0)
            }
        };
        let right = || match self.kind {
            Kind::Add => Ok(g.clone()),
            Kind::Sub => g.neg(),
            Kind::Mul => g.mul(a),
            Kind::Div => g.mul(y)?.div(b)?.neg(),
            Kind::Maximum => g.apply_with(ExtremumGrad { greater: true }, &[b, a]),
            Kind::Minimum => g.apply_with(ExtremumGrad { greater: false }, &[b, a]),
            Kind::Pow => {
                let flat = a.eq_scalar(0.0)?.logical_and(&b.ge_scalar(0.0)?)?;
                g.mul(y)?.mul(&a.ln()?)?.masked_fill(&flat, 0.0)
            }
            Kind::Remainder => g.mul(&a.div(b)?.floor()?)?.neg(),
            Kind::Fmod => g.mul(&a.div(b)?.trunc()?)?.neg(),
        };
        Ok(vec![if call.needed[0] { Some(left()?) } else { None }, if call.needed[1] { Some(right()?) } else { None }])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

/// Fails unless operand 1 has operand 0's type.
pub(super) fn same_types(op: &'static str, inputs: &[&TensorType]) -> Result<()> {
    if inputs[0].dtype == inputs[1].dtype {
        Ok(())
    } else {
        Err(Error::DType { op, operand: 1, found: inputs[1].dtype, expected: "the type of operand 0" })
    }
}

impl ElementwiseOp for Binary {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        let (a, b) = (&call.operands[0], &call.operands[1]);
        let float = self.dtype.is_float();
        match self.kind {
            Kind::Add => format!("{a} + {b}"),
            Kind::Sub => format!("{a} - {b}"),
            Kind::Mul => format!("{a} * {b}"),
            Kind::Div => format!("{a} / {b}"),
            Kind::Maximum if float => format!("maximum({a}, {b})"),
            Kind::Minimum if float => format!("minimum({a}, {b})"),
            Kind::Maximum => format!("max({a}, {b})"),
            Kind::Minimum => format!("min({a}, {b})"),
            Kind::Pow => format!("power({a}, {b})"),
            Kind::Remainder if float => format!("remainder({a}, {b})"),
            Kind::Fmod => format!("{a} % {b}"),
            Kind::Remainder if self.dtype == DType::U32 => format!("{a} % {b}"),
            Kind::Remainder => format!("({a} % {b} + {b}) % {b}"),
        }
    }
    fn functions(&self) -> &'static [&'static str] {
        match (self.kind, self.dtype) {
            (Kind::Pow, _) => &[POW],
            (Kind::Maximum | Kind::Minimum | Kind::Remainder, DType::F32 | DType::F16) => &[EXTREMA],
            _ => &[],
        }
    }
    fn flops(&self) -> f64 {
        if self.kind == Kind::Pow { 30.0 } else { 1.0 }
    }
}

/// `g` where the first operand wins, half of it where both are equal, else 0.
#[derive(Debug)]
struct ExtremumGrad {
    greater: bool,
}

impl Op for ExtremumGrad {
    fn name(&self) -> &'static str {
        if self.greater { "maximum_grad" } else { "minimum_grad" }
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let onward = call.grad()?.apply_with(Self { greater: self.greater }, &[&call.inputs[1], &call.inputs[2]])?;
        Ok(vec![Some(onward), None, None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for ExtremumGrad {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        let (g, a, b) = (&call.operands[0], &call.operands[1], &call.operands[2]);
        let wins = if self.greater { ">" } else { "<" };
        format!("select(select(0.0, {g}, {a} {wins} {b}), 0.5 * {g}, {a} == {b})")
    }
}

/// A number that stands for a whole tensor; its type must be the tensor's, or it
/// is a float and the tensor `f16`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar {
    /// A float.
    F32(f32),
    /// A signed integer.
    I32(i32),
    /// An unsigned integer.
    U32(u32),
}

impl Scalar {
    /// Its bits, as a uniform word carries them.
    #[must_use]
    pub const fn bits(self) -> u32 {
        match self {
            Self::F32(v) => v.to_bits(),
            Self::I32(v) => v as u32,
            Self::U32(v) => v,
        }
    }
    /// Its data type.
    #[must_use]
    pub const fn dtype(self) -> DType {
        match self {
            Self::F32(_) => DType::F32,
            Self::I32(_) => DType::I32,
            Self::U32(_) => DType::U32,
        }
    }
    /// Its WGSL expression, read from the uniform word `word`.
    pub(super) fn text(self, word: &str) -> String {
        match self {
            Self::U32(_) => word.to_owned(),
            _ => format!("bitcast<{}>({word})", self.dtype().wgsl_value()),
        }
    }
    /// Fails unless `ty` holds numbers of its type.
    pub(super) fn expect(self, op: &'static str, ty: &TensorType) -> Result<()> {
        if ty.dtype == self.dtype() || (ty.dtype == DType::F16 && self.dtype() == DType::F32) {
            return Ok(());
        }
        let expected = match self {
            Self::F32(_) => "f32, as the number is",
            Self::I32(_) => "i32, as the number is",
            Self::U32(_) => "u32, as the number is",
        };
        Err(Error::DType { op, operand: 0, found: ty.dtype, expected })
    }
}
impl From<f32> for Scalar {
    fn from(v: f32) -> Self {
        Self::F32(v)
    }
}
impl From<i32> for Scalar {
    fn from(v: i32) -> Self {
        Self::I32(v)
    }
}
impl From<u32> for Scalar {
    fn from(v: u32) -> Self {
        Self::U32(v)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScalarKind {
    Add,
    Mul,
    Div,
    ReverseSub,
    ReverseDiv,
}

/// `x op value`, or `value op x` for the reversed kinds.
#[derive(Debug)]
struct WithScalar {
    kind: ScalarKind,
    value: Scalar,
}

impl Op for WithScalar {
    fn name(&self) -> &'static str {
        match self.kind {
            ScalarKind::Add => "add_scalar",
            ScalarKind::Mul => "mul_scalar",
            ScalarKind::Div => "div_scalar",
            ScalarKind::ReverseSub => "rsub_scalar",
            ScalarKind::ReverseDiv => "rdiv_scalar",
        }
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        self.value.expect(self.name(), inputs[0])?;
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let g = call.grad()?;
        let (x, y) = (&call.inputs[0], &call.outputs[0]);
        Ok(vec![Some(match self.kind {
            ScalarKind::Add => g.clone(),
            ScalarKind::Mul | ScalarKind::Div => g.apply(Self { ..*self })?,
            ScalarKind::ReverseSub => g.neg()?,
            ScalarKind::ReverseDiv => g.mul(y)?.div(x)?.neg()?,
        })])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for WithScalar {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        let (x, v) = (&call.operands[0], self.value.text(&call.words[0]));
        match self.kind {
            ScalarKind::Add => format!("{x} + {v}"),
            ScalarKind::Mul => format!("{x} * {v}"),
            ScalarKind::Div => format!("{x} / {v}"),
            ScalarKind::ReverseSub => format!("{v} - {x}"),
            ScalarKind::ReverseDiv => format!("{v} / {x}"),
        }
    }
    fn words(&self) -> Vec<u32> {
        vec![self.value.bits()]
    }
}

impl Tensor {
    fn binary(&self, kind: Kind, other: &Self) -> Result<Self> {
        let (a, b) = self.broadcast_with(other, Binary::name_of(kind))?;
        a.apply_with(Binary { kind, dtype: self.dtype() }, &[&b])
    }

    fn with_scalar(&self, kind: ScalarKind, value: Scalar) -> Result<Self> {
        self.apply(WithScalar { kind, value })
    }

    /// `self + other`, with broadcasting; f32, i32 (wrapping) or u32 (wrapping).
    ///
    /// # Errors
    /// [`Error::Shape`] or [`Error::DType`] if the operands do not fit.
    pub fn add(&self, other: &Self) -> Result<Self> {
        self.binary(Kind::Add, other)
    }

    /// `self - other`, with broadcasting; f32, i32 (wrapping) or u32 (wrapping).
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn sub(&self, other: &Self) -> Result<Self> {
        self.binary(Kind::Sub, other)
    }

    /// `self * other`, with broadcasting; f32, i32 (wrapping) or u32 (wrapping).
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn mul(&self, other: &Self) -> Result<Self> {
        self.binary(Kind::Mul, other)
    }

    /// `self / other`, with broadcasting; integers round towards zero, and an
    /// integer divided by 0 stays as it is, as WGSL says.
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn div(&self, other: &Self) -> Result<Self> {
        self.binary(Kind::Div, other)
    }

    /// The larger of both, with broadcasting; NaN if either is NaN.
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn maximum(&self, other: &Self) -> Result<Self> {
        self.binary(Kind::Maximum, other)
    }

    /// The smaller of both, with broadcasting; NaN if either is NaN.
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn minimum(&self, other: &Self) -> Result<Self> {
        self.binary(Kind::Minimum, other)
    }

    /// `self` to the power `exponent`, with broadcasting; f32. A negative base
    /// gives NaN unless the exponent is a whole number.
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn pow(&self, exponent: &Self) -> Result<Self> {
        self.binary(Kind::Pow, exponent)
    }

    /// `self - other * floor(self / other)`: the remainder with the sign of
    /// `other`, as in Python, with broadcasting; f32, i32 or u32.
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn remainder(&self, other: &Self) -> Result<Self> {
        self.binary(Kind::Remainder, other)
    }

    /// `self - other * trunc(self / other)`: the remainder with the sign of
    /// `self`, as in C, with broadcasting; f32, i32 or u32.
    ///
    /// # Errors
    /// As [`Tensor::add`].
    pub fn fmod(&self, other: &Self) -> Result<Self> {
        self.binary(Kind::Fmod, other)
    }

    /// `self + value`.
    ///
    /// # Errors
    /// [`Error::DType`] unless `value` has the tensor's type.
    pub fn add_scalar(&self, value: impl Into<Scalar>) -> Result<Self> {
        self.with_scalar(ScalarKind::Add, value.into())
    }

    /// `self - value`.
    ///
    /// # Errors
    /// As [`Tensor::add_scalar`].
    pub fn sub_scalar(&self, value: impl Into<Scalar>) -> Result<Self> {
        let negated = match value.into() {
            Scalar::F32(v) => Scalar::F32(-v),
            Scalar::I32(v) => Scalar::I32(v.wrapping_neg()),
            Scalar::U32(v) => Scalar::U32(v.wrapping_neg()),
        };
        self.with_scalar(ScalarKind::Add, negated)
    }

    /// `self * value`.
    ///
    /// # Errors
    /// As [`Tensor::add_scalar`].
    pub fn mul_scalar(&self, value: impl Into<Scalar>) -> Result<Self> {
        self.with_scalar(ScalarKind::Mul, value.into())
    }

    /// `self / value`.
    ///
    /// # Errors
    /// As [`Tensor::add_scalar`].
    pub fn div_scalar(&self, value: impl Into<Scalar>) -> Result<Self> {
        self.with_scalar(ScalarKind::Div, value.into())
    }

    /// `value - self`.
    ///
    /// # Errors
    /// As [`Tensor::add_scalar`].
    pub fn rsub_scalar(&self, value: impl Into<Scalar>) -> Result<Self> {
        self.with_scalar(ScalarKind::ReverseSub, value.into())
    }

    /// `value / self`.
    ///
    /// # Errors
    /// As [`Tensor::add_scalar`].
    pub fn rdiv_scalar(&self, value: impl Into<Scalar>) -> Result<Self> {
        self.with_scalar(ScalarKind::ReverseDiv, value.into())
    }
}
