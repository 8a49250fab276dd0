//! Comparisons, which give `bool`, and logic on `bool`. They have no gradient.
//!
//! As in IEEE arithmetic a comparison with NaN is false, `ne` true. `isnan`,
//! `isinf` and `isfinite` look at bits, since an implementation may fold `x != x`.

use super::binary::same_types;
use super::{ElementCall, ElementwiseOp, GradientCall, Lowering, Op, Scalar};
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::graph::Tensor;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Comparison {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

impl Comparison {
    const fn name(self) -> &'static str {
        match self {
            Self::Eq => "eq",
            Self::Ne => "ne",
            Self::Lt => "lt",
            Self::Le => "le",
            Self::Gt => "gt",
            Self::Ge => "ge",
        }
    }
    fn text(self, a: &str, b: &str) -> String {
        let sign = match self {
            Self::Eq => "==",
            // WGSL's != becomes an ordered comparison, which NaN fails too.
            Self::Ne => return format!("!({a} == {b})"),
            Self::Lt => "<",
            Self::Le => "<=",
            Self::Gt => ">",
            Self::Ge => ">=",
        };
        format!("{a} {sign} {b}")
    }
    fn check(self, ty: &TensorType) -> Result<()> {
        let ordered = !matches!(self, Self::Eq | Self::Ne);
        if ordered && ty.dtype == DType::Bool {
            return Err(Error::DType {
                op: self.name(),
                operand: 0,
                found: DType::Bool,
                expected: "f32, f16, i32 or u32, which are ordered",
            });
        }
        Ok(())
    }
}

fn truth_of(ty: &TensorType) -> Vec<TensorType> {
    vec![TensorType::new(DType::Bool, ty.shape.clone())]
}

/// `a ? b`.
#[derive(Debug)]
struct Compare(Comparison);

impl Op for Compare {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        self.0.check(inputs[0])?;
        same_types(self.name(), inputs)?;
        Ok(truth_of(inputs[0]))
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None, None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}
impl ElementwiseOp for Compare {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        self.0.text(&call.operands[0], &call.operands[1])
    }
}

/// `x ? value`.
#[derive(Debug)]
struct CompareScalar(Comparison, Scalar);

impl Op for CompareScalar {
    fn name(&self) -> &'static str {
        self.0.name()
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        self.1.expect(self.name(), inputs[0])?;
        Ok(truth_of(inputs[0]))
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}
impl ElementwiseOp for CompareScalar {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        self.0.text(&call.operands[0], &self.1.text(&call.words[0]))
    }
    fn words(&self) -> Vec<u32> {
        vec![self.1.bits()]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Logic {
    And,
    Or,
    Xor,
    Not,
}

#[derive(Debug)]
struct Logical(Logic);

impl Op for Logical {
    fn name(&self) -> &'static str {
        match self.0 {
            Logic::And => "logical_and",
            Logic::Or => "logical_or",
            Logic::Xor => "logical_xor",
            Logic::Not => "logical_not",
        }
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        for (operand, ty) in inputs.iter().enumerate() {
            if ty.dtype != DType::Bool {
                return Err(Error::DType { op: self.name(), operand, found: ty.dtype, expected: "bool" });
            }
        }
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None; call.inputs.len()])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}
impl ElementwiseOp for Logical {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        let a = &call.operands[0];
        match self.0 {
            Logic::And => format!("{a} && {}", call.operands[1]),
            Logic::Or => format!("{a} || {}", call.operands[1]),
            Logic::Xor => format!("{a} != {}", call.operands[1]),
            Logic::Not => format!("!{a}"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FloatClass {
    Nan,
    Infinite,
    Finite,
}

#[derive(Debug)]
struct Classify(FloatClass);

impl Op for Classify {
    fn name(&self) -> &'static str {
        match self.0 {
            FloatClass::Nan => "isnan",
            FloatClass::Infinite => "isinf",
            FloatClass::Finite => "isfinite",
        }
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let found = inputs[0].dtype;
        if found.is_float() {
            Ok(truth_of(inputs[0]))
        } else {
            Err(Error::DType { op: self.name(), operand: 0, found, expected: "f32 or f16" })
        }
    }
    fn gradient(&self, _: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![None])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}
impl ElementwiseOp for Classify {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        let sign = match self.0 {
            FloatClass::Nan => ">",
            FloatClass::Infinite => "==",
            FloatClass::Finite => "<",
        };
        format!("(bitcast<u32>({}) & 0x7fffffffu) {sign} 0x7f800000u", call.operands[0])
    }
}

impl Tensor {
    fn compare(&self, how: Comparison, other: &Self) -> Result<Self> {
        let (a, b) = self.broadcast_with(other, how.name())?;
        a.apply_with(Compare(how), &[&b])
    }

    fn logic(&self, how: Logic, other: &Self) -> Result<Self> {
        let (a, b) = self.broadcast_with(other, Logical(how).name())?;
        a.apply_with(Logical(how), &[&b])
    }

    /// Where both are true, with broadcasting.
    ///
    /// # Errors
    /// [`Error::DType`] unless both are bool, [`Error::Shape`] if they do not fit.
    pub fn logical_and(&self, other: &Self) -> Result<Self> {
        self.logic(Logic::And, other)
    }

    /// Where either is true, with broadcasting.
    ///
    /// # Errors
    /// As [`Tensor::logical_and`].
    pub fn logical_or(&self, other: &Self) -> Result<Self> {
        self.logic(Logic::Or, other)
    }

    /// Where exactly one is true, with broadcasting.
    ///
    /// # Errors
    /// As [`Tensor::logical_and`].
    pub fn logical_xor(&self, other: &Self) -> Result<Self> {
        self.logic(Logic::Xor, other)
    }

    /// Where it is false.
    ///
    /// # Errors
    /// [`Error::DType`] unless it is bool.
    pub fn logical_not(&self) -> Result<Self> {
        self.apply(Logical(Logic::Not))
    }

    /// Where it is NaN, of either sign.
    ///
    /// # Errors
    /// [`Error::DType`] unless it is f32.
    pub fn isnan(&self) -> Result<Self> {
        self.apply(Classify(FloatClass::Nan))
    }

    /// Where it is infinite, of either sign.
    ///
    /// # Errors
    /// [`Error::DType`] unless it is f32.
    pub fn isinf(&self) -> Result<Self> {
        self.apply(Classify(FloatClass::Infinite))
    }

    /// Where it is neither NaN nor infinite.
    ///
    /// # Errors
    /// [`Error::DType`] unless it is f32.
    pub fn isfinite(&self) -> Result<Self> {
        self.apply(Classify(FloatClass::Finite))
    }
}

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident, $scalar:ident => $how:ident;)*) => {
        impl Tensor {
            $(
                $(#[$doc])*
                /// With broadcasting; gives bool.
                ///
                /// # Errors
                /// [`Error::Shape`] or [`Error::DType`] if the operands do not fit.
                pub fn $name(&self, other: &Self) -> Result<Self> {
                    self.compare(Comparison::$how, other)
                }

                $(#[$doc])*
                /// Against a number; gives bool.
                ///
                /// # Errors
                /// [`Error::DType`] unless the number has the tensor's type.
                pub fn $scalar(&self, value: impl Into<Scalar>) -> Result<Self> {
                    self.apply(CompareScalar(Comparison::$how, value.into()))
                }
            )*
        }
    };
}

comparisons! {
    /// Where equal.
    eq, eq_scalar => Eq;
    /// Where not equal; NaN equals nothing, not itself either.
    ne, ne_scalar => Ne;
    /// Where less.
    lt, lt_scalar => Lt;
    /// Where less or equal.
    le, le_scalar => Le;
    /// Where greater.
    gt, gt_scalar => Gt;
    /// Where greater or equal.
    ge, ge_scalar => Ge;
}
