//! Named state: creation, reading, writing, loading, reuse, and big uploads.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "tests")]

mod gpu_common;

use gpu_common::{Builder, shared_gpu, small};
use remat::dtype::{DType, Shape, TensorType};
use remat::error::Error;
use remat::fuse::program::{Category, Operand};
use remat::gpu::{BufferCategory, Executable};
use remat::params::{Init, Params};

#[test]
fn creation_is_named_typed_and_takes_no_memory() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    let w = params.create("w", [2, 3], Init::Ones).unwrap();
    let again = params.create("w", [2, 3], Init::Zeros).unwrap();
    assert_eq!((w.name(), w.index(), again.index()), ("w", 0, 0));
    assert!(matches!(params.create("w", [3, 2], Init::Ones).unwrap_err(), Error::StateConflict { .. }));
    let ids = TensorType::new(DType::U32, [2]);
    params.create_typed("ids", ids.clone(), Category::Optimizer, Init::Constant(7.0)).unwrap();
    let wrong = params.create_typed("ids2", ids, Category::Optimizer, Init::Normal { mean: 0.0, std: 1.0 });
    assert!(matches!(wrong.unwrap_err(), Error::Data { op: "create", .. }));
    assert!(matches!(params.create("d", [2], vec![1.0].into()).unwrap_err(), Error::Data { .. }));
    assert_eq!(gpu.memory().total.live_bytes, 0);
    assert_eq!(params.read_blocking::<f32>("w").unwrap(), [1.0; 6]);
    assert_eq!(params.read_blocking::<u32>("ids").unwrap(), [7; 2]);
    assert_eq!(params.names(), ["w", "ids"]);
    assert_eq!(params.bytes().live_bytes, 32);
}

#[test]
fn random_values_do_not_depend_on_the_order_of_creation() {
    let (_turn, gpu) = shared_gpu();
    let normal = Init::Normal { mean: 1.0, std: 2.0 };
    let uniform = Init::Uniform { low: -1.0, high: 1.0 };
    let make = |names: [&str; 2], seed| {
        let params = Params::new(&gpu, seed);
        for name in names {
            let init = if name == "a" { normal.clone() } else { uniform.clone() };
            params.create(name, [1001], init).unwrap();
        }
        ["a", "b"].map(|name| params.read_blocking::<f32>(name).unwrap())
    };
    let first = make(["a", "b"], 5);
    assert_eq!(first, make(["b", "a"], 5));
    assert_ne!(first, make(["a", "b"], 6));
    let mean = first[0].iter().sum::<f32>() / 1001.0;
    assert!((mean - 1.0).abs() < 0.3, "{mean}");
    assert!(first[1].iter().all(|v| (-1.0..1.0).contains(v)));
}

#[test]
fn wrong_reads_writes_and_loads_change_nothing() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    params.create("blocks.0.weight", [2], Init::Zeros).unwrap();
    params.create("blocks.1.weight", [2], Init::Zeros).unwrap();
    let unknown = params.read_blocking::<f32>("blocks.0.wieght").unwrap_err();
    assert!(unknown.to_string().contains("did you mean blocks.0.weight"), "{unknown}");
    assert!(matches!(params.read_blocking::<i32>("blocks.0.weight").unwrap_err(), Error::Data { .. }));
    let short = params.write_blocking("blocks.0.weight", &[1.0_f32]).unwrap_err();
    assert!(matches!(short, Error::Data { op: "write", .. }), "{short}");
    assert!(params.write_blocking("blocks.0.weight", &[1_i32, 2]).is_err());
    let new = [1.0_f32, 2.0];
    let shape = || Shape::from([2]);
    let load = params.load_blocking([("blocks.0.weight", shape(), &new[..]), ("nothing", shape(), &new[..])]);
    assert!(matches!(load.unwrap_err(), Error::UnknownState { op: "load", .. }));
    let load = params.load_blocking([("blocks.0.weight", shape(), &new[..]), ("blocks.1.weight", [1, 2].into(), &new)]);
    assert!(matches!(load.unwrap_err(), Error::Data { op: "load", .. }));
    assert_eq!(params.read_blocking::<f32>("blocks.0.weight").unwrap(), [0.0; 2]);
    params
        .load_blocking([
            ("blocks.1.weight", shape(), &new[..]),
            ("blocks.1.weight", shape(), &new[..]),
            ("blocks.0.weight", shape(), &[3.0, 4.0][..]),
        ])
        .unwrap();
    assert_eq!(params.read_blocking::<f32>("blocks.0.weight").unwrap(), [3.0, 4.0]);
    assert_eq!(params.read_blocking::<f32>("blocks.1.weight").unwrap(), new);
}

#[test]
fn removed_memory_is_reused_then_trimmed() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    params.create("a", [1000], Init::Ones).unwrap();
    params.create("b", [500], Init::Ones).unwrap();
    params.materialize_blocking().unwrap();
    params.remove("a").unwrap();
    let bytes = params.bytes();
    assert_eq!((bytes.live_bytes, bytes.reserved_bytes), (2000, 6000));
    let state = gpu.memory().of(BufferCategory::State);
    assert_eq!((state.live_bytes, state.reserved_bytes, state.buffers), (2000, 6000, 2));
    params.create("c", [1000], Init::Zeros).unwrap();
    assert_eq!(params.read_blocking::<f32>("c").unwrap(), vec![0.0; 1000], "old values must not show");
    assert_eq!((params.bytes().reserved_bytes, params.bytes().reused_buffers), (6000, 1));
    params.remove("c").unwrap();
    params.trim();
    assert_eq!(gpu.memory().of(BufferCategory::State).reserved_bytes, 2000);
    assert!(params.remove("c").is_err());
    drop(params);
    assert_eq!(gpu.memory().total.reserved_bytes, 0);
}

#[test]
fn a_step_follows_a_state_that_was_replaced_and_misses_one_that_is_gone() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    params.create("p", [4], Init::Zeros).unwrap();
    let (program, plan) = small(4);
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    let x = [1.0_f32; 4];
    step.run_blocking(&[("x", (&x).into())]).unwrap();
    params.remove("p").unwrap();
    params.trim();
    let gone = step.run_blocking(&[("x", (&x).into())]).unwrap_err();
    assert!(matches!(gone, Error::UnknownState { .. }), "{gone}");
    params.create("p", [5], Init::Zeros).unwrap();
    assert!(matches!(step.run_blocking(&[("x", (&x).into())]).unwrap_err(), Error::StateConflict { .. }));
    params.remove("p").unwrap();
    params.create("p", [4], Init::Constant(10.0)).unwrap();
    let out = step.run_blocking(&[("x", (&x).into())]).unwrap();
    assert_eq!(out.outputs[0].read_blocking::<f32>().unwrap(), [12.0; 4]);
}

#[test]
fn writes_between_runs_are_seen_by_the_next_run_only() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    params.create("p", [2], Init::Zeros).unwrap();
    let (program, plan) = small(2);
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    let x = [0.0_f32; 2];
    params.write_blocking("p", &[1.0_f32, 2.0]).unwrap();
    let first = step.run_blocking(&[("x", (&x).into())]).unwrap();
    params.write_blocking("p", &[5.0_f32, 6.0]).unwrap();
    let second = step.run_blocking(&[("x", (&x).into())]).unwrap();
    assert_eq!(first.outputs[0].read_blocking::<f32>().unwrap(), [1.0, 2.0]);
    assert_eq!(second.outputs[0].read_blocking::<f32>().unwrap(), [5.0, 6.0]);
    assert_eq!(params.read_blocking::<f32>("p").unwrap(), [2.5, 3.0]);
}

fn checksum(values: &[f32]) -> u64 {
    values.iter().fold(0, |sum: u64, v| sum.wrapping_mul(31).wrapping_add(u64::from(v.to_bits())))
}

#[test]
fn three_hundred_tensors_written_at_once_all_arrive() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    let values: Vec<Vec<f32>> = (0..300).map(|t| (0..4096).map(|i| (t * 4096 + i) as f32).collect()).collect();
    let names: Vec<String> = (0..300).map(|t| format!("t{t}")).collect();
    for name in &names {
        params.create(name, [4096], Init::Zeros).unwrap();
    }
    params.load_blocking(names.iter().zip(&values).map(|(n, v)| (n.as_str(), [4096].into(), v.as_slice()))).unwrap();
    let all = params.read_all_blocking().unwrap();
    for (state, wanted) in all.iter().zip(&values) {
        assert_eq!(checksum(&state.values::<f32>().unwrap()), checksum(wanted), "{}", state.name);
    }
}

#[test]
fn five_hundred_uploads_of_four_mebibytes_stay_bounded() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    let n = 1 << 20;
    params.create("big", [n], Init::Zeros).unwrap();
    let mut values = vec![0.0_f32; n];
    let resident = gpu_common::resident_bytes();
    let mut most = 0;
    for upload in 0..500 {
        values[upload] = upload as f32 + 1.0;
        params.write_blocking("big", &values).unwrap();
        most = most.max(gpu_common::resident_bytes());
    }
    let grown = most.saturating_sub(resident);
    println!("500 uploads of 4 MiB: grown by at most {} MiB", grown >> 20);
    assert!(grown < 128 << 20, "{grown}");
    let back = params.read_blocking::<f32>("big").unwrap();
    assert_eq!(checksum(&back), checksum(&values));
}

#[test]
fn uploads_of_a_run_larger_than_a_staging_piece_arrive() {
    let (_turn, gpu) = shared_gpu();
    let params = Params::new(&gpu, 1);
    let n = 3 << 20;
    let mut b = Builder::default();
    let x = b.input("x", DType::F32, n);
    let y = b.transient("y", n);
    b.pass("add", "b[i] = a[i] + 1.0;", &[Operand::Read(x), Operand::Write(y)], &[], n);
    b.output("y", y);
    let (program, plan) = b.finish();
    let step = Executable::new_blocking(&gpu, program, plan, &params).unwrap();
    let x: Vec<f32> = (0..n).map(|i| i as f32).collect();
    let outs: Vec<_> = (0..3).map(|_| step.run_blocking(&[("x", (&x).into())]).unwrap()).collect();
    let wanted: Vec<f32> = x.iter().map(|v| v + 1.0).collect();
    assert_eq!(checksum(&outs[0].outputs[0].read_blocking::<f32>().unwrap()), checksum(&wanted));
}

#[test]
fn offline_states_have_names_but_no_device() {
    let params = Params::offline(3);
    params.create("w", [1 << 20, 1 << 20], Init::Zeros).unwrap();
    assert_eq!(params.names(), ["w"]);
    assert!(matches!(params.read_blocking::<f32>("w").unwrap_err(), Error::Argument { op: "read", .. }));
    assert!(matches!(params.materialize_blocking().unwrap_err(), Error::Argument { .. }));
}
