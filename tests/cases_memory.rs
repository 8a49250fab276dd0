//! Memory that is not saved, or leaked, and limits: cases 17 to 31 and 33 of
//! the list in public bug reports. Where a case stands elsewhere:
//!
//! | case | test |
//! |---|---|
//! | 17 | here; hand-made programs in `planner/policies.rs` |
//! | 18 | here; a failed allocation in `gpu_faults.rs` |
//! | 19 | here through plans; `split_evenly` in `checkpoint/policy.rs` |
//! | 20 to 24 | here |
//! | 25 | `gpu_run.rs`, ten thousand runs |
//! | 26 | `gpu_state.rs`, five hundred uploads and three hundred tensors |
//! | 27 | here; `gpu_state.rs`, writes between runs |
//! | 28 | here on a recording; `gpu_run.rs` and `gpu_faults.rs` (128 and 16 MiB), `planner/limits.rs` (4 GiB) |
//! | 29 | `ops_elementwise` (elementwise); here matmul and outputs |
//! | 30, 31 | `cases_numbers.rs`; `ops_kernels/copies.rs` |
//! | 33 | `ops_elementwise`, sizes that cannot be addressed; `errors.rs`, huge shapes |
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/engine.rs"]
mod engine;

use engine::*;
use remat::checkpoint::Policy;
use remat::error::{Error, Result};
use remat::fuse::program::{Category, Phase, Program};
use remat::gpu::{Executable, Gpu, Inject};
use remat::graph::{Recorder, Tensor};
use remat::inputs;
use remat::nn::{Gpt, GptConfig, Mlp, Module};
use remat::optim::{AdamW, AdamWConfig, Gradients, Optimizer, Sgd, SgdConfig};
use remat::params::{Init, Params};
use remat::plan::{Plan, Space};
use remat::profile::DeviceProfile;
use remat::step::RecordedStep;

fn offline(body: impl FnOnce(&Recorder) -> Result<Vec<Tensor>>) -> RecordedStep<Vec<Tensor>> {
    RecordedStep::new(&DeviceProfile::default(), body).unwrap()
}

fn plan_of(step: &RecordedStep<Vec<Tensor>>, policy: &str) -> Plan {
    let plan = step.plan(&policy.parse().unwrap()).unwrap();
    remat::plan::check(step.program(), &plan, &DeviceProfile::default()).unwrap();
    plan
}

fn mlp(blocks: usize) -> RecordedStep<Vec<Tensor>> {
    let params = Params::offline(1);
    let model = Mlp::new(&params, 64, 256, blocks).unwrap();
    let adam = AdamW::new(&params, AdamWConfig::default()).unwrap();
    offline(|r| {
        let loss = model.forward_checkpointed(&r.input::<f32>("x", [128, 64])?)?.sqr()?.mean_all()?;
        adam.minimize(&loss)?;
        Ok(vec![loss])
    })
}

fn transformer(layers: usize) -> RecordedStep<Vec<Tensor>> {
    let params = Params::offline(1);
    let model = Gpt::new(&params, &GptConfig::new(32, 32, 32, 2, layers)).unwrap();
    let adam = AdamW::new(&params, AdamWConfig::default()).unwrap();
    offline(|r| {
        let logits = model.logits(&r.input::<i32>("ids", [4, 32])?)?;
        let loss = logits.reshape([128, 32])?.cross_entropy(&r.input::<i32>("targets", [128])?)?;
        adam.minimize(&loss)?;
        Ok(vec![loss])
    })
}

#[test]
fn case_17_finer_groups_never_take_more_where_interiors_are_wide() {
    for (name, step) in [("mlp", mlp(8)), ("transformer", transformer(8))] {
        let peak = |policy: &str| plan_of(&step, policy).planned_peak_bytes();
        let peaks = ["every:1", "every:2", "every:4", "none"].map(peak);
        assert!(peaks.is_sorted(), "{name}: {peaks:?}");
        assert!(peaks[0] < peaks[2] && peaks[2] < peaks[3], "{name}: no gain at all: {peaks:?}");
        assert!(peak("segments") == peaks[0] && peak("every:8") <= peaks[3], "{name}");
        assert!(plan_of(&step, "every:1").notes.is_empty());
    }
}

#[test]
fn case_17_the_report_says_where_a_policy_gains_nothing() {
    // Each segment keeps its output only, which is the next one's input anyway.
    let params = Params::offline(1);
    let w = params.create("w", [64, 64], Init::Ones).unwrap();
    let step = offline(|r| {
        let w = r.param(&w)?;
        let mut h = r.input::<f32>("x", [64, 64])?;
        for _ in 0..6 {
            h = r.checkpoint(h, |h| h.linear(&w, None)?.relu())?;
        }
        r.gradients(&h.sqr()?.mean_all()?, &[&w])
    });
    let (none, segments) = (plan_of(&step, "none"), plan_of(&step, "segments"));
    assert!(segments.activation_peak_bytes >= none.activation_peak_bytes);
    let report = segments.report(step.program()).to_string();
    assert!(report.contains("gains nothing"), "{report}");
    assert!(none.notes.is_empty());
}

#[test]
fn case_18_two_hundred_steps_and_failed_runs_keep_live_bytes() {
    let (_turn, gpu) = gpu();
    let params = Params::new(&gpu, 1);
    let model = Mlp::with_dropout(&params, 16, 64, 3, 0.1).unwrap();
    let adam = AdamW::new(&params, AdamWConfig::default()).unwrap();
    let step = gpu
        .step_blocking(Policy::Segments, |r| {
            let loss = model.forward_checkpointed(&r.input::<f32>("x", [8, 16])?)?.sqr()?.mean_all()?;
            adam.minimize(&loss)?;
            Ok(loss)
        })
        .unwrap();
    let x = noise(8 * 16, 1);
    let mut first = None;
    let mut losses = Vec::new();
    for i in 0..200_u32 {
        let inputs = inputs! { "x" => &x, "lr" => 1e-2_f32, "step" => i, "seed" => 3_u32 };
        losses.push(step.run_blocking(inputs).unwrap().item_blocking::<f32>().unwrap());
        if i % 20 == 7 {
            // Left out, unknown, too short, of another type.
            for wrong in [
                inputs! { "x" => &x, "step" => i, "seed" => 3_u32 },
                inputs! { "x" => &x, "lr" => 1e-2_f32, "step" => i, "seed" => 3_u32, "y" => 1.0_f32 },
                inputs! { "x" => &x[1..], "lr" => 1e-2_f32, "step" => i, "seed" => 3_u32 },
                inputs! { "x" => &x, "lr" => 1_i32, "step" => i, "seed" => 3_u32 },
            ] {
                assert!(step.run_blocking(wrong).is_err());
            }
            gpu.inject(Inject::ValidationError);
            assert!(step.run_blocking(inputs).is_err());
        }
        let live = gpu.memory().total.live_bytes;
        assert_eq!(*first.get_or_insert(live), live, "after step {i}");
    }
    assert!(losses[199] < 0.5 * losses[0] && losses.iter().all(|l| l.is_finite()), "{} {}", losses[0], losses[199]);
}

#[test]
fn case_19_layers_are_split_evenly_in_recorded_order() {
    // sqrt of 9 is 3 parts of 3; of 10, 4 parts of 3, 3, 2, 2: what is kept are the parts' edges.
    let boundaries = |blocks: usize, policy: &str| {
        let step = mlp(blocks);
        let plan = plan_of(&step, policy);
        let kept = |i: &&remat::plan::Instance| {
            matches!(i.location.space, Space::Arena(_)) && step.program().storage(i.storage).bytes == 128 * 64 * 4
        };
        plan.saved(step.program()).into_iter().filter(kept).count()
    };
    for (blocks, policy, groups) in
        [(9, "sqrt", 3), (10, "sqrt", 4), (9, "every:2", 5), (10, "every:4", 3), (3, "every:7", 1), (4, "every:1", 4)]
    {
        // Each group's output but for the last one, whose value the loss reads.
        let found = boundaries(blocks, policy);
        assert!((groups - 1..=groups).contains(&found), "{blocks} blocks under {policy}: {found} boundaries are kept");
    }
    assert!(matches!("every:0".parse::<Policy>(), Err(Error::Policy { .. })));
}

#[test]
fn case_20_the_first_blocks_gradients_asked_first_do_not_raise_the_peak() {
    let build = |reversed: bool| {
        let params = Params::offline(1);
        let model = Mlp::new(&params, 64, 256, 6).unwrap();
        let sgd = Sgd::new(&params, SgdConfig::default()).unwrap();
        offline(|r| {
            let loss = model.forward_checkpointed(&r.input::<f32>("x", [128, 64])?)?.sqr()?.mean_all()?;
            // From the last block to the first as backward makes them, or the other way round.
            let mut asked = model.parameters();
            if reversed {
                asked.reverse();
            }
            sgd.apply(&Gradients::with_respect_to(&loss, &asked)?)?;
            Ok(vec![loss])
        })
    };
    for policy in ["none", "segments", "sqrt"] {
        let [first, last] = [false, true].map(|reversed| plan_of(&build(reversed), policy));
        assert!(first.planned_peak_bytes() <= last.planned_peak_bytes(), "{policy}: asking the first block first");
        // No more than a few gradients are alive at once: each is used up as it is made.
        let step = build(false);
        let most = first.timeline(step.program()).iter().map(|t| t.parameter_gradients).max().unwrap();
        assert!(most <= 4 * 64 * 256 * 4, "{policy}: {most} bytes of gradients");
    }
    // Several calls, the first blocks' gradients in the first of them.
    let params = Params::offline(1);
    let model = Mlp::new(&params, 64, 256, 6).unwrap();
    let step = |parts: usize| {
        offline(|r| {
            let loss = model.forward_checkpointed(&r.input::<f32>("x", [128, 64])?)?.sqr()?.mean_all()?;
            let all = model.parameters();
            let mut out = Vec::new();
            for params in all.chunks(all.len().div_ceil(parts)) {
                out.extend(Gradients::with_respect_to(&loss, params)?.entries.into_iter().map(|(_, g)| g));
            }
            // Digests alone are handed back, so that no gradient has to stay.
            Ok(vec![remat::ops::fingerprint(r, &out)?])
        })
    };
    for policy in ["none", "segments", "sqrt"] {
        let peaks: Vec<u64> = [1, 2, 3].map(|parts| plan_of(&step(parts), policy).peak.arena).to_vec();
        println!("{policy}: gradients asked in one call, in two, in three: arena of {peaks:?} bytes");
        // What earlier calls hand on is there while the later ones pass: a digest each.
        // Under none so is every activation, beside the gradients that travel, `[128, 64]`.
        let digests = model.parameters().len() as u64 * 256;
        let travelling = if policy == "none" { 128 * 64 * 4 } else { 0 } + digests;
        assert!(peaks.iter().all(|&peak| peak <= peaks[0] + travelling), "{policy}: {peaks:?}");
    }
}

/// Instances of each storage that a replay made, with the instance before.
fn replayed<'a>(plan: &'a Plan, program: &Program) -> Vec<(&'a remat::plan::Instance, &'a remat::plan::Instance)> {
    let mut pairs = Vec::new();
    for dispatch in plan.dispatches.iter().filter(|d| d.replay) {
        assert_eq!(program.pass(dispatch.pass).phase, Phase::Forward);
        for made in dispatch.made.iter().flatten() {
            let again = &plan.instances[made.0 as usize];
            let before = plan.instances.iter().filter(|i| i.storage == again.storage && i.first < again.first);
            pairs.push((before.max_by_key(|i| i.first).expect("made before"), again));
        }
    }
    pairs
}

#[test]
fn case_21_nothing_merges_a_replay_with_its_forward_value() {
    for step in [mlp(6), transformer(4)] {
        let plan = plan_of(&step, "segments");
        let pairs = replayed(&plan, step.program());
        assert!(pairs.len() as u32 >= plan.replayed_passes && pairs.len() >= 5, "{}", pairs.len());
        // Two lives, with a time between them in which the value is nowhere.
        for (before, again) in pairs {
            assert!(before.last < again.first, "{before:?} is still alive when {again:?} is made");
        }
    }
}

#[test]
fn case_22_memory_of_backward_does_not_grow_with_a_chain_of_elementwise_ops() {
    let elements = 64 * 1024_u64;
    let step = |length: usize, saves: bool| {
        offline(|r| {
            let x = r.input::<f32>("x", [elements as usize])?;
            let mut h = x.clone();
            for i in 0..length {
                h = if saves { h.sin()? } else { h.mul_scalar(1.0 + i as f32)?.add_scalar(0.5)? };
            }
            r.gradients(&h.sum_all()?, &[&x])
        })
    };
    for saves in [false, true] {
        let gradients = [10, 50].map(|length| {
            let step = step(length, saves);
            let plan = plan_of(&step, "none");
            let of = |t: &remat::plan::LiveBytes| t.gradients + t.parameter_gradients;
            (plan.timeline(step.program()).iter().map(of).max().unwrap(), plan.live_peak_bytes)
        });
        assert!(gradients[1].0 <= gradients[0].0, "gradients alive: {gradients:?}");
        assert!(gradients[1].0 <= 3 * 4 * elements, "{gradients:?}");
        if !saves {
            assert!(gradients[1].1 <= gradients[0].1.max(3 * 4 * elements), "{gradients:?}");
        }
    }
}

#[test]
fn case_23_eight_micro_batches_equal_one_batch() {
    let (_turn, gpu) = gpu();
    let params = Params::new(&gpu, 5);
    let model = Mlp::new(&params, 16, 48, 2).unwrap();
    let data = noise(64 * 16, 3);
    let big = record(&gpu, |r| {
        let x = r.input::<f32>("x", [64, 16])?;
        let loss = model.forward_checkpointed(&x)?.sqr()?.mean_all()?;
        Ok(Gradients::of(&loss)?.entries.into_iter().map(|(_, g)| g).collect())
    });
    let names: Vec<String> = (0..8).map(|i| format!("x{i}")).collect();
    let micro = record(&gpu, |r| {
        let mut sums: Vec<Tensor> = Vec::new();
        for name in &names {
            let loss = model.forward_checkpointed(&r.input::<f32>(name, [8, 16])?)?.sqr()?.mean_all()?;
            for (i, (_, gradient)) in Gradients::of(&loss.mul_scalar(0.125)?)?.entries.into_iter().enumerate() {
                match sums.get(i) {
                    Some(sum) => sums[i] = sum.add(&gradient)?,
                    None => sums.push(gradient),
                }
            }
        }
        Ok(sums)
    });
    let pieces: Vec<_> = names.iter().zip(data.chunks(8 * 16)).map(|(n, x)| (n.as_str(), x.into())).collect();
    let one = run_all(&gpu, &params, &big, inputs! { "x" => &data });
    let eight = run_all(&gpu, &params, &micro, &pieces);
    for i in 0..one.outputs.len() {
        assert_close(&eight.floats(i), &wide(&one.floats(i)), 1e-5, &format!("gradient {i}"));
    }
    // And across runs: gradients added up in a state, live bytes the same after each.
    let sum = params.create("sum", [48, 16], Init::Zeros).unwrap();
    let sgd = Sgd::new(&params, SgdConfig::default()).unwrap();
    let first = params.get("blocks.0.0.weight").unwrap();
    let step = gpu
        .step_blocking(Policy::Segments, |r| {
            let loss = model.forward_checkpointed(&r.input::<f32>("x", [8, 16])?)?.sqr()?.mean_all()?;
            let gradient = r.gradients(&loss, &[&r.param(&first)?])?.swap_remove(0);
            sgd.update(&sum, &gradient)?;
            Ok(loss)
        })
        .unwrap();
    let mut live = None;
    for piece in data.chunks(8 * 16) {
        step.run_blocking(inputs! { "x" => piece, "lr" => -0.125_f32 }).unwrap();
        let now = gpu.memory().total.live_bytes;
        assert_eq!(*live.get_or_insert(now), now);
    }
    let index = params.names().iter().position(|n| n == "blocks.0.0.weight").unwrap();
    assert_close(&params.read_blocking::<f32>("sum").unwrap(), &wide(&one.floats(index)), 1e-5, "sum in a state");
}

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn case_24_recordings_dropped_unplanned_and_steps_dropped_half_built() {
    let (_turn, gpu) = gpu();
    let live = gpu.memory().total.live_bytes;
    let params = Params::new(&gpu, 1);
    let p = params.create("p", [256], Init::Ones).unwrap();
    let ten_thousand = || {
        let r = Recorder::new();
        let mut h = r.param(&p).unwrap();
        r.constant(&vec![1.0_f32; 1 << 16], [1 << 16]).unwrap();
        for i in 0..5_000 {
            h = r.checkpoint(h, |h| h.mul_scalar(i as f32)?.sin()).unwrap();
        }
        h.id().index()
    };
    assert!(ten_thousand() >= 10_000);
    ten_thousand();
    let before = resident();
    for _ in 0..20 {
        ten_thousand();
    }
    let grown = resident().saturating_sub(before);
    // One recording is several MiB.
    assert!(grown < 16 << 20, "{grown} bytes more after twenty recordings");
    assert_eq!(gpu.memory().total.live_bytes, live, "a recording took device memory");
    let build = |r: &Recorder| {
        let w = r.param(&p)?;
        r.gradients(&w.mul(&r.input::<f32>("x", [256])?)?.sin()?.sum_all()?, &[&w])
    };
    let mut failed = 0;
    for nth in 1..12 {
        gpu.inject(Inject::AllocationFailure(nth));
        match gpu.step_blocking(Policy::None, build) {
            Ok(_) => break,
            Err(error) => assert!(matches!(error, Error::OutOfMemory { .. }), "{error}"),
        }
        failed += 1;
        let of_states = params.bytes().live_bytes;
        assert_eq!(gpu.memory().total.live_bytes, live + of_states, "after failure {nth}");
    }
    gpu.inject(Inject::AllocationFailure(0));
    assert!(failed >= 3, "only {failed} places to fail");
    assert!(
        gpu.step_blocking(Policy::None, |_| Err::<Tensor, _>(Error::Policy { policy: "x".into(), detail: "y".into() }))
            .is_err()
    );
    let x = noise(256, 1);
    let step = gpu.step_blocking(Policy::None, build).unwrap();
    let out = step.run_blocking(inputs! { "x" => &x }).unwrap();
    assert_close(
        &out[0].read_blocking().unwrap(),
        &x.iter().map(|&x| f64::from(x * x.cos())).collect::<Vec<_>>(),
        1e-5,
        "x",
    );
    drop((step, out, p, params));
    assert_eq!(gpu.memory().total.live_bytes, live);
}

#[test]
fn case_27_write_run_write_run_without_waiting() {
    let (_turn, gpu) = gpu();
    let params = Params::new(&gpu, 1);
    let a = params.create("a", [1 << 16], Init::Zeros).unwrap();
    let f = gpu.step_blocking(Policy::None, |r| r.param(&a)?.mul_scalar(2.0)?.add_scalar(1.0)).unwrap();
    let mut outs = Vec::new();
    for round in 0..3 {
        params.write_blocking("a", &vec![round as f32 + 0.25; 1 << 16]).unwrap();
        outs.push(f.run_blocking(inputs! {}).unwrap());
    }
    for (round, out) in outs.iter().enumerate() {
        let y: Vec<f32> = out.read_blocking().unwrap();
        assert!(y.iter().all(|&v| v == round as f32 * 2.0 + 1.5), "round {round}: {}", y[0]);
    }
}

#[test]
fn case_28_a_tensor_of_exactly_the_limit_runs_and_four_bytes_more_name_it() {
    let limit = 16 << 20;
    let gpu = Gpu::test_builder().max_binding_bytes(limit).build_blocking().unwrap();
    let params = Params::new(&gpu, 1);
    let build = |n: usize| {
        RecordedStep::new(gpu.profile(), |r| Ok(vec![r.arange(n)?.mul_scalar(2_u32)?.named("long").digest()?]))
            .and_then(|step| step.plan(&Policy::None).map(|plan| (step, plan)))
    };
    let fits = limit as usize / 4;
    let (step, plan) = build(fits).unwrap();
    let executable = Executable::new_blocking(&gpu, step.program().clone(), plan, &params).unwrap();
    assert_ne!(words(&executable.run_blocking(inputs! {}).unwrap().outputs[0]), [0; 4]);
    let error = build(fits + 1).map(|_| ()).unwrap_err();
    let named = matches!(
        &error,
        Error::Limit { what, size_bytes, limit: "maxStorageBufferBindingSize", limit_bytes, .. }
            if *size_bytes == limit + 4 && *limit_bytes == limit && what.contains("long")
    );
    assert!(named, "{error}");
}

#[test]
fn case_29_many_rows_and_many_outputs() {
    let (_turn, gpu) = gpu();
    let params = Params::new(&gpu, 1);
    // More rows than workgroups along one axis, with the gradient.
    let x: Vec<f32> = (0..70_000).map(|i| i as f32).collect();
    let step = record(&gpu, |r| {
        let (x, w) = (r.input::<f32>("x", [70_000, 1])?, r.input::<f32>("w", [1, 1])?);
        let y = x.matmul(&w)?;
        let gradients = r.gradients(&y.mul(&y)?.sum_all()?, &[&x, &w])?;
        Ok([vec![y], gradients].concat())
    });
    let ran = run_all(&gpu, &params, &step, inputs! { "x" => &x, "w" => 3.0_f32 });
    assert!(ran.floats(0).iter().zip(&x).all(|(y, x)| *y == 3.0 * x));
    assert!(ran.floats(1).iter().zip(&x).all(|(g, x)| (g - 18.0 * x).abs() <= 1e-6 * 18.0 * x));
    let sum: f64 = wide(&x).iter().map(|x| 6.0 * x * x).sum();
    assert_close(&ran.floats(2), &[sum], 1e-5, "w");
    // 2^24 + 1 outputs of a product, past where f32 counts.
    let n = (1 << 24) + 1;
    let step = record(&gpu, |r| {
        let columns = r.arange(n)?.remainder(&r.full_u32([], 1021)?)?.to_f32()?.reshape([1, n])?;
        let y = r.input::<f32>("w", [1, 1])?.matmul(&columns)?;
        Ok(vec![y.narrow(1, n - 3, 3)?, y.sum_all()?.mul_scalar(1.0 / n as f32)?])
    });
    let ran = run_all(&gpu, &params, &step, inputs! { "w" => 2.0_f32 });
    let expected: Vec<f32> = (n - 3..n).map(|i| 2.0 * (i % 1021) as f32).collect();
    assert_eq!(ran.floats(0), expected);
    let mean: f64 = (0..n).map(|i| 2.0 * (i % 1021) as f64).sum::<f64>() / n as f64;
    assert_close(&ran.floats(1), &[mean], 1e-5, "mean");
}

#[test]
fn parameter_gradients_are_counted_apart_and_activations_dropped() {
    let step = transformer(6);
    let (none, segments) = (plan_of(&step, "none"), plan_of(&step, "segments"));
    assert!(segments.activation_peak_bytes as f64 <= 0.5 * none.activation_peak_bytes as f64);
    let least: u64 =
        step.program().states.iter().filter(|s| s.category == Category::Optimizer).map(|s| s.ty.size_bytes()).sum();
    assert!(segments.timeline(step.program()).iter().all(|t| t.optimizer == least));
}
