//! Planned steps on the device: right numbers, exact counts, bounded queues.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "tests")]

mod gpu_common;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use gpu_common::{Builder, resident_bytes, shared_gpu, small, small_of};
use remat::dtype::DType;
use remat::error::Error;
use remat::fuse::program::Operand;
use remat::gpu::{BufferCategory, Executable, InputData};
use remat::params::{Init, Params};

const N: usize = 1000;

fn ones(n: usize) -> Vec<f32> {
    vec![1.0; n]
}

#[test]
fn a_step_computes_and_writes_state() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    params.create("p", [N], Init::Constant(3.0)).unwrap();
    let (program, plan) = small(N);
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    let x: Vec<f32> = (0..N).map(|i| i as f32).collect();
    let first = step.run_blocking(&[("x", (&x).into())]).unwrap();
    let second = step.run_blocking(&[("x", (&x).into())]).unwrap();
    let z: Vec<f32> = first.outputs[0].read_blocking().unwrap();
    assert!(z.iter().enumerate().all(|(i, &z)| z == 2.0 * i as f32 + 3.0), "{:?}", &z[..4]);
    let z: Vec<f32> = second.outputs[0].read_blocking().unwrap();
    assert!(z.iter().enumerate().all(|(i, &z)| z == 2.0 * i as f32 + (3.0 - 0.5 * (2.0 * i as f32 + 3.0))));
    assert_eq!((first.run, second.run), (0, 1));
    let p: Vec<f32> = params.read_blocking("p").unwrap();
    assert_eq!(p[0], 3.0 - 0.5 * 3.0 - 0.5 * 1.5);
}

#[test]
fn measured_planned_counted_and_allocated_bytes_agree() {
    let (_turn, gpu) = shared_gpu();
    gpu.wait_idle_blocking().unwrap();
    assert_eq!(gpu.memory().total.live_bytes, 0, "{:?}", gpu.memory());
    let params = Params::new(&gpu, 1);
    params.create("p", [N], Init::Zeros).unwrap();
    let (program, plan) = small(N);
    let planned = plan.peak.total();
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    let x = ones(N);
    for _ in 0..5 {
        let out = step.run_blocking(&[("x", (&x).into())]).unwrap();
        out.outputs[0].read_blocking::<f32>().unwrap();
    }
    assert_eq!(step.measured_peak_bytes(), planned);
    let stats = gpu.memory();
    assert_eq!(stats.total.live_bytes, planned);
    assert_eq!(stats.of(BufferCategory::State).live_bytes, 4 * N as u64);
    gpu.wait_idle_blocking().unwrap();
    for (name, size) in gpu.allocator_list() {
        println!("{size:>8} {name}");
    }
    // The report counts the padding before an allocation to it: here at most 64 bytes each.
    if let Some(allocated) = gpu.allocator_bytes() {
        assert!((planned..planned + 64 * stats.total.buffers).contains(&allocated), "{allocated} for {planned}");
    }
    drop(step);
    drop(params);
    assert_eq!(gpu.memory().total.live_bytes, 0);
    gpu.wait_idle_blocking().unwrap();
    assert!(gpu.allocator_bytes().is_none_or(|bytes| bytes == 0));
}

#[test]
fn wrong_inputs_are_typed_errors_and_leave_the_step_usable() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    params.create("p", [N], Init::Zeros).unwrap();
    let (program, plan) = small(N);
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    let x = ones(N);
    let unknown = step.run_blocking(&[("y", (&x).into())]).unwrap_err();
    assert!(matches!(unknown, Error::UnknownInput { ref known, .. } if known == &["x".to_owned()]), "{unknown}");
    assert!(matches!(step.run_blocking(&[]).unwrap_err(), Error::MissingInput { .. }));
    let short = step.run_blocking(&[("x", (&[1.0_f32, 2.0]).into())]).unwrap_err();
    assert!(short.to_string().contains("2 values of f32"), "{short}");
    let integers = vec![1_i32; N];
    assert!(matches!(step.run_blocking(&[("x", (&integers).into())]).unwrap_err(), Error::Data { .. }));
    let twice = step.run_blocking(&[("x", (&x).into()), ("x", (&x).into())]).unwrap_err();
    assert!(matches!(twice, Error::Data { .. }));
    let out = step.run_blocking(&[("x", (&x).into())]).unwrap();
    assert!(matches!(out.outputs[0].read_blocking::<i32>().unwrap_err(), Error::Data { op: "read", .. }));
    assert!(matches!(out.outputs[0].item_blocking::<f32>().unwrap_err(), Error::Data { op: "item", .. }));
    assert_eq!(out.outputs[0].read_blocking::<f32>().unwrap()[0], 2.0);
}

#[test]
fn an_output_is_kept_for_three_runs() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    params.create("p", [1], Init::Zeros).unwrap();
    let (program, plan) = small(1);
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    let runs: Vec<_> = (0..4).map(|i| step.run_blocking(&[("x", (i as f32).into())]).unwrap()).collect();
    let lost = runs[0].outputs[0].item_blocking::<f32>().unwrap_err();
    assert_eq!(lost, Error::OutputOverwritten { run: 0, latest: 3, kept: 3 });
    // z = 2 x + p, then p -= z / 2: z = 0, 2, 3, 3.5.
    let values: Vec<f32> = runs[1..].iter().map(|r| r.outputs[0].item_blocking().unwrap()).collect();
    assert_eq!(values, [2.0, 3.0, 3.5]);
}

#[test]
fn reads_asked_for_together_are_all_answered() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    params.create("p", [1], Init::Zeros).unwrap();
    let (program, plan) = small(1);
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    let out = step.run_blocking(&[("x", 4.0_f32.into())]).unwrap().outputs.remove(0);
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let out = out.clone();
            std::thread::spawn(move || out.item_blocking::<f32>().unwrap())
        })
        .collect();
    assert!(threads.into_iter().all(|t| t.join().unwrap() == 8.0));
}

/// Polls once, then drops.
fn poll_once_and_drop<T>(future: impl Future<Output = Result<T, Error>>) -> bool {
    match pin!(future).as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(Ok(_)) => true,
        Poll::Ready(Err(error)) => panic!("{error}"),
        Poll::Pending => false,
    }
}

#[test]
fn futures_dropped_at_an_await_leave_the_engine_usable() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    params.create("p", [1 << 18], Init::Zeros).unwrap();
    let (program, plan) = small(1 << 18);
    let step = Executable::new_blocking(&gpu, program.clone(), plan.clone(), &params).unwrap();
    let live = gpu.memory().total.live_bytes;
    let x = ones(1 << 18);
    let run = || step.run_blocking(&[("x", (&x).into())]).unwrap().outputs.remove(0);
    let mut dropped = 0;
    for _ in 0..10 {
        // Keeps the device busy, so that something is left to wait for.
        let outs = [run(), run(), run()];
        dropped += usize::from(!poll_once_and_drop(outs[2].read::<f32>()));
        dropped += usize::from(!poll_once_and_drop(params.read::<f32>("p")));
        dropped += usize::from(!poll_once_and_drop(params.write("p", &x)));
        dropped += usize::from(!poll_once_and_drop(gpu.wait_idle()));
        dropped += usize::from(!poll_once_and_drop(Executable::new(&gpu, program.clone(), plan.clone(), &params)));
    }
    assert!(dropped >= 5, "only {dropped} were dropped while pending");
    params.write_blocking("p", &vec![0.0_f32; 1 << 18]).unwrap();
    let out = run();
    let begun = out.run();
    assert_eq!(out.read_blocking::<f32>().unwrap()[7], 2.0);
    // More runs than may be in flight, each polled once only.
    let mut ran = 0;
    for _ in 0..20 {
        ran += usize::from(poll_once_and_drop(step.run(&[("x", (&x).into())])));
    }
    params.write_blocking("p", &vec![0.0_f32; 1 << 18]).unwrap();
    let out = step.run_blocking(&[("x", (&x).into())]).unwrap();
    assert_eq!(out.run, begun + ran as u64 + 1, "a dropped run ran either wholly or not at all");
    assert_eq!(out.outputs[0].read_blocking::<f32>().unwrap()[7], 2.0);
    assert_eq!(gpu.memory().total.live_bytes, live);
}

#[test]
fn values_without_elements_need_no_memory() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    params.create("none", [3, 0], Init::Zeros).unwrap();
    params.create("one", [1], Init::Ones).unwrap();
    let mut b = Builder::default();
    b.program
        .inputs
        .push(remat::fuse::program::InputInfo { name: "x".into(), ty: remat::dtype::TensorType::new(DType::F32, [0]) });
    b.program.outputs.push(remat::fuse::program::OutputInfo {
        name: "empty".into(),
        ty: remat::dtype::TensorType::new(DType::F32, [3, 0]),
        storage: None,
    });
    let (program, mut plan) = b.finish();
    plan.inputs = vec![None];
    assert_eq!(plan.peak.total(), 0);
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    let empty: Vec<f32> = Vec::new();
    let out = step.run_blocking(&[("x", (&empty).into())]).unwrap();
    assert_eq!(out.outputs[0].read_blocking::<f32>().unwrap(), empty);
    assert_eq!(params.read_blocking::<f32>("none").unwrap(), empty);
    params.write_blocking("none", &empty).unwrap();
    let all = params.read_all_blocking().unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!((all[0].bytes.len(), all[1].bytes.len()), (0, 4));
}

#[test]
fn steps_share_an_arena_as_long_as_the_largest_living_one() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    params.create("p", [64], Init::Zeros).unwrap();
    params.create("q", [64 << 10], Init::Zeros).unwrap();
    let (small_program, small_plan) = small(64);
    let (large_program, large_plan) = small_of(64 << 10, "q");
    let (few, many) = (small_plan.arena_blocks[0], large_plan.arena_blocks[0]);
    let arena = || gpu.memory().of(BufferCategory::Arena).live_bytes;
    let step = Executable::new_blocking(&gpu, small_program, small_plan, &params).unwrap();
    assert_eq!(arena(), few);
    let x = ones(64);
    let run = || step.run_blocking(&[("x", (&x).into())]).unwrap().outputs[0].read_blocking::<f32>().unwrap()[0];
    assert_eq!(run(), 2.0);
    let large = Executable::new_blocking(&gpu, large_program, large_plan, &params).unwrap();
    assert_eq!(arena(), many);
    assert_eq!(run(), 1.0);
    let long = ones(64 << 10);
    let out = large.run_blocking(&[("x", (&long).into())]).unwrap();
    assert_eq!(out.outputs[0].read_blocking::<f32>().unwrap()[9], 2.0);
    drop((large, out));
    assert_eq!(run(), 0.5);
    assert_eq!(arena(), few, "the arena shrinks when the largest step is gone");
    drop(step);
    assert_eq!(arena(), 0);
}

#[test]
fn poison_shows_what_a_kernel_did_not_write() {
    let (_turn, gpu) = shared_gpu();
    if !gpu.is_poisoning() {
        return;
    }
    let params = Params::new(&gpu, 1);
    let mut b = Builder::default();
    let x = b.input("x", DType::F32, N);
    let y = b.transient("y", N);
    b.pass("lazy", "if i != 5u { b[i] = a[i]; }", &[Operand::Read(x), Operand::Write(y)], &[], N);
    b.output("y", y);
    let (program, plan) = b.finish();
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    for _ in 0..2 {
        let out = step.run_blocking(&[("x", (&ones(N)).into())]).unwrap();
        let y: Vec<f32> = out.outputs[0].read_blocking().unwrap();
        assert!(y[5].is_nan() && y.iter().filter(|v| v.is_nan()).count() == 1);
    }
}

#[test]
fn constants_in_place_and_scalars() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    let mut b = Builder::default();
    let x = b.input("x", DType::F32, 4);
    let c = b.constant(&[0.1, 1e-38, 16_777_217.0, -0.0]);
    let (y, z) = (b.transient("y", 4), b.transient("z", 4));
    b.pass("add", "c[i] = a[i] + b[i];", &[Operand::Read(x), Operand::Read(c), Operand::Write(y)], &[], 4);
    b.pass("negate", "a[i] = -a[i];", &[Operand::InPlace { input: y, output: z }], &[], 4);
    b.output("z", z);
    let (program, plan) = b.finish();
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    let out = step.run_blocking(&[("x", (&[0.0_f32; 4]).into())]).unwrap();
    let z: Vec<f32> = out.outputs[0].read_blocking().unwrap();
    assert_eq!(z, [-0.1, -1e-38, -16_777_216.0, 0.0]);
}

#[test]
fn bindings_that_overlap_or_pass_a_limit_are_refused() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    params.create("p", [N], Init::Zeros).unwrap();
    let live = gpu.memory().total.live_bytes;
    let (program, plan) = small(N);
    let mut overlapping = plan.clone();
    let y = overlapping.instances.iter().position(|i| i.storage.0 == 2).unwrap();
    overlapping.instances[y + 1].location.offset = 256;
    let error = Executable::new_blocking(&gpu, program.clone(), overlapping, &params).unwrap_err();
    assert!(matches!(error, Error::PlanCheck { dispatch: 1, .. }), "{error}");
    let mut outside = plan.clone();
    outside.arena_blocks[0] = 256;
    let error = Executable::new_blocking(&gpu, program.clone(), outside, &params).unwrap_err();
    assert!(matches!(error, Error::PlanCheck { dispatch: 0, .. }), "{error}");
    let limit = gpu.profile().max_binding_bytes;
    let n = limit as usize / 4;
    let (large, large_plan) = small(n + 1);
    let error = Executable::new_blocking(&gpu, large, large_plan, &params).unwrap_err();
    assert!(
        matches!(error, Error::Limit { limit: "maxStorageBufferBindingSize", size_bytes, .. } if size_bytes == limit + 4),
        "{error}"
    );
    assert_eq!(gpu.memory().total.live_bytes, live);
}

#[test]
fn a_kernel_that_does_not_compile_is_named() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    let mut b = Builder::default();
    let x = b.input("x", DType::F32, 4);
    let y = b.transient("y", 4);
    b.pass("broken", "b[i] = no_such_thing;", &[Operand::Read(x), Operand::Write(y)], &[], 4);
    let (program, plan) = b.finish();
    let error = Executable::new_blocking(&gpu, program, plan, &params).unwrap_err();
    assert!(matches!(error, Error::Validation { ref what, .. } if what.contains("broken")), "{error}");
    assert!(error.to_string().contains("no_such_thing"), "{error}");
    gpu.check().unwrap();
}

#[test]
fn a_run_may_take_several_submits() {
    let gpu = remat::gpu::Gpu::test_builder().submit_ms(0.05).build_blocking().unwrap();
    let params = Params::new(&gpu, 1);
    let mut b = Builder::default();
    let mut at = b.input("x", DType::F32, 256);
    for i in 0..20 {
        let next = b.transient("y", 256);
        b.pass(&format!("add {i}"), "b[i] = a[i] + 1.0;", &[Operand::Read(at), Operand::Write(next)], &[], 256);
        at = next;
    }
    b.output("y", at);
    let (program, plan) = b.finish();
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    let out = step.run_blocking(&[("x", (&ones(256)).into())]).unwrap();
    assert_eq!(out.outputs[0].read_blocking::<f32>().unwrap(), vec![21.0; 256]);
}

#[test]
fn ten_thousand_runs_keep_the_process_flat() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    params.create("p", [N], Init::Zeros).unwrap();
    let (program, plan) = small(N);
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    let x = ones(N);
    let run = |count: usize| {
        for _ in 0..count {
            let data: InputData<'_> = (&x).into();
            step.run_blocking(&[("x", data)]).unwrap();
        }
        gpu.wait_idle_blocking().unwrap();
    };
    run(1000);
    let (resident, live) = (resident_bytes(), gpu.memory().total);
    let begun = std::time::Instant::now();
    run(10_000);
    let grown = resident_bytes().saturating_sub(resident);
    println!("10,000 runs: {:?}, grown by {} KiB", begun.elapsed(), grown >> 10);
    assert_eq!(gpu.memory().total, live);
    assert!(grown < 4 << 20, "the process grew by {grown} bytes");
}

#[test]
fn bindings_as_long_as_the_limit_run() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    let n = gpu.profile().max_binding_bytes.min(128 << 20) as usize / 4;
    let mut b = Builder::default();
    let x = b.input("x", DType::F32, n);
    let (y, z) = (b.transient("y", n), b.transient("z", 1));
    b.pass("add", "b[i] = a[i] + 1.0;", &[Operand::Read(x), Operand::Write(y)], &[], n);
    b.pass("last", "b[i] = a[arrayLength(&a) - 1u];", &[Operand::Read(y), Operand::Write(z)], &[], 1);
    b.output("z", z);
    let (program, plan) = b.finish();
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    let mut x = vec![0.0_f32; n];
    x[n - 1] = 5.0;
    let out = step.run_blocking(&[("x", (&x).into())]).unwrap();
    assert_eq!(out.outputs[0].item_blocking::<f32>().unwrap(), 6.0);
}
