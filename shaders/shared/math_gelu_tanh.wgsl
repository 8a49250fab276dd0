// 0.5 x (1 + tanh(u)), u = c (x + a x^3), c = sqrt(2/pi), a = 0.044715.
// Hendrycks and Gimpel 2016, arXiv:1606.08415. Needs math_tanh.wgsl. Beyond
// |x| = 30 tanh is 1 and its slope 0, so x is held there where powers of it appear.
fn gelu_tanh_u(x: f32) -> f32 {
    let w = clamp(x, -30.0, 30.0);
    return 0.7978845608 * (w + 0.044715 * w * w * w);
}
fn gelu_tanh(x: f32) -> f32 {
    return 0.5 * x * (1.0 + tanh_safe(gelu_tanh_u(x)));
}
fn gelu_tanh_d1(x: f32) -> f32 {
    let w = clamp(x, -30.0, 30.0);
    let t = tanh_safe(gelu_tanh_u(x));
    let u1 = 0.7978845608 * (1.0 + 0.134145 * w * w);
    return 0.5 * (1.0 + t) + 0.5 * w * (1.0 - t * t) * u1;
}
fn gelu_tanh_d2(x: f32) -> f32 {
    let w = clamp(x, -30.0, 30.0);
    let t = tanh_safe(gelu_tanh_u(x));
    let u1 = 0.7978845608 * (1.0 + 0.134145 * w * w);
    let u2 = 0.7978845608 * 0.26829 * w;
    return (1.0 - t * t) * (u1 + 0.5 * w * (u2 - 2.0 * t * u1 * u1));
}
