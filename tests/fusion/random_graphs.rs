//! Random elementwise graphs, fused and with every value stored.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use remat::error::Result;
use remat::graph::{Recorder, Tensor};

use super::kernel::double;
use super::{bits, device, floats};

/// One recorded op: which, on which earlier values, with which number.
#[derive(Debug, Clone)]
struct Instruction {
    op: u8,
    a: usize,
    b: usize,
    number: f32,
    segment: bool,
    output: bool,
}

#[derive(Debug, Clone)]
struct Case {
    dims: [usize; 3],
    program: Vec<Instruction>,
}

fn case() -> impl Strategy<Value = Case> {
    let instruction = (0_u8..26, any::<usize>(), any::<usize>(), -1.5_f32..1.5, any::<bool>(), 0_u8..8)
        .prop_map(|(op, a, b, number, segment, output)| Instruction { op, a, b, number, segment, output: output == 0 });
    let extent = || prop::sample::select(vec![1_usize, 2, 3, 4, 5, 8, 16]);
    ((extent(), extent(), extent()), prop::collection::vec(instruction, 1..48))
        .prop_map(|((a, b, c), program)| Case { dims: [a, b, c], program })
}

/// The value of one instruction, always of shape `dims`.
fn value(i: &Instruction, a: &Tensor, b: &Tensor, bias: &Tensor, dims: [usize; 3]) -> Result<Tensor> {
    let [d0, d1, d2] = dims;
    match i.op {
        0 => a.add(b),
        1 => a.sub(b),
        2 => a.tanh()?.mul(b),
        3 => a.maximum(b),
        4 => a.minimum(b),
        5 => a.div(&b.sqr()?.add_scalar(1.0)?),
        6 => a.neg(),
        7 => a.sin(),
        8 => a.sigmoid(),
        9 => a.relu(),
        10 => a.gelu(),
        11 => a.mul_scalar(i.number),
        12 => a.clamp(-i.number.abs(), 1.0),
        13 => a.add(bias),
        14 => a.gt(b)?.where_(b, &a.mul_scalar(0.5)?),
        15 => a.masked_fill(&b.lt_scalar(i.number)?, 0.25),
        16 => a.tril(0),
        17 => a.add(&a.recorder().iota(dims, 1)?.to_f32()?.mul_scalar(0.1)?),
        18 => a.mul(&a.recorder().full([1, d1, 1], i.number)?),
        // Permuted views: of equal extents directly, else by a copy.
        19 if d1 == d2 => a.transpose(1, 2)?.add(b),
        19 => a.transpose(1, 2)?.reshape(dims)?.add(b),
        20 => b.permute(&[2, 0, 1])?.reshape(dims)?.mul_scalar(0.5)?.add(a),
        21 => a.narrow(1, d1 - 1, 1)?.add(b),
        22 => a.narrow(2, 0, 1)?.mul(b)?.tanh(),
        23 => a.narrow(2, d2 / 2, d2 - d2 / 2)?.pad(&[(0, 0), (0, 0), (d2 / 2, 0)], 0.5),
        24 => double(a)?.tanh(),
        _ => a.slice(0, 0, d0, 2)?.pad(&[(0, d0 / 2), (0, 0), (0, 0)], 0.0)?.add(b),
    }
}

fn record(g: &Recorder, case: &Case, stored: bool) -> Result<Vec<Tensor>> {
    let dims = case.dims;
    let bias = g.input::<f32>("bias", [dims[2]])?;
    let mut values = (0..4).map(|i| g.input::<f32>(&format!("x{i}"), dims)).collect::<Result<Vec<_>>>()?;
    let mut outputs = Vec::new();
    for (at, i) in case.program.iter().enumerate() {
        // Mostly recent values, so that chains form.
        let pick = |n: usize| values[values.len() - 1 - (n % 7).min(values.len() - 1)].clone();
        let (a, b) = (pick(i.a), pick(i.b));
        let y = if i.segment {
            g.checkpoint((a, b), |(a, b)| {
                let y = value(i, &a, &b, &bias, dims)?;
                let y = if stored { y.named(&format!("inner{at}")) } else { y };
                y.mul_scalar(0.5)
            })?
        } else {
            value(i, &a, &b, &bias, dims)?
        };
        let y = if stored { y.named(&format!("v{at}")) } else { y };
        if i.output {
            outputs.push(y.clone());
        }
        values.push(y);
    }
    outputs.push(values[values.len() - 1].clone());
    Ok(outputs)
}

#[test]
fn fused_agrees_with_unfused() {
    let config = Config { cases: 60, max_shrink_iters: 60, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &[42; 32]));
    runner
        .run(&case(), |case| {
            let n: usize = case.dims.iter().product();
            let mut inputs = BTreeMap::new();
            for i in 0..4 {
                let x: Vec<f32> = (0..n).map(|k| ((k * 37 + i * 11) % 64) as f32 / 32.0 - 1.0).collect();
                inputs.insert(format!("x{i}"), bits(&x));
            }
            let bias: Vec<f32> = (0..case.dims[2]).map(|k| k as f32 * 0.125 - 0.5).collect();
            inputs.insert("bias".to_owned(), bits(&bias));
            let device = device();
            let together = device.run_recording(&inputs, |g| record(g, &case, false)).unwrap();
            let apart = device.run_recording(&inputs, |g| record(g, &case, true)).unwrap();
            for (a, b) in together.iter().zip(&apart) {
                for (x, y) in floats(a).into_iter().zip(floats(b)) {
                    let close = (x - y).abs() <= 1e-4 * (1.0 + y.abs()) || x == y || (x.is_nan() && y.is_nan());
                    prop_assert!(close, "{} fused, {} unfused", x, y);
                }
            }
            Ok(())
        })
        .unwrap();
}
