//! Random numbers are those of a plain generator, bit by bit: uniform numbers, truth
//! values, permutations, whole numbers and dropout; normal ones to 1e-5. The browsers
//! run the same (`web/checks/src/checks/random.rs`), so that all adapters agree.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "random/case.rs"]
mod case;
#[path = "common/engine.rs"]
mod engine;

use case::{COUNT, RUNS, differences, philox, record};
use remat::checkpoint::Policy;

#[test]
fn the_plain_generator_gives_the_published_answers() {
    // Random123 1.14, tests/kat_vectors, philox4x32 10.
    assert_eq!(philox([0; 4], [0; 2]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
    assert_eq!(philox([u32::MAX; 4], [u32::MAX; 2]), [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    assert_eq!(
        philox([0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344], [0xa409_3822, 0x299f_31d0]),
        [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
    );
}

#[test]
fn draws_are_those_of_a_plain_generator() {
    let (_turn, gpu) = engine::gpu();
    let step = gpu.step_blocking(Policy::None, record).unwrap();
    let mut of_all = Vec::new();
    for run in RUNS {
        let inputs = [("seed", run.0.into()), ("step", run.1.into())];
        let found: Vec<Vec<u32>> = step.run_blocking(&inputs).unwrap().iter().map(engine::words).collect();
        let (wrong, worst) = differences(&found, run);
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        println!("seed {}, step {}: normal numbers within {worst:.1e}", run.0, run.1);
        of_all.push(found);
    }
    // Other seeds, other numbers: the comparison sees a difference.
    assert_eq!(of_all[0][0].len(), COUNT);
    assert!(differences(&of_all[0], RUNS[1]).0.len() == 6);
    let mut one_bit = of_all[1].clone();
    one_bit[2][77] ^= 1;
    assert_eq!(differences(&one_bit, RUNS[1]).0.len(), 1);
}
