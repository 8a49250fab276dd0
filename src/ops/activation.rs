//! Activation functions, each with its first and second derivative.
//!
//! ```text
//! relu        max(x, 0)                 g where y > 0
//! leaky_relu  x > 0 ? x : s x           x > 0 ? g : s g
//! elu         x > 0 ? x : a (e^x - 1)   x > 0 ? g : g a e^x
//! sigmoid     1 / (1 + e^-x)            g y (1 - y)
//! tanh        tanh x                    g (1 - y^2)
//! softplus    log(1 + e^x)              g sigmoid(x)
//! silu        x sigmoid(x)              g s (1 + x (1 - s))
//! gelu        x Phi(x)                  g (Phi(x) + x phi(x))
//! gelu_tanh   x/2 (1 + tanh(c (x + 0.044715 x^3))), c = sqrt(2/pi)
//! mish        x tanh(softplus(x))
//! hardswish   x min(max(x + 3, 0), 6) / 6
//! ```
//!
//! `relu`, `sigmoid` and `tanh` tell their gradient from their output, so that
//! a product with one of them fused into its store keeps one value only.

use super::unary::{Curve, Form, SlopeFrom, from_output, methods, slope_of_output};
use crate::error::Result;
use crate::graph::Tensor;

const SIGMOID_TEXT: &str = include_str!("../../shaders/shared/math_sigmoid.wgsl");
const TANH_TEXT: &str = include_str!("../../shaders/shared/math_tanh.wgsl");
const GELU_TANH_TEXT: &str = include_str!("../../shaders/shared/math_gelu_tanh.wgsl");
const LOG1P_TEXT: &str = include_str!("../../shaders/shared/math_log1p.wgsl");
const ERF_TEXT: &str = include_str!("../../shaders/shared/math_erf.wgsl");

/// A curve of three orders whose slope is told from its input.
pub(super) const fn smooth(
    names: &'static [&'static str],
    orders: &'static [Form],
    functions: &'static [&'static str],
    flops: f64,
) -> Curve {
    Curve { names, orders, ends_in_zero: false, slope: SlopeFrom::Input, functions, flops }
}
/// A curve of straight or parabolic pieces: the next order is 0.
pub(super) const fn pieces(
    names: &'static [&'static str],
    orders: &'static [Form],
    functions: &'static [&'static str],
) -> Curve {
    Curve { names, orders, ends_in_zero: true, slope: SlopeFrom::Input, functions, flops: 4.0 }
}

// select, not a product: 0 where the unit is off, whatever the gradient is; NaN stays NaN.
static RELU_SLOPE: Curve = slope_of_output(&["relu_grad"], &[|g, y, _| format!("select({g}, 0.0, {y} <= 0.0)")], true);
static RELU: Curve =
    from_output(&["relu"], &[|_, x, _| format!("select({x}, 0.0, {x} <= 0.0)")], &RELU_SLOPE, &[], 1.0);
static TANH_SLOPE: Curve = slope_of_output(
    &["tanh_grad", "tanh_grad2", "tanh_grad3"],
    &[
        |g, y, _| format!("{g} * (1.0 - {y} * {y})"),
        |g, y, _| format!("-2.0 * {g} * {y}"),
        |g, _, _| format!("-2.0 * {g}"),
    ],
    true,
);
static TANH: Curve = from_output(&["tanh"], &[|_, x, _| format!("tanh_safe({x})")], &TANH_SLOPE, &[TANH_TEXT], 20.0);
static SIGMOID_SLOPE: Curve = slope_of_output(
    &["sigmoid_grad", "sigmoid_grad2", "sigmoid_grad3"],
    &[
        |g, y, _| format!("{g} * {y} * (1.0 - {y})"),
        |g, y, _| format!("{g} * (1.0 - 2.0 * {y})"),
        |g, _, _| format!("-2.0 * {g}"),
    ],
    true,
);
static SIGMOID: Curve =
    from_output(&["sigmoid"], &[|_, x, _| format!("sigmoid({x})")], &SIGMOID_SLOPE, &[SIGMOID_TEXT], 12.0);
static SOFTPLUS: Curve = smooth(
    &["softplus", "softplus_grad", "softplus_grad2"],
    &[
        |_, x, _| format!("softplus({x})"),
        |g, x, _| format!("{g} * sigmoid({x})"),
        |g, x, _| format!("{g} * sigmoid_d1({x})"),
    ],
    &[LOG1P_TEXT, SIGMOID_TEXT],
    30.0,
);
static SILU: Curve = smooth(
    &["silu", "silu_grad", "silu_grad2"],
    &[|_, x, _| format!("silu({x})"), |g, x, _| format!("{g} * silu_d1({x})"), |g, x, _| format!("{g} * silu_d2({x})")],
    &[SIGMOID_TEXT],
    14.0,
);
static MISH: Curve = smooth(
    &["mish", "mish_grad", "mish_grad2"],
    &[|_, x, _| format!("mish({x})"), |g, x, _| format!("{g} * mish_d1({x})"), |g, x, _| format!("{g} * mish_d2({x})")],
    &[SIGMOID_TEXT],
    20.0,
);
static GELU: Curve = smooth(
    &["gelu", "gelu_grad", "gelu_grad2"],
    &[|_, x, _| format!("gelu({x})"), |g, x, _| format!("{g} * gelu_d1({x})"), |g, x, _| format!("{g} * gelu_d2({x})")],
    &[ERF_TEXT],
    30.0,
);
static GELU_TANH: Curve = smooth(
    &["gelu_tanh", "gelu_tanh_grad", "gelu_tanh_grad2"],
    &[
        |_, x, _| format!("gelu_tanh({x})"),
        |g, x, _| format!("{g} * gelu_tanh_d1({x})"),
        |g, x, _| format!("{g} * gelu_tanh_d2({x})"),
    ],
    &[TANH_TEXT, GELU_TANH_TEXT],
    30.0,
);
static ELU: Curve = smooth(
    &["elu", "elu_grad", "elu_grad2"],
    &[
        |_, x, w| format!("select({x}, bitcast<f32>({}) * expm1({x}), {x} < 0.0)", w[0]),
        |g, x, w| format!("select({g}, {g} * bitcast<f32>({}) * exp({x}), {x} <= 0.0)", w[0]),
        |g, x, w| format!("select(0.0, {g} * bitcast<f32>({}) * exp({x}), {x} <= 0.0)", w[0]),
    ],
    &[LOG1P_TEXT],
    25.0,
);
static LEAKY_RELU: Curve = pieces(
    &["leaky_relu", "leaky_relu_grad"],
    &[
        |_, x, w| format!("select({x}, {x} * bitcast<f32>({}), {x} <= 0.0)", w[0]),
        |g, x, w| format!("select({g}, {g} * bitcast<f32>({}), {x} <= 0.0)", w[0]),
    ],
    &[],
);
static HARDSWISH: Curve = pieces(
    &["hardswish", "hardswish_grad", "hardswish_grad2"],
    &[
        |_, x, _| format!("{x} * min(max({x} + 3.0, 0.0), 6.0) / 6.0"),
        |g, x, _| format!("select(select({g} * ({x} / 3.0 + 0.5), 0.0, {x} < -3.0), {g}, {x} > 3.0)"),
        |g, x, _| format!("select({g} / 3.0, 0.0, abs({x}) > 3.0)"),
    ],
    &[],
);

methods! {
    /// `max(x, 0)`; its gradient at 0 is 0.
    relu => RELU;
    /// The hyperbolic tangent.
    tanh => TANH;
    /// `1 / (1 + e^-x)`.
    sigmoid => SIGMOID;
    /// `log(1 + e^x)`.
    softplus => SOFTPLUS;
    /// `x * sigmoid(x)`, also called swish.
    silu => SILU;
    /// `x * tanh(softplus(x))`.
    mish => MISH;
    /// `x * Phi(x)`, the exact GELU.
    gelu => GELU;
    /// GELU by its `tanh` approximation.
    gelu_tanh => GELU_TANH;
    /// `x * min(max(x + 3, 0), 6) / 6`.
    hardswish => HARDSWISH;
}

impl Tensor {
    /// `x` where positive, else `alpha * (e^x - 1)`.
    ///
    /// # Errors
    /// [`crate::error::Error::DType`] unless the tensor is f32.
    pub fn elu(&self, alpha: f32) -> Result<Self> {
        self.curve(&ELU, &[alpha])
    }

    /// `x` where positive, else `negative_slope * x`.
    ///
    /// # Errors
    /// [`crate::error::Error::DType`] unless the tensor is f32.
    pub fn leaky_relu(&self, negative_slope: f32) -> Result<Self> {
        self.curve(&LEAKY_RELU, &[negative_slope])
    }
}
