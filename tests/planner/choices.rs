//! Policies by count, kind and name, marks, the least memory and the curve.

use remat::checkpoint::{Mark, Policy};
use remat::dtype::DType;
use remat::error::Error;
use remat::fuse::program::{PassId, Phase, Program, StorageId};
use remat::plan::{Plan, pareto, plan};
use remat::profile::DeviceProfile;

use crate::builder::Tape;
use crate::models::{Gpt, gpt, mlp};
use crate::planned;

fn replays(plan: &Plan, program: &Program, name: &str) -> usize {
    plan.dispatches.iter().filter(|d| d.replay && program.pass(d.pass).name == name).count()
}

fn is_replayed(plan: &Plan, program: &Program, storage: StorageId) -> bool {
    let producer = program.producers()[storage.index()];
    plan.dispatches.iter().any(|d| d.replay && Some(d.pass) == producer)
}

/// What each forward pass of this name makes.
fn made_by(program: &Program, name: &str) -> Vec<StorageId> {
    let passes = program.passes.iter().filter(|p| p.phase == Phase::Forward && p.name == name);
    passes.flat_map(|p| p.operands.iter().filter_map(|o| o.made())).collect()
}

/// The rows of the published table: length, states, re-runs.
const REVOLVE: &[(usize, usize, usize)] = &[
    (5, 1, 10),
    (5, 2, 6),
    (5, 3, 5),
    (5, 4, 4),
    (8, 1, 28),
    (8, 2, 14),
    (8, 3, 11),
    (8, 5, 9),
    (10, 2, 20),
    (10, 3, 15),
    (10, 5, 13),
    (10, 10, 9),
    (16, 3, 33),
    (16, 5, 25),
    (32, 4, 75),
    (32, 8, 54),
];

#[test]
fn revolve_repeats_as_few_segments_as_published() {
    for &(length, states, extra) in REVOLVE {
        let program = mlp(length, 16, 4, 16, true);
        let plan = planned(&program, &format!("revolve:{states}")).unwrap();
        assert_eq!(replays(&plan, &program, "relu"), extra, "{length} segments, {states} states");
    }
}

#[test]
fn revolve_with_more_states_takes_more_memory_and_less_time() {
    let program = mlp(24, 64, 1, 256, true);
    let plans: Vec<Plan> = (1..=6).map(|n| planned(&program, &format!("revolve:{n}")).unwrap()).collect();
    for pair in plans.windows(2) {
        assert!(pair[1].cost_ns < pair[0].cost_ns);
    }
    assert!(plans[1].live_peak_bytes < planned(&program, "none").unwrap().live_peak_bytes / 2);
    assert!(plans[1].live_peak_bytes < plans[5].live_peak_bytes);
}

#[test]
fn kinds_are_saved_and_the_rest_replayed() {
    for segments in [true, false] {
        let program = mlp(4, 32, 4, 64, segments);
        let plan = planned(&program, "kinds:matmul").unwrap();
        assert_eq!(replays(&plan, &program, "matmul"), 0, "segments {segments}");
        assert_eq!(replays(&plan, &program, "relu"), 4, "segments {segments}");
        let nothing = planned(&program, "nothing").unwrap();
        assert!(replays(&nothing, &program, "matmul") > 0);
    }
    let program = mlp(4, 32, 4, 64, true);
    assert_eq!(
        planned(&program, "nothing").unwrap().dispatches,
        planned(&program, "segments").unwrap().dispatches,
        "with segments it is the same"
    );
}

#[test]
fn names_are_saved_or_dropped() {
    for segments in [true, false] {
        let mut program = mlp(4, 32, 4, 64, segments);
        for (index, storage) in made_by(&program, "relu").into_iter().enumerate() {
            program.storages[storage.index()].name = format!("act{}", index % 2);
            program.storages[storage.index()].named = true;
        }
        let plan = planned(&program, "only:act0").unwrap();
        for (index, storage) in made_by(&program, "relu").into_iter().enumerate() {
            assert_eq!(is_replayed(&plan, &program, storage), index % 2 == 1, "segments {segments}, {index}");
        }
        let plan = planned(&program, "all-but:act0").unwrap();
        for (index, storage) in made_by(&program, "relu").into_iter().enumerate() {
            assert_eq!(is_replayed(&plan, &program, storage), index % 2 == 0, "segments {segments}, {index}");
        }
        for policy in ["only:act2", "all-but:acts", "kinds:fft"] {
            let error = planned(&program, policy).unwrap_err();
            assert!(matches!(&error, Error::Policy { policy: p, .. } if p == policy), "{error}");
        }
        let text = planned(&program, "only:act2").unwrap_err().to_string();
        assert!(text.contains("act0, act1"), "{text}");
    }
}

#[test]
fn selective_replays_no_product_that_shrinks() {
    let program = gpt(Gpt { layers: 4, ..Gpt::TWELVE });
    let plan = planned(&program, "selective").unwrap();
    let none = planned(&program, "none").unwrap();
    assert!(plan.live_peak_bytes < none.live_peak_bytes);
    assert!(plan.replay_cost_ns < planned(&program, "segments").unwrap().replay_cost_ns);
    for dispatch in plan.dispatches.iter().filter(|d| d.replay) {
        let pass = program.pass(dispatch.pass);
        let bytes = |s: StorageId| program.storage(s).bytes;
        let read: u64 = pass.operands.iter().filter_map(|o| o.read()).map(bytes).sum();
        let made: u64 = pass.operands.iter().filter_map(|o| o.made()).map(bytes).sum();
        assert!(!pass.kind.starts_with("matmul") || made > read, "{} is replayed", pass.name);
    }
}

/// Every policy that plans a recording with segments.
const POLICIES: &[&str] = &[
    "none",
    "segments",
    "every:2",
    "sqrt",
    "revolve:2",
    "nothing",
    "kinds:matmul",
    "selective",
    "least",
    "budget:60%",
];

#[test]
fn marks_on_values_outrank_every_policy() {
    let mut program = mlp(4, 32, 4, 64, true);
    let relus = made_by(&program, "relu");
    program.storages[relus[1].index()].mark = Some(Mark::Save);
    program.storages[relus[2].index()].mark = Some(Mark::Recompute);
    for policy in POLICIES {
        let Ok(plan) = planned(&program, policy) else {
            assert_eq!(*policy, "budget:60%");
            continue;
        };
        assert!(!is_replayed(&plan, &program, relus[1]), "{policy}");
        assert!(is_replayed(&plan, &program, relus[2]), "{policy}");
    }
}

#[test]
fn marks_on_segments_outrank_every_policy_and_inner_ones_the_outer() {
    let mut tape = Tape::default();
    let mut h = tape.input("x", 64 * 32, DType::F32);
    let mut relus = Vec::new();
    for block in 0..4 {
        let weight = tape.parameter(&format!("{block}.weight"), 32 * 32);
        h = tape.checkpoint(&format!("outer{block}"), |tape| {
            let wide = tape.linear(h, weight, 64 * 32);
            let wide = tape.checkpoint(&format!("inner{block}"), |tape| {
                let y = tape.op("relu", &[wide], 64 * 32, (false, true), 1.0);
                relus.push(y);
                tape.linear(y, weight, 64 * 32)
            });
            tape.linear(wide, weight, 64 * 32)
        });
    }
    let mut program = tape.train(h);
    let mut mark = |name: &str, mark: Mark| {
        let segment = program.segments.iter_mut().find(|s| s.name == name).unwrap();
        segment.mark = Some(mark);
    };
    mark("outer0", Mark::Save);
    mark("outer1", Mark::Save);
    mark("inner1", Mark::Recompute);
    mark("inner2", Mark::Recompute);
    for policy in POLICIES {
        let Ok(plan) = planned(&program, policy) else {
            assert_eq!(*policy, "budget:60%");
            continue;
        };
        assert!(!is_replayed(&plan, &program, relus[0]), "{policy}");
        assert!(is_replayed(&plan, &program, relus[1]), "{policy}");
        assert!(is_replayed(&plan, &program, relus[2]), "{policy}");
    }
}

#[test]
fn the_least_memory_is_the_least_budget() {
    for program in [mlp(6, 32, 4, 64, true), mlp(6, 32, 4, 64, false), gpt(Gpt { layers: 4, ..Gpt::SMALL })] {
        let least = planned(&program, "least").unwrap();
        let Err(Error::BudgetTooSmall { least_budget_bytes, .. }) = planned(&program, "budget:0") else {
            panic!("a budget of nothing is refused")
        };
        assert_eq!(least.peak.total(), least_budget_bytes);
        let same = planned(&program, &format!("budget:{least_budget_bytes}")).unwrap();
        assert_eq!(same.peak.total(), least_budget_bytes);
        assert!(same.cost_ns >= least.cost_ns - 1e-6 * least.cost_ns && same.cost_ns <= least.cost_ns * (1.0 + 1e-6));
    }
}

#[test]
fn the_curve_runs_from_none_to_the_least_and_each_point_can_be_had() {
    let profile = DeviceProfile::default();
    for program in [mlp(8, 32, 4, 64, true), gpt(Gpt { layers: 6, ..Gpt::SMALL })] {
        let points = pareto(&program, &profile, 10).unwrap();
        assert!((3..=10).contains(&points.len()), "{points:?}");
        let none = plan(&program, &Policy::None, &profile).unwrap();
        assert_eq!((points[0].peak_bytes, points[0].replay_cost_ns), (none.peak.total(), 0.0));
        let least = planned(&program, "least").unwrap().peak.total();
        assert!(points.last().unwrap().peak_bytes <= least + least / 50, "{points:?}");
        for pair in points.windows(2) {
            assert!(pair[1].peak_bytes < pair[0].peak_bytes && pair[1].cost_ns > pair[0].cost_ns);
        }
        for point in &points {
            let plan = planned(&program, &format!("budget:{}", point.peak_bytes)).unwrap();
            assert!(plan.cost_ns <= point.cost_ns * (1.0 + 1e-9), "{point:?}");
        }
    }
}

#[test]
fn passes_are_the_same_under_every_policy() {
    let program = mlp(4, 32, 4, 64, true);
    let once = |plan: &Plan| {
        let mut passes: Vec<PassId> = plan.dispatches.iter().filter(|d| !d.replay).map(|d| d.pass).collect();
        passes.sort_unstable();
        passes
    };
    let expected = once(&planned(&program, "none").unwrap());
    for policy in POLICIES {
        assert_eq!(once(&planned(&program, policy).unwrap()), expected, "{policy}");
    }
}
