// Standard normal numbers by Box and Muller 1958, with a logarithm, sine and
// cosine of our own, so that adapters agree to 1e-5. Needs philox.wgsl. Its
// host twin is `random_normal` in src/ops/random.rs.

// log(x) for a positive normal x: the polynomial of Cephes' logf (S. Moshier).
fn normal_log(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    var exponent = i32(bits >> 23u) - 126;
    // In [0.5, 1).
    var m = bitcast<f32>((bits & 0x007fffffu) | 0x3f000000u);
    if (m < 0.707106781) {
        exponent -= 1;
        m = m + m;
    }
    let t = m - 1.0;
    let z = t * t;
    let p = 3.3333331174e-1 + t * (-2.4999993993e-1 + t * (2.0000714765e-1 + t * (-1.6668057665e-1 + t * (1.4249322787e-1 + t * (-1.2420140846e-1 + t * (1.1676998740e-1 + t * (-1.1514610310e-1 + t * 7.0376836292e-2)))))));
    let e = f32(exponent);
    return (t - 0.5 * z + (t * z * p - 2.12194440e-4 * e)) + 0.693359375 * e;
}
// Of four words of a block, two make two numbers: the radius from the first, the
// angle from the second, cosine for even elements, sine for odd ones.
fn random_normal(index: u32, stream: u32, step: u32, seed: u32) -> f32 {
    let four = philox(vec4<u32>(index >> 2u, 0u, stream, step), vec2<u32>(seed, 0u));
    let two = select(four.xy, four.zw, (index & 2u) != 0u);
    // In (0, 1], exact.
    let u = f32((two.x >> 8u) + 1u) * 5.9604644775390625e-8;
    let radius = sqrt(max(-2.0 * normal_log(u), 0.0));
    // Quarter turns and the rest, both exact.
    let turns = f32(two.y >> 8u) * 2.384185791015625e-7;
    let quarter = round(turns);
    let r = (turns - quarter) * 1.570796327;
    let z = r * r;
    let s = r + r * z * (-1.6666654611e-1 + z * (8.3321608736e-3 - z * 1.9515295891e-4));
    let c = 1.0 - 0.5 * z + z * z * (4.166664568298827e-2 + z * (-1.388731625493765e-3 + z * 2.443315711809948e-5));
    // A sine is a cosine one quarter back.
    let quadrant = i32(quarter) + select(0, 3, (index & 1u) == 1u);
    let y = select(c, s, (quadrant & 1) != 0);
    let negative = ((quadrant + 1) & 2) != 0;
    return radius * select(y, -y, negative);
}
