// Float to integer as in Rust: towards zero, saturating, NaN to 0. WGSL's own
// conversion of values out of range differs between implementations.
fn float_to_i32(x: f32) -> i32 {
    let number = (bitcast<u32>(x) & 0x7fffffffu) <= 0x7f800000u;
    // 2147483520 is the largest f32 below 2^31.
    let inside = i32(select(0.0, clamp(x, -2147483648.0, 2147483520.0), number));
    return select(inside, 2147483647, number && x >= 2147483648.0);
}
fn float_to_u32(x: f32) -> u32 {
    let number = (bitcast<u32>(x) & 0x7fffffffu) <= 0x7f800000u;
    let inside = u32(select(0.0, clamp(x, 0.0, 4294967040.0), number));
    return select(inside, 4294967295u, number && x >= 4294967296.0);
}
