// Hyperbolic functions and their inverses, without overflow before the value's
// own and without cancellation around 0. Needs math_log1p.wgsl.
fn hyperbolic_sine(x: f32) -> f32 {
    let a = abs(x);
    let e = expm1(min(a, 1.0));
    let h = exp(0.5 * a);
    let y = select((0.5 * h) * h - 0.5 / (h * h), 0.5 * (e + e / (e + 1.0)), a < 1.0);
    return select(y, -y, x < 0.0);
}
fn hyperbolic_cosine(x: f32) -> f32 {
    let h = exp(0.5 * abs(x));
    return (0.5 * h) * h + (0.5 / h) / h;
}
// log(a + sqrt(a^2 + 1)); from 1e4 on log(2 a).
fn area_sine(x: f32) -> f32 {
    let a = abs(x);
    let b = min(a, 1e4);
    let y = select(log1p(b + b * b / (1.0 + sqrt(b * b + 1.0))), log(max(a, 1.0)) + 0.6931471806, a > 1e4);
    return select(y, -y, x < 0.0);
}
// log(x + sqrt(x^2 - 1)) with t = x - 1; NaN below 1.
fn area_cosine(x: f32) -> f32 {
    let t = clamp(x, 1.0, 1e4) - 1.0;
    let y = select(log1p(t + sqrt(t * (t + 2.0))), log(max(x, 1.0)) + 0.6931471806, x > 1e4);
    let undefined = bitcast<f32>(bitcast<u32>(x) | 0x7fc00000u);
    return select(y, undefined, !(x >= 1.0));
}
// log((1 + x) / (1 - x)) / 2; infinite at 1, NaN beyond.
fn area_tangent(x: f32) -> f32 {
    let a = abs(x);
    let inside = min(a, 0.9999999);
    let infinite = bitcast<f32>((bitcast<u32>(a) & 0u) | 0x7f800000u);
    let y = select(0.5 * log1p(2.0 * inside / (1.0 - inside)), infinite, a == 1.0);
    let undefined = bitcast<f32>(bitcast<u32>(x) | 0x7fc00000u);
    return select(select(y, -y, x < 0.0), undefined, !(a <= 1.0));
}
