// Philox 4x32-10, the counter-based generator of Salmon, Moraes, Dror and Shaw,
// "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Whole numbers only:
// the same bits on every adapter. Its host twin is `philox` in src/random.rs.

// The upper 32 bits of a * b.
fn multiply_high(a: u32, b: u32) -> u32 {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let middle = ah * bl + ((al * bl) >> 16u);
    let cross = al * bh + (middle & 0xffffu);
    return ah * bh + (middle >> 16u) + (cross >> 16u);
}

fn philox(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    var c = counter;
    var k = key;
    for (var round = 0u; round < 10u; round++) {
        let high0 = multiply_high(c.x, 0xd2511f53u);
        let high1 = multiply_high(c.z, 0xcd9e8d57u);
        c = vec4<u32>(high1 ^ c.y ^ k.x, c.z * 0xcd9e8d57u, high0 ^ c.w ^ k.y, c.x * 0xd2511f53u);
        k += vec2<u32>(0x9e3779b9u, 0xbb67ae85u);
    }
    return c;
}

// The number of element `index`: four neighbours share one counter.
fn random_bits(index: u32, stream: u32, step: u32, seed: u32) -> u32 {
    let four = philox(vec4<u32>(index >> 2u, 0u, stream, step), vec2<u32>(seed, 0u));
    return four[index & 3u];
}

// The same as an f32 in [0, 1), a multiple of 2^-24.
fn random_uniform(index: u32, stream: u32, step: u32, seed: u32) -> f32 {
    return f32(random_bits(index, stream, step, seed) >> 8u) * 5.9604644775390625e-8;
}
