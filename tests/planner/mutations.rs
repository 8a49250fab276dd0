//! Every fault put into a good plan is found.

use remat::error::{Error, Result};
use remat::fuse::program::{Operand, Phase, Program};
use remat::plan::{InstanceId, Plan, Space, check};
use remat::profile::DeviceProfile;

use crate::models::{Gpt, gpt};
use crate::planned;

fn good() -> (Program, Plan) {
    let program = gpt(Gpt { layers: 2, nested: true, ..Gpt::SMALL });
    let plan = planned(&program, "segments").unwrap();
    (program, plan)
}

fn found(program: &Program, plan: &Plan) -> String {
    match check(program, plan, &DeviceProfile::default()) {
        Err(Error::PlanCheck { detail, .. }) => detail,
        other => panic!("the fault was not found: {other:?}"),
    }
}

fn arena(plan: &Plan, instance: usize) -> bool {
    matches!(plan.instances[instance].location.space, Space::Arena(_))
}

/// Instances made by writing (not in place) that are read later.
fn written(plan: &Plan) -> Vec<usize> {
    (0..plan.instances.len()).filter(|&i| arena(plan, i) && plan.instances[i].last > plan.instances[i].first).collect()
}

#[test]
fn a_shifted_offset() {
    let (program, plan) = good();
    let mut shifts = 0;
    for instance in written(&plan) {
        for by in [256_i64, -256, 4] {
            let mut bad = plan.clone();
            let offset = &mut bad.instances[instance].location.offset;
            let Some(shifted) = offset.checked_add_signed(by) else { continue };
            *offset = shifted;
            // A shift can be harmless: into bytes that nobody uses then. It is
            // a fault if the neighbour's bytes are in use.
            let moved = bad.instances[instance].clone();
            let hits = bad.instances.iter().enumerate().any(|(other, o)| {
                other != instance
                    && o.location.space == moved.location.space
                    && o.location.offset < moved.location.offset + moved.location.bytes
                    && moved.location.offset < o.location.offset + o.location.bytes
                    && o.first < moved.last
                    && moved.first < o.last
                    && o.last > o.first
            });
            if hits || by == 4 {
                found(&program, &bad);
                shifts += 1;
            }
        }
    }
    assert!(shifts > 100, "{shifts}");
}

#[test]
fn a_dropped_dispatch() {
    let (program, plan) = good();
    for dispatch in 0..plan.dispatches.len() {
        let mut bad = plan.clone();
        bad.dispatches.remove(dispatch);
        if bad.dispatches.get(dispatch).is_some() || plan.dispatches[dispatch].replay {
            found(&program, &bad);
        }
    }
}

/// Where another value would be placed if `long` had ended early.
#[test]
fn a_shortened_lifetime() {
    let (program, plan) = good();
    let mut tried = 0;
    for long in written(&plan) {
        let victim = plan.instances[long].clone();
        // Something made inside of its life, no longer than it, placed over it.
        let over = (0..plan.instances.len()).find(|&i| {
            let o = &plan.instances[i];
            arena(&plan, i)
                && o.first > victim.first + 1
                && o.first < victim.last
                && o.last > o.first
                && o.location.bytes <= victim.location.bytes
                && plan.dispatches[o.first as usize].made.contains(&Some(InstanceId(i as u32)))
                && in_place_free(&program, &plan, i)
        });
        let Some(over) = over else { continue };
        let mut bad = plan.clone();
        bad.instances[over].location.offset = victim.location.offset;
        bad.instances[over].location.space = victim.location.space;
        bad.instances[long].last = bad.instances[over].first - 1;
        found(&program, &bad);
        // And the statement alone.
        let mut bad = plan.clone();
        bad.instances[long].last -= 1;
        assert!(found(&program, &bad).contains("stated to live"));
        tried += 1;
    }
    assert!(tried > 20, "{tried}");
}

fn in_place_free(program: &Program, plan: &Plan, instance: usize) -> bool {
    plan.dispatches.iter().all(|d| {
        program.pass(d.pass).operands.iter().zip(d.instances.iter().zip(&d.made)).all(|(operand, (i, m))| {
            !matches!(operand, Operand::InPlace { .. })
                || (i.0 as usize != instance && m.map(|m| m.0 as usize) != Some(instance))
        })
    })
}

#[test]
fn swapped_dispatches() {
    let (program, plan) = good();
    let mut swapped = 0;
    for at in 1..plan.dispatches.len() {
        let mut bad = plan.clone();
        bad.dispatches.swap(at - 1, at);
        // Also where the order does not matter for values, lives are misstated.
        found(&program, &bad);
        swapped += 1;
    }
    assert_eq!(swapped + 1, plan.dispatches.len());
}

#[test]
fn a_duplicated_update() {
    let (program, plan) = good();
    let updates: Vec<usize> =
        (0..plan.dispatches.len()).filter(|&d| program.pass(plan.dispatches[d].pass).phase == Phase::Update).collect();
    assert!(!updates.is_empty());
    for update in updates {
        let mut bad = plan.clone();
        let again = bad.dispatches[update].clone();
        bad.dispatches.push(again);
        found(&program, &bad);
        let mut bad = plan.clone();
        let mut again = bad.dispatches[update].clone();
        again.replay = true;
        bad.dispatches.push(again);
        found(&program, &bad);
    }
}

#[test]
fn a_state_read_after_its_overwrite() {
    let (program, plan) = good();
    let update =
        (0..plan.dispatches.len()).find(|&d| program.pass(plan.dispatches[d].pass).phase == Phase::Update).unwrap();
    let mut bad = plan.clone();
    let moved = bad.dispatches.remove(update);
    bad.dispatches.insert(0, moved);
    found(&program, &bad);
}

#[test]
fn a_wrong_instance() {
    let (program, plan) = good();
    let mut tried = 0;
    for dispatch in 0..plan.dispatches.len() {
        for operand in 0..plan.dispatches[dispatch].instances.len() {
            let right = plan.dispatches[dispatch].instances[operand];
            for wrong in 0..plan.instances.len() as u32 {
                let same_storage = plan.instances[wrong as usize].storage == plan.instances[right.0 as usize].storage;
                // Another life of the same storage is the interesting mistake.
                if wrong != right.0 && (same_storage || wrong % 97 == 0) {
                    let mut bad = plan.clone();
                    bad.dispatches[dispatch].instances[operand] = InstanceId(wrong);
                    found(&program, &bad);
                    tried += 1;
                }
            }
        }
    }
    assert!(tried > 500, "{tried}");
}

#[test]
fn misstated_numbers() {
    type Change = fn(&mut Plan);
    let (program, plan) = good();
    let changes: [(&str, Change); 16] = [
        ("state", |p| p.peak.state += 4),
        ("arena", |p| p.peak.arena -= 4),
        ("upload", |p| p.peak.upload += 4),
        ("uniform", |p| p.peak.uniform -= 256),
        ("output", |p| p.peak.output += 256),
        ("readback", |p| p.peak.readback = 0),
        ("activation peak", |p| p.activation_peak_bytes -= 256),
        ("live peak", |p| p.live_peak_bytes += 256),
        ("replays", |p| p.replayed_passes += 1),
        ("cost", |p| p.cost_ns *= 1.5),
        ("replay cost", |p| p.replay_cost_ns = 0.0),
        ("block length", |p| p.arena_blocks[0] += 4),
        ("another block", |p| p.arena_blocks.push(256)),
        ("uniform buffer", |p| p.uniform_bytes += 256),
        ("slot", |p| p.slot_bytes = 0),
        ("output offset", |p| p.outputs[1].slot_offset = p.outputs[0].slot_offset),
    ];
    for (what, change) in changes {
        let mut bad = plan.clone();
        change(&mut bad);
        assert!(check(&program, &bad, &DeviceProfile::default()).is_err(), "{what}");
    }
}

#[test]
fn misplaced_words_and_inputs() {
    let (program, plan) = good();
    let mut bad = plan.clone();
    let (a, b) = (0, bad.dispatches.iter().position(|d| d.uniform_offset != bad.dispatches[0].uniform_offset).unwrap());
    bad.dispatches[a].uniform_offset = bad.dispatches[b].uniform_offset;
    assert!(found(&program, &bad).contains("words"));

    let mut bad = plan.clone();
    let first = bad.inputs[0];
    bad.inputs[1] = first;
    found(&program, &bad);
}

#[test]
fn limits_passed() -> Result<()> {
    let (program, plan) = good();
    let defaults = DeviceProfile::default();
    let largest = plan.instances.iter().map(|i| i.location.bytes).max().unwrap();
    let bindings = program.passes.iter().map(|p| p.operands.len()).max().unwrap() as u32;
    for profile in [
        DeviceProfile { max_binding_bytes: largest - 4, ..defaults.clone() },
        DeviceProfile { max_buffer_bytes: plan.arena_blocks[0] - 4, ..defaults.clone() },
        DeviceProfile { max_storage_buffers: bindings - 1, ..defaults.clone() },
        DeviceProfile { max_workgroups_per_dimension: 0, ..defaults.clone() },
        DeviceProfile { offset_alignment_bytes: 512, ..defaults.clone() },
    ] {
        assert!(check(&program, &plan, &profile).is_err());
    }
    check(&program, &plan, &defaults)
}
