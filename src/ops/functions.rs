//! More elementwise functions of one tensor, with their first and second derivatives.
//!
//! ```text
//! tan      tan x       g (1 + y^2)           asin   g / sqrt(1 - x^2)
//! sinh     sinh x      g cosh x              acos  -g / sqrt(1 - x^2)
//! cosh     cosh x      g sinh x              atan   g / (1 + x^2)
//! log2     log2 x      g / (x ln 2)          asinh  g / sqrt(x^2 + 1)
//! log10    log10 x     g / (x ln 10)         acosh  g / sqrt(x^2 - 1)
//! exp2     2^x         g y ln 2              atanh  g / (1 - x^2)
//! trunc    towards 0   0                     frac   x - trunc x
//! lerp     a + w (b - a)                     fmod   a - b trunc(a / b), in binary.rs
//! ```
//!
//! The trigonometric functions and their inverses are polynomials of our own,
//! the same on every adapter.

use super::activation::{pieces, smooth};
use super::unary::{Curve, LOG1P, TRIG, from_output, methods, slope_of_output, steps};
use crate::error::Result;
use crate::graph::Tensor;

const ARC: &str = include_str!("../../shaders/shared/math_arc.wgsl");
const HYPERBOLIC: &str = include_str!("../../shaders/shared/math_hyperbolic.wgsl");

static TAN_SLOPE: Curve = slope_of_output(
    &["tan_grad", "tan_grad2", "tan_grad3"],
    &[
        |g, y, _| format!("{g} * (1.0 + {y} * {y})"),
        |g, y, _| format!("2.0 * {g} * {y}"),
        |g, _, _| format!("2.0 * {g}"),
    ],
    true,
);
static TAN: Curve = from_output(&["tan"], &[|_, x, _| format!("sine({x}) / cosine({x})")], &TAN_SLOPE, &[TRIG], 40.0);
static ASIN: Curve = smooth(
    &["asin", "asin_grad", "asin_grad2"],
    &[
        |_, x, _| format!("arc_sine({x})"),
        |g, x, _| format!("{g} / sqrt((1.0 - {x}) * (1.0 + {x}))"),
        |g, x, _| format!("{g} * {x} / (((1.0 - {x}) * (1.0 + {x})) * sqrt((1.0 - {x}) * (1.0 + {x})))"),
    ],
    &[ARC],
    20.0,
);
static ACOS: Curve = smooth(
    &["acos", "acos_grad", "acos_grad2"],
    &[
        |_, x, _| format!("arc_cosine({x})"),
        |g, x, _| format!("-{g} / sqrt((1.0 - {x}) * (1.0 + {x}))"),
        |g, x, _| format!("-{g} * {x} / (((1.0 - {x}) * (1.0 + {x})) * sqrt((1.0 - {x}) * (1.0 + {x})))"),
    ],
    &[ARC],
    40.0,
);
static ATAN: Curve = smooth(
    &["atan", "atan_grad", "atan_grad2"],
    &[
        |_, x, _| format!("arc_tangent({x})"),
        |g, x, _| format!("{g} / (1.0 + {x} * {x})"),
        // Far out the slope is 0; the bound keeps infinity out of the quotient.
        |g, x, _| format!("-2.0 * {g} * clamp({x}, -1e9, 1e9) / ((1.0 + {x} * {x}) * (1.0 + {x} * {x}))"),
    ],
    &[ARC],
    20.0,
);
static SINH: Curve = smooth(
    &["sinh", "sinh_grad", "sinh_grad2"],
    &[
        |_, x, _| format!("hyperbolic_sine({x})"),
        |g, x, _| format!("{g} * hyperbolic_cosine({x})"),
        |g, x, _| format!("{g} * hyperbolic_sine({x})"),
    ],
    &[LOG1P, HYPERBOLIC],
    40.0,
);
static COSH: Curve = smooth(
    &["cosh", "cosh_grad", "cosh_grad2"],
    &[
        |_, x, _| format!("hyperbolic_cosine({x})"),
        |g, x, _| format!("{g} * hyperbolic_sine({x})"),
        |g, x, _| format!("{g} * hyperbolic_cosine({x})"),
    ],
    &[LOG1P, HYPERBOLIC],
    20.0,
);
static ASINH: Curve = smooth(
    &["asinh", "asinh_grad", "asinh_grad2"],
    &[
        |_, x, _| format!("area_sine({x})"),
        |g, x, _| format!("{g} / sqrt({x} * {x} + 1.0)"),
        |g, x, _| format!("-{g} * {x} / (({x} * {x} + 1.0) * sqrt({x} * {x} + 1.0))"),
    ],
    &[LOG1P, HYPERBOLIC],
    40.0,
);
static ACOSH: Curve = smooth(
    &["acosh", "acosh_grad", "acosh_grad2"],
    &[
        |_, x, _| format!("area_cosine({x})"),
        |g, x, _| format!("{g} / sqrt(({x} - 1.0) * ({x} + 1.0))"),
        |g, x, _| format!("-{g} * {x} / ((({x} - 1.0) * ({x} + 1.0)) * sqrt(({x} - 1.0) * ({x} + 1.0)))"),
    ],
    &[LOG1P, HYPERBOLIC],
    40.0,
);
static ATANH: Curve = smooth(
    &["atanh", "atanh_grad", "atanh_grad2"],
    &[
        |_, x, _| format!("area_tangent({x})"),
        |g, x, _| format!("{g} / ((1.0 - {x}) * (1.0 + {x}))"),
        |g, x, _| format!("2.0 * {g} * {x} / (((1.0 - {x}) * (1.0 + {x})) * ((1.0 - {x}) * (1.0 + {x})))"),
    ],
    &[LOG1P, HYPERBOLIC],
    40.0,
);
static LOG2: Curve = smooth(
    &["log2", "log2_grad", "log2_grad2"],
    &[
        |_, x, _| format!("log2({x})"),
        |g, x, _| format!("1.4426950409 * {g} / {x}"),
        |g, x, _| format!("-1.4426950409 * {g} / ({x} * {x})"),
    ],
    &[],
    8.0,
);
static LOG10: Curve = smooth(
    &["log10", "log10_grad", "log10_grad2"],
    &[
        |_, x, _| format!("0.4342944819 * log({x})"),
        |g, x, _| format!("0.4342944819 * {g} / {x}"),
        |g, x, _| format!("-0.4342944819 * {g} / ({x} * {x})"),
    ],
    &[],
    9.0,
);
static EXP2_SLOPE: Curve = slope_of_output(
    &["exp2_grad", "exp2_grad2"],
    &[|g, y, _| format!("0.6931471806 * {g} * {y}"), |g, _, _| format!("0.6931471806 * {g}")],
    true,
);
static EXP2: Curve = from_output(&["exp2"], &[|_, x, _| format!("exp2({x})")], &EXP2_SLOPE, &[], 8.0);
static TRUNC: Curve = steps(&["trunc"], &[|_, x, _| format!("trunc({x})")]);
// PyTorch gives no gradient at the ends of hardtanh and hardsigmoid.
static HARDTANH: Curve = pieces(
    &["hardtanh", "hardtanh_grad"],
    &[
        |_, x, w| {
            let (low, high) = (format!("bitcast<f32>({})", w[0]), format!("bitcast<f32>({})", w[1]));
            format!("select(select({x}, {low}, {x} < {low}), {high}, {x} > {high})")
        },
        |g, x, w| format!("select({g}, 0.0, {x} <= bitcast<f32>({}) || {x} >= bitcast<f32>({}))", w[0], w[1]),
    ],
    &[],
);
static HARDSIGMOID: Curve = pieces(
    &["hardsigmoid", "hardsigmoid_grad"],
    &[
        |_, x, _| format!("select(select(({x} + 3.0) / 6.0, 0.0, {x} < -3.0), 1.0, {x} > 3.0)"),
        |g, x, _| format!("select({g} / 6.0, 0.0, {x} <= -3.0 || {x} >= 3.0)"),
    ],
    &[],
);

methods! {
    /// The tangent, by polynomials of our own.
    tan => TAN;
    /// The inverse sine, in `[-pi/2, pi/2]`; NaN outside `[-1, 1]`.
    asin => ASIN;
    /// The inverse cosine, in `[0, pi]`; NaN outside `[-1, 1]`.
    acos => ACOS;
    /// The inverse tangent, in `[-pi/2, pi/2]`.
    atan => ATAN;
    /// The hyperbolic sine.
    sinh => SINH;
    /// The hyperbolic cosine.
    cosh => COSH;
    /// The inverse hyperbolic sine.
    asinh => ASINH;
    /// The inverse hyperbolic cosine; NaN below 1.
    acosh => ACOSH;
    /// The inverse hyperbolic tangent; NaN outside `[-1, 1]`.
    atanh => ATANH;
    /// The logarithm to the base 2.
    log2 => LOG2;
    /// The logarithm to the base 10.
    log10 => LOG10;
    /// `2^x`.
    exp2 => EXP2;
    /// The whole part, rounded towards 0; its gradient is 0.
    trunc => TRUNC;
    /// `min(max(x + 3, 0), 6) / 6`.
    hardsigmoid => HARDSIGMOID;
}

impl Tensor {
    /// `min(max(x, low), high)`, whose gradient is 0 at `low` and `high` too, as
    /// PyTorch's `hardtanh` has it (its defaults are -1 and 1).
    ///
    /// # Errors
    /// As [`Tensor::clamp`].
    pub fn hardtanh(&self, low: f32, high: f32) -> Result<Self> {
        if low > high || low.is_nan() || high.is_nan() {
            return self.clamp(low, high);
        }
        self.curve(&HARDTANH, &[low, high])
    }

    /// `min(max(x, 0), 6)`.
    ///
    /// # Errors
    /// [`crate::Error::DType`] unless the tensor is f32.
    pub fn relu6(&self) -> Result<Self> {
        self.hardtanh(0.0, 6.0)
    }

    /// `log(sigmoid(x))`, which does not overflow.
    ///
    /// # Errors
    /// [`crate::Error::DType`] unless the tensor is f32.
    pub fn logsigmoid(&self) -> Result<Self> {
        self.neg()?.softplus()?.neg()
    }

    /// `scale * (x > 0 ? x : alpha * (e^x - 1))` with the constants of Klambauer
    /// et al. 2017 (arXiv:1706.02515).
    ///
    /// # Errors
    /// [`crate::Error::DType`] unless the tensor is f32.
    pub fn selu(&self) -> Result<Self> {
        self.elu(1.673_263_2)?.mul_scalar(1.050_701_f32)
    }

    /// `x` where positive, else `weight * x`, with `weight` broadcast to this tensor:
    /// `[1]` for all, or `[C, 1, 1]` for the channels of `[B, C, H, W]`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] or [`crate::Error::DType`] if the operands do not fit.
    pub fn prelu(&self, weight: &Self) -> Result<Self> {
        self.gt_scalar(0.0_f32)?.where_(self, &self.mul(weight)?)
    }

    /// `a * sigmoid(b)`, where `a` and `b` are the halves of `axis`.
    ///
    /// # Errors
    /// [`crate::Error::Argument`] for an axis that is not there or of odd extent,
    /// [`crate::Error::DType`] unless the tensor is f32.
    pub fn glu(&self, axis: isize) -> Result<Self> {
        let extent = self.dims()[self.axis("glu", axis)?];
        let half = extent / 2;
        // Two halves of an odd extent do not add up, which split refuses.
        let parts = self.split(axis, &[half, half])?;
        parts[0].mul(&parts[1].sigmoid()?)
    }

    /// The part behind the point, `x - trunc(x)`, with the sign of `x`.
    ///
    /// # Errors
    /// [`crate::Error::DType`] unless the tensor is f32.
    pub fn frac(&self) -> Result<Self> {
        self.sub(&self.trunc()?)
    }

    /// `self + weight * (end - self)`, with broadcasting.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] or [`crate::Error::DType`] if the operands do not fit.
    pub fn lerp(&self, end: &Self, weight: &Self) -> Result<Self> {
        self.add(&weight.mul(&end.sub(self)?)?)
    }

    /// [`Tensor::lerp`] with one number for a weight.
    ///
    /// # Errors
    /// As [`Tensor::lerp`].
    pub fn lerp_scalar(&self, end: &Self, weight: f32) -> Result<Self> {
        self.add(&end.sub(self)?.mul_scalar(weight)?)
    }
}
