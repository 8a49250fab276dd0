// The logistic function and what is built on it; no exponential here overflows.

// 1 / (1 + exp(-x)).
fn sigmoid(x: f32) -> f32 {
    let t = exp(-abs(x));
    return select(1.0, t, x < 0.0) / (1.0 + t);
}
// d sigmoid / dx = s (1 - s).
fn sigmoid_d1(x: f32) -> f32 {
    let t = exp(-abs(x));
    return t / ((1.0 + t) * (1.0 + t));
}
// x sigmoid(x).
fn silu(x: f32) -> f32 {
    return x * sigmoid(x);
}
fn silu_d1(x: f32) -> f32 {
    let s = sigmoid(x);
    return s * (1.0 + x * sigmoid(-x));
}
fn silu_d2(x: f32) -> f32 {
    // Far out the slope is 0; the bound keeps infinity out of the product.
    return sigmoid_d1(x) * (2.0 + clamp(x, -200.0, 200.0) * (1.0 - 2.0 * sigmoid(x)));
}
// tanh(softplus(x)) = n / (n + 2) with n = e (e + 2), e = exp(x); 1 in f32 from 20 on.
fn tanh_softplus(x: f32) -> f32 {
    let e = exp(min(x, 20.0));
    let n = e * (e + 2.0);
    return n / (n + 2.0);
}
// x tanh(softplus(x)).
fn mish(x: f32) -> f32 {
    return x * tanh_softplus(x);
}
fn mish_d1(x: f32) -> f32 {
    let w = tanh_softplus(x);
    return w + x * (1.0 - w * w) * sigmoid(x);
}
fn mish_d2(x: f32) -> f32 {
    let w = tanh_softplus(x);
    let s = sigmoid(x);
    let slope = (1.0 - w * w) * s;
    // Far out the slope is 0; the bound keeps infinity out of the product.
    return slope * (2.0 + clamp(x, -200.0, 200.0) * (1.0 - s - 2.0 * w * s));
}
