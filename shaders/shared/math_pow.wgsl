// a to the power b, with C's rules: a negative base needs a whole exponent
// (else NaN), anything to the power 0 is 1, 0 to a negative power is infinite.
// WGSL's own pow leaves all of these undefined.
fn power(a: f32, b: f32) -> f32 {
    let size = abs(a);
    let whole = floor(b) == b;
    // Above 2^24 every float is even.
    let odd = whole && abs(b) < 16777216.0 && floor(b * 0.5) * 2.0 != b;
    var y = exp2(b * log2(size));
    // Small whole exponents are exact products.
    y = select(y, size, b == 1.0);
    y = select(y, size * size, b == 2.0);
    y = select(y, size * size * size, b == 3.0);
    // 1 to any power: the logarithm is 0, but an infinite exponent would make it NaN.
    y = select(y, 1.0, size == 1.0 || b == 0.0);
    let infinite = bitcast<f32>((bitcast<u32>(size) & 0u) | 0x7f800000u);
    y = select(y, select(infinite, 0.0, b > 0.0), size == 0.0 && b != 0.0);
    y = select(y, -y, odd && (bitcast<u32>(a) >> 31u) != 0u);
    let undefined = bitcast<f32>(bitcast<u32>(a) | 0x7fc00000u);
    return select(y, undefined, a < 0.0 && !whole);
}
