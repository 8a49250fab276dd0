// tanh without overflow or cancellation. For |x| < 0.6 the Pade approximant
// [5/4] (Lambert's continued fraction cut after x^2/9; error below 1e-9 of the
// value); beyond, from exp(-2|x|), which may underflow to 0 but not overflow.
fn tanh_safe(x: f32) -> f32 {
    let z = x * x;
    let near = x * (945.0 + z * (105.0 + z)) / (945.0 + z * (420.0 + z * 15.0));
    let t = exp(-2.0 * abs(x));
    let far = (1.0 - t) / (1.0 + t);
    return select(select(far, -far, x < 0.0), near, abs(x) < 0.6);
}
