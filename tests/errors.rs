//! Wrong input: a typed error that names op, value and shapes, at recording,
//! planning, running and loading; nothing panics, and the engine goes on.
//! Wrong inputs of a run and wrong reads and writes of single states stand in
//! `gpu_run.rs` and `gpu_state.rs`, words of policies in `checkpoint/policy.rs`.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/engine.rs"]
mod engine;

use engine::*;
use remat::checkpoint::{ByteSize, Policy};
use remat::dtype::{DType, Shape, TensorType};
use remat::error::{Error, Result};
use remat::fuse::program::Category;
use remat::graph::{Recorder, Tensor};
use remat::inputs;
use remat::nn::{Activation, Dropout, Gpt, GptConfig, Linear, Module};
use remat::ops::{CrossEntropyOptions, Reduction, fingerprint};
use remat::optim::{AdamW, AdamWConfig, Gradients, Optimizer, Sgd, SgdConfig};
use remat::params::{Init, Params};
use remat::profile::DeviceProfile;
use remat::step::{PlannedStep, RecordedStep};

/// The error's text has every part, in particular the op and the shapes.
#[track_caller]
fn says<T>(result: Result<T>, parts: &[&str]) {
    let text = match result {
        Ok(_) => panic!("accepted, but should say {parts:?}"),
        Err(error) => error.to_string(),
    };
    for part in parts {
        assert!(text.contains(part), "{text:?} does not say {part:?}");
    }
}

#[test]
fn shapes_and_types_that_do_not_fit_any_family_of_ops() {
    let r = Recorder::new();
    let f = |name: &str, shape: &[usize]| r.input::<f32>(name, shape).unwrap();
    let (a, b, v, s) = (f("a", &[2, 3]), f("b", &[4, 5]), f("v", &[4]), f("s", &[]));
    let (cube, i) = (f("cube", &[2, 3, 4]), r.input::<i32>("i", [2, 3]).unwrap());
    let t = a.gt_scalar(0.0).unwrap();
    let both = &["[2, 3]", "[4, 5]"][..];
    // Two operands.
    for (name, result) in [
        ("add", a.add(&b)),
        ("sub", a.sub(&b)),
        ("mul", a.mul(&b)),
        ("div", a.div(&b)),
        ("maximum", a.maximum(&b)),
        ("minimum", a.minimum(&b)),
        ("pow", a.pow(&b)),
        ("remainder", a.remainder(&b)),
        ("matmul", a.matmul(&b)),
        ("matmul", a.matmul_t(&b)),
        ("matmul", a.linear(&b, None)),
        ("mse_loss", a.mse_loss(&b)),
        ("where", t.where_(&a, &b)),
        ("cat", Tensor::cat(&[&a, &b], 0)),
        ("broadcast_to", a.broadcast_to([4, 5])),
        ("reshape", a.reshape([4, 5])),
    ] {
        says(result, &[&[name], both].concat());
    }
    says(a.eq(&b).map(|_| ()), &[both, &["eq"]].concat());
    says(a.masked_fill(&b.gt_scalar(0.0).unwrap(), 1.0), &[both, &["masked_fill"]].concat());
    says(a.linear(&f("w", &[7, 3]), Some(&v)), &["add", "[2, 7]", "[4]"]);
    says(a.layer_norm(Some(&v), None, 1e-5), &["layer_norm", "[2, 3]", "[4]"]);
    says(s.layer_norm(None, None, 1e-5), &["layer_norm", "[]"]);
    says(a.embedding(&a), &["embedding", "f32", "i32"]);
    says(cube.embedding(&i), &["embedding", "[2, 3, 4]", "[V, D]"]);
    says(a.cross_entropy(&r.input::<i32>("t", [5]).unwrap()), &["cross_entropy", "[2, 3]", "[5]"]);
    says(a.cross_entropy(&v), &["cross_entropy", "f32", "i32"]);
    says(a.attention(&b, &v, true), &["attention", "[2, 3]", "[4, 5]", "[4]"]);
    says(cube.attention(&f("k", &[2, 3, 5]), &cube, false), &["matmul", "[2, 3, 4]", "[2, 3, 5]"]);
    says(s.matmul(&a), &["matmul", "[]", "[2, 3]"]);
    says(Tensor::stack(&[&a, &b], 0), &["cat"]);
    says(Tensor::cat::<Tensor>(&[], 0), &["cat", "[]", "at least one"]);
    says(a.sum_to(&[2, 3, 4].into()), &["sum_to", "[2, 3]", "[2, 3, 4]"]);
    says(v.tril(0), &["tril", "[4]"]);
    // Types.
    for (name, result) in [
        ("exp", i.exp()),
        ("gelu", i.gelu()),
        ("mean", i.mean_all()),
        ("var", i.var(&[], false, false)),
        ("softmax", i.softmax(-1)),
        ("log_softmax", i.log_softmax(-1)),
        ("layer_norm", i.layer_norm(None, None, 1e-5)),
        ("dropout", i.dropout(0.5)),
        ("matmul", i.matmul(&i.t().unwrap())),
        ("mse_loss", i.mse_loss(&a)),
    ] {
        says(result, &[name, "i32", "f32"]);
    }
    says(t.sum_all(), &["sum", "bool"]);
    says(t.argmax(0, false), &["argmax", "bool"]);
    says(a.add(&i), &["add", "operand 1", "i32"]);
    says(a.logical_and(&t), &["logical_and", "f32"]);
    says(a.add_scalar(1_i32), &["add_scalar"]);
    says(r.typed_input("flag", TensorType::new(DType::Bool, [1])), &["input", "bool"]);
    // Axes and ranges.
    for axis in [2_isize, -3, isize::MAX, isize::MIN] {
        let value = axis.to_string();
        for result in [
            a.sum(&[axis], false),
            a.mean(&[axis], true),
            a.max(&[axis], false),
            a.argmax(axis, false),
            a.softmax(axis),
            a.narrow(axis, 0, 1),
            a.select(axis, 0),
            a.squeeze(axis),
            a.transpose(axis, 0),
            a.flatten(0, axis),
            Tensor::cat(&[&a, &a], axis),
        ] {
            says(result, &["axis", &value, "[2, 3]"]);
        }
        says(a.split(axis, &[1, 1]), &["split", &value]);
    }
    says(a.unsqueeze(4), &["unsqueeze", "4", "[2, 3]"]);
    says(a.unsqueeze(isize::MIN), &["unsqueeze"]);
    says(Tensor::stack(&[&a, &a], 5), &["stack", "5"]);
    says(a.sum(&[0, -2], false), &["sum", "twice"]);
    says(a.narrow(1, 2, usize::MAX), &["narrow", "[2, 3]"]);
    says(a.select(0, 2), &["[2, 3]"]);
    says(a.split(1, &[1, 1]), &["split", "[1, 1]", "[2, 3]"]);
    says(a.split(1, &[usize::MAX, 4]), &["split"]);
    says(a.slice(0, 0, 2, 0), &["slice", "step"]);
    says(a.pad(&[(1, 1)], 0.0), &["pad", "[2, 3]"]);
    says(a.permute(&[0, 0]), &["permute", "[0, 0]"]);
    says(r.iota([2], 1), &["iota", "1", "[2]"]);
    says(f("e", &[0, 3]).max(&[0], false), &["max", "[0, 3]"]);
    // Numbers.
    for p in [f32::NAN, -0.1, 1.0, f32::INFINITY] {
        says(a.dropout(p), &["dropout", "p = "]);
        says(Dropout::new(p), &["dropout", "p = "]);
    }
    says(r.bernoulli([2], f32::NAN), &["bernoulli", "NaN"]);
    says(a.clamp(1.0, -1.0), &["clamp"]);
    for label_smoothing in [-0.5_f32, 1.5, f32::NAN] {
        let options = CrossEntropyOptions { label_smoothing, ..CrossEntropyOptions::default() };
        says(a.cross_entropy_with(&r.input::<i32>("c", [2]).unwrap(), options), &["cross_entropy", "label_smoothing"]);
    }
    // After all that the recording is whole.
    let y = a.mse(&a.neg().unwrap(), Reduction::Sum).unwrap();
    assert!(r.finish(&[("y".into(), &y)]).is_ok());
}

#[test]
fn tensors_of_another_recording_are_refused_everywhere() {
    let (r, other) = (Recorder::new(), Recorder::new());
    let x = r.input::<f32>("x", [2, 2]).unwrap();
    let y = other.input::<f32>("y", [2, 2]).unwrap();
    let ids = other.input::<i32>("ids", [2]).unwrap();
    let mask = other.full_bool([2, 2], true).unwrap();
    let again = &["another recording"][..];
    for result in [
        x.add(&y),
        x.matmul(&y),
        x.linear(&y, None),
        x.linear(&x, Some(&y.select(0, 0).unwrap())),
        x.pow(&y),
        x.masked_fill(&mask, 0.0),
        mask.where_(&x, &x),
        x.layer_norm(Some(&y.select(0, 0).unwrap()), None, 1e-5),
        x.embedding(&ids),
        x.cross_entropy(&ids),
        x.mse_loss(&y),
        Tensor::cat(&[&x, &y], 0),
        Tensor::stack(&[&x, &y], 0),
        r.checkpoint(y.clone(), Ok),
        r.checkpoint(x.clone(), |x| x.add(&y)),
        fingerprint(&r, &[x.clone(), y.clone()]),
    ] {
        says(result, again);
    }
    let (loss, other_loss) = (x.sum_all().unwrap(), y.sum_all().unwrap());
    says(r.gradients(&loss, &[&y]), again);
    says(r.gradients(&other_loss, &[&y]), again);
    says(r.gradients(&other_loss, &[&x]), again);
    says(r.finish(&[("y".into(), &y)]), again);
    let profile = DeviceProfile::default();
    says(RecordedStep::new(&profile, |_| Ok(y.clone())), again);
    says(PlannedStep::new(&profile, &Policy::None, |r| r.checkpoint((), |()| Ok(y.clone()))), again);
    // Parameters of two Params in one recording.
    let (one, two) = (Params::offline(1), Params::offline(1));
    let (p, q) = (one.create("p", [2], Init::Ones).unwrap(), two.create("q", [2], Init::Ones).unwrap());
    r.param(&p).unwrap();
    says(r.param(&q), &["param", "\"q\"", "another Params"]);
    let sgd = Sgd::new(&two, SgdConfig { momentum: 0.9, ..SgdConfig::default() }).unwrap();
    says(sgd.update(&p, &r.zeros([2]).unwrap()), &["another Params"]);
    assert!(r.finish(&[("x".into(), &x)]).is_ok());
}

#[test]
fn a_recording_that_was_planned_takes_nothing_more() {
    let params = Params::offline(1);
    let p = params.create("p", [2, 2], Init::Ones).unwrap();
    let mut kept = None;
    let profile = DeviceProfile::default();
    let step = RecordedStep::new(&profile, |r| {
        let w = r.param(&p)?;
        let loss = w.sqr()?.sum_all()?;
        kept = Some((r.clone(), w, loss.clone()));
        Ok(loss)
    })
    .unwrap();
    let (r, w, loss) = kept.unwrap();
    let planned = &["already planned"][..];
    says(w.add(&w), &[planned, &["add"]].concat());
    says(w.matmul(&w), planned);
    says(w.softmax(0), planned);
    says(Tensor::cat(&[&w, &w], 0), planned);
    says(r.gradients(&loss, &[&w]), &[planned, &["gradients"]].concat());
    says(Gradients::of(&loss), planned);
    says(r.checkpoint(w.clone(), Ok), planned);
    says(r.input::<f32>("x", [2]), planned);
    says(r.constant(&[1.0_f32], [1]), planned);
    says(r.param(&p), planned);
    says(r.zeros([2]), planned);
    says(r.seed(), planned);
    says(w.dropout(0.5), planned);
    says(w.digest(), planned);
    says(Sgd::new(&params, SgdConfig::default()).unwrap().update(&p, &w), planned);
    says(r.finish(&[]), planned);
    assert_eq!(w.clone().named("late").dims(), [2, 2]);
    assert!(step.plan(&Policy::None).is_ok());
}

#[test]
fn policies_that_mean_nothing_and_budgets_that_cannot_be_kept() {
    let text = |t: &str| t.parse::<Policy>();
    for wrong in ["budget:-1", "budget:-5%", "budget:NaN", "budget:NaN%", "every:0", "every:-1", "budget:1e999", "all"]
    {
        says(text(wrong), &["policy", wrong]);
    }
    says("-3MiB".parse::<ByteSize>(), &["-3MiB", "negative"]);
    let profile = DeviceProfile::default();
    let build = |segments: bool| {
        RecordedStep::new(&profile, move |r| {
            let x = r.input::<f32>("x", [64, 64])?;
            let w = r.input::<f32>("w", [64, 64])?;
            let body = |x: &Tensor| x.matmul(&w)?.tanh()?.matmul(&w)?.tanh();
            let mut h = x;
            for _ in 0..4 {
                h = if segments { r.checkpoint(h, |h| body(&h))? } else { body(&h)? };
            }
            let loss = h.sqr()?.mean_all()?;
            r.gradients(&loss, &[&w])
        })
        .unwrap()
    };
    let (with, without) = (build(true), build(false));
    for policy in [Policy::Segments, Policy::Every(2), Policy::Sqrt] {
        says(without.plan(&policy), &["policy", &policy.to_string(), "no segments", "checkpoint"]);
    }
    says(with.plan(&Policy::Every(0)), &["every:0"]);
    for share in [f64::NAN, -0.5, 1.5, f64::INFINITY] {
        says(with.plan(&Policy::BudgetFraction(share)), &["policy", "share"]);
    }
    for step in [&with, &without] {
        let least = least(step);
        let below = step.plan(&Policy::Budget(ByteSize::new(least - 1)));
        says(below, &[&(least - 1).to_string(), &least.to_string(), "least budget"]);
        assert!(step.plan(&Policy::Budget(ByteSize::new(least))).unwrap().planned_peak_bytes() <= least);
        says(step.plan(&Policy::BudgetFraction(0.0)), &["least budget"]);
    }
}

#[test]
fn layers_and_optimisers_refuse_sizes_and_numbers() {
    let params = Params::offline(1);
    for heads in [0, 3, usize::MAX] {
        says(Gpt::new(&params, &GptConfig::new(8, 4, 16, heads, 1)), &["heads", &heads.to_string(), "16"]);
    }
    let config = GptConfig { dropout: f32::NAN, ..GptConfig::new(8, 4, 16, 2, 1) };
    says(Gpt::new(&Params::offline(1), &config), &["dropout", "NaN"]);
    let fused =
        GptConfig { fused_qkv: true, activation: Activation::GeluTanh, ..GptConfig::new(2, 2, usize::MAX - 1, 2, 1) };
    for (config, parts) in [
        (GptConfig::new(usize::MAX, usize::MAX, usize::MAX, 1, 1), ["limit", "index"]),
        (fused, ["split", "not valid"]),
    ] {
        // Not too large to describe; too large to record or to plan.
        let huge = Gpt::new(&Params::offline(1), &config).unwrap();
        let planned = PlannedStep::new(&DeviceProfile::default(), &Policy::None, |r| {
            huge.logits(&r.input::<i32>("ids", [1, 2])?)?.sum_all()
        });
        says(planned, &parts);
    }
    let gpt = Gpt::new(&Params::offline(1), &GptConfig::new(8, 4, 16, 2, 1)).unwrap();
    let r = Recorder::new();
    says(gpt.logits(&r.input::<i32>("a", [1, 5]).unwrap()), &["gpt", "[1, 5]", "4"]);
    says(gpt.logits(&r.input::<i32>("b", [5]).unwrap()), &["gpt", "[5]", "[B, T]"]);
    says(gpt.logits(&r.input::<f32>("c", [1, 2]).unwrap()), &["embedding", "f32"]);
    let mut config = AdamWConfig { beta1: 1.0, ..AdamWConfig::default() };
    says(AdamW::new(&params, config), &["adamw", "beta1", "1"]);
    config = AdamWConfig { eps: -1.0, ..AdamWConfig::default() };
    says(AdamW::new(&params, config), &["adamw", "eps", "-1"]);
    says(Sgd::new(&params, SgdConfig { momentum: f64::NAN, ..SgdConfig::default() }), &["sgd", "momentum", "NaN"]);
    says(Sgd::new(&params, SgdConfig { nesterov: true, ..SgdConfig::default() }), &["sgd", "nesterov"]);
    // Names taken, and by what.
    params.create("layer.weight", [3, 2], Init::Zeros).unwrap();
    says(Linear::new(&params, "layer", 2, 4, true), &["layer.weight", "[3, 2]", "[4, 2]"]);
    says(params.create("short", [3], Init::from(vec![1.0_f32])), &["create", "short", "[3]", "1 values"]);
    let p = params.create("p", [2], Init::Ones).unwrap();
    let taken = TensorType::new(DType::I32, [2]);
    params.create_typed("adamw.p.exp_avg", taken, Category::Optimizer, Init::Zeros).unwrap();
    let adam = AdamW::new(&params, AdamWConfig::default()).unwrap();
    says(adam.update(&p, &Recorder::new().zeros([2]).unwrap()), &["adamw.p.exp_avg", "i32", "f32"]);
    // One name, two types, in one recording.
    let r = Recorder::new();
    r.param(&p).unwrap();
    params.remove("p").unwrap();
    let longer = params.create("p", [5], Init::Ones).unwrap();
    says(r.param(&longer), &["\"p\"", "[2]", "[5]"]);
    r.input::<f32>("x", [2]).unwrap();
    says(r.input::<f32>("x", [3]), &["input", "\"x\"", "[2]", "[3]"]);
    says(r.input::<i32>("x", [2]), &["input", "\"x\"", "i32", "f32"]);
    says(r.constant(&[1.0_f32; 5], [2, 3]), &["constant", "[2, 3]", "5"]);
}

#[test]
fn gradients_of_what_is_no_number() {
    let r = Recorder::new();
    let x = r.input::<f32>("x", [2, 2]).unwrap();
    let i = r.input::<i32>("i", [2]).unwrap();
    says(r.gradients(&x, &[&x]), &["gradients", "[2, 2]", "single number"]);
    says(r.gradients(&i, &[&x]), &["gradients", "i32"]);
    says(r.gradients(&x.sum_all().unwrap(), &[&i]), &["gradients", "i32"]);
    says(r.gradients(&r.zeros([0]).unwrap(), &[&x]), &["gradients", "[0]"]);
    // Nothing depends on nothing: zeros.
    let zeros = r.gradients(&x.sum_all().unwrap(), &[&r.input::<f32>("z", [3]).unwrap()]).unwrap();
    assert_eq!(zeros[0].dims(), [3]);
    assert!(r.gradients(&x.sum_all().unwrap(), &[]).unwrap().is_empty());
}

#[test]
fn huge_shapes_are_refused_and_never_wrap() {
    const MAX: usize = usize::MAX;
    let profile = DeviceProfile::default();
    type Make = fn(&Recorder, &Tensor) -> Result<Tensor>;
    let makes: [(&str, Make); 22] = [
        ("neg", |_, x| x.neg()),
        ("flatten", |_, x| x.flatten(0, -1)?.neg()),
        ("sum", |_, x| x.sum_all()),
        ("sum of one axis", |_, x| x.sum(&[-1], false)),
        ("var", |_, x| x.var(&[0], false, true)),
        ("argmax", |_, x| x.argmax(-1, false)),
        ("softmax", |_, x| x.softmax(0)),
        ("layer_norm", |_, x| x.layer_norm(None, None, 1e-5)),
        ("cat", |_, x| Tensor::cat(&[x, x, x], 0)),
        ("stack", |_, x| Tensor::stack(&[x, x], 0)),
        ("matmul", |_, x| x.matmul(&x.transpose(-1, -2)?)),
        ("linear", |r, x| x.linear(&r.input::<f32>("w", [4, x.dims()[x.rank() - 1]])?, None)),
        ("pad", |_, x| x.pad(&vec![(MAX, MAX); x.rank()], 0.0)),
        ("dropout", |_, x| x.dropout(0.5)),
        ("iota", |r, x| r.iota(x.shape(), 0)),
        ("narrow", |_, x| x.narrow(0, x.dims()[0].saturating_sub(1), 1)?.neg()),
        ("slice", |_, x| x.slice(0, 0, x.dims()[0], 2)?.neg()),
        ("tril", |_, x| x.tril(0)),
        ("causal_fill", |_, x| x.causal_fill(0.0)),
        ("digest", |_, x| x.digest()),
        ("embedding", |r, x| r.input::<f32>("table", [4, 4])?.embedding(&x.to_i32()?)),
        ("gradient", |r, x| Ok(r.gradients(&x.sqr()?.mean_all()?, &[x])?.swap_remove(0))),
    ];
    let shapes: [&[usize]; 7] = [
        &[MAX, 2],
        &[2, MAX, 3],
        &[MAX, MAX, MAX],
        &[1 << 32, 1 << 32],
        &[(1 << 31) - 1, 2],
        &[1 << 16, 1 << 16],
        &[1, MAX],
    ];
    for shape in shapes {
        for (name, make) in makes {
            let result = PlannedStep::new(&profile, &Policy::None, |r| make(r, &r.input::<f32>("x", shape)?));
            let error = result.map(|_| ()).expect_err(&format!("{name} of {shape:?} was planned"));
            let typed = matches!(error, Error::Limit { .. } | Error::Shape { .. } | Error::Argument { .. });
            assert!(typed, "{name} of {shape:?}: {error}");
        }
    }
    // With an axis of nothing there is nothing to hold, however long the others are.
    for shape in [&[MAX, 0][..], &[0, MAX, MAX], &[MAX, MAX, 0]] {
        for (name, make) in makes {
            let result = PlannedStep::new(&profile, &Policy::None, |r| make(r, &r.input::<f32>("x", shape)?));
            if let Err(error) = result {
                let typed = matches!(error, Error::Limit { .. } | Error::Shape { .. } | Error::Argument { .. });
                assert!(typed, "{name} of {shape:?}: {error}");
            }
        }
    }
    says(Recorder::new().constant(&[1.0_f32], [MAX, 2]), &["constant", "1 elements"]);
    assert_eq!(Shape::from([MAX, MAX]).element_count(), u64::MAX);
}

#[test]
fn many_axes_are_legal_or_refused() {
    let (_turn, gpu) = gpu();
    for rank in [5_usize, 8, 9, 16, 40] {
        let dims: Vec<usize> = (0..rank).map(|i| if i < 6 { 2 } else { 1 }).collect();
        let count: usize = dims.iter().product();
        let x: Vec<f32> = (0..count).map(|i| i as f32).collect();
        let backwards: Vec<isize> = (0..rank as isize).rev().collect();
        let result = RecordedStep::new(gpu.profile(), |r| {
            let x = r.input::<f32>("x", dims.as_slice())?;
            Ok(vec![x.permute(&backwards)?.add(&r.ones([1])?)?, x.permute(&backwards)?.sum(&[0, -1], false)?])
        });
        let step = result.unwrap_or_else(|e| panic!("rank {rank}: {e}"));
        let plan = planned(&gpu, &step, &Policy::None).unwrap();
        let out = run(&gpu, &step, plan, &Params::new(&gpu, 1), inputs! { "x" => &x }).unwrap();
        let bits = rank.min(6);
        for (i, y) in floats(&out[0]).iter().enumerate() {
            let turned = (0..bits).fold(0, |n, b| n | (((i >> b) & 1) << (bits - 1 - b)));
            assert_eq!(*y, turned as f32 + 1.0, "rank {rank}, element {i}");
        }
    }
}

#[test]
fn states_written_twice_or_of_another_type_are_refused() {
    let params = Params::offline(1);
    let p = params.create("weights.p", [3], Init::Ones).unwrap();
    let sgd = Sgd::new(&params, SgdConfig::default()).unwrap();
    let profile = DeviceProfile::default();
    let twice = PlannedStep::new(&profile, &Policy::None, |r| {
        let loss = r.param(&p)?.sqr()?.sum_all()?;
        sgd.minimize(&loss)?;
        sgd.minimize(&loss)?;
        Ok(loss)
    });
    says(twice, &["weights.p"]);
    says(sgd.update(&p, &Recorder::new().zeros([4]).unwrap()), &["sgd", "[3]", "[4]"]);
    says(sgd.update(&p, &Recorder::new().full_i32([3], 0).unwrap()), &["sgd"]);
    let integers =
        params.create_typed("count", TensorType::new(DType::I32, [3]), Category::Optimizer, Init::Zeros).unwrap();
    says(sgd.update(&integers, &Recorder::new().full_i32([3], 0).unwrap()), &["sgd", "i32"]);
}

/// A small model that trains, and the loss of its next step.
struct Trained {
    params: Params,
    step: remat::step::Step<(Tensor, Tensor)>,
    count: std::cell::Cell<u32>,
}

impl Trained {
    fn new(gpu: &remat::gpu::Gpu) -> Self {
        let params = Params::new(gpu, 4);
        let layer = Linear::new(&params, "layer", 4, 4, true).unwrap();
        let adam = AdamW::new(&params, AdamWConfig::default()).unwrap();
        let step = gpu
            .step_blocking(Policy::Segments, |r| {
                let x = r.input::<f32>("x", [2, 4])?;
                let y = r.checkpoint(x, |x| layer.forward(&x)?.tanh()?.sqr())?;
                let loss = y.mean_all()?;
                adam.minimize(&loss)?;
                // A state that is handed back is the one before the run.
                Ok((loss, r.param(&layer.bias.unwrap())?))
            })
            .unwrap();
        Self { params, step, count: std::cell::Cell::new(0) }
    }

    /// Trains one step and proves that the loss falls and the state moves.
    fn trains(&self) {
        let x = noise(8, 1);
        let run = || {
            let given = inputs! { "x" => &x, "lr" => 0.01_f32, "step" => self.count.get() };
            self.count.set(self.count.get() + 1);
            let (loss, bias) = self.step.run_blocking(given).unwrap();
            (loss.item_blocking::<f32>().unwrap(), bias.read_blocking::<f32>().unwrap())
        };
        let before = self.params.read_blocking::<f32>("layer.bias").unwrap();
        let (first, handed_back) = run();
        assert_eq!(handed_back, before);
        assert_ne!(self.params.read_blocking::<f32>("layer.bias").unwrap(), before);
        assert!(run().0 < first, "the loss does not fall");
    }
}

#[test]
fn wrong_runs_name_the_input_and_training_goes_on() {
    let (_turn, gpu) = gpu();
    let model = Trained::new(&gpu);
    model.trains();
    let x = noise(8, 1);
    let state = model.params.read_all_blocking().unwrap();
    let run = |given: &Inputs<'_>| model.step.run_blocking(given).map(|_| ());
    says(run(inputs! { "x" => &x, "step" => 0_u32 }), &["\"lr\"", "f32", "not given"]);
    says(run(inputs! { "x" => &x, "lr" => 1.0_f32 }), &["\"step\"", "u32", "not given"]);
    says(run(inputs! { "y" => &x, "lr" => 1.0_f32, "step" => 0_u32 }), &["\"y\"", "x, lr, step"]);
    says(run(inputs! { "x" => &x[1..], "lr" => 1.0_f32, "step" => 0_u32 }), &["\"x\"", "[2, 4]", "7 values of f32"]);
    says(run(inputs! { "x" => &[1_i32; 8], "lr" => 1.0_f32, "step" => 0_u32 }), &["\"x\"", "f32", "i32"]);
    says(run(inputs! { "x" => &x, "lr" => 1.0_f32, "step" => 0.0_f32 }), &["\"step\"", "u32", "f32"]);
    says(run(inputs! { "x" => &x, "x" => &x, "lr" => 1.0_f32, "step" => 0_u32 }), &["\"x\"", "two values"]);
    says(run(inputs! {}), &["not given"]);
    assert!(model.params.read_all_blocking().unwrap() == state, "a refused run wrote something");
    model.trains();
}

#[test]
fn broken_foreign_and_misfit_files_change_nothing() {
    let (_turn, gpu) = gpu();
    let model = Trained::new(&gpu);
    model.trains();
    let state = model.params.read_all_blocking().unwrap();
    let load = |bytes: &[u8]| pollster::block_on(model.params.load_safetensors(bytes));
    let good = pollster::block_on(model.params.to_safetensors()).unwrap();
    let header = u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
    // Cut off anywhere, with a header that lies, and of other formats.
    for cut in [0, 1, 7, 8, 9, 8 + header / 2, 8 + header, good.len() - 1] {
        says(load(&good[..cut]), &["safetensors"]);
    }
    let mut longer = good.clone();
    longer.extend([0; 4]);
    says(load(&longer), &["safetensors"]);
    for byte in [0_usize, 7, 8, 9, 20] {
        let mut broken = good.clone();
        broken[byte] ^= 0xFF;
        says(load(&broken), &["safetensors"]);
    }
    says(load(b"PK\x03\x04 an archive, as other programs write them"), &["safetensors"]);
    let file = |tensors: &[(&str, &str, &[usize], usize)]| {
        let mut at = 0;
        let entries: Vec<String> = tensors
            .iter()
            .map(|(name, dtype, shape, bytes)| {
                let begin = at;
                at += bytes;
                format!("\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape:?},\"data_offsets\":[{begin},{at}]}}")
            })
            .collect();
        let text = format!("{{{}}}", entries.join(","));
        let data = vec![0_u8; at];
        [&(text.len() as u64).to_le_bytes()[..], text.as_bytes(), &data].concat()
    };
    let bias = ("layer.bias", "F32", &[4][..], 16);
    load(&file(&[])).unwrap();
    says(load(&file(&[bias, ("layer.weigth", "F32", &[4, 4], 64)])), &["load_all", "layer.weigth", "layer.weight"]);
    says(load(&file(&[bias, ("layer.weight", "F32", &[2, 4], 32)])), &["layer.weight", "[4, 4]", "[2, 4]"]);
    says(load(&file(&[bias, ("layer.weight", "F32", &[16], 64)])), &["layer.weight", "[4, 4]", "[16]"]);
    says(load(&file(&[bias, ("layer.weight", "I32", &[4, 4], 64)])), &["layer.weight", "f32", "i32"]);
    says(load(&file(&[bias, ("layer.weight", "F16", &[4, 4], 32)])), &["layer.weight", "f16", "f32"]);
    says(load(&file(&[bias, ("layer.weight", "BF16", &[4, 4], 32)])), &["layer.weight", "BF16"]);
    let missing = std::env::temp_dir().join("remat-no-such-file.safetensors");
    says(pollster::block_on(model.params.load_file(&missing)), &["remat-no-such-file.safetensors"]);
    says(pollster::block_on(model.params.save_file(std::env::temp_dir().join("remat-no-such/a"))), &["remat-no-such"]);
    says(model.params.write_blocking("layer.bias", &[1.0_f32; 5]), &["write", "layer.bias", "[4]", "5 values"]);
    says(model.params.read_blocking::<i32>("layer.bias"), &["read", "layer.bias", "f32", "i32"]);
    says(model.params.read_blocking::<f32>("layer.bais"), &["layer.bais", "did you mean layer.bias"]);
    assert!(model.params.read_all_blocking().unwrap() == state, "a refused file changed something");
    model.trains();
    load(&good).unwrap();
    assert!(model.params.read_all_blocking().unwrap() == state);
    model.trains();
}
