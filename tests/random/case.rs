//! Random numbers against a plain generator, written here from the paper and not
//! shared with the library: J. K. Salmon, M. A. Moraes, R. O. Dror, D. E. Shaw,
//! "Parallel random numbers: as easy as 1, 2, 3", SC 2011 (Philox 4x32-10). The
//! native tests and the browsers' checks expect the same words.

use remat::error::Result;
use remat::graph::{Recorder, Tensor};

/// How many numbers of each kind are drawn: an odd number, over several workgroups.
pub(crate) const COUNT: usize = 10_007;

/// Seeds and steps with which the recording is run.
pub(crate) const RUNS: [(u32, u32); 3] = [(0, 0), (9, 4), (0xFFFF_FFFE, 0x8000_0001)];

/// What [`record`] hands back, in order; each random op has a stream of its own.
const NAMES: [&str; 6] = ["uniform", "bernoulli", "permutation", "whole numbers", "dropout", "normal"];

const TRUE_SHARE: f32 = 0.3;
const DROPPED_SHARE: f32 = 0.25;
const WHOLE: [i32; 2] = [-5, 12];

/// Records one draw of each kind.
pub(crate) fn record(g: &Recorder) -> Result<Vec<Tensor>> {
    Ok(vec![
        g.rand_uniform([COUNT])?,
        g.bernoulli([COUNT], TRUE_SHARE)?.to_u32()?,
        g.permutation(COUNT)?,
        g.rand_int([COUNT], WHOLE[0], WHOLE[1])?,
        g.iota([COUNT], 0)?.to_f32()?.add_scalar(1.0_f32)?.dropout(DROPPED_SHARE)?,
        g.rand_normal([COUNT])?,
    ])
}

/// Ten rounds over a counter of four words with a key of two.
pub(crate) fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let product = |a: u32, b: u32| {
        let wide = u64::from(a) * u64::from(b);
        ((wide >> 32) as u32, (wide & 0xFFFF_FFFF) as u32)
    };
    for _ in 0..10 {
        let (high0, low0) = product(0xD251_1F53, counter[0]);
        let (high1, low1) = product(0xCD9E_8D57, counter[2]);
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

/// The word of element `index` in a stream: word `index % 4` of block `index / 4`.
fn word(index: usize, stream: u32, (seed, step): (u32, u32)) -> u32 {
    philox([(index / 4) as u32, 0, stream, step], [seed, 0])[index % 4]
}

/// The upper 24 bits as a number in `[0, 1)`.
fn unit(word: u32) -> f32 {
    (word >> 8) as f32 / 16_777_216.0
}

/// The words that every adapter must give, but for the normal numbers.
fn expected(output: usize, run: (u32, u32)) -> Vec<u32> {
    let of = |index| word(index, output as u32, run);
    let all = 0..COUNT;
    match output {
        0 => all.map(|i| unit(of(i)).to_bits()).collect(),
        1 => all.map(|i| u32::from(unit(of(i)) < TRUE_SHARE)).collect(),
        2 => {
            let mut order: Vec<u32> = (0..COUNT as u32).collect();
            // Stable: of equal words the smaller number comes first.
            order.sort_by_key(|&i| of(i as usize));
            order
        }
        3 => {
            let count = u64::from(WHOLE[1].abs_diff(WHOLE[0]));
            let drawn = |i| WHOLE[0] + ((u64::from(of(i)) * count) >> 32) as i32;
            all.map(|i| drawn(i).cast_unsigned()).collect()
        }
        _ => {
            let scale = 1.0 / (1.0 - DROPPED_SHARE);
            let kept = |i: usize| if unit(of(i)) >= DROPPED_SHARE { (i + 1) as f32 * scale } else { 0.0 };
            all.map(|i| kept(i).to_bits()).collect()
        }
    }
}

/// Box and Muller's normal numbers in `f64`.
fn normal(index: usize, stream: u32, run: (u32, u32)) -> f64 {
    let pair = index - index % 2;
    let [u, v] = [pair, pair + 1].map(|i| f64::from(word(i, stream, run) >> 8) / 16_777_216.0);
    let radius = (-2.0 * (u + 1.0 / 16_777_216.0).ln()).sqrt();
    let angle = std::f64::consts::TAU * v;
    radius * if index.is_multiple_of(2) { angle.cos() } else { angle.sin() }
}

/// What is wrong with the words of one run, and how far the normal numbers are off.
pub(crate) fn differences(found: &[Vec<u32>], run: (u32, u32)) -> (Vec<String>, f64) {
    let mut wrong = Vec::new();
    if found.len() != NAMES.len() || found.iter().any(|words| words.len() != COUNT) {
        return (vec![format!("{} outputs, expected {} of {COUNT} words", found.len(), NAMES.len())], f64::NAN);
    }
    for (output, name) in NAMES.iter().enumerate().take(NAMES.len() - 1) {
        let expected = expected(output, run);
        let off: Vec<usize> = (0..COUNT).filter(|&i| found[output][i] != expected[i]).collect();
        if let Some(&first) = off.first() {
            let (found, expected) = (found[output][first], expected[first]);
            wrong.push(format!(
                "{name}, run {run:?}: {} of {COUNT} words differ, the first is {found:#x} at {first}, expected {expected:#x}",
                off.len()
            ));
        }
    }
    let mut worst = 0.0_f64;
    let stream = NAMES.len() - 1;
    for (index, &word) in found[stream].iter().enumerate() {
        let off = (f64::from(f32::from_bits(word)) - normal(index, stream as u32, run)).abs();
        worst = if off.is_nan() { f64::INFINITY } else { worst.max(off) };
    }
    if worst > 1e-5 {
        wrong.push(format!("normal numbers, run {run:?}: off by {worst:e}, 1e-5 is allowed"));
    }
    (wrong, worst)
}
