//! Elementwise functions of one tensor, and the machinery that they share.
//!
//! ```text
//! neg     -x          -g                abs     |x|         g sign(x)
//! exp     e^x          g y              ln      log x       g / x
//! sqrt    x^(1/2)      g / (2 y)        rsqrt   x^(-1/2)   -g y^3 / 2
//! recip   1 / x       -g y^2            sqr     x^2         2 g x
//! sin     sin x        g cos x          cos     cos x      -g sin x
//! erf     erf x        g 2/sqrt(pi) exp(-x^2)
//! log1p   log(1+x)     g / (1 + x)      expm1   e^x - 1     g (y + 1)
//! powf    x^p          g p x^(p-1)      clamp   min(max(x, lo), hi)   g where lo <= x <= hi
//! sign, floor, ceil, round (half to even): gradient 0
//! ```
//!
//! A gradient that can be told from the output `y` is: then `x` need not be
//! kept. Each gradient is one recorded op, a [`Slope`], whose own gradient is
//! the slope of the next order; every function here can be differentiated twice.

use super::{ElementCall, ElementwiseOp, GradientCall, Lowering, Op};
use crate::dtype::{DType, TensorType};
use crate::error::{Error, Result};
use crate::graph::Tensor;

const POW: &str = include_str!("../../shaders/shared/math_pow.wgsl");
pub(super) const TRIG: &str = include_str!("../../shaders/shared/math_trig.wgsl");
pub(super) const LOG1P: &str = include_str!("../../shaders/shared/math_log1p.wgsl");
const ERF: &str = include_str!("../../shaders/shared/math_erf.wgsl");

/// WGSL text from the incoming gradient (`""` for the value itself), the
/// argument and the uniform words.
pub(super) type Form = fn(&str, &str, &[String]) -> String;

/// A function of one variable with its derivatives.
pub(super) struct Curve {
    /// Names of the value's op and of its slopes.
    pub(super) names: &'static [&'static str],
    /// The value, then the incoming gradient times the first derivative, and so on.
    pub(super) orders: &'static [Form],
    /// True if the derivative after the last of `orders` is 0.
    pub(super) ends_in_zero: bool,
    /// Where the first derivative is told from.
    pub(super) slope: SlopeFrom,
    /// WGSL that the forms call.
    pub(super) functions: &'static [&'static str],
    /// Floating-point operations per element.
    pub(super) flops: f64,
}

/// Where a curve's first derivative is told from.
#[derive(Clone, Copy)]
pub(super) enum SlopeFrom {
    /// The input: the curve's own next order.
    Input,
    /// The output: this curve's first order, `g * f(y)`.
    Output(&'static Curve),
    /// It is 0 wherever it exists.
    Zero,
}

impl std::fmt::Debug for Curve {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.names[0])
    }
}

/// `y = f(x)`.
#[derive(Debug)]
struct Unary {
    curve: &'static Curve,
    words: Vec<u32>,
}

impl Op for Unary {
    fn name(&self) -> &'static str {
        self.curve.names[0]
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        let found = inputs[0].dtype;
        if found.is_float() {
            Ok(vec![inputs[0].clone()])
        } else {
            Err(Error::DType { op: self.name(), operand: 0, found, expected: "f32 or f16" })
        }
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let words = self.words.clone();
        let (slope, at) = match self.curve.slope {
            SlopeFrom::Input => (Slope { curve: self.curve, order: 1, words }, &call.inputs[0]),
            SlopeFrom::Output(curve) => (Slope { curve, order: 0, words }, &call.outputs[0]),
            SlopeFrom::Zero => return Ok(vec![None]),
        };
        Ok(vec![slope.of(call.grad()?, at)?])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for Unary {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        self.curve.orders[0]("", &call.operands[0], call.words)
    }
    fn words(&self) -> Vec<u32> {
        self.words.clone()
    }
    fn functions(&self) -> &'static [&'static str] {
        self.curve.functions
    }
    fn flops(&self) -> f64 {
        self.curve.flops
    }
}

/// `g * f'(x)`, of any order of `f`.
#[derive(Debug)]
struct Slope {
    curve: &'static Curve,
    order: usize,
    words: Vec<u32>,
}

impl Slope {
    /// Records itself, or `None` where it is 0.
    fn of(self, g: &Tensor, at: &Tensor) -> Result<Option<Tensor>> {
        if self.order < self.curve.orders.len() {
            return Ok(Some(g.apply_with(self, &[at])?));
        }
        if self.curve.ends_in_zero {
            return Ok(None);
        }
        Err(Error::NoGradient {
            op: self.curve.names[0],
            detail: format!("its derivative of order {} is not written down", self.order),
        })
    }
}

impl Op for Slope {
    fn name(&self) -> &'static str {
        self.curve.names[self.order]
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        Ok(vec![inputs[0].clone()])
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        let h = call.grad()?;
        let (g, x) = (&call.inputs[0], &call.inputs[1]);
        let slope = |order| Self { curve: self.curve, order, words: self.words.clone() };
        let towards_g = if call.needed[0] { slope(self.order).of(h, x)? } else { None };
        let ends = self.order + 1 >= self.curve.orders.len() && self.curve.ends_in_zero;
        let towards_x = if call.needed[1] && !ends { slope(self.order + 1).of(&h.mul(g)?, x)? } else { None };
        Ok(vec![towards_g, towards_x])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for Slope {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        self.curve.orders[self.order](&call.operands[0], &call.operands[1], call.words)
    }
    fn words(&self) -> Vec<u32> {
        self.words.clone()
    }
    fn functions(&self) -> &'static [&'static str] {
        self.curve.functions
    }
    fn flops(&self) -> f64 {
        self.curve.flops + 1.0
    }
}

/// A curve whose slope is told from its input.
const fn from_input(
    names: &'static [&'static str],
    orders: &'static [Form],
    functions: &'static [&'static str],
    flops: f64,
) -> Curve {
    Curve { names, orders, ends_in_zero: false, slope: SlopeFrom::Input, functions, flops }
}
/// A curve whose slope is told from its output by `slope`.
pub(super) const fn from_output(
    names: &'static [&'static str],
    orders: &'static [Form],
    slope: &'static Curve,
    functions: &'static [&'static str],
    flops: f64,
) -> Curve {
    Curve { names, orders, ends_in_zero: false, slope: SlopeFrom::Output(slope), functions, flops }
}
/// The slope of a curve, as a function of the curve's output.
pub(super) const fn slope_of_output(
    names: &'static [&'static str],
    orders: &'static [Form],
    ends_in_zero: bool,
) -> Curve {
    Curve { names, orders, ends_in_zero, slope: SlopeFrom::Input, functions: &[], flops: 2.0 }
}
/// A step function.
pub(super) const fn steps(names: &'static [&'static str], orders: &'static [Form]) -> Curve {
    Curve { names, orders, ends_in_zero: true, slope: SlopeFrom::Zero, functions: &[], flops: 1.0 }
}

static ABS: Curve = Curve {
    ends_in_zero: true,
    ..from_input(&["abs", "abs_grad"], &[|_, x, _| format!("abs({x})"), |g, x, _| format!("{g} * sign({x})")], &[], 1.0)
};
static EXP_SLOPE: Curve =
    slope_of_output(&["exp_grad", "exp_grad2"], &[|g, y, _| format!("{g} * {y}"), |g, _, _| g.to_owned()], true);
static EXP: Curve = from_output(&["exp"], &[|_, x, _| format!("exp({x})")], &EXP_SLOPE, &[], 8.0);
static LN: Curve = from_input(
    &["ln", "ln_grad", "ln_grad2", "ln_grad3"],
    &[
        |_, x, _| format!("log({x})"),
        |g, x, _| format!("{g} / {x}"),
        |g, x, _| format!("-{g} / ({x} * {x})"),
        |g, x, _| format!("2.0 * {g} / ({x} * {x} * {x})"),
    ],
    &[],
    8.0,
);
static SQRT_SLOPE: Curve = slope_of_output(
    &["sqrt_grad", "sqrt_grad2", "sqrt_grad3"],
    &[
        |g, y, _| format!("0.5 * {g} / {y}"),
        |g, y, _| format!("-0.5 * {g} / ({y} * {y})"),
        |g, y, _| format!("{g} / ({y} * {y} * {y})"),
    ],
    false,
);
static SQRT: Curve = from_output(&["sqrt"], &[|_, x, _| format!("sqrt({x})")], &SQRT_SLOPE, &[], 4.0);
static RSQRT_SLOPE: Curve = slope_of_output(
    &["rsqrt_grad", "rsqrt_grad2", "rsqrt_grad3", "rsqrt_grad4"],
    &[
        |g, y, _| format!("-0.5 * {g} * {y} * {y} * {y}"),
        |g, y, _| format!("-1.5 * {g} * {y} * {y}"),
        |g, y, _| format!("-3.0 * {g} * {y}"),
        |g, _, _| format!("-3.0 * {g}"),
    ],
    true,
);
// WGSL leaves inverseSqrt two units in the last place; the quotient is as good on every adapter.
static RSQRT: Curve = from_output(&["rsqrt"], &[|_, x, _| format!("1.0 / sqrt({x})")], &RSQRT_SLOPE, &[], 5.0);
static RECIP_SLOPE: Curve = slope_of_output(
    &["recip_grad", "recip_grad2", "recip_grad3"],
    &[|g, y, _| format!("-{g} * {y} * {y}"), |g, y, _| format!("-2.0 * {g} * {y}"), |g, _, _| format!("-2.0 * {g}")],
    true,
);
static RECIP: Curve = from_output(&["recip"], &[|_, x, _| format!("1.0 / {x}")], &RECIP_SLOPE, &[], 1.0);
static SQR: Curve = Curve {
    ends_in_zero: true,
    ..from_input(
        &["sqr", "sqr_grad", "sqr_grad2"],
        &[|_, x, _| format!("{x} * {x}"), |g, x, _| format!("2.0 * {g} * {x}"), |g, _, _| format!("2.0 * {g}")],
        &[],
        1.0,
    )
};
static SIN: Curve = from_input(
    &["sin", "sin_grad", "sin_grad2", "sin_grad3"],
    &[
        |_, x, _| format!("sine({x})"),
        |g, x, _| format!("{g} * cosine({x})"),
        |g, x, _| format!("-{g} * sine({x})"),
        |g, x, _| format!("-{g} * cosine({x})"),
    ],
    &[TRIG],
    20.0,
);
static COS: Curve = from_input(
    &["cos", "cos_grad", "cos_grad2", "cos_grad3"],
    &[
        |_, x, _| format!("cosine({x})"),
        |g, x, _| format!("-{g} * sine({x})"),
        |g, x, _| format!("-{g} * cosine({x})"),
        |g, x, _| format!("{g} * sine({x})"),
    ],
    &[TRIG],
    20.0,
);
static ERF_CURVE: Curve = from_input(
    &["erf", "erf_grad", "erf_grad2"],
    &[|_, x, _| format!("erf({x})"), |g, x, _| format!("{g} * erf_d1({x})"), |g, x, _| format!("{g} * erf_d2({x})")],
    &[ERF],
    30.0,
);
static LOG1P_CURVE: Curve = from_input(
    &["log1p", "log1p_grad", "log1p_grad2", "log1p_grad3"],
    &[
        |_, x, _| format!("log1p({x})"),
        |g, x, _| format!("{g} / (1.0 + {x})"),
        |g, x, _| format!("-{g} / ((1.0 + {x}) * (1.0 + {x}))"),
        |g, x, _| format!("2.0 * {g} / ((1.0 + {x}) * (1.0 + {x}) * (1.0 + {x}))"),
    ],
    &[LOG1P],
    25.0,
);
static EXPM1_SLOPE: Curve = slope_of_output(
    &["expm1_grad", "expm1_grad2"],
    &[|g, y, _| format!("{g} * ({y} + 1.0)"), |g, _, _| g.to_owned()],
    true,
);
static EXPM1: Curve = from_output(&["expm1"], &[|_, x, _| format!("expm1({x})")], &EXPM1_SLOPE, &[LOG1P], 25.0);
static POWF: Curve = from_input(
    &["powf", "powf_grad", "powf_grad2"],
    &[
        |_, x, w| format!("power({x}, bitcast<f32>({}))", w[0]),
        |g, x, w| format!("{g} * bitcast<f32>({0}) * power({x}, bitcast<f32>({0}) - 1.0)", w[0]),
        |g, x, w| {
            let p = format!("bitcast<f32>({})", w[0]);
            format!("{g} * {p} * ({p} - 1.0) * power({x}, {p} - 2.0)")
        },
    ],
    &[POW],
    30.0,
);
static CLAMP: Curve = Curve {
    ends_in_zero: true,
    ..from_input(
        &["clamp", "clamp_grad"],
        &[
            |_, x, w| {
                let (low, high) = (format!("bitcast<f32>({})", w[0]), format!("bitcast<f32>({})", w[1]));
                // Not WGSL's clamp: NaN stays NaN.
                format!("select(select({x}, {low}, {x} < {low}), {high}, {x} > {high})")
            },
            |g, x, w| format!("select({g}, 0.0, {x} < bitcast<f32>({}) || {x} > bitcast<f32>({}))", w[0], w[1]),
        ],
        &[],
        2.0,
    )
};
static SIGN: Curve = steps(&["sign"], &[|_, x, _| format!("sign({x})")]);
static FLOOR: Curve = steps(&["floor"], &[|_, x, _| format!("floor({x})")]);
static CEIL: Curve = steps(&["ceil"], &[|_, x, _| format!("ceil({x})")]);
static ROUND: Curve = steps(&["round"], &[|_, x, _| format!("round({x})")]);

/// `-x`, also of signed integers.
#[derive(Debug)]
struct Neg;

impl Op for Neg {
    fn name(&self) -> &'static str {
        "neg"
    }
    fn output_types(&self, inputs: &[&TensorType]) -> Result<Vec<TensorType>> {
        match inputs[0].dtype {
            DType::F32 | DType::F16 | DType::I32 => Ok(vec![inputs[0].clone()]),
            found => Err(Error::DType { op: "neg", operand: 0, found, expected: "f32, f16 or i32" }),
        }
    }
    fn gradient(&self, call: &GradientCall<'_>) -> Result<Vec<Option<Tensor>>> {
        Ok(vec![Some(call.grad()?.neg()?)])
    }
    fn lowering(&self) -> Lowering<'_> {
        Lowering::Elementwise(self)
    }
}

impl ElementwiseOp for Neg {
    fn expression(&self, call: &ElementCall<'_>) -> String {
        format!("-{}", call.operands[0])
    }
}

impl Tensor {
    /// Records `curve` with its uniform words.
    pub(super) fn curve(&self, curve: &'static Curve, words: &[f32]) -> Result<Self> {
        self.apply(Unary { curve, words: words.iter().map(|w| w.to_bits()).collect() })
    }

    /// `-x`; f32 or i32.
    ///
    /// # Errors
    /// [`Error::DType`] for other types.
    pub fn neg(&self) -> Result<Self> {
        self.apply(Neg)
    }

    /// The integral powers and roots are ops of their own, others are `x^exponent`:
    /// NaN for a negative `x` unless the exponent is a whole number.
    ///
    /// # Errors
    /// [`Error::DType`] unless the tensor is f32.
    pub fn powf(&self, exponent: f32) -> Result<Self> {
        self.expect_float("powf", 0)?;
        match exponent {
            0.0 => self.filled(1.0),
            1.0 => Ok(self.clone()),
            2.0 => self.sqr(),
            0.5 => self.sqrt(),
            -0.5 => self.rsqrt(),
            -1.0 => self.recip(),
            _ => self.curve(&POWF, &[exponent]),
        }
    }

    /// `min(max(x, low), high)`; NaN stays NaN. The gradient passes where
    /// `low <= x <= high`.
    ///
    /// # Errors
    /// [`Error::DType`] unless the tensor is f32; [`Error::Argument`] if
    /// `low > high` or either is NaN.
    pub fn clamp(&self, low: f32, high: f32) -> Result<Self> {
        if low > high || low.is_nan() || high.is_nan() {
            return Err(Error::Argument {
                op: "clamp",
                argument: "low",
                value: low.to_string(),
                detail: format!("it must not be above high = {high}, and neither may be NaN"),
            });
        }
        self.curve(&CLAMP, &[low, high])
    }
}

/// Methods of one line each.
macro_rules! methods {
    ($($(#[$doc:meta])* $name:ident => $curve:expr;)*) => {
        impl Tensor {
            $(
                $(#[$doc])*
                ///
                /// # Errors
                /// [`crate::Error::DType`] unless the tensor is f32.
                pub fn $name(&self) -> Result<Self> {
                    self.curve(&$curve, &[])
                }
            )*
        }
    };
}
pub(super) use methods;

methods! {
    /// `|x|`; its gradient at 0 is 0.
    abs => ABS;
    /// `e^x`.
    exp => EXP;
    /// The natural logarithm.
    ln => LN;
    /// The square root.
    sqrt => SQRT;
    /// `1 / sqrt(x)`.
    rsqrt => RSQRT;
    /// `1 / x`.
    recip => RECIP;
    /// `x * x`.
    sqr => SQR;
    /// The sine, by polynomials of our own, the same on every adapter: within
    /// 1e-6 for `|x| <= 100`.
    sin => SIN;
    /// The cosine, as [`Tensor::sin`].
    cos => COS;
    /// The error function.
    erf => ERF_CURVE;
    /// `log(1 + x)`, accurate around 0.
    log1p => LOG1P_CURVE;
    /// `e^x - 1`, accurate around 0.
    expm1 => EXPM1;
    /// -1, 0 or 1; its gradient is 0.
    sign => SIGN;
    /// The largest whole number that is not above; its gradient is 0.
    floor => FLOOR;
    /// The smallest whole number that is not below; its gradient is 0.
    ceil => CEIL;
    /// The nearest whole number, halves to the even one; its gradient is 0.
    round => ROUND;
}
