// 16-bit IEEE floats as they lie in memory, two in a word, the first in its lower
// half; values are f32. Integers only: WGSL's pack2x16float leaves open how it
// rounds, and what becomes of subnormals and of what is too large.

// Halves, one in each lower half, as f32: exact. A NaN becomes a quiet one.
fn half_to_float(h: vec4<u32>) -> vec4<f32> {
    let magnitude = h & vec4<u32>(0x7fffu);
    let exponent = h & vec4<u32>(0x7c00u);
    // The exponent's bias grows by 112; that of infinity and NaN is all ones.
    let bias = select(vec4<u32>(0x38000000u), vec4<u32>(0x70000000u), exponent == vec4<u32>(0x7c00u));
    let quiet = select(vec4<u32>(0u), vec4<u32>(0x00400000u), magnitude > vec4<u32>(0x7c00u));
    // Subnormal halves are normal floats: a whole number times 2^-24.
    let small = bitcast<vec4<u32>>(vec4<f32>(magnitude) * 5.9604644775390625e-8);
    let bits = select(((magnitude << vec4<u32>(13u)) + bias) | quiet, small, exponent == vec4<u32>(0u));
    return bitcast<vec4<f32>>(bits | ((h & vec4<u32>(0x8000u)) << vec4<u32>(16u)));
}

// The nearest half, of two the even one; infinity from 65520 on.
fn float_to_half(v: vec4<f32>) -> vec4<u32> {
    let bits = bitcast<vec4<u32>>(v);
    let m = bits & vec4<u32>(0x7fffffffu);
    let odd = (m >> vec4<u32>(13u)) & vec4<u32>(1u);
    // A carry out of the fraction is right in the exponent.
    let rounded = ((m + vec4<u32>(0xfffu) + odd) >> vec4<u32>(13u)) - vec4<u32>(0x1c000u);
    let normal = min(rounded, vec4<u32>(0x7c00u));
    // Below 2^-14 the fraction, its leading one written out, moves to units of 2^-24.
    let shift = min(vec4<u32>(126u) - min(m >> vec4<u32>(23u), vec4<u32>(112u)), vec4<u32>(25u));
    let fraction = (m & vec4<u32>(0x7fffffu)) | vec4<u32>(0x800000u);
    let odd_small = (fraction >> shift) & vec4<u32>(1u);
    let half_way = vec4<u32>(1u) << (shift - vec4<u32>(1u));
    let small = (fraction + half_way - vec4<u32>(1u) + odd_small) >> shift;
    var h = select(normal, small, m < vec4<u32>(0x38800000u));
    let nan = vec4<u32>(0x7e00u) | ((m >> vec4<u32>(13u)) & vec4<u32>(0x3ffu));
    h = select(h, nan, m > vec4<u32>(0x7f800000u));
    return h | ((bits >> vec4<u32>(16u)) & vec4<u32>(0x8000u));
}

// Four neighbours.
fn unpack_halves(words: vec2<u32>) -> vec4<f32> {
    return half_to_float(vec4<u32>(words.x & 0xffffu, words.x >> 16u, words.y & 0xffffu, words.y >> 16u));
}

fn pack_halves(v: vec4<f32>) -> vec2<u32> {
    let h = float_to_half(v);
    return vec2<u32>(h.x | (h.y << 16u), h.z | (h.w << 16u));
}

// The element of index i, which lies in this word.
fn half_in(word: u32, i: u32) -> f32 {
    return half_to_float(vec4<u32>((word >> (16u * (i & 1u))) & 0xffffu)).x;
}

fn round_to_half(x: f32) -> f32 {
    return half_to_float(float_to_half(vec4<f32>(x))).x;
}
