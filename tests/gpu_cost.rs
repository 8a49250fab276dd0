//! What encoding costs, printed by `cargo xtask bench figures`.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "tests")]

mod gpu_common;

use std::time::Instant;

use gpu_common::Builder;
use remat::dtype::DType;
use remat::fuse::program::Operand;
use remat::gpu::{Executable, Gpu};
use remat::params::Params;

#[test]
#[ignore = "prints figures: cargo xtask bench figures"]
fn encoding_cost_per_dispatch() {
    for (poison, operands) in [(false, 2), (false, 3), (true, 2)] {
        let gpu = Gpu::builder().poison(poison).submit_ms(1e9).build_blocking().unwrap();
        let params = Params::new(&gpu, 1);
        let mut b = Builder::default();
        let first = b.input("x", DType::F32, 64);
        let mut at = first;
        let count = 1000;
        for _ in 0..count {
            let next = b.transient("y", 64);
            if operands == 2 {
                b.pass("inc", "b[i] = a[i] + 1.0;", &[Operand::Read(at), Operand::Write(next)], &[1], 64);
            } else {
                let [x, y] = [first, at];
                let reads = if x == y { vec![Operand::Read(y)] } else { vec![Operand::Read(x), Operand::Read(y)] };
                let body = if x == y { "b[i] = a[i];" } else { "c[i] = a[i] + b[i];" };
                let all: Vec<Operand> = reads.into_iter().chain([Operand::Write(next)]).collect();
                b.pass("add", body, &all, &[1], 64);
            }
            at = next;
        }
        b.output("y", at);
        let (program, plan) = b.finish();
        let begun = Instant::now();
        let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
        let planned = begun.elapsed();
        let x = vec![0.0_f32; 64];
        let mut encode = Vec::new();
        let mut whole = Vec::new();
        for _ in 0..30 {
            gpu.wait_idle_blocking().unwrap();
            let begun = Instant::now();
            step.run_blocking(&[("x", (&x).into())]).unwrap();
            encode.push(begun.elapsed());
            gpu.wait_idle_blocking().unwrap();
            whole.push(begun.elapsed());
        }
        encode.sort();
        whole.sort();
        println!(
            "poison {poison}, {operands} operands and uniform words, {count} dispatches: planned in {planned:?}, \
             run() {:?} per dispatch, finished in {:?} per dispatch",
            encode[15] / count,
            whole[15] / count
        );
    }
}
