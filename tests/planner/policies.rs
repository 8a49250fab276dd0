//! What the policies promise.

use remat::checkpoint::{ByteSize, Policy};
use remat::dtype::DType;
use remat::error::Error;
use remat::fuse::program::{Category, Operand, Phase, Program, StorageId, StorageKind};
use remat::plan::{Plan, plan};
use remat::profile::DeviceProfile;

use crate::builder::Tape;
use crate::models::{Gpt, gpt, mlp};
use crate::planned;

fn peaks(program: &Program, policies: &[&str]) -> Vec<u64> {
    policies.iter().map(|p| planned(program, p).unwrap().peak.total()).collect()
}

fn replays(plan: &Plan, program: &Program, name: &str) -> usize {
    plan.dispatches.iter().filter(|d| d.replay && program.pass(d.pass).name == name).count()
}

#[test]
fn finer_groups_take_less_where_interiors_are_wide() {
    for program in [mlp(8, 64, 4, 128, true), mlp(9, 32, 8, 64, true), gpt(Gpt { layers: 8, ..Gpt::SMALL })] {
        let peaks = peaks(&program, &["every:1", "every:2", "every:4", "none"]);
        assert!(peaks.is_sorted(), "{peaks:?}");
        assert!(peaks[0] < peaks[3]);
        assert_eq!(planned(&program, "segments").unwrap().peak.total(), peaks[0]);
    }
}

#[test]
fn a_segment_is_replayed_once_and_stops_early() {
    let program = mlp(4, 32, 4, 64, true);
    let none = planned(&program, "none").unwrap();
    assert_eq!(none.replayed_passes, 0);
    let plan = planned(&program, "segments").unwrap();
    // The second matmul of a block is read by nobody in its block's backward.
    assert_eq!(replays(&plan, &program, "matmul"), 4);
    assert_eq!(replays(&plan, &program, "relu"), 4);
    assert_eq!(plan.replayed_passes, 8);
    let grouped = planned(&program, "every:2").unwrap();
    // The first block's second matmul makes the boundary inside of the group.
    assert_eq!(replays(&grouped, &program, "matmul"), 6);
    assert_eq!(replays(&grouped, &program, "relu"), 4);
}

#[test]
fn replays_come_last_segment_first_and_not_before_backward() {
    let program = mlp(6, 32, 4, 64, true);
    let plan = planned(&program, "segments").unwrap();
    let replayed: Vec<u32> =
        plan.dispatches.iter().filter(|d| d.replay).map(|d| program.pass(d.pass).segment.unwrap().0).collect();
    assert!(replayed.is_sorted_by(|a, b| a >= b), "{replayed:?}");
    // Between two replays of different segments lies the later one's backward.
    for (index, dispatch) in plan.dispatches.iter().enumerate().filter(|(_, d)| d.replay) {
        let segment = program.pass(dispatch.pass).segment.unwrap();
        for later in &plan.dispatches[index..] {
            let pass = program.pass(later.pass);
            if pass.phase == Phase::Backward {
                assert!(pass.segment.is_none_or(|s| s <= segment));
            }
        }
    }
}

#[test]
fn groups_are_split_as_promised() {
    let program = mlp(10, 16, 4, 16, true);
    // sqrt: 10 segments in 4 groups of 3, 3, 2, 2; inner boundaries are dropped.
    let plan = planned(&program, "sqrt").unwrap();
    assert_eq!(replays(&plan, &program, "matmul"), 10 + 6);
    let plan = planned(&program, "every:100").unwrap();
    assert_eq!(replays(&plan, &program, "matmul"), 10 + 9);
}

#[test]
fn segment_policies_need_segments() {
    let program = mlp(3, 16, 4, 16, false);
    for policy in ["segments", "every:2", "sqrt"] {
        let error = planned(&program, policy).unwrap_err();
        assert!(matches!(&error, Error::Policy { detail, .. } if detail.contains("checkpoint")), "{error}");
    }
    planned(&program, "none").unwrap();
    planned(&program, "budget:100%").unwrap();
}

/// Depth three: every interior is rebuilt when its own backward comes.
#[test]
fn nested_segments_rebuild_interiors_only_while_needed() {
    let build = |depth: usize| {
        let mut tape = Tape::default();
        let x = tape.input("x", 1024, DType::F32);
        let w: Vec<StorageId> = (0..4).map(|i| tape.parameter(&format!("w{i}"), 64)).collect();
        fn level(tape: &mut Tape, x: StorageId, w: &[StorageId], depth: usize) -> StorageId {
            let record = |tape: &mut Tape| {
                let wide = tape.linear(x, w[depth], 4096);
                let wide = tape.op("act", &[wide], 4096, (true, false), 1.0);
                let narrow = tape.linear(wide, w[depth], 1024);
                if depth == 0 { narrow } else { level(tape, narrow, w, depth - 1) }
            };
            tape.checkpoint(&format!("depth{depth}"), record)
        }
        let y = level(&mut tape, x, &w, depth);
        tape.train(y)
    };
    let program = build(2);
    let plan = planned(&program, "segments").unwrap();
    // Each `act` (3 levels) is replayed once for its own backward, and the
    // outer ones' never for the inner ones: their ends are kept meanwhile.
    assert_eq!(replays(&plan, &program, "act"), 3);
    let flat = planned(&program, "every:1").unwrap();
    assert_eq!(plan.dispatches, flat.dispatches);
    // Each level ends in the next one, so all are rebuilt at once: no gain.
    assert!(plan.notes[0].contains("gains nothing"));
}

/// An inner segment followed by something in the outer one that needs its output.
#[test]
fn an_inner_interior_made_on_the_way_is_dropped_again() {
    let mut tape = Tape::default();
    let x = tape.input("x", 1024, DType::F32);
    let w = tape.parameter("w", 64);
    let y = tape.checkpoint("outer", |tape| {
        let inner = tape.checkpoint("inner", |tape| {
            let wide = tape.linear(x, w, 65_536);
            let wide = tape.op("inner_act", &[wide], 65_536, (true, false), 1.0);
            tape.op("inner_end", &[wide], 1024, (true, false), 1.0)
        });
        let other = tape.linear(inner, w, 65_536);
        let other = tape.op("outer_act", &[other], 65_536, (true, false), 1.0);
        tape.linear(other, w, 1024)
    });
    let program = tape.train(y);
    let nested = planned(&program, "segments").unwrap();
    // Once on the way to the outer backward, once for its own.
    assert_eq!(replays(&nested, &program, "inner_act"), 2);
    assert_eq!(replays(&nested, &program, "outer_act"), 1);
    assert_eq!(replays(&nested, &program, "inner_end"), 1);
}

#[test]
fn shared_weights_skips_and_branches() {
    let mut tape = Tape::default();
    let ids = tape.input("ids", 256, DType::I32);
    let shared = tape.parameter("shared", 4096);
    let frozen = tape.state("frozen", 1024, Category::Parameter);
    let constant = tape.constant(16);
    let a = tape.checkpoint("one", |t| {
        let e = t.op("embedding", &[ids, shared], 8192, (true, false), 1.0);
        let s = t.op("scale", &[e, constant], 8192, (true, false), 1.0);
        t.linear(s, shared, 2048)
    });
    let b = tape.checkpoint("two", |t| {
        let left = t.linear(a, shared, 8192);
        let right = t.linear(a, frozen, 8192);
        let sum = t.op("add", &[left, right], 8192, (false, false), 1.0);
        let act = t.in_place("relu", sum, true);
        t.linear(act, shared, 2048)
    });
    let skip = tape.op("skip", &[a, b], 2048, (false, false), 1.0);
    let twice = |t: &mut Tape, x| {
        t.checkpoint("again", |t| {
            let wide = t.linear(x, shared, 8192);
            let act = t.in_place("relu", wide, true);
            t.linear(act, shared, 2048)
        })
    };
    let y = twice(&mut tape, skip);
    let y = twice(&mut tape, y);
    let program = tape.train(y);
    let updates = program.passes.iter().filter(|p| p.phase == Phase::Update).count();
    assert_eq!(updates, 1, "one gradient, delivered once");
    let none = planned(&program, "none").unwrap();
    for policy in ["segments", "every:2", "sqrt", "budget:100%"] {
        let plan = planned(&program, policy).unwrap();
        assert!(plan.peak.total() <= none.peak.total(), "{policy}");
    }
}

/// The first op of a segment works in place on a copy, never on the boundary.
#[test]
fn in_place_chains_are_rebuilt_from_their_start() {
    let mut tape = Tape::default();
    let x = tape.input("x", 1024, DType::F32);
    let w = tape.parameter("w", 64);
    let mut h = tape.linear(x, w, 1024);
    for _ in 0..3 {
        let boundary = h;
        h = tape.checkpoint("block", |t| {
            let first = t.op("copy", &[boundary], 4096, (false, false), 1.0);
            let first = t.in_place("relu", first, true);
            let second = t.op("copy", &[first], 4096, (false, false), 1.0);
            let second = t.in_place("tanh", second, true);
            t.linear(second, w, 1024)
        });
    }
    let program = tape.train(h);
    let plan = planned(&program, "segments").unwrap();
    assert_eq!(replays(&plan, &program, "relu"), 3);
    assert_eq!(replays(&plan, &program, "copy"), 6);
    assert_eq!(replays(&plan, &program, "tanh"), 3);
}

#[test]
fn what_nobody_asks_for_is_not_run_and_what_backward_does_not_read_is_not_kept() {
    let mut tape = Tape::default();
    let x = tape.input("x", 1024, DType::F32);
    let w = tape.parameter("w", 64);
    let h = tape.linear(x, w, 1024);
    tape.op("unused", &[h], 1 << 20, (true, false), 1.0);
    let mut h = h;
    for _ in 0..50 {
        h = tape.op("negate", &[h], 1024, (false, false), 1.0);
    }
    let h = tape.linear(h, w, 1024);
    let program = tape.train(h);
    let plan = planned(&program, "none").unwrap();
    assert!(plan.dispatches.iter().all(|d| program.pass(d.pass).name != "unused"));
    // Two matmuls' inputs are saved and the loss's: one of them is the run's input.
    assert_eq!(plan.saved(&program).len(), 2);
    // A chain of 50: live memory does not grow with its length.
    assert!(plan.live_peak_bytes < 6 * 4096, "{}", plan.live_peak_bytes);
}

#[test]
fn gradients_are_freed_as_their_parameters_are_updated() {
    let program = mlp(12, 64, 4, 8, true);
    let gradients: u64 = program
        .storages
        .iter()
        .filter(|s| s.kind == StorageKind::Transient && s.category == Category::ParameterGradient)
        .map(|s| s.bytes)
        .sum();
    let plan = planned(&program, "segments").unwrap();
    let most = plan.timeline(&program).iter().map(|l| l.parameter_gradients).max().unwrap();
    assert!(most * 4 < gradients, "{most} of {gradients} alive at once");
}

#[test]
fn states_are_overwritten_after_their_last_replay() {
    // The state is read inside of a segment (as running statistics are) and
    // written by a pass that was recorded in forward.
    let mut tape = Tape::default();
    let x = tape.input("x", 1024, DType::F32);
    let w = tape.parameter("w", 64);
    let counter = tape.state("counter", 4, Category::Optimizer);
    let mut h = x;
    for block in 0..3 {
        h = tape.checkpoint("block", |t| {
            let wide = t.op("noise", &[h, counter, w], 4096, (true, false), 1.0);
            let y = t.linear(wide, w, 1024);
            if block == 0 {
                t.pass("count", Phase::Update, t.segment(), vec![Operand::StateWrite(counter)], 1.0);
            }
            y
        });
    }
    let program = tape.train(h);
    for policy in ["none", "segments", "every:2"] {
        let plan = planned(&program, policy).unwrap();
        let at = |name: &str| {
            let found = plan.dispatches.iter().rposition(|d| program.pass(d.pass).name == name);
            found.unwrap()
        };
        assert!(at("count") > at("noise"), "{policy}");
        if policy == "segments" {
            assert_eq!(replays(&plan, &program, "noise"), 3);
            assert_eq!(replays(&plan, &program, "count"), 0);
        }
    }
}

#[test]
fn a_running_statistic_is_written_in_forward() {
    let mut tape = Tape::default();
    let x = tape.input("x", 1024, DType::F32);
    let w = tape.parameter("w", 64);
    let running = tape.state("running", 8, Category::Parameter);
    let h = tape.checkpoint("norm", |t| {
        let wide = t.linear(x, w, 8192);
        let mean = t.op("mean", &[wide], 8, (false, false), 1.0);
        let operands = vec![Operand::Read(mean), Operand::StateWrite(running)];
        t.pass("track", Phase::Update, t.segment(), operands, 1.0);
        let centred = t.op("centre", &[wide, mean], 8192, (true, false), 1.0);
        t.linear(centred, w, 1024)
    });
    let program = tape.train(h);
    let plan = planned(&program, "segments").unwrap();
    let track = plan.dispatches.iter().position(|d| program.pass(d.pass).name == "track").unwrap();
    let first_backward = plan.dispatches.iter().position(|d| program.pass(d.pass).phase == Phase::Backward).unwrap();
    assert!(track < first_backward);
    assert_eq!(replays(&plan, &program, "mean"), 1);
}

#[test]
fn two_writers_of_one_state_are_refused() {
    let mut tape = Tape::default();
    let counter = tape.state("counter", 4, Category::Optimizer);
    for _ in 0..2 {
        tape.pass("count", Phase::Update, None, vec![Operand::StateWrite(counter)], 1.0);
    }
    let error = planned(&tape.program, "none").unwrap_err();
    assert!(matches!(&error, Error::PlanCheck { detail, .. } if detail.contains("counter")), "{error}");
}

#[test]
fn an_overwritten_state_as_output_is_refused() {
    let mut tape = Tape::default();
    let counter = tape.state("counter", 4, Category::Optimizer);
    tape.pass("count", Phase::Update, None, vec![Operand::StateWrite(counter)], 1.0);
    tape.output("counter", counter);
    let error = planned(&tape.program, "none").unwrap_err();
    assert!(matches!(&error, Error::PlanCheck { detail, .. } if detail.contains("hands back")), "{error}");
}

#[test]
fn outputs_may_be_inputs_states_and_twice_the_same() {
    let mut tape = Tape::default();
    let x = tape.input("x", 10, DType::F32);
    let w = tape.parameter("w", 64);
    let y = tape.checkpoint("one", |t| t.linear(x, w, 100));
    let inner = tape.checkpoint("two", |t| t.op("square", &[y], 100, (true, false), 1.0));
    let loss = tape.op("loss", &[inner], 1, (true, false), 1.0);
    let gradients = tape.backward(loss);
    for (name, storage) in [("x", x), ("w", w), ("y", y), ("y again", y), ("loss", loss), ("dw", gradients[0].1)] {
        tape.output(name, storage);
    }
    let program = tape.program;
    let plan = planned(&program, "segments").unwrap();
    assert_eq!(plan.outputs.len(), 6);
    // 40 + 256 + 400 + 400 + 4 + 256, in whole alignments.
    assert_eq!(plan.slot_bytes, 1536);
    assert_eq!(plan.peak.output, 3 * 1536);
    assert_eq!(plan.peak.readback, 1536);
}

#[test]
fn nothing_takes_nothing() {
    for policy in ["none", "budget:0", "budget:50%"] {
        let plan = planned(&Program::default(), policy).unwrap();
        assert_eq!(plan.peak.total(), 0);
    }
}

#[test]
fn a_larger_budget_is_never_dearer_and_one_byte_less_is_refused() {
    for program in [
        mlp(8, 32, 4, 64, true),
        mlp(8, 32, 4, 64, false),
        gpt(Gpt { layers: 3, nested: true, ..Gpt::SMALL }),
        gpt(Gpt { layers: 3, segments: false, ..Gpt::SMALL }),
    ] {
        let least = match planned(&program, "budget:0").unwrap_err() {
            Error::BudgetTooSmall { budget_bytes: 0, least_budget_bytes } => least_budget_bytes,
            error => panic!("{error}"),
        };
        let none = planned(&program, "none").unwrap();
        assert!(least < none.peak.total());
        let profile = DeviceProfile::default();
        let budget = |bytes: u64| plan(&program, &Policy::Budget(ByteSize::new(bytes)), &profile);
        for below in [least - 1, least / 2, least - 256] {
            let expected = Error::BudgetTooSmall { budget_bytes: below, least_budget_bytes: least };
            assert_eq!(budget(below).unwrap_err(), expected);
        }
        let mut cost = f64::INFINITY;
        for step in 0..=12 {
            let bytes = least + (none.peak.total() - least) * step / 12;
            let plan = budget(bytes).unwrap();
            assert!(plan.peak.total() <= bytes);
            assert!(plan.cost_ns <= cost, "{step}: {} after {cost}", plan.cost_ns);
            cost = plan.cost_ns;
        }
        let unlimited = budget(u64::MAX).unwrap();
        assert_eq!(unlimited.dispatches, none.dispatches);
        assert_eq!(unlimited.peak, none.peak);
        let all = planned(&program, "budget:100%").unwrap();
        assert_eq!(all.peak, none.peak);
    }
}

#[test]
fn half_of_the_memory_is_enough() {
    for program in [gpt(Gpt { layers: 6, ..Gpt::SMALL }), gpt(Gpt { layers: 6, segments: false, ..Gpt::SMALL })] {
        let none = planned(&program, "none").unwrap();
        let half = planned(&program, "budget:60%").unwrap();
        let beyond = |plan: &Plan| plan.peak.total() - plan.peak.state;
        assert!(beyond(&half) * 10 <= beyond(&none) * 6);
        assert!(half.cost_ns < none.cost_ns * 1.4);
    }
}

#[test]
fn the_same_program_gives_the_same_plan() {
    for policy in ["none", "segments", "sqrt", "budget:60%"] {
        let program = || gpt(Gpt { nested: true, ..Gpt::SMALL });
        let (a, b) = (planned(&program(), policy).unwrap(), planned(&program(), policy).unwrap());
        assert_eq!(a, b);
        assert_eq!(format!("{:#}", a.report(&program())), format!("{:#}", b.report(&program())));
    }
}

#[test]
fn where_a_policy_gains_nothing_the_report_says_so() {
    // A segment per op whose saved output is the next one's input.
    let mut tape = Tape::default();
    let mut h = tape.input("x", 4096, DType::F32);
    for block in 0..6 {
        let w = tape.parameter(&format!("w{block}"), 64);
        h = tape.checkpoint("conv", |t| t.linear(h, w, 4096));
        h = tape.checkpoint("relu", |t| t.op("relu", &[h], 4096, (false, true), 1.0));
    }
    let program = tape.train(h);
    let plan = planned(&program, "segments").unwrap();
    assert!(plan.report(&program).to_string().contains("gains nothing"), "{}", plan.report(&program));
    let program = mlp(4, 32, 4, 64, true);
    let plan = planned(&program, "segments").unwrap();
    assert!(!plan.report(&program).to_string().contains("gains nothing"));
}

#[test]
fn the_timeline_adds_up() {
    let program = gpt(Gpt { nested: true, ..Gpt::SMALL });
    for policy in ["none", "segments", "sqrt"] {
        let plan = planned(&program, policy).unwrap();
        let timeline = plan.timeline(&program);
        assert_eq!(timeline.len(), plan.dispatches.len());
        assert_eq!(timeline.iter().map(|l| l.transient()).max(), Some(plan.live_peak_bytes));
        let activation = timeline.iter().map(|l| l.transient() - l.parameter_gradients).max();
        assert_eq!(activation, Some(plan.activation_peak_bytes));
        assert!(timeline.iter().all(|l| l.parameters + l.optimizer == plan.peak.state));
    }
}
