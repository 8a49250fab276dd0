//! Fusion and generated kernels against plain numbers.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;
use common::naive::Naive;
use std::collections::BTreeMap;

fn words(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}
fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|w| f32::from_bits(*w)).collect()
}

#[test]
fn broadcast_add_runs_as_one_pass() {
    let naive = Naive::new();
    let x: Vec<f32> = (0..21).map(|i| i as f32).collect();
    let inputs = BTreeMap::from([("x".to_owned(), words(&x)), ("b".to_owned(), words(&[10.0, 20.0, 30.0]))]);
    let out = naive
        .run_recording(&inputs, |g| {
            let x = g.input::<f32>("x", [7, 3])?;
            let b = g.input::<f32>("b", [3])?;
            Ok(vec![x.add(&b)?.add(&x)?.add(&g.full([], 0.5)?)?])
        })
        .unwrap();
    let expected: Vec<f32> = (0..21).map(|i| 2.0 * i as f32 + 10.0 * (i % 3 + 1) as f32 + 0.5).collect();
    assert_eq!(floats(&out[0]), expected);
}
