// The error function and the exact GELU, x Phi(x).

// exp(z^2) erfc(z) for z >= 0: t times a polynomial in t = 1 / (1 + 0.35 z), a
// Chebyshev fit of degree 9 made for this library in 40 digits; relative error
// below 9e-8. The form is that of Abramowitz and Stegun 7.1.26.
fn erfc_scaled(z: f32) -> f32 {
    let t = 1.0 / (1.0 + 0.35 * z);
    return t * (0.1974661966 + t * (0.1974776072 + t * (0.1851059887 + t * (0.1641461217 + t * (0.1087279092 + t * (0.1563949875 + t * (-0.1111647432 + t * (0.2442155585 + t * (-0.1857350593 + t * 0.04336544788)))))))));
}
// For |x| < 0.5 the Taylor series, whose cut is below 1e-8 of the value.
fn erf(x: f32) -> f32 {
    let z = x * x;
    let near = 1.1283791671 * x * (1.0 + z * (-1.0 / 3.0 + z * (0.1 + z * (-1.0 / 42.0 + z * (1.0 / 216.0 + z * (-1.0 / 1320.0 + z / 9360.0))))));
    let size = abs(x);
    let far = 1.0 - exp(-z) * erfc_scaled(size);
    return select(select(far, -far, x < 0.0), near, size < 0.5);
}
fn erf_d1(x: f32) -> f32 {
    return 1.1283791671 * exp(-x * x);
}
fn erf_d2(x: f32) -> f32 {
    // Beyond 20 the density is 0; the bound keeps infinity out of the product.
    return -2.0 * clamp(x, -20.0, 20.0) * erf_d1(x);
}
// The normal distribution function; its lower tail keeps its relative accuracy.
fn normal_cdf(x: f32) -> f32 {
    let tail = 0.5 * exp(-0.5 * x * x) * erfc_scaled(0.7071067812 * abs(x));
    return select(tail, 1.0 - tail, x > 0.0);
}
fn gelu(x: f32) -> f32 {
    return x * normal_cdf(x);
}
fn gelu_d1(x: f32) -> f32 {
    let density = exp(-0.5 * x * x);
    let tail = 0.5 * density * erfc_scaled(0.7071067812 * abs(x));
    return select(tail, 1.0 - tail, x > 0.0) + 0.3989422804 * clamp(x, -20.0, 20.0) * density;
}
fn gelu_d2(x: f32) -> f32 {
    let z = min(x * x, 400.0);
    return 0.3989422804 * exp(-0.5 * z) * (2.0 - z);
}
