//! Counter-based random numbers: Philox 4x32-10.
//!
//! J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw, "Parallel random
//! numbers: as easy as 1, 2, 3", SC 2011. A pure function of counter and key:
//! there is no state to keep, and any element can be drawn on its own. Kernels
//! draw the same numbers from the same counters.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: usize = 10;

/// Four random words for this counter and key.
#[must_use]
pub const fn philox(counter: [u32; 4], key: [u32; 2]) -> [u32; 4] {
    let mut c = counter;
    let mut k = key;
    let mut round = 0;
    while round < ROUNDS {
        let p0 = MULTIPLIERS[0] as u64 * c[0] as u64;
        let p1 = MULTIPLIERS[1] as u64 * c[2] as u64;
        c = [(p1 >> 32) as u32 ^ c[1] ^ k[0], p1 as u32, (p0 >> 32) as u32 ^ c[3] ^ k[1], p0 as u32];
        k = [k[0].wrapping_add(WEYL[0]), k[1].wrapping_add(WEYL[1])];
        round += 1;
    }
    c
}

/// The low and the high half of a 64-bit seed or counter.
#[must_use]
pub const fn split(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// A 64-bit hash of a name (FNV-1a), the same on every machine.
#[must_use]
pub fn hash_name(name: &str) -> u64 {
    name.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01B3))
}

/// A number in `[0, 1)` from the upper 24 bits of a word: every value is exact in `f32`.
#[must_use]
pub const fn unit(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// The words of one stream, in order: block `n` of the stream `(seed, name)`
/// has the counter `(n, hash(name))` and the key `seed`, so that streams do not
/// depend on the order in which they are asked for.
#[derive(Debug, Clone)]
pub struct Stream {
    key: [u32; 2],
    name: [u32; 2],
    block: u64,
    words: [u32; 4],
    used: usize,
}

impl Stream {
    /// The stream of this seed and name.
    #[must_use]
    pub fn new(seed: u64, name: &str) -> Self {
        Self { key: split(seed), name: split(hash_name(name)), block: 0, words: [0; 4], used: 4 }
    }

    /// The next word.
    pub fn word(&mut self) -> u32 {
        if self.used == 4 {
            let [low, high] = split(self.block);
            self.words = philox([low, high, self.name[0], self.name[1]], self.key);
            self.block += 1;
            self.used = 0;
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// The next uniform number in `[0, 1)`.
    pub fn uniform(&mut self) -> f32 {
        unit(self.word())
    }

    /// Two independent standard normal numbers (Box and Muller 1958), computed in `f64`.
    pub fn normal_pair(&mut self) -> [f32; 2] {
        // 1 - u lies in (0, 1], whose logarithm is finite.
        let radius = (-2.0 * (1.0 - f64::from(self.uniform())).ln()).sqrt();
        let angle = std::f64::consts::TAU * f64::from(self.uniform());
        [(radius * angle.cos()) as f32, (radius * angle.sin()) as f32]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers published with Random123 (`kat_vectors`, philox4x32-10).
    #[test]
    fn philox_gives_the_published_answers() {
        assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
        assert_eq!(
            philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
        );
    }

    #[test]
    fn unit_numbers_stay_below_one() {
        assert_eq!(unit(0), 0.0);
        assert!(unit(u32::MAX) < 1.0);
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_deviation_one() {
        let mut stream = Stream::new(7, "moments");
        let values: Vec<f64> = (0..50_000).flat_map(|_| stream.normal_pair()).map(f64::from).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "mean {mean}, variance {variance}");
    }

    #[test]
    fn streams_of_other_names_and_seeds_differ() {
        let first = |seed, name: &str| Stream::new(seed, name).word();
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_ne!(first(1, "a"), first(2, "a"));
        assert_eq!(first(1, "a"), first(1, "a"));
    }
}
