//! A lost device says so, always, and the state's copy rebuilds it on another.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "tests")]

mod gpu_common;

use gpu_common::small;
use remat::error::Error;
use remat::gpu::{Executable, Gpu, Inject};
use remat::params::{Init, Params};

#[test]
fn loss_stays_and_state_is_rebuilt_on_a_new_device() {
    let gpu = Gpu::test_builder().build_blocking().unwrap();
    let make = |gpu: &Gpu| {
        let params = Params::new(gpu, 9);
        params.create("p", [100], Init::Normal { mean: 0.0, std: 1.0 }).unwrap();
        params
    };
    let params = make(&gpu);
    let (program, plan) = small(100);
    let x = vec![1.0_f32; 100];
    let step = Executable::new_blocking(&gpu, program.clone(), plan.clone(), &params).unwrap();
    step.run_blocking(&[("x", (&x).into())]).unwrap();
    let copy = params.read_all_blocking().unwrap();
    let out = step.run_blocking(&[("x", (&x).into())]).unwrap().outputs.remove(0);
    let wanted = out.read_blocking::<f32>().unwrap();

    // A read under way when the device goes is answered.
    let late = step.run_blocking(&[("x", (&x).into())]).unwrap().outputs.remove(0);
    gpu.inject(Inject::DeviceLoss);
    let lost = |error: Error| assert!(matches!(error, Error::DeviceLost { .. }), "{error}");
    for _ in 0..2 {
        lost(late.read_blocking::<f32>().unwrap_err());
        lost(step.run_blocking(&[("x", (&x).into())]).unwrap_err());
        lost(params.read_blocking::<f32>("p").unwrap_err());
        lost(params.write_blocking("p", &x).unwrap_err());
        lost(params.read_all_blocking().unwrap_err());
        lost(gpu.wait_idle_blocking().unwrap_err());
        lost(gpu.check().unwrap_err());
        lost(Executable::new_blocking(&gpu, program.clone(), plan.clone(), &params).unwrap_err());
    }
    drop((step, params, out, late));

    let new = Gpu::test_builder().build_blocking().unwrap();
    let params = make(&new);
    params.load_all_blocking(&copy).unwrap();
    let step = Executable::new_blocking(&new, program, plan, &params).unwrap();
    let out = step.run_blocking(&[("x", (&x).into())]).unwrap();
    assert_eq!(out.outputs[0].read_blocking::<f32>().unwrap(), wanted);
}

#[test]
fn a_read_waiting_when_the_device_goes_is_answered() {
    let gpu = Gpu::test_builder().build_blocking().unwrap();
    let params = Params::new(&gpu, 9);
    params.create("p", [1 << 20], Init::Ones).unwrap();
    let (program, plan) = small(1 << 20);
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    let x = vec![1.0_f32; 1 << 20];
    let outs: Vec<_> = (0..3).map(|_| step.run_blocking(&[("x", (&x).into())]).unwrap()).collect();
    let reader = std::thread::spawn(move || outs[2].outputs[0].read_blocking::<f32>().map(|v| v.len()));
    gpu.inject(Inject::DeviceLoss);
    // Either it came through before the loss, or it is told of it; it does not hang.
    match reader.join().unwrap() {
        Ok(len) => assert_eq!(len, 1 << 20),
        Err(error) => assert!(matches!(error, Error::DeviceLost { .. } | Error::Validation { .. }), "{error}"),
    }
    assert!(matches!(gpu.wait_idle_blocking().unwrap_err(), Error::DeviceLost { .. }));
}
