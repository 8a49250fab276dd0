//! Data made from one integer hash, the same in any language.

/// A 32-bit mix (Wellons' `lowbias32`).
pub(crate) fn hash32(x: u32) -> u32 {
    let mut x = x ^ (x >> 16);
    x = x.wrapping_mul(0x7feb_352d);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846c_a68b);
    x ^ (x >> 16)
}

/// Uniform in `[0, 1)` by seed and row-major index.
pub(crate) fn unit(seed: u32, index: u32) -> f32 {
    let mixed = hash32(index.wrapping_add(seed.wrapping_mul(0x9E37_79B9)));
    (mixed >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// `count` numbers uniform in `+-bound`.
pub(crate) fn uniform(seed: u32, count: usize, bound: f32) -> Vec<f32> {
    (0..count).map(|i| (2.0 * unit(seed, i as u32) - 1.0) * bound).collect()
}
