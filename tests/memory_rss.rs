//! What a policy saves is saved from the process, where device memory is the
//! process's own.
//!
//! On a software adapter device memory is resident memory. Each policy runs in
//! a process of its own: this test program, started again with a variable set.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "tests")]
#![cfg(target_os = "linux")]

mod common;

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::models::Net;
use remat::checkpoint::Policy;
use remat::gpu::Gpu;
use remat::nn::GptConfig;
use remat::optim::{AdamW, AdamWConfig};
use remat::params::Params;

/// Names the policy that a child process runs.
const POLICY: &str = "REMAT_TEST_RSS_POLICY";
const STEPS: u32 = 3;

/// A field of `/proc/PID/status`, in bytes.
fn status(pid: u32, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

/// The largest resident size seen while `work` runs.
fn sampled(work: impl FnOnce()) -> u64 {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| {
            let mut most = 0;
            while !done.load(Ordering::Acquire) {
                most = most.max(status(std::process::id(), "VmRSS"));
                std::thread::sleep(Duration::from_millis(2));
            }
            most
        });
        work();
        done.store(true, Ordering::Release);
        sampler.join().unwrap()
    })
}

/// Trains the 12-layer text model; prints its planned peak and resident size.
fn child(policy: &str) {
    let gpu = Gpu::test_builder().build_blocking().unwrap();
    assert!(!gpu.is_poisoning(), "poison touches what a run would not");
    let params = Params::new(&gpu, 0);
    let net = Net::gpt(&params, &GptConfig::new(96, 128, 128, 4, 12), 8);
    let optimizer = AdamW::new(&params, AdamWConfig::default()).unwrap();
    let policy: Policy = policy.parse().unwrap();
    let step = gpu.step_blocking(policy, |g| net.train(g, &optimizer)).unwrap();
    let run = |index: u32| {
        let [x, y] = net.batch(index);
        let inputs = [x, y, ("lr", 1e-3_f32.into()), ("step", index.into())];
        let (loss, _) = step.run_blocking(&inputs).unwrap();
        assert!(loss.item_blocking::<f32>().unwrap().is_finite());
    };
    run(0);
    let resident = sampled(|| (1..STEPS).for_each(run));
    let anonymous = status(std::process::id(), "RssAnon");
    println!("\nfigures {} {resident} {anonymous} {}", step.plan().peak.total(), gpu.is_software());
}

/// Planned peak, resident size, and whether the adapter is a software one.
fn figures(policy: &str) -> (u64, u64, bool) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "resident_size_falls_as_planned", "--nocapture"])
        .env(POLICY, policy)
        .env("REMAT_POISON", "0")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{policy}: {text}{}", String::from_utf8_lossy(&output.stderr));
    let line = text.lines().find_map(|line| line.strip_prefix("figures ")).unwrap();
    println!("{policy}: planned, resident, anonymous, software: {line}");
    let words: Vec<&str> = line.split(' ').collect();
    (words[0].parse().unwrap(), words[1].parse().unwrap(), words[3] == "true")
}

#[test]
fn resident_size_falls_as_planned() {
    if let Ok(policy) = std::env::var(POLICY) {
        return child(&policy);
    }
    let (none_planned, none_resident, software) = figures("none");
    let (planned, resident, _) = figures("segments");
    let promised = none_planned.checked_sub(planned).unwrap();
    let saved = none_resident.saturating_sub(resident);
    let share = saved as f64 / promised as f64;
    println!("segments save {saved} resident bytes of {promised} planned: {share:.3}");
    if software {
        assert!(share >= 0.8, "only {share} of what the plans say");
    }
}
