// log(1 + x) and exp(x) - 1 without cancellation around 0.

// For |x| < 0.5 the series of log((1+s)/(1-s)) = 2 (s + s^3/3 + ..) with
// s = x / (2 + x), |s| <= 1/3; the first term left out is below 2e-9 of the sum.
fn log1p(x: f32) -> f32 {
    let s = x / (2.0 + x);
    let z = s * s;
    let series = 2.0 * s * (1.0 + z * (1.0 / 3.0 + z * (0.2 + z * (1.0 / 7.0 + z * (1.0 / 9.0 + z * (1.0 / 11.0 + z * (1.0 / 13.0 + z / 15.0)))))));
    return select(log(1.0 + x), series, abs(x) < 0.5);
}
// For |x| < 0.5 the Taylor series to x^9; what is left out is below 1e-9 of the sum.
fn expm1(x: f32) -> f32 {
    let series = x * (1.0 + x / 2.0 * (1.0 + x / 3.0 * (1.0 + x * 0.25 * (1.0 + x * 0.2 * (1.0 + x / 6.0 * (1.0 + x / 7.0 * (1.0 + x * 0.125 * (1.0 + x / 9.0))))))));
    return select(exp(x) - 1.0, series, abs(x) < 0.5);
}
// log(1 + exp(x)), which does not overflow.
fn softplus(x: f32) -> f32 {
    return max(x, 0.0) + log1p(exp(-abs(x)));
}
