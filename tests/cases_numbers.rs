//! Numbers and limits: cases 30, 31, 36 to 44 and 46 to 48 of the list in
//! public bug reports. Where a case stands elsewhere:
//!
//! | case | test |
//! |---|---|
//! | 36 | here on a step; `gpu_faults.rs` (injected; real, in a child process) |
//! | 37 | `gpu_loss.rs` |
//! | 38 | `gpu_faults.rs`, without an adapter |
//! | 39 | here on a step; `gpu_faults.rs` |
//! | 40, 41 | here on the engine; `ops_elementwise`, `ops_kernels/rows.rs` |
//! | 42 | `fusion/random_graphs.rs` |
//! | 43 | the default of all tests; here: it is on, and it shows |
//! | 44 | here; `ops_kernels/copies.rs` |
//! | 46 | here on the engine; `ops_elementwise`, `gpu_run.rs` |
//! | 48 | here: no optional feature is asked for |
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/engine.rs"]
mod engine;

use engine::*;
use remat::checkpoint::Policy;
use remat::dtype::{DType, TensorType};
use remat::error::{Error, Result};
use remat::gpu::{Gpu, Inject};
use remat::graph::{Recorder, Tensor};
use remat::inputs;
use remat::ops::fingerprint;
use remat::optim::{AdamW, AdamWConfig, Gradients, Optimizer};
use remat::params::{Init, Params};

/// One run under policy none.
fn once(gpu: &Gpu, inputs: &Inputs<'_>, body: impl FnOnce(&Recorder) -> Result<Vec<Tensor>>) -> Vec<Vec<u32>> {
    let step = record(gpu, body);
    let plan = planned(gpu, &step, &Policy::None).unwrap();
    run(gpu, &step, plan, &Params::new(gpu, 1), inputs).unwrap()
}

#[test]
fn case_30_shapes_without_elements_are_legal_everywhere() {
    type Make = fn(&Recorder, &Tensor) -> Result<Tensor>;
    let unary: [(&str, Make); 24] = [
        ("neg", |_, x| x.neg()),
        ("exp", |_, x| x.exp()),
        ("gelu", |_, x| x.gelu()),
        ("clamp", |_, x| x.clamp(0.0, 1.0)),
        ("powf", |_, x| x.powf(2.0)),
        ("add_scalar", |_, x| x.add_scalar(1.0)),
        ("self add", |_, x| x.add(x)),
        ("broadcast", |r, x| x.mul(&r.full([], 2.0)?)),
        ("where", |_, x| x.gt_scalar(0.0)?.where_(x, &x.neg()?)),
        ("masked_fill", |_, x| x.masked_fill(&x.isnan()?, 0.0)),
        ("cast", |_, x| x.to_i32()?.to_f32()),
        ("dropout", |_, x| x.dropout(0.5)),
        ("flatten", |_, x| x.flatten(0, -1)),
        ("softmax", |_, x| x.softmax(-1)),
        ("log_softmax", |_, x| x.log_softmax(0)),
        ("layer_norm", |_, x| x.layer_norm(None, None, 1e-5)),
        ("sum", |_, x| x.sum(&[0], false)),
        ("mean", |_, x| x.mean(&[-1], true)),
        ("var", |_, x| x.var(&[0], false, false)),
        ("cat", |_, x| Tensor::cat(&[x, x], 0)),
        ("stack", |_, x| Tensor::stack(&[x, x], 0)),
        ("pad", |_, x| x.pad(&vec![(1, 2); x.rank()], 3.0)),
        ("narrow", |_, x| x.narrow(0, 0, 0)),
        ("reversed", |_, x| x.permute(&(0..x.rank() as isize).rev().collect::<Vec<_>>())),
    ];
    let (_turn, gpu) = gpu();
    for shape in [&[0][..], &[3, 0], &[0, 3], &[2, 0, 4]] {
        for (name, make) in unary {
            let what = format!("{name} of {shape:?}");
            let params = Params::new(&gpu, 1);
            let p = params.create("p", shape, Init::Ones).unwrap();
            let body = |r: &Recorder| {
                let x = r.param(&p)?;
                let y = r.checkpoint(x.clone(), |x| make(r, &x))?;
                let gradient = r.gradients(&y.sum_all()?, &[&x])?.swap_remove(0);
                Ok(vec![y.clone(), y.sum_all()?, gradient])
            };
            let step = record(&gpu, body);
            let dropout = name == "dropout";
            let given = inputs! { "seed" => 1_u32, "step" => 1_u32 };
            let ran = run_all(&gpu, &params, &step, if dropout { given } else { &[] });
            assert!(ran.outputs[2].is_empty(), "{what}: its gradient has elements");
            let y = ran.floats(0);
            let expected: f32 = y.iter().sum();
            match name {
                "pad" => assert!(!y.is_empty() && y.iter().all(|&v| v == 3.0), "{what}: {y:?}"),
                "sum" => assert!(y.iter().all(|&v| v == 0.0), "{what}: {y:?}"),
                "mean" | "var" => assert!(y.iter().all(|v| v.is_nan()), "{what}: {y:?}"),
                _ => assert!(y.is_empty() && step.program().passes.len() <= 1, "{what} dispatches something"),
            }
            let total = ran.floats(1)[0];
            assert!(total == expected || (total.is_nan() && expected.is_nan()), "{what}: the sum is {total}");
        }
    }
    let none: Vec<f32> = Vec::new();
    let no_ids: Vec<i32> = Vec::new();
    let given = inputs! { "a" => &none, "b" => &none, "w" => &[1.0_f32; 6], "ids" => &no_ids };
    let out = once(&gpu, given, |r| {
        let (a, b) = (r.input::<f32>("a", [3, 0])?, r.input::<f32>("b", [0, 2])?);
        let (w, ids) = (r.input::<f32>("w", [3, 2])?, r.input::<i32>("ids", [0])?);
        let product = a.matmul(&b)?;
        let loss = product.add(&w)?.sqr()?.sum_all()?.add(&w.embedding(&ids)?.sum_all()?)?;
        let g = r.gradients(&loss, &[&a, &b, &w])?;
        let ce = w.narrow(0, 0, 0)?.cross_entropy_with(
            &ids,
            remat::ops::CrossEntropyOptions { reduction: remat::ops::Reduction::Sum, ..Default::default() },
        )?;
        let all = [product, w.embedding(&ids)?, b.matmul_t(&b)?, a.digest()?, fingerprint(r, &[])?, ce];
        let heads = a.reshape([1, 3, 0])?.attention(&a.reshape([1, 3, 0])?, &a.reshape([1, 3, 0])?, true)?;
        Ok([&all[..], &g[..], &[heads]].concat())
    });
    assert_eq!(floats(&out[0]), [0.0; 9][..6], "a sum of nothing is 0");
    assert!(out[1].is_empty() && out[2].is_empty() && out[6].is_empty() && out[7].is_empty());
    assert_eq!((out[3].len(), out[4].len()), (4, 4));
    assert_eq!(floats(&out[5]), [0.0]);
    assert_eq!(floats(&out[8]), [2.0; 6], "w's gradient");
    assert!(out[9].is_empty());
    // A parameter without elements trains along.
    let params = Params::new(&gpu, 1);
    let (p, q) = (params.create("p", [0, 4], Init::Ones).unwrap(), params.create("q", [2], Init::Ones).unwrap());
    let adam = AdamW::new(&params, AdamWConfig::default()).unwrap();
    let step = gpu
        .step_blocking(Policy::None, |r| {
            let loss = r.param(&p)?.sum_all()?.add(&r.param(&q)?.sqr()?.sum_all()?)?;
            let gradients = Gradients::of(&loss)?;
            adam.apply(&gradients)?;
            gradients.fingerprint(r)
        })
        .unwrap();
    step.run_blocking(inputs! { "lr" => 0.1_f32, "step" => 0_u32 }).unwrap();
    assert!(params.read_blocking::<f32>("q").unwrap().iter().all(|&v| v < 0.95));
}

#[test]
fn case_31_twenty_tensors_in_one_op() {
    let (_turn, gpu) = gpu();
    let names: Vec<String> = (0..20).map(|i| format!("t{i}")).collect();
    let list: Vec<Weight<'_>> = names.iter().map(|n| (n.as_str(), &[2, 3][..])).collect();
    let (params, values) = weights(&gpu, &list);
    let step = record(&gpu, |r| {
        let all: Vec<Tensor> = params.all().iter().map(|p| r.param(p)).collect::<Result<_>>()?;
        let refs: Vec<&Tensor> = all.iter().collect();
        let y = r.checkpoint(all.clone(), |all| Tensor::cat(&all.iter().collect::<Vec<_>>(), 1)?.tanh())?;
        let sum = all.iter().skip(1).try_fold(all[0].clone(), |sum, t| sum.add(t))?;
        let loss = y.sqr()?.sum_all()?.add(&sum.sqr()?.sum_all()?)?;
        Ok([vec![y, sum], r.gradients(&loss, &refs)?].concat())
    });
    let ran = run_all(&gpu, &params, &step, inputs! {});
    let joined: Vec<f64> = (0..2).flat_map(|row| values.iter().flat_map(move |v| v[3 * row..][..3].to_vec())).collect();
    assert_close(&ran.floats(0), &tanh(&joined), 1e-5, "cat");
    let sum: Vec<f64> = (0..6).map(|i| values.iter().map(|v| v[i]).sum()).collect();
    assert_close(&ran.floats(1), &sum, 1e-5, "sum");
    for (i, v) in values.iter().enumerate() {
        let slope = |(x, s): (&f64, &f64)| 2.0 * x.tanh() * (1.0 - x.tanh().powi(2)) + 2.0 * s;
        assert_close(&ran.floats(2 + i), &v.iter().zip(&sum).map(slope).collect::<Vec<_>>(), 1e-4, &names[i]);
    }
}

#[test]
fn case_36_and_39_refused_allocations_and_commands_are_errors_and_training_goes_on() {
    let (_turn, gpu) = gpu();
    let train = |fail: bool| {
        let params = Params::new(&gpu, 3);
        let p = params.create("p", [64], Init::Uniform { low: -1.0, high: 1.0 }).unwrap();
        let adam = AdamW::new(&params, AdamWConfig::default()).unwrap();
        let build = |r: &Recorder| {
            let loss = r.checkpoint(r.param(&p)?, |w| w.sin()?.sqr())?.mean_all()?;
            adam.minimize(&loss)?;
            Ok(loss)
        };
        if fail {
            gpu.inject(Inject::AllocationFailure(1));
            let error = gpu.step_blocking(Policy::Segments, build).map(|_| ()).unwrap_err();
            assert!(matches!(&error, Error::OutOfMemory { size_bytes, .. } if *size_bytes > 0), "{error}");
            assert!(error.to_string().contains("out of device memory"), "{error}");
        }
        let step = gpu.step_blocking(Policy::Segments, build).unwrap();
        for i in 0..20_u32 {
            if fail && i % 7 == 3 {
                gpu.inject(Inject::ValidationError);
                let error = step.run_blocking(inputs! { "lr" => 0.1_f32, "step" => i }).map(|_| ()).unwrap_err();
                assert!(matches!(error, Error::Validation { .. }), "{error}");
            }
            step.run_blocking(inputs! { "lr" => 0.1_f32, "step" => i }).unwrap();
        }
        params.read_all_blocking().unwrap()
    };
    assert!(train(false) == train(true), "a refused command changed what was trained");
}

#[test]
fn case_40_and_41_special_values_and_functions_far_out() {
    let (_turn, gpu) = gpu();
    let special = [f32::NAN, -f32::NAN, f32::INFINITY, 1.0];
    let points = [20.0_f32, 44.0, 89.0, 1e4, -1e4, -89.0, -20.0];
    let masked = [f32::NEG_INFINITY, f32::NEG_INFINITY, f32::NEG_INFINITY, 1.0, f32::NEG_INFINITY, 1.0];
    let given = inputs! { "special" => &special, "points" => &points, "masked" => &masked };
    let out = once(&gpu, given, |r| {
        let special = r.input::<f32>("special", [4])?;
        let x = r.input::<f32>("points", [7])?;
        let masked = r.input::<f32>("masked", [2, 3])?;
        let soft = masked.softmax(-1)?;
        let mut out = vec![special.isnan()?.to_u32()?, r.full([2], f32::NEG_INFINITY)?, soft.clone()];
        out.extend(r.gradients(&soft.sqr()?.sum_all()?, &[&masked])?);
        for f in [Tensor::tanh, Tensor::gelu, Tensor::gelu_tanh, Tensor::silu, Tensor::sigmoid] {
            let y = f(&x)?;
            out.extend(r.gradients(&y.sum_all()?, &[&x])?);
            out.push(y);
        }
        Ok(out)
    });
    assert_eq!(out[0], [1, 1, 0, 0]);
    assert_eq!(floats(&out[1]), [f32::NEG_INFINITY; 2]);
    assert_eq!(floats(&out[2]), [0.0, 0.0, 0.0, 0.5, 0.0, 0.5]);
    assert!(floats(&out[3]).iter().all(|g| g.is_finite()), "{:?}", floats(&out[3]));
    let limits: [(&str, [f32; 2], bool); 5] = [
        ("tanh", [-1.0, 1.0], false),
        ("gelu", [0.0, 1.0], true),
        ("gelu_tanh", [0.0, 1.0], true),
        ("silu", [0.0, 1.0], true),
        ("sigmoid", [0.0, 1.0], false),
    ];
    for (i, (name, sides, grows)) in limits.into_iter().enumerate() {
        let (slopes, values) = (floats(&out[4 + 2 * i]), floats(&out[5 + 2 * i]));
        for ((&x, slope), value) in points.iter().zip(slopes).zip(values) {
            let side = sides[usize::from(x > 0.0)];
            let (expected, steep) = if grows { (side * x, side) } else { (side, 0.0) };
            assert!((value - expected).abs() <= 1e-6 * expected.abs().max(1.0), "{name}({x}) = {value}");
            assert!((slope - steep).abs() <= 1e-6, "{name}'({x}) = {slope}");
        }
    }
}

#[test]
fn case_43_memory_is_poisoned_and_every_second_run_is_the_same() {
    let (_turn, gpu) = gpu();
    if std::env::var("REMAT_POISON").as_deref() != Ok("0") {
        assert!(gpu.is_poisoning());
    }
    let params = Params::new(&gpu, 1);
    let names = ["a", "b"];
    for (i, name) in names.iter().enumerate() {
        params.create(name, [96, 96], Init::from(noise(96 * 96, i as u32))).unwrap();
    }
    let step = gpu
        .step_blocking(Policy::Segments, |r| {
            let w: Vec<Tensor> = params.all().iter().map(|p| r.param(p)).collect::<Result<_>>()?;
            let mut h = r.ones([33, 96])?;
            for i in 0..6 {
                h = r.checkpoint(h, |h| h.linear(&w[i % 2], None)?.softmax(-1)?.layer_norm(None, None, 1e-5))?;
            }
            let loss = h.sqr()?.sum_all()?.add(&h.tanh()?.sum_all()?)?;
            fingerprint(r, &r.gradients(&loss, &[&w[0], &w[1]])?)
        })
        .unwrap();
    let all: Vec<Vec<u32>> = (0..4).map(|_| words(&step.run_blocking(inputs! {}).unwrap())).collect();
    drop(step);
    assert!(all.iter().all(|f| *f == all[0]), "{all:?}");
    let gradients_of_nan = once(&gpu, &[], |r| fingerprint(r, &[r.full([96, 96], f32::NAN)?]).map(|f| vec![f]));
    assert_ne!(gradients_of_nan[0], all[0]);
}

#[test]
fn case_44_repeated_rows_add_up_and_two_runs_are_the_same_bits() {
    let (_turn, gpu) = gpu();
    for ids in [vec![3_i32, 3, 3], vec![3; 500], (0..700).map(|i| (i * i) % 7).collect()] {
        let dy = noise(ids.len() * 5, 8);
        let body = |r: &Recorder| {
            let table = r.input::<f32>("table", [7, 5])?;
            let y = table.embedding(&r.input::<i32>("ids", [ids.len()])?)?;
            let loss = y.mul(&r.input::<f32>("dy", [ids.len(), 5])?)?.sum_all()?;
            r.gradients(&loss, &[&table])
        };
        let table = noise(35, 9);
        let given = inputs! { "table" => &table, "ids" => &ids, "dy" => &dy };
        let (first, second) = (once(&gpu, given, body), once(&gpu, given, body));
        assert!(first == second, "two runs differ");
        let mut expected = vec![0.0_f64; 35];
        for (n, &id) in ids.iter().enumerate() {
            (0..5).for_each(|c| expected[5 * id as usize + c] += f64::from(dy[5 * n + c]));
        }
        assert_close(&floats(&first[0]), &expected, 1e-6, "rows");
    }
    let ids = [3_i32; 3];
    let ones = [1.25_f32; 6];
    let given = inputs! { "table" => &[0.0_f32; 8], "ids" => &ids, "dy" => &ones };
    let out = once(&gpu, given, |r| {
        let table = r.input::<f32>("table", [4, 2])?;
        let y = table.embedding(&r.input::<i32>("ids", [3])?)?;
        r.gradients(&y.mul(&r.input::<f32>("dy", [3, 2])?)?.sum_all()?, &[&table])
    });
    assert_eq!(floats(&out[0]), [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 3.75, 3.75]);
}

#[test]
fn case_46_numbers_reach_the_device_unharmed_by_every_way() {
    let (_turn, gpu) = gpu();
    let numbers = [0.1_f32, 1e-38, 16_777_217.0, -0.0, f32::MAX, f32::MIN_POSITIVE, 1.0 / 3.0];
    let params = Params::new(&gpu, 1);
    let p = params.create("p", [7], Init::from(numbers.to_vec())).unwrap();
    let step = record(&gpu, |r| {
        let mut out = vec![r.constant(&numbers, [7])?, r.input::<f32>("x", [7])?, r.param(&p)?];
        out = out.iter().map(|t| Tensor::cat(&[t, t], 0)?.narrow(0, 0, 7)).collect::<Result<_>>()?;
        for n in numbers {
            out.push(r.full([1], n)?);
            out.push(r.zeros([1])?.masked_fill(&r.full_bool([1], true)?, n)?);
            out.push(r.ones([1])?.pad(&[(1, 0)], n)?.narrow(0, 0, 1)?);
        }
        out.push(r.full_u32([1], 16_777_217)?.add_scalar(u32::MAX - 16_777_217)?);
        out.push(r.full_i32([1], i32::MIN)?);
        Ok(out)
    });
    let ran = run_all(&gpu, &params, &step, inputs! { "x" => &numbers });
    let bits = numbers.map(f32::to_bits);
    (0..3).for_each(|way| assert_eq!(ran.outputs[way], bits, "way {way}"));
    for (i, bits) in bits.iter().enumerate() {
        (0..3).for_each(|way| assert_eq!(ran.outputs[3 + 3 * i + way], [*bits], "{}, way {way}", numbers[i]));
    }
    assert_eq!((ran.outputs[24][0], ran.outputs[25][0]), (u32::MAX, i32::MIN as u32));
    // Whole numbers and truth values as states.
    let flags = params
        .create_typed(
            "flags",
            TensorType::new(DType::Bool, [3]),
            remat::fuse::program::Category::Parameter,
            Init::DataU32([1, 0, 1].into()),
        )
        .unwrap();
    let out = record(&gpu, |r| Ok(vec![r.param(&flags)?.logical_not()?, r.param(&flags)?.to_f32()?]));
    let ran = run_all(&gpu, &params, &out, inputs! {});
    assert_eq!((ran.outputs[0].clone(), ran.floats(1)), (vec![0, 1, 0], vec![1.0, 0.0, 1.0]));
}

#[test]
fn case_47_gradients_of_a_product_take_a_few_times_its_inputs() {
    let step = remat::step::RecordedStep::new(&remat::profile::DeviceProfile::default(), |r| {
        let (a, b) = (r.input::<f32>("a", [2048, 256])?, r.input::<f32>("b", [256, 4096])?);
        r.gradients(&a.matmul(&b)?.sqr()?.mean_all()?, &[&a, &b])
    })
    .unwrap();
    let plan = step.plan(&Policy::None).unwrap();
    let inputs = 4 * (2048 * 256 + 256 * 4096);
    let product = 4 * 2048 * 4096;
    assert!(plan.live_peak_bytes <= 3 * product + 2 * inputs, "{} bytes", plan.live_peak_bytes);
    let longest = step.program().storages.iter().map(|s| s.bytes).max().unwrap();
    assert!(longest <= product, "a temporary of {longest} bytes");
}

#[test]
fn case_48_no_optional_feature_is_needed() {
    // Every kernel of a model with all kinds of layers is plain WGSL: nothing is enabled or required.
    let params = Params::offline(1);
    let model = remat::nn::Gpt::new(&params, &remat::nn::GptConfig::new(16, 8, 16, 2, 1)).unwrap();
    let adam = AdamW::new(&params, AdamWConfig::default()).unwrap();
    let step = remat::step::RecordedStep::new(&remat::profile::DeviceProfile::default(), |r| {
        let logits = model.logits(&r.input::<i32>("ids", [2, 8])?)?.reshape([16, 16])?;
        let loss = logits.cross_entropy(&r.input::<i32>("targets", [16])?)?;
        Ok(vec![adam.minimize(&loss)?.fingerprint(r)?])
    })
    .unwrap();
    assert!(step.program().kernels.len() > 10);
    for kernel in &step.program().kernels {
        for word in ["enable ", "requires ", "f16", "subgroup", "timestamp"] {
            assert!(!kernel.source.contains(word), "{} names {word}", kernel.name);
        }
    }
}
