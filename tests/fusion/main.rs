//! Fusion and generated kernels: what becomes a pass, and that it computes the
//! same as the passes it stands for.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../common/mod.rs"]
mod common;
mod kernel;
mod random_graphs;
mod speed;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use common::naive::Naive;
use kernel::double;
use remat::error::Result;
use remat::fuse::program::{Operand, Program, StorageKind};
use remat::graph::{Recorder, Tensor};
use remat::profile::{AdapterClass, DeviceProfile};

/// One device for the whole binary: several dispatching at once crash some drivers.
fn device() -> MutexGuard<'static, Naive> {
    static DEVICE: OnceLock<Mutex<Naive>> = OnceLock::new();
    DEVICE.get_or_init(|| Mutex::new(Naive::new())).lock().unwrap_or_else(PoisonError::into_inner)
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}
fn floats(words: &[u32]) -> Vec<f32> {
    words.iter().map(|w| f32::from_bits(*w)).collect()
}

fn fused(record: impl FnOnce(&Recorder) -> Result<Vec<Tensor>>) -> Program {
    fused_for(&DeviceProfile::default(), record)
}

fn fused_for(profile: &DeviceProfile, record: impl FnOnce(&Recorder) -> Result<Vec<Tensor>>) -> Program {
    let recorder = Recorder::new();
    let outputs = record(&recorder).unwrap();
    let named: Vec<(String, &Tensor)> = outputs.iter().enumerate().map(|(i, t)| (format!("out{i}"), t)).collect();
    let graph = recorder.finish(&named).unwrap();
    let program = remat::fuse::fuse(&graph, profile).unwrap();
    program.validate().unwrap();
    program
}

fn names(program: &Program) -> Vec<&str> {
    program.passes.iter().map(|p| p.name.as_str()).collect()
}

#[test]
fn broadcast_add_runs_as_one_pass() {
    let x: Vec<f32> = (0..21).map(|i| i as f32).collect();
    let inputs = BTreeMap::from([("x".to_owned(), bits(&x)), ("b".to_owned(), bits(&[10.0, 20.0, 30.0]))]);
    let out = device()
        .run_recording(&inputs, |g| {
            let x = g.input::<f32>("x", [7, 3])?;
            let b = g.input::<f32>("b", [3])?;
            Ok(vec![x.add(&b)?.add(&x)?.add(&g.full([], 0.5)?)?])
        })
        .unwrap();
    let expected: Vec<f32> = (0..21).map(|i| 2.0 * i as f32 + 10.0 * (i % 3 + 1) as f32 + 0.5).collect();
    assert_eq!(floats(&out[0]), expected);
}

#[test]
fn a_value_with_two_readers_in_one_pass_is_not_stored() {
    let program = fused(|g| {
        let (a, b) = (g.input::<f32>("a", [8])?, g.input::<f32>("b", [8])?);
        let x = a.add(&b)?;
        Ok(vec![x.mul(&x.sigmoid()?)?])
    });
    assert_eq!(names(&program), ["add+sigmoid+mul"]);
    assert_eq!(program.storages.len(), 3);
}

#[test]
fn constants_and_counters_take_no_memory() {
    let program = fused(|g| {
        let x = g.input::<f32>("x", [4, 8])?;
        let two = g.full([], 2.0)?;
        let column = g.iota([4, 8], 1)?.to_f32()?;
        let y = x.mul(&two)?.add(&column)?;
        Ok(vec![y.clone(), double(&y)?.mul(&two.reshape([1, 1])?)?])
    });
    assert_eq!(
        program.storages.iter().filter(|s| s.kind == StorageKind::Transient).count(),
        2,
        "{:?}",
        program.storages
    );
}

#[test]
fn names_outputs_segments_and_backward_readers_are_stored() {
    let chain = |g: &Recorder, named: bool| {
        let x = g.input::<f32>("x", [8])?;
        let y = x.exp()?;
        let y = if named { y.named("kept") } else { y };
        y.neg()
    };
    assert_eq!(names(&fused(|g| Ok(vec![chain(g, false)?]))), ["exp+neg"]);
    let program = fused(|g| Ok(vec![chain(g, true)?]));
    assert_eq!(names(&program), ["exp", "neg"]);
    assert!(program.storages.iter().any(|s| s.name == "kept" && s.named));
    let program = fused(|g| {
        let x = g.input::<f32>("x", [8])?;
        let y = g.checkpoint(x.exp()?, |x| x.neg()?.sqr())?;
        Ok(vec![y.exp()?])
    });
    assert_eq!(names(&program), ["exp", "neg+sqr", "exp"]);
    assert_eq!(program.passes.iter().map(|p| p.segment.is_some()).collect::<Vec<_>>(), [false, true, false]);
}

#[test]
fn an_activation_in_place_never_overwrites_the_boundary() {
    // Inside the segment the product is overwritten; what came in from outside is not.
    let program = fused(|g| {
        let x = double(&g.input::<f32>("x", [8, 8])?)?;
        let y = g.checkpoint(x, |x| double(&x.relu()?)?.narrow(0, 0, 8)?.t()?.t()?.relu())?;
        Ok(vec![y])
    });
    let relu: Vec<_> = program.passes.iter().filter(|p| p.segment.is_some()).collect();
    assert_eq!(relu[0].name, "relu");
    assert!(relu[0].operands.iter().all(|o| !matches!(o, Operand::InPlace { .. })), "{relu:?}");
    // A pad is a kernel without an epilogue, so what follows works in place.
    let program = fused(|g| {
        let x = g.input::<f32>("x", [6])?;
        Ok(vec![x.pad(&[(1, 1)], 0.0)?.relu()?])
    });
    assert!(matches!(program.passes[1].operands[..], [Operand::InPlace { .. }]), "{:?}", program.passes);
}

#[test]
fn an_epilogue_computes_bias_activation_and_residual() {
    let (b, r, c) = (2, 3, 4);
    let n = b * r * c;
    let x: Vec<f32> = (0..n).map(|i| i as f32 * 0.25 - 2.0).collect();
    let bias: Vec<f32> = (0..c).map(|i| i as f32).collect();
    let inputs =
        BTreeMap::from([("x".to_owned(), bits(&x)), ("bias".to_owned(), bits(&bias)), ("r".to_owned(), bits(&x))]);
    let record = |g: &Recorder| {
        let x = g.input::<f32>("x", [b, r, c])?;
        let bias = g.input::<f32>("bias", [c])?;
        let residual = g.input::<f32>("r", [b, c, r])?;
        let y = double(&x)?.add(&bias)?.relu()?;
        Ok(vec![y.mul(&y)?.add(&residual.transpose(1, 2)?)?.tril(0)?])
    };
    // A software adapter keeps so long a chain out of the store.
    assert_eq!(names(&fused(record)), ["double", "add+relu+mul+add+tril"]);
    let program = fused_for(&DeviceProfile::webgpu_defaults(AdapterClass::Discrete), record);
    assert_eq!(names(&program), ["double+add+relu+mul+add+tril"]);
    let (out, _) = device().run(&program, &inputs, &BTreeMap::new());
    for i in 0..n {
        let (batch, row, column) = (i / (r * c), i / c % r, i % c);
        let y = (2.0 * x[i] + bias[column]).max(0.0);
        let expected = y * y + x[batch * r * c + column * r + row];
        assert_eq!(floats(&out[0])[i], if column <= row { expected } else { 0.0 });
    }
    // The product read a second time, by itself or as the kernel's own operand, is not fused away.
    let program = fused(|g| {
        let x = g.input::<f32>("x", [4, 4])?;
        let y = double(&x)?;
        Ok(vec![y.add(&x)?, double(&y)?])
    });
    assert_eq!(names(&program), ["double", "add", "double"]);
    let program = fused(|g| {
        let x = g.input::<f32>("x", [4, 4])?;
        Ok(vec![double(&x)?.add(&x)?])
    });
    assert_eq!(names(&program), ["double", "add"]);
    let program = fused(|g| {
        let (x, y) = (g.input::<f32>("x", [4, 4])?, g.input::<f32>("y", [4, 4])?);
        Ok(vec![double(&x)?.add(&double(&y)?)?])
    });
    assert_eq!(names(&program), ["double", "double+add"]);
}

#[test]
fn more_storages_than_bindings_are_cut() {
    let count = 20;
    let program = fused(|g| {
        let mut sum = g.input::<f32>("x0", [16])?;
        for i in 1..count {
            sum = sum.add(&g.input::<f32>(&format!("x{i}"), [16])?)?;
        }
        Ok(vec![sum])
    });
    assert!(program.passes.iter().all(|p| p.operands.len() <= 7), "{:?}", names(&program));
    assert!(program.passes.len() <= 4, "{:?}", names(&program));
}

#[test]
fn a_sum_that_waits_behind_a_kernel_does_not_keep_its_operands_alive() {
    let program = fused(|g| {
        let (a, b) = (g.input::<f32>("a", [64, 64])?, g.input::<f32>("b", [64, 64])?);
        let (a, b) = (a.pad(&[(0, 1), (0, 0)], 0.0)?, b.pad(&[(0, 1), (0, 0)], 0.0)?);
        let sum = a.add(&b)?;
        let c = double(&g.input::<f32>("c", [65, 64])?)?;
        Ok(vec![sum.add(&c)?])
    });
    assert_eq!(names(&program), ["pad", "pad", "add", "double+add"]);
}

#[test]
fn long_chains_have_few_short_kernels_and_no_deep_recursion() {
    let length = 100_000;
    let clock = std::time::Instant::now();
    let recorder = Recorder::new();
    let x = recorder.input::<f32>("x", [64]).unwrap();
    let mut y = x.clone();
    for i in 0..length {
        y = if i % 2 == 0 { y.tanh().unwrap() } else { y.mul_scalar(1.5).unwrap() };
    }
    let loss = y.narrow(0, 0, 1).unwrap().reshape([]).unwrap();
    let recorded = clock.elapsed();
    let gradient = recorder.gradients(&loss, &[&x]).unwrap().swap_remove(0);
    let differentiated = clock.elapsed();
    let graph = recorder.finish(&[("dx".into(), &gradient)]).unwrap();
    let program = remat::fuse::fuse(&graph, &DeviceProfile::default()).unwrap();
    println!(
        "{length} ops: recorded in {recorded:?}, differentiated after {differentiated:?}, fused after {:?}: {} passes, {} kernels",
        clock.elapsed(),
        program.passes.len(),
        program.kernels.len()
    );
    assert!(program.kernels.len() <= 60, "{}", program.kernels.len());
    assert!(program.kernels.iter().all(|k| k.source.len() < 20_000));
}

#[test]
fn equal_structure_gives_equal_text() {
    let program = fused(|g| {
        let mut out = Vec::new();
        for (i, rows) in [4, 8, 64].into_iter().enumerate() {
            let x = g.input::<f32>(&format!("x{i}"), [rows, 12])?;
            let b = g.input::<f32>(&format!("b{i}"), [12])?;
            out.push(x.add(&b)?.mul_scalar(i as f32)?.clamp(0.0, 1.0 + i as f32)?);
        }
        Ok(out)
    });
    assert_eq!((program.passes.len(), program.kernels.len()), (3, 1));
}
