//! Figures, printed and never asserted: `cargo xtask bench figures`.

use std::time::Instant;

use remat::fuse::program::Program;

use crate::models::{Gpt, gpt, mlp};
use crate::planned;

fn measure(name: &str, program: &Program, policies: &[&str]) {
    println!("{name}: {} passes, {} states", program.passes.len(), program.states.len());
    for policy in policies {
        let mut times = Vec::new();
        let mut result = None;
        for _ in 0..5 {
            let start = Instant::now();
            let profile = remat::profile::DeviceProfile::default();
            result = Some(remat::plan::plan(program, &policy.parse().unwrap(), &profile));
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
        times.sort_by(f64::total_cmp);
        match result.unwrap() {
            Ok(plan) => {
                planned(program, policy).unwrap();
                println!(
                    "  {policy:<12} {:>8.2} ms  total {:>10}  arena {:>10}  live {:>10}  gap {:>5.2}%  \
                     activation {:>10}  replays {:>5}  cost {:.3} ms",
                    times[2],
                    plan.peak.total(),
                    plan.peak.arena,
                    plan.live_peak_bytes,
                    (plan.peak.arena as f64 / plan.live_peak_bytes as f64 - 1.0) * 100.0,
                    plan.activation_peak_bytes,
                    plan.replayed_passes,
                    plan.cost_ns / 1e6
                );
            }
            Err(error) => println!("  {policy:<12} {:>8.2} ms  {error}", times[2]),
        }
    }
}

const POLICIES: [&str; 15] = [
    "none",
    "segments",
    "every:2",
    "every:3",
    "sqrt",
    "budget:100%",
    "budget:90%",
    "budget:75%",
    "budget:60%",
    "budget:50%",
    "budget:40%",
    "budget:30%",
    "budget:20%",
    "budget:10%",
    "budget:0%",
];

#[test]
#[ignore = "prints figures: cargo xtask bench figures"]
fn figures() {
    measure("gpt 12", &gpt(Gpt::TWELVE), &POLICIES);
    measure("gpt 12 nested", &gpt(Gpt { nested: true, ..Gpt::TWELVE }), &POLICIES);
    measure("gpt 12 without segments", &gpt(Gpt { segments: false, ..Gpt::TWELVE }), &POLICIES);
    measure("mlp 8, batch 512", &mlp(8, 1024, 4, 512, true), &POLICIES);
    measure("mlp 32, batch 2048", &mlp(32, 256, 4, 2048, true), &POLICIES);
    measure("mlp 32 without segments", &mlp(32, 256, 4, 2048, false), &POLICIES);
}

#[test]
#[ignore = "prints figures: cargo xtask bench figures"]
fn placement_gaps() {
    let policies = ["none", "segments", "every:2", "every:3", "every:4", "sqrt"];
    for (blocks, width, ratio, rows) in
        [(8, 1024, 4, 8), (8, 1024, 4, 512), (8, 1024, 4, 1024), (12, 512, 3, 700), (5, 300, 7, 123)]
    {
        measure(&format!("mlp {blocks} {width} {ratio} {rows}"), &mlp(blocks, width, ratio, rows, true), &policies);
    }
    for (layers, width, batch) in [(4, 128, 8), (12, 128, 8), (6, 384, 2), (3, 96, 3)] {
        let size = Gpt { layers, width, batch, nested: layers == 3, ..Gpt::TWELVE };
        measure(&format!("gpt {layers} {width} {batch}"), &gpt(size), &policies);
    }
}
