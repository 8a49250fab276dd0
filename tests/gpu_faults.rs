//! What the device refuses comes back as typed errors, and the engine goes on.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "tests")]

mod gpu_common;

use std::process::Command;

use gpu_common::{shared_gpu, small};
use remat::error::Error;
use remat::gpu::{Executable, Gpu, Inject};
use remat::params::{Init, Params};

#[test]
fn a_refused_allocation_is_an_error_and_leaves_nothing_behind() {
    let (_turn, gpu) = shared_gpu();
    let before = gpu.memory().total;
    let (program, plan) = small(1000);
    // Uniform words, inputs, three output slots, read-back, arena, state: each in turn is refused.
    for nth in 1..=8 {
        let params = Params::new(&gpu, 1);
        params.create("p", [1000], Init::Zeros).unwrap();
        gpu.inject(Inject::AllocationFailure(nth));
        let error = Executable::new_blocking(&gpu, program.clone(), plan.clone(), &params).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { size_bytes, .. } if size_bytes > 0), "{nth}: {error}");
        assert_eq!(params.bytes().live_bytes, 0);
        assert_eq!(gpu.memory().total.live_bytes, before.live_bytes);
        let step = Executable::new_blocking(&gpu, program.clone(), plan.clone(), &params).unwrap();
        let out = step.run_blocking(&[("x", (&vec![1.0_f32; 1000]).into())]).unwrap();
        assert_eq!(out.outputs[0].read_blocking::<f32>().unwrap()[999], 2.0);
        drop((step, out, params));
        assert_eq!(gpu.memory().total.live_bytes, before.live_bytes);
        assert_eq!(gpu.memory().total.buffers, before.buffers);
    }
}

#[test]
fn states_are_made_all_or_none() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    for name in ["a", "b", "c"] {
        params.create(name, [10], Init::Ones).unwrap();
    }
    gpu.inject(Inject::AllocationFailure(3));
    assert!(matches!(params.materialize_blocking().unwrap_err(), Error::OutOfMemory { .. }));
    assert_eq!(params.bytes().reserved_bytes, 0);
    gpu.inject(Inject::AllocationFailure(2));
    let values = [2.0_f32; 10];
    let states = ["a", "b"].map(|name| (name, [10].into(), &values[..]));
    assert!(params.load_blocking(states.clone()).is_err());
    assert_eq!(params.bytes().reserved_bytes, 0);
    params.load_blocking(states).unwrap();
    assert_eq!(params.read_blocking::<f32>("b").unwrap(), values);
    assert_eq!(params.read_blocking::<f32>("c").unwrap(), [1.0; 10]);
}

#[test]
fn a_validation_error_is_returned_once_by_the_next_call() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    params.create("p", [8], Init::Zeros).unwrap();
    let (program, plan) = small(8);
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    gpu.inject(Inject::ValidationError);
    let x = [1.0_f32; 8];
    let error = step.run_blocking(&[("x", (&x).into())]).unwrap_err();
    assert!(matches!(error, Error::Validation { .. }), "{error}");
    let out = step.run_blocking(&[("x", (&x).into())]).unwrap();
    assert_eq!(out.run, 0, "the refused run did not run");
    assert_eq!(out.outputs[0].read_blocking::<f32>().unwrap(), [2.0; 8]);
    gpu.inject(Inject::ValidationError);
    assert!(params.read_blocking::<f32>("p").is_err());
    assert!(params.read_blocking::<f32>("p").is_ok());
}

#[test]
fn injected_limits_hold() {
    let small_bindings = 16 << 20;
    let gpu =
        Gpu::test_builder().max_binding_bytes(small_bindings).max_buffer_bytes(32 << 20).build_blocking().unwrap();
    assert_eq!((gpu.profile().max_binding_bytes, gpu.profile().max_buffer_bytes), (small_bindings, 32 << 20));
    let params = Params::new(&gpu, 1);
    let fits = small_bindings as usize / 4;
    params.create("p", [fits], Init::Ones).unwrap();
    let (program, plan) = small(fits);
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    let out = step.run_blocking(&[("x", (&vec![1.0_f32; fits]).into())]).unwrap();
    assert_eq!(out.outputs[0].read_blocking::<f32>().unwrap()[fits - 1], 3.0);
    params.create("q", [9 << 20], Init::Zeros).unwrap();
    let error = params.read_blocking::<f32>("q").unwrap_err();
    assert!(matches!(error, Error::Limit { limit: "maxBufferSize", size_bytes, .. } if size_bytes == 36 << 20));
}

/// Runs one of the ignored tests below in a process of its own.
fn child(test: &str, shell_prefix: &str, variables: &[(&str, &str)]) -> (bool, String) {
    let exe = std::env::current_exe().unwrap();
    let script = format!("{shell_prefix} exec \"$0\" --exact {test} --ignored --nocapture --test-threads=1");
    let mut command = Command::new("sh");
    command.arg("-c").arg(script).arg(exe);
    for (name, value) in variables {
        command.env(name, value);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), text)
}

#[test]
fn without_an_adapter_the_error_says_what_to_do() {
    let (ok, text) = child(
        "child_without_an_adapter",
        "",
        &[
            ("VK_DRIVER_FILES", "/nonexistent.json"),
            ("VK_ICD_FILENAMES", "/nonexistent.json"),
            ("WGPU_BACKEND", "vulkan"),
        ],
    );
    assert!(ok, "{text}");
}

#[test]
#[ignore = "run in a process of its own, by the test above"]
fn child_without_an_adapter() {
    let error = Gpu::new_blocking().unwrap_err();
    println!("{error}");
    let Error::NoAdapter { looked_for, advice } = error else { panic!("{error}") };
    assert!(looked_for.contains("vulkan") && looked_for.contains("high power"), "{looked_for}");
    assert!(advice.contains("apt-get install mesa-vulkan-drivers"), "{advice}");
}

#[test]
fn an_adapter_of_another_name_lists_what_was_seen() {
    let error = Gpu::builder().adapter_name("no such adapter").build_blocking().unwrap_err();
    assert!(error.to_string().contains("\"no such adapter\"") && error.to_string().contains("saw"), "{error}");
}

/// lavapipe grants hundreds of GiB and then meets the kernel's killer: only a
/// limit of the address space makes it refuse.
#[test]
#[cfg(target_os = "linux")]
fn real_exhaustion_is_a_typed_error() {
    let (_turn, gpu) = shared_gpu();
    if !gpu.is_software() {
        return;
    }
    let (ok, text) = child("child_out_of_memory", "ulimit -v 3500000;", &[("LP_NUM_THREADS", "1")]);
    assert!(ok, "{text}");
}

#[test]
#[ignore = "run in a process of its own, by the test above"]
fn child_out_of_memory() {
    let gpu = Gpu::test_builder().build_blocking().unwrap();
    let params = Params::new(&gpu, 1);
    let mut refused = None;
    for i in 0..40 {
        let name = format!("block {i}");
        params.create(&name, [60 << 20], Init::Zeros).unwrap();
        // A read would also need room on the host.
        if let Err(error) = params.materialize_blocking() {
            refused = Some((i, error));
            break;
        }
    }
    let (i, error) = refused.expect("9.6 GB do not fit in 3.5 GB");
    println!("block {i}: {error}");
    assert!(matches!(error, Error::OutOfMemory { size_bytes, .. } if size_bytes == 240 << 20), "{error}");
    params.remove(&format!("block {i}")).unwrap();
    for i in 0..i {
        params.remove(&format!("block {i}")).unwrap();
    }
    params.trim();
    params.create("little", [1000], Init::Ones).unwrap();
    assert_eq!(params.read_blocking::<f32>("little").unwrap(), vec![1.0; 1000]);
}
