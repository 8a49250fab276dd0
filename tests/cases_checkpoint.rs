//! Checkpointing never changes a number: each case runs as one recording under
//! every policy (none, segments, every:N, sqrt, the least budget), whose
//! losses, gradients and states must be the same bits, and is compared with
//! plain numbers, so that what is equal but wrong is seen as well.
//!
//! Cases of the list in public bug reports: 1, 3 to 13, 15 and 16, by number in
//! the names below. What the planner alone can show stands in
//! `planner/policies.rs` (nesting, early stop, shared weights).
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/engine.rs"]
mod engine;

use engine::*;
use remat::checkpoint::Policy;
use remat::error::Result;
use remat::fuse::program::{Phase, Program};
use remat::graph::{Recorder, Tensor};
use remat::inputs;
use remat::ops::random::random_uniform;
use remat::optim::{Optimizer, Sgd, SgdConfig};
use remat::params::{Init, Params};
use remat::plan::Plan;

/// The loss of `body` and its gradient towards every weight, under every
/// policy and against differences of `reference`.
fn check(
    what: &str,
    list: &[Weight<'_>],
    inputs: &Inputs<'_>,
    body: impl Fn(&Recorder, &[Tensor]) -> Result<Tensor>,
    reference: impl Fn(&[Vec<f64>]) -> f64,
) -> (Ran, Program) {
    let (_turn, gpu) = gpu();
    let (params, values) = weights(&gpu, list);
    let step = record(&gpu, |r| {
        let w: Vec<Tensor> = params.all().iter().map(|p| r.param(p)).collect::<Result<_>>()?;
        let loss = body(r, &w)?;
        let wrt: Vec<&Tensor> = w.iter().collect();
        let gradients = r.gradients(&loss, &wrt)?;
        Ok([vec![loss], gradients].concat())
    });
    let ran = run_all(&gpu, &params, &step, inputs);
    assert_close(&ran.floats(0), &[reference(&values)], 2e-5, &format!("{what}: loss"));
    let expected = differences(&values, reference);
    for (i, expected) in expected.iter().enumerate() {
        assert!(expected.iter().any(|v| v.abs() > 1e-6), "{what}: {} has no gradient to compare", list[i].0);
        assert_close(&ran.floats(1 + i), expected, 2e-4, &format!("{what}: gradient of {}", list[i].0));
    }
    (ran, (**step.program()).clone())
}

fn forward_passes(program: &Program) -> usize {
    program.passes.iter().filter(|p| p.phase == Phase::Forward).count()
}

/// How often passes of this name are encoded.
fn runs_of(plan: &Plan, program: &Program, name: &str) -> usize {
    plan.dispatches.iter().filter(|d| program.pass(d.pass).name.contains(name)).count()
}

/// How `dropout(0.5)` of the given stream changes `x`.
fn drop_half(x: &[f64], stream: u32, step: u32, seed: u32) -> Vec<f64> {
    let keeps = |i: usize| random_uniform(i as u32, stream, step, seed) >= 0.5;
    x.iter().enumerate().map(|(i, v)| if keeps(i) { 2.0 * v } else { 0.0 }).collect()
}

#[test]
fn case_1_dropout_in_a_segment_and_after_it_and_in_the_next_step() {
    let x = noise(12 * 8, 1);
    let (seed, mut losses) = (77_u32, Vec::new());
    for step in [0_u32, 1, 2] {
        let (ran, program) = check(
            "dropout",
            &[("a", &[16, 8]), ("b", &[8, 16])],
            inputs! { "x" => &x, "seed" => seed, "step" => step },
            |r, w| {
                let x = r.input::<f32>("x", [12, 8])?;
                let h = r.checkpoint(x, |x| {
                    let h = x.linear(&w[0], None)?.tanh()?.dropout(0.5)?;
                    h.linear(&w[1], None)?.dropout(0.5)
                })?;
                h.tanh()?.dropout(0.5)?.sqr()?.mean_all()
            },
            |w| {
                let h = drop_half(&tanh(&linear(&wide(&x), &w[0], &[], 8)), 0, step, seed);
                let y = drop_half(&linear(&h, &w[1], &[], 16), 1, step, seed);
                mean_square(&drop_half(&tanh(&y), 2, step, seed))
            },
        );
        let plan = ran.plan(Policy::Segments);
        assert!(plan.replayed_passes > 0, "nothing was replayed");
        assert!(program.passes.iter().any(|p| p.name.contains("dropout")));
        losses.push(ran.outputs[0].clone());
    }
    assert!(losses[0] != losses[1] && losses[1] != losses[2], "the masks of three steps are the same");
}

#[test]
fn case_3_an_auxiliary_loss_and_a_counter_in_a_segment_count_once() {
    let x = noise(6 * 5, 2);
    check(
        "auxiliary loss",
        &[("w", &[5, 5])],
        inputs! { "x" => &x },
        |r, w| {
            let x = r.input::<f32>("x", [6, 5])?;
            let (h, aux) = r.checkpoint(x, |x| {
                let h = x.linear(&w[0], None)?.tanh()?;
                let aux = h.sqr()?.mean_all()?;
                Ok((h.linear(&w[0], None)?, aux))
            })?;
            h.sqr()?.mean_all()?.add(&aux.mul_scalar(0.1)?)
        },
        |w| {
            let h = tanh(&linear(&wide(&x), &w[0], &[], 5));
            mean_square(&linear(&h, &w[0], &[], 5)) + 0.1 * mean_square(&h)
        },
    );
    // A state written inside a segment: `run_all` compares the states, this the number.
    let (_turn, gpu) = gpu();
    let params = Params::new(&gpu, 1);
    let w = params.create("w", [4, 4], Init::Constant(0.5)).unwrap();
    let count = params.create("count", [], Init::Zeros).unwrap();
    let optimizer = Sgd::new(&params, SgdConfig::default()).unwrap();
    let step = record(&gpu, |r| {
        let w = r.param(&w)?;
        let y = r.checkpoint(r.ones([4, 4])?, |x| {
            optimizer.update(&count, &r.full([], -1.0)?)?;
            x.matmul(&w)?.tanh()?.matmul(&w)
        })?;
        let loss = y.sqr()?.mean_all()?;
        Ok(vec![r.gradients(&loss, &[&w])?.swap_remove(0)])
    });
    let mut least_plan = run_all(&gpu, &params, &step, inputs! { "lr" => 1.0_f32 }).plans;
    let plan = least_plan.swap_remove(1).1;
    assert!(plan.replayed_passes > 0);
    let executable = remat::gpu::Executable::new_blocking(&gpu, step.program().clone(), plan, &params).unwrap();
    for run in 0..3 {
        assert_eq!(params.read_blocking::<f32>("count").unwrap(), [run as f32]);
        executable.run_blocking(inputs! { "lr" => 1.0_f32 }).unwrap();
    }
}

#[test]
fn case_4_and_5_weights_and_biases_through_one_two_and_four_segments() {
    let x = noise(7 * 6, 3);
    for segments in [1_usize, 2, 4] {
        let names: Vec<(String, String)> = (0..segments).map(|i| (format!("{i}.w"), format!("{i}.b"))).collect();
        let mut list: Vec<Weight<'_>> = Vec::new();
        for (w, b) in &names {
            list.push((w, &[6, 6]));
            list.push((b, &[6]));
        }
        let (ran, program) = check(
            &format!("{segments} segments"),
            &list,
            inputs! { "x" => &x },
            |r, w| {
                let mut h = r.input::<f32>("x", [7, 6])?;
                for pair in w.chunks(2) {
                    // Last, so that the true gradient of its output seeds each replay.
                    h = r.checkpoint(h, |h| h.tanh()?.linear(&pair[0], Some(&pair[1])))?;
                }
                h.sqr()?.mean_all()
            },
            |w| {
                let mut h = wide(&x);
                for pair in w.chunks(2) {
                    h = linear(&tanh(&h), &pair[0], &pair[1], 6);
                }
                mean_square(&h)
            },
        );
        assert_eq!(program.segments.len(), segments);
        assert!(ran.plan(Policy::Segments).replayed_passes > 0);
    }
}

#[test]
fn case_6_a_segment_that_changes_its_shape_is_seeded_with_the_true_gradient() {
    let x = noise(2 * 3 * 4, 4);
    let target = wide(&noise(2 * 5, 5));
    let weights_of_loss = noise(2 * 5, 5);
    check(
        "[B, L, D] -> [B, V]",
        &[("w", &[4, 4]), ("v", &[5, 4])],
        inputs! { "x" => &x },
        |r, w| {
            let x = r.input::<f32>("x", [2, 3, 4])?;
            let logits = r.checkpoint(x, |x| x.linear(&w[0], None)?.tanh()?.mean(&[1], false)?.linear(&w[1], None))?;
            assert_eq!(logits.dims(), [2, 5]);
            // Each element of the output has a gradient of its own.
            logits.mul(&r.constant(&weights_of_loss, [2, 5])?)?.sum_all()?.add(&logits.sqr()?.mean_all()?)
        },
        |w| {
            let h = tanh(&linear(&wide(&x), &w[0], &[], 4));
            let pooled: Vec<f64> =
                (0..2 * 4).map(|i| (0..3).map(|l| h[(i / 4 * 3 + l) * 4 + i % 4]).sum::<f64>() / 3.0).collect();
            let logits = linear(&pooled, &w[1], &[], 4);
            logits.iter().zip(&target).map(|(a, b)| a * b).sum::<f64>() + mean_square(&logits)
        },
    );
}

#[test]
fn case_7_captured_passed_and_looked_up_parameters_are_alike() {
    let x = noise(5 * 4, 6);
    let run = |how: usize| {
        let (_turn, gpu) = gpu();
        let (params, values) = weights(&gpu, &[("w", &[4, 4]), ("b", &[4])]);
        let step = record(&gpu, |r| {
            let x = r.input::<f32>("x", [5, 4])?;
            let (pw, pb) = (params.get("w").unwrap(), params.get("b").unwrap());
            let (w, b) = (r.param(&pw)?, r.param(&pb)?);
            let apply = |x: &Tensor, w: &Tensor, b: &Tensor| x.linear(w, Some(b))?.tanh()?.linear(w, Some(b));
            let y = match how {
                0 => r.checkpoint(x, |x| apply(&x, &w, &b))?,
                1 => r.checkpoint((x, w.clone(), b.clone()), |(x, w, b)| apply(&x, &w, &b))?,
                2 => r.checkpoint(x, |x| apply(&x, &r.param(&pw)?, &r.param(&pb)?))?,
                _ => r.checkpoint((), |()| apply(&x, &w, &b))?,
            };
            let loss = y.sqr()?.mean_all()?;
            r.gradients(&loss, &[&w, &b])
        });
        let ran = run_all(&gpu, &params, &step, inputs! { "x" => &x });
        let expected = differences(&values, |v| {
            let h = tanh(&linear(&wide(&x), &v[0], &v[1], 4));
            mean_square(&linear(&h, &v[0], &v[1], 4))
        });
        for (i, expected) in expected.iter().enumerate() {
            assert_close(&ran.floats(i), expected, 2e-4, &format!("way {how}, {i}"));
        }
        assert!(ran.plan(Policy::Segments).replayed_passes > 0);
        ran.outputs
    };
    let first = run(0);
    for how in 1..4 {
        assert!(run(how) == first, "way {how}");
    }
}

#[test]
fn case_8_raw_data_and_frozen_weights_let_what_is_inside_train() {
    let x = noise(5 * 4, 7);
    let (_turn, gpu) = gpu();
    let (params, values) = weights(&gpu, &[("frozen", &[4, 4]), ("down", &[2, 4]), ("up", &[4, 2])]);
    let get = |name: &str| params.get(name).unwrap();
    let step = record(&gpu, |r| {
        let (frozen, down, up) = (r.param(&get("frozen"))?, r.param(&get("down"))?, r.param(&get("up"))?);
        let mut h = r.input::<f32>("x", [5, 4])?;
        for _ in 0..2 {
            h = r.checkpoint(h, |h| {
                let adapted = h.linear(&down, None)?.tanh()?.linear(&up, None)?;
                h.linear(&frozen, None)?.add(&adapted)?.tanh()
            })?;
        }
        let loss = h.sqr()?.mean_all()?;
        r.gradients(&loss, &[&down, &up])
    });
    let ran = run_all(&gpu, &params, &step, inputs! { "x" => &x });
    let expected = differences(&values, |w| {
        let mut h = wide(&x);
        for _ in 0..2 {
            let adapted = linear(&tanh(&linear(&h, &w[1], &[], 4)), &w[2], &[], 2);
            h = tanh(&add(&linear(&h, &w[0], &[], 4), &adapted));
        }
        mean_square(&h)
    });
    assert_close(&ran.floats(0), &expected[1], 2e-4, "down");
    assert_close(&ran.floats(1), &expected[2], 2e-4, "up");
    assert!(ran.plan(Policy::Segments).replayed_passes > 0);
}

#[test]
fn case_9_an_embedding_of_integers_in_a_segment() {
    let ids = [3_i32, 0, 3, 2, 3, 5];
    check(
        "embedding",
        &[("table", &[7, 4]), ("w", &[4, 4])],
        inputs! { "ids" => &ids },
        |r, w| {
            let ids = r.input::<i32>("ids", [2, 3])?;
            let y = r.checkpoint(ids, |ids| w[0].embedding(&ids)?.tanh()?.linear(&w[1], None))?;
            y.sqr()?.mean_all()?.add(&w[0].sqr()?.mean_all()?)
        },
        |w| {
            let rows: Vec<f64> = ids.iter().flat_map(|&i| w[0][4 * i as usize..][..4].to_vec()).collect();
            mean_square(&linear(&tanh(&rows), &w[1], &[], 4)) + mean_square(&w[0])
        },
    );
}

#[test]
fn case_10_each_parameter_alone() {
    let x = noise(5 * 4, 8);
    let names = ["a", "b", "c"];
    let list: Vec<Weight<'_>> = names.iter().map(|&n| (n, &[4, 4][..])).collect();
    let chain = |r: &Recorder, w: &[Tensor]| {
        let mut h = r.input::<f32>("x", [5, 4])?;
        for w in w {
            h = r.checkpoint(h, |h| h.linear(w, None)?.tanh()?.linear(w, None))?;
        }
        h.sqr()?.mean_all()
    };
    let (_turn, gpu) = gpu();
    let (params, values) = weights(&gpu, &list);
    let expected = differences(&values, |v| {
        let chained = v.iter().fold(wide(&x), |h, w| linear(&tanh(&linear(&h, w, &[], 4)), w, &[], 4));
        mean_square(&chained)
    });
    let mut replays = Vec::new();
    for (only, expected) in expected.iter().enumerate() {
        let step = record(&gpu, |r| {
            let w: Vec<Tensor> = params.all().iter().map(|p| r.param(p)).collect::<Result<_>>()?;
            let loss = chain(r, &w)?;
            r.gradients(&loss, &[&w[only]])
        });
        let ran = run_all(&gpu, &params, &step, inputs! { "x" => &x });
        assert_close(&ran.floats(0), expected, 2e-4, names[only]);
        replays.push(ran.plan(Policy::Segments).replayed_passes);
    }
    // The last parameter's gradient needs nothing of the segments before it.
    assert!(replays[0] > replays[1] && replays[1] > replays[2], "{replays:?}");
}

#[test]
fn case_11_one_layer_used_by_two_segments_has_the_sum_once() {
    let x = noise(5 * 4, 9);
    let (_, program) = check(
        "shared layer",
        &[("w", &[4, 4]), ("b", &[4])],
        inputs! { "x" => &x },
        |r, w| {
            let mut h = r.input::<f32>("x", [5, 4])?;
            for _ in 0..2 {
                h = r.checkpoint(h, |h| h.linear(&w[0], Some(&w[1]))?.tanh())?;
            }
            h.sqr()?.mean_all()
        },
        |w| {
            let h = tanh(&linear(&wide(&x), &w[0], &w[1], 4));
            mean_square(&tanh(&linear(&h, &w[0], &w[1], 4)))
        },
    );
    assert_eq!(program.segments.len(), 2);
}

/// `h + W2 tanh(W1 h)` with an interior four times as wide as `h`.
fn wide_block(h: &Tensor, w: &[Tensor]) -> Result<Tensor> {
    h.linear(&w[0], None)?.tanh()?.linear(&w[1], None)?.add(h)
}

#[test]
fn case_12_three_segments_deep_and_interiors_only_while_needed() {
    let x = noise(64 * 16, 10);
    let names: Vec<String> = (0..8).map(|i| format!("w{i}")).collect();
    let (_turn, gpu) = gpu();
    let params = Params::new(&gpu, 1);
    let values: Vec<Vec<f64>> = (0..8_u32)
        .map(|i| {
            let data: Vec<f32> = noise(64 * 16, i).iter().map(|v| v * 0.25).collect();
            let shape = if i % 2 == 0 { [64, 16] } else { [16, 64] };
            params.create(&names[i as usize], shape, Init::from(data.clone())).unwrap();
            wide(&data)
        })
        .collect();
    // Four blocks: in a row of nested segments a(b(c(d))), as a tree, and in one flat segment.
    let build = |form: &str| {
        record(&gpu, |r| {
            let w: Vec<Tensor> = params.all().iter().map(|p| r.param(p)).collect::<Result<_>>()?;
            let x = r.input::<f32>("x", [64, 16])?;
            let block = |i: usize, h: &Tensor| wide_block(h, &w[2 * i..2 * i + 2]);
            let inner = |i: usize, h: Tensor| r.checkpoint(h, |h| block(i, &h));
            let y = r.checkpoint(x, |x| match form {
                "row" => r.checkpoint(block(0, &x)?, |x| r.checkpoint(block(1, &x)?, |x| inner(3, block(2, &x)?))),
                "tree" => {
                    let half = r.checkpoint(x, |x| inner(1, inner(0, x)?))?;
                    r.checkpoint(half, |x| inner(3, inner(2, x)?))
                }
                _ => block(3, &block(2, &block(1, &block(0, &x)?)?)?),
            })?;
            let loss = y.sqr()?.mean_all()?;
            let wrt: Vec<&Tensor> = w.iter().collect();
            Ok([vec![loss.clone()], r.gradients(&loss, &wrt)?].concat())
        })
    };
    let reference = |w: &[Vec<f64>]| {
        let block = |h: Vec<f64>, w: &[Vec<f64>]| add(&linear(&tanh(&linear(&h, &w[0], &[], 16)), &w[1], &[], 64), &h);
        mean_square(&w.chunks(2).fold(wide(&x), block))
    };
    let mut peaks = Vec::new();
    for form in ["flat", "row", "tree"] {
        let step = build(form);
        let ran = run_all(&gpu, &params, &step, inputs! { "x" => &x });
        assert_close(&ran.floats(0), &[reference(&values)], 1e-5, form);
        for (i, name) in names.iter().enumerate() {
            // A few elements by differences; all would take a minute.
            for element in [0, 333, 1023] {
                let mut at = values.clone();
                let mut value = |v: f64| {
                    at[i][element] = values[i][element] + v;
                    reference(&at)
                };
                let slope = (value(1e-4) - value(-1e-4)) / 2e-4;
                let found = f64::from(ran.floats(1 + i)[element]);
                let near = (found - slope).abs() < 1e-5 + 1e-3 * slope.abs();
                assert!(near, "{form}, {name}[{element}]: {found} and {slope}");
            }
        }
        let plan = ran.plan(Policy::Segments);
        let mut runs = vec![0; step.program().passes.len()];
        plan.dispatches.iter().for_each(|d| runs[d.pass.index()] += 1);
        let most = runs.into_iter().max().unwrap();
        // Once by forward, at most once for each segment that a block lies in.
        assert!(most <= [2, 5, 4][peaks.len()], "{form}: a pass runs {most} times");
        peaks.push((ran.plan(Policy::None).activation_peak_bytes, plan.activation_peak_bytes));
    }
    // One flat segment around everything keeps all four interiors at its replay; the tree one at a time.
    let interior = 64 * 64 * 4;
    assert!(peaks[2].1 + 2 * interior <= peaks[0].1, "{peaks:?}");
    assert!(peaks[2].1 + 2 * interior <= peaks[2].0, "{peaks:?}");
    assert!(peaks[1].1 <= peaks[0].1, "{peaks:?}");
}

#[test]
fn case_13_gradients_asked_twice_are_equal_bits_and_forward_is_recorded_once() {
    let x = noise(5 * 4, 11);
    let (_turn, gpu) = gpu();
    let (params, values) = weights(&gpu, &[("w", &[4, 4])]);
    let build = |times: usize| {
        record(&gpu, |r| {
            let w = r.param(&params.get("w").unwrap())?;
            let x = r.input::<f32>("x", [5, 4])?;
            let y = r.checkpoint(x, |x| x.linear(&w, None)?.tanh()?.linear(&w, None))?;
            let loss = y.sqr()?.mean_all()?;
            (0..times).map(|_| Ok(r.gradients(&loss, &[&w])?.swap_remove(0))).collect()
        })
    };
    let (once, twice) = (build(1), build(2));
    assert_eq!(forward_passes(once.program()), forward_passes(twice.program()));
    let ran = run_all(&gpu, &params, &twice, inputs! { "x" => &x });
    assert!(ran.outputs[0] == ran.outputs[1], "two gradients differ");
    assert!(run_all(&gpu, &params, &once, inputs! { "x" => &x }).outputs[0] == ran.outputs[0]);
    let expected =
        differences(&values, |v| mean_square(&linear(&tanh(&linear(&wide(&x), &v[0], &[], 4)), &v[0], &[], 4)));
    assert_close(&ran.floats(0), &expected[0], 2e-4, "w");
    let matmuls = |plan: &Plan, step: &remat::step::RecordedStep<Vec<Tensor>>| {
        plan.dispatches
            .iter()
            .filter(|d| !d.replay && step.program().pass(d.pass).phase == Phase::Forward)
            .filter(|d| step.program().pass(d.pass).name.contains("matmul"))
            .count()
    };
    assert_eq!(matmuls(ran.plan(Policy::None), &twice), 2);
}

#[test]
fn case_15_an_activation_in_place_never_overwrites_the_boundary() {
    let x = noise(8 * 8, 12);
    check(
        "activation first",
        &[("w", &[8, 8])],
        inputs! { "x" => &x },
        |r, w| {
            let x = r.input::<f32>("x", [8, 8])?;
            let boundary = x.linear(&w[0], None)?;
            let inside = r.checkpoint(boundary.clone(), |h| h.silu()?.exp()?.linear(&w[0], None))?;
            let again = r.checkpoint(inside, |h| h.tanh()?.sqr()?.linear(&w[0], None))?;
            // The boundary is read once more, after the segments.
            again.sqr()?.mean_all()?.add(&boundary.sin()?.mean_all()?)
        },
        |w| {
            let boundary = linear(&wide(&x), &w[0], &[], 8);
            let silu: Vec<f64> = boundary.iter().map(|v| (v / (1.0 + (-v).exp())).exp()).collect();
            let squared: Vec<f64> = linear(&silu, &w[0], &[], 8).iter().map(|v| v.tanh() * v.tanh()).collect();
            let again = linear(&squared, &w[0], &[], 8);
            mean_square(&again) + boundary.iter().map(|v| v.sin()).sum::<f64>() / 64.0
        },
    );
}

#[test]
fn case_16_constants_are_copied_and_state_written_between_runs_is_seen_by_the_next() {
    let (_turn, gpu) = gpu();
    let params = Params::new(&gpu, 1);
    let w = params.create("w", [2, 2], Init::Constant(1.0)).unwrap();
    let mut host = vec![1.0_f32, 2.0, 3.0, 4.0];
    let step = record(&gpu, |r| {
        let constant = r.constant(&host, [2, 2])?;
        host.fill(f32::NAN);
        let w = r.param(&w)?;
        let y = r.checkpoint(constant, |c| c.matmul(&w)?.sqr()?.matmul(&w))?;
        let gradient = r.gradients(&y.sum_all()?, &[&w])?.swap_remove(0);
        Ok(vec![y, gradient])
    });
    let plan = planned(&gpu, &step, &Policy::Segments).unwrap();
    assert!(plan.replayed_passes > 0);
    let step = remat::gpu::Executable::new_blocking(&gpu, step.program().clone(), plan, &params).unwrap();
    let all_of = |v: f32| {
        // y = (c w)^2 w for w = v everywhere.
        let squares = [3.0_f32, 7.0].map(|sum| (sum * v) * (sum * v));
        squares.map(|s| 2.0 * s * v)
    };
    let first = step.run_blocking(inputs! {}).unwrap();
    params.write_blocking("w", &[2.0_f32; 4]).unwrap();
    let second = step.run_blocking(inputs! {}).unwrap();
    for (out, v) in [(first, 1.0), (second, 2.0)] {
        let y: Vec<f32> = out.outputs[0].read_blocking().unwrap();
        assert_eq!(y, [all_of(v)[0], all_of(v)[0], all_of(v)[1], all_of(v)[1]], "w = {v}");
        // d/dw of sum((c w)^2 w), w = v: rows of c^T (2 (c w) * (1 w^T)) + ((c w)^2)^T 1.
        let gradient: Vec<f32> = out.outputs[1].read_blocking().unwrap();
        let (a, b) = (3.0 * v, 7.0 * v);
        let direct = a * a + b * b;
        let through = |c0: f32, c1: f32| (c0 * a + c1 * b) * 2.0 * 2.0 * v;
        assert_eq!(
            gradient,
            [
                direct + through(1.0, 3.0),
                direct + through(1.0, 3.0),
                direct + through(2.0, 4.0),
                direct + through(2.0, 4.0)
            ],
            "gradient at w = {v}"
        );
    }
}

#[test]
fn gradients_of_gradients_through_segments() {
    let x = noise(4 * 3, 13);
    let (_turn, gpu) = gpu();
    let (params, values) = weights(&gpu, &[("w", &[3, 3]), ("v", &[3, 3])]);
    let forward = |w: &[Vec<f64>]| mean_square(&linear(&tanh(&linear(&wide(&x), &w[0], &[], 3)), &w[1], &[], 3));
    let step = record(&gpu, |r| {
        let w: Vec<Tensor> = params.all().iter().map(|p| r.param(p)).collect::<Result<_>>()?;
        let x = r.input::<f32>("x", [4, 3])?;
        let y = r.checkpoint(x, |x| x.linear(&w[0], None)?.tanh()?.linear(&w[1], None))?;
        let loss = y.sqr()?.mean_all()?;
        let first = r.gradients(&loss, &[&w[0], &w[1]])?;
        // The squared length of the gradient, as in a gradient penalty.
        let penalty = first[0].sqr()?.sum_all()?.add(&first[1].sqr()?.sum_all()?)?;
        let second = r.gradients(&penalty, &[&w[0], &w[1]])?;
        Ok([vec![penalty], second].concat())
    });
    let ran = run_all(&gpu, &params, &step, inputs! { "x" => &x });
    let penalty = |w: &[Vec<f64>]| differences(w, forward).iter().flatten().map(|g| g * g).sum::<f64>();
    assert_close(&ran.floats(0), &[penalty(&values)], 1e-4, "penalty");
    let mut at = values.clone();
    for array in 0..2 {
        let mut expected = Vec::new();
        for i in 0..9 {
            let here = at[array][i];
            at[array][i] = here + 1e-3;
            let up = penalty(&at);
            at[array][i] = here - 1e-3;
            let down = penalty(&at);
            at[array][i] = here;
            expected.push((up - down) / 2e-3);
        }
        assert_close(&ran.floats(1 + array), &expected, 2e-3, "second gradient");
    }
    assert!(ran.plan(Policy::Segments).replayed_passes > 0);
    let program = step.program();
    assert!(
        runs_of(ran.plan(Policy::Segments), program, "matmul") > runs_of(ran.plan(Policy::None), program, "matmul")
    );
}
