// NaN is told by its bits: implementations may fold `x != x`.
fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}
// The larger; NaN if either is.
fn maximum(a: f32, b: f32) -> f32 {
    return select(max(a, b), a + b, is_nan(a) || is_nan(b));
}
// The smaller; NaN if either is.
fn minimum(a: f32, b: f32) -> f32 {
    return select(min(a, b), a + b, is_nan(a) || is_nan(b));
}
// a - b * floor(a / b): the remainder with the sign of b.
fn remainder(a: f32, b: f32) -> f32 {
    let r = a % b;
    return select(r, r + b, r != 0.0 && (r < 0.0) != (b < 0.0));
}
