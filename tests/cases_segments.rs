//! Segments in every form that a recording can give them: several inputs and
//! outputs, an output that is an input, outputs unused, constants made inside,
//! skip connections, parallel branches, a segment applied twice; and random
//! nets of nested segments. Each under every policy, bit by bit, and against
//! differences of plain numbers.
#![allow(clippy::allow_attributes, clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/engine.rs"]
mod engine;

use engine::*;
use remat::checkpoint::Policy;
use remat::error::Result;
use remat::fuse::program::Phase;
use remat::graph::{Recorder, Tensor};
use remat::inputs;
use remat::step::RecordedStep;

const N: usize = 4;
const SQUARE: [usize; 2] = [N, N];

/// Loss and gradients of `body` over `count` square weights and the input `x`.
fn check(
    what: &str,
    count: usize,
    body: impl Fn(&Recorder, &Tensor, &[Tensor]) -> Result<Tensor>,
    reference: impl Fn(&[f64], &[Vec<f64>]) -> f64,
) -> (Ran, RecordedStep<Vec<Tensor>>) {
    let (_turn, gpu) = gpu();
    let names: Vec<String> = (0..count).map(|i| format!("w{i}")).collect();
    let list: Vec<Weight<'_>> = names.iter().map(|n| (n.as_str(), &SQUARE[..])).collect();
    let (params, values) = weights(&gpu, &list);
    let x = noise(N * N, 5);
    let step = record(&gpu, |r| {
        let w: Vec<Tensor> = params.all().iter().map(|p| r.param(p)).collect::<Result<_>>()?;
        let loss = body(r, &r.input::<f32>("x", SQUARE)?, &w)?;
        let wrt: Vec<&Tensor> = w.iter().collect();
        Ok([vec![loss.clone()], r.gradients(&loss, &wrt)?].concat())
    });
    let ran = run_all(&gpu, &params, &step, inputs! { "x" => &x });
    let x = wide(&x);
    assert_close(&ran.floats(0), &[reference(&x, &values)], 2e-5, &format!("{what}: loss"));
    for (i, expected) in differences(&values, |w| reference(&x, w)).iter().enumerate() {
        assert_close(&ran.floats(1 + i), expected, 3e-4, &format!("{what}: gradient of w{i}"));
    }
    (ran, step)
}

fn lin(x: &[f64], w: &[f64]) -> Vec<f64> {
    linear(x, w, &[], N)
}

#[test]
fn several_inputs_and_outputs_one_of_them_an_input_one_unused() {
    let (ran, step) = check(
        "tree",
        3,
        |r, x, w| {
            let a = x.linear(&w[0], None)?;
            let (passed, made, _unused, list) = r.checkpoint((a, x.clone(), vec![w[1].clone()]), |(a, x, more)| {
                let h = a.mul(&x)?.tanh()?.linear(&more[0], None)?;
                let unused = h.exp()?.linear(&w[2], None)?.tanh()?;
                let list = vec![h.tanh()?.linear(&w[2], None)?, h.sin()?];
                Ok((a, h, unused, list))
            })?;
            let sum = passed.add(&made)?.add(&list[0])?.add(&list[1])?;
            sum.sqr()?.mean_all()
        },
        |x, w| {
            let a = lin(x, &w[0]);
            let product: Vec<f64> = a.iter().zip(x).map(|(a, b)| a * b).collect();
            let h = lin(&tanh(&product), &w[1]);
            let sines: Vec<f64> = h.iter().map(|v| v.sin()).collect();
            mean_square(&add(&add(&add(&a, &h), &lin(&tanh(&h), &w[2])), &sines))
        },
    );
    let plan = ran.plan(Policy::Segments);
    assert!(plan.replayed_passes > 0);
    // What the loss does not depend on is not run at all, under any policy.
    for (policy, plan) in &ran.plans {
        let exp = plan.dispatches.iter().any(|d| step.program().pass(d.pass).name.contains("exp"));
        assert!(!exp, "the unused output is computed under {policy}");
    }
}

#[test]
fn outputs_of_a_run_from_inside_a_segment() {
    let (_turn, gpu) = gpu();
    let (params, values) = weights(&gpu, &[("w", &SQUARE)]);
    let x = noise(N * N, 6);
    let step = record(&gpu, |r| {
        let w = r.param(&params.get("w").unwrap())?;
        let x = r.input::<f32>("x", SQUARE)?;
        let mut inside = None;
        let y = r.checkpoint(x.clone(), |x| {
            let h = x.linear(&w, None)?.tanh()?;
            inside = Some(h.clone().named("inside"));
            h.linear(&w, None)
        })?;
        let loss = y.sqr()?.mean_all()?;
        let gradient = r.gradients(&loss, &[&w])?.swap_remove(0);
        Ok(vec![inside.unwrap(), y.clone(), x, w, y, gradient])
    });
    assert_eq!(step.program().outputs[0].name, "inside");
    let ran = run_all(&gpu, &params, &step, inputs! { "x" => &x });
    let h = tanh(&lin(&wide(&x), &values[0]));
    assert_close(&ran.floats(0), &h, 1e-5, "inside");
    assert_close(&ran.floats(1), &lin(&h, &values[0]), 1e-5, "y");
    assert!(ran.floats(2) == x && ran.outputs[1] == ran.outputs[4]);
    assert_close(&ran.floats(3), &values[0], 0.0, "state");
    let expected = differences(&values, |w| mean_square(&lin(&tanh(&lin(&wide(&x), &w[0])), &w[0])));
    assert_close(&ran.floats(5), &expected[0], 3e-4, "gradient");
}

#[test]
fn constants_made_inside_are_made_again_and_not_kept() {
    let mask: Vec<f32> = (0..N * N).map(|i| if i % 3 == 0 { 0.0 } else { 1.5 }).collect();
    let wide_mask = wide(&mask);
    let (ran, step) = check(
        "constants",
        2,
        |r, x, w| {
            let y = r.checkpoint(x.clone(), |x| {
                let mask = r.constant(&mask, SQUARE)?;
                let ramp = r.iota(SQUARE, 1)?.to_f32()?.mul_scalar(0.1)?;
                let h = x.linear(&w[0], None)?.tanh()?.mul(&mask)?.add(&ramp)?;
                h.mul(&r.full(SQUARE, 0.5)?)?.sin()?.linear(&w[1], None)
            })?;
            y.sqr()?.mean_all()
        },
        |x, w| {
            let h = tanh(&lin(x, &w[0]));
            let h: Vec<f64> = (0..N * N).map(|i| (0.5 * (h[i] * wide_mask[i] + 0.1 * (i % N) as f64)).sin()).collect();
            mean_square(&lin(&h, &w[1]))
        },
    );
    let plan = ran.plan(Policy::Segments);
    let saved = plan.saved(step.program());
    let names: Vec<&str> = saved.iter().map(|i| step.program().storage(i.storage).name.as_str()).collect();
    assert!(!names.iter().any(|n| n.contains("iota") || n.contains("full")), "{names:?}");
    assert!(plan.replayed_passes > 0);
}

#[test]
fn skip_connections_across_segments_and_parallel_branches() {
    check(
        "skips",
        4,
        |r, x, w| {
            let first = r.checkpoint(x.clone(), |x| x.linear(&w[0], None)?.tanh())?;
            let second = r.checkpoint(first.clone(), |h| h.linear(&w[1], None)?.sin()?.linear(&w[0], None))?;
            // Jumps over the second segment, and into the middle of the third one by capture.
            let third = r.checkpoint(second.add(&first)?, |h| h.linear(&w[2], None)?.tanh()?.mul(&first)?.add(x))?;
            let (left, right) = (
                r.checkpoint(third.clone(), |h| h.linear(&w[3], None)?.tanh()?.sqr())?,
                r.checkpoint(third.clone(), |h| h.linear(&w[1], None)?.sin()?.linear(&w[3], None))?,
            );
            left.add(&right)?.add(&second)?.sqr()?.mean_all()
        },
        |x, w| {
            let sin = |v: &[f64]| v.iter().map(|v| v.sin()).collect::<Vec<_>>();
            let mul = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).collect::<Vec<_>>();
            let first = tanh(&lin(x, &w[0]));
            let second = lin(&sin(&lin(&first, &w[1])), &w[0]);
            let third = add(&mul(&tanh(&lin(&add(&second, &first), &w[2])), &first), x);
            let left = tanh(&lin(&third, &w[3]));
            let right = lin(&sin(&lin(&third, &w[1])), &w[3]);
            mean_square(&add(&add(&mul(&left, &left), &right), &second))
        },
    );
}

#[test]
fn one_segment_applied_twice_and_segments_of_nothing() {
    check(
        "twice",
        1,
        |r, x, w| {
            let body = |x: Tensor| x.linear(&w[0], None)?.tanh()?.linear(&w[0], None);
            let h = r.checkpoint(x.clone(), body)?;
            // Empty, passing through, and one that only looks at its input.
            r.checkpoint((), |()| Ok(()))?;
            let h = r.checkpoint(h, Ok)?;
            let h = r.checkpoint(h, |h| h.t())?;
            let h = r.checkpoint(h, |h| r.checkpoint(h, body))?;
            h.sqr()?.mean_all()
        },
        |x, w| {
            let h = lin(&tanh(&lin(x, &w[0])), &w[0]);
            let turned: Vec<f64> = (0..N * N).map(|i| h[i % N * N + i / N]).collect();
            mean_square(&lin(&tanh(&lin(&turned, &w[0])), &w[0]))
        },
    );
}

#[test]
fn gradients_taken_inside_a_segment() {
    let (_turn, gpu) = gpu();
    let (params, values) = weights(&gpu, &[("w", &SQUARE)]);
    let x = noise(N * N, 7);
    // A step of descent on an inner loss, inside a segment, differentiated from outside.
    let step = record(&gpu, |r| {
        let w = r.param(&params.get("w").unwrap())?;
        let x = r.input::<f32>("x", SQUARE)?;
        let moved = r.checkpoint((x, w.clone()), |(x, w)| {
            let inner = x.linear(&w, None)?.tanh()?.sqr()?.mean_all()?;
            let gradient = r.gradients(&inner, &[&w])?.swap_remove(0);
            w.sub(&gradient.mul_scalar(0.5)?)
        })?;
        let loss = moved.sqr()?.mean_all()?;
        let gradient = r.gradients(&loss, &[&w])?.swap_remove(0);
        Ok(vec![loss, gradient])
    });
    let ran = run_all(&gpu, &params, &step, inputs! { "x" => &x });
    let inner = |w: &[Vec<f64>]| mean_square(&tanh(&lin(&wide(&x), &w[0])));
    let outer = |w: &[Vec<f64>]| {
        let gradient = differences(w, inner).swap_remove(0);
        mean_square(&w[0].iter().zip(gradient).map(|(w, g)| w - 0.5 * g).collect::<Vec<_>>())
    };
    assert_close(&ran.floats(0), &[outer(&values)], 1e-4, "loss");
    let mut at = values.clone();
    let expected: Vec<f64> = (0..N * N)
        .map(|i| {
            let mut value = |d: f64| {
                at[0][i] = values[0][i] + d;
                outer(&at)
            };
            let slope = (value(1e-3) - value(-1e-3)) / 2e-3;
            at[0][i] = values[0][i];
            slope
        })
        .collect();
    assert_close(&ran.floats(1), &expected, 2e-3, "gradient");
}

/// A random net: operations on earlier values, and segments of more of them.
#[derive(Debug, Clone)]
enum Part {
    Op { kind: u32, a: u32, b: u32 },
    Segment(Vec<Part>),
}

const WEIGHTS: usize = 3;

fn random_parts(next: &mut impl FnMut(u32) -> u32, count: u32, depth: u32) -> Vec<Part> {
    (0..count)
        .map(|_| {
            if depth < 3 && next(4) == 0 {
                let inside = 1 + next(5);
                Part::Segment(random_parts(next, inside, depth + 1))
            } else {
                Part::Op { kind: next(9), a: next(1 << 16), b: next(1 << 16) }
            }
        })
        .collect()
}

/// Operands are mostly recent ones, so that nets are deep.
fn pick(index: u32, count: usize) -> usize {
    let back = (index as usize % 8).min(index as usize / 8 % 8);
    count - 1 - back.min(count - 1)
}

fn build(r: &Recorder, parts: &[Part], w: &[Tensor], values: &mut Vec<Tensor>) -> Result<()> {
    for part in parts {
        match part {
            Part::Op { kind, a, b } => {
                let (x, y) = (&values[pick(*a, values.len())], &values[pick(*b, values.len())]);
                let made = match kind {
                    0..=2 => x.linear(&w[*kind as usize], None)?,
                    3 => x.tanh()?,
                    4 => x.sin()?,
                    5 => x.add(y)?,
                    6 => x.tanh()?.mul(&y.sin()?)?,
                    7 => x.softmax(-1)?,
                    _ => Tensor::cat(&[&x.narrow(0, 0, 2)?, &y.narrow(0, 2, 2)?], 0)?.t()?,
                };
                values.push(made);
            }
            Part::Segment(inside) => {
                *values = r.checkpoint(values.clone(), |mut values| {
                    build(r, inside, w, &mut values)?;
                    Ok(values)
                })?;
            }
        }
    }
    Ok(())
}

fn interpret(parts: &[Part], w: &[Vec<f64>], values: &mut Vec<Vec<f64>>) {
    for part in parts {
        match part {
            Part::Op { kind, a, b } => {
                let (x, y) = (&values[pick(*a, values.len())], &values[pick(*b, values.len())]);
                let made = match kind {
                    0..=2 => lin(x, &w[*kind as usize]),
                    3 => tanh(x),
                    4 => x.iter().map(|v| v.sin()).collect(),
                    5 => add(x, y),
                    6 => x.iter().zip(y).map(|(a, b)| a.tanh() * b.sin()).collect(),
                    7 => x
                        .chunks(N)
                        .flat_map(|row| {
                            let sum: f64 = row.iter().map(|v| v.exp()).sum();
                            row.iter().map(move |v| v.exp() / sum).collect::<Vec<_>>()
                        })
                        .collect(),
                    _ => (0..N * N)
                        .map(|i| if i % N < 2 { x[i % N * N + i / N] } else { y[i % N * N + i / N] })
                        .collect(),
                };
                values.push(made);
            }
            Part::Segment(inside) => interpret(inside, w, values),
        }
    }
}

#[test]
fn random_nets_of_nested_segments() {
    let mut replays = 0;
    for seed in 0..12_u32 {
        let mut state = seed.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        let mut next = |below: u32| {
            state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
            (state >> 13) % below
        };
        let mut parts = vec![Part::Segment(random_parts(&mut next, 5, 1))];
        parts.extend(random_parts(&mut next, 9, 0));
        let (ran, step) = check(
            &format!("net {seed}"),
            WEIGHTS,
            |r, x, w| {
                let mut values = vec![x.linear(&w[0], None)?];
                build(r, &parts, w, &mut values)?;
                let middle = &values[values.len() / 2];
                values[values.len() - 1].sqr()?.mean_all()?.add(&middle.sin()?.mean_all()?)
            },
            |x, w| {
                let mut values = vec![lin(x, &w[0])];
                interpret(&parts, w, &mut values);
                let middle = &values[values.len() / 2];
                let sines = middle.iter().map(|v| v.sin()).sum::<f64>() / middle.len() as f64;
                mean_square(&values[values.len() - 1]) + sines
            },
        );
        replays += ran.plan(Policy::Segments).replayed_passes;
        assert!(step.program().passes.iter().any(|p| p.phase == Phase::Backward));
    }
    assert!(replays > 50, "only {replays} replays in twelve nets");
}
