//! Limits of devices, and sizes beyond every device.

use remat::dtype::DType;
use remat::error::Error;
use remat::fuse::program::{Category, Operand, Phase, Program};
use remat::plan::plan;
use remat::profile::DeviceProfile;

use crate::builder::Tape;

/// A value of this many bytes between two small ones.
fn large(bytes: u64) -> Program {
    let mut tape = Tape::default();
    let x = tape.input("x", 4, DType::F32);
    let big = tape.op("broadcast", &[x], bytes / 4, (false, false), 1.0);
    let y = tape.op("sum", &[big], 1, (false, false), 1.0);
    tape.output("y", y);
    tape.program
}

fn limit_of(result: Result<remat::plan::Plan, Error>) -> (&'static str, u64) {
    match result {
        Err(Error::Limit { limit, size_bytes, limit_bytes, .. }) => {
            assert!(size_bytes > limit_bytes);
            (limit, size_bytes)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn exactly_the_limit_passes_and_four_bytes_more_do_not() {
    let defaults = DeviceProfile::default();
    let policy = "none".parse().unwrap();
    let small = DeviceProfile { max_binding_bytes: 16 << 20, ..defaults.clone() };
    let odd = DeviceProfile { max_binding_bytes: (4 << 30) - 4, max_buffer_bytes: (4 << 30) - 4, ..defaults.clone() };
    for profile in [defaults.clone(), small, odd] {
        let limit = profile.max_binding_bytes;
        let fits = plan(&large(limit), &policy, &profile).unwrap();
        assert!(fits.arena_blocks.iter().all(|&b| b <= profile.max_buffer_bytes));
        let refused = plan(&large(limit + 4), &policy, &profile);
        assert_eq!(limit_of(refused), ("maxStorageBufferBindingSize", limit + 4));
    }
    let buffers = DeviceProfile { max_buffer_bytes: 64 << 20, ..defaults };
    plan(&large(64 << 20), &policy, &buffers).unwrap();
    assert_eq!(limit_of(plan(&large((64 << 20) + 4), &policy, &buffers)), ("maxBufferSize", (64 << 20) + 4));
}

#[test]
fn inputs_states_and_constants_are_refused_too() {
    let profile = DeviceProfile { max_binding_bytes: 1024, ..DeviceProfile::default() };
    let policy = "none".parse().unwrap();
    type Make = fn(&mut Tape) -> remat::fuse::program::StorageId;
    let makes: [Make; 3] = [|t| t.input("x", 257, DType::F32), |t| t.parameter("w", 257), |t| t.constant(257)];
    for make in makes {
        let mut tape = Tape::default();
        let storage = make(&mut tape);
        let y = tape.op("sum", &[storage], 1, (false, false), 1.0);
        tape.output("y", y);
        assert_eq!(limit_of(plan(&tape.program, &policy, &profile)), ("maxStorageBufferBindingSize", 1028));
    }
}

#[test]
fn four_gibibytes_are_planned_only_where_they_are_allowed() {
    let policy = "none".parse().unwrap();
    let roomy = DeviceProfile { max_binding_bytes: 1 << 40, max_buffer_bytes: 1 << 40, ..DeviceProfile::default() };
    for elements in [(1_u64 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 1] {
        let program = large(elements * 4);
        assert_eq!(limit_of(plan(&program, &policy, &DeviceProfile::default())).1, elements * 4);
        let planned = plan(&program, &policy, &roomy).unwrap();
        assert!(planned.peak.arena >= elements * 4);
        assert!(planned.peak.arena < elements * 4 + 512);
    }
    let endless = DeviceProfile { max_binding_bytes: u64::MAX, max_buffer_bytes: u64::MAX, ..DeviceProfile::default() };
    assert_eq!(limit_of(plan(&large(1 << 60), &policy, &endless)).0, "maxBufferSize");
    plan(&large(1 << 48), &policy, &endless).unwrap();
}

#[test]
fn values_are_spread_over_blocks() {
    let profile = DeviceProfile { max_buffer_bytes: 64 << 10, max_binding_bytes: 64 << 10, ..DeviceProfile::default() };
    let program = crate::models::mlp(8, 16, 4, 96, true);
    for policy in ["none", "segments", "every:2", "budget:70%"] {
        let planned = plan(&program, &policy.parse().unwrap(), &profile).unwrap();
        remat::plan::check(&program, &planned, &profile).unwrap();
        assert!(planned.arena_blocks.len() > 1);
        let gap = planned.peak.arena as f64 / planned.live_peak_bytes as f64;
        assert!(gap < 1.15, "{policy}: {gap}");
    }
}

#[test]
fn too_many_bindings_or_workgroups_are_refused() {
    let policy = "none".parse().unwrap();
    let mut tape = Tape::default();
    let parts: Vec<_> = (0..9).map(|i| tape.input(&format!("x{i}"), 4, DType::F32)).collect();
    let y = tape.op("concatenate", &parts, 36, (false, false), 1.0);
    tape.output("y", y);
    let error = plan(&tape.program, &policy, &DeviceProfile::default()).unwrap_err();
    assert!(matches!(&error, Error::PlanCheck { detail, .. } if detail.contains("concatenate")), "{error}");

    let mut program = large(64);
    program.passes[0].grid = [65_536, 1, 1];
    let error = plan(&program, &policy, &DeviceProfile::default()).unwrap_err();
    assert!(matches!(&error, Error::PlanCheck { detail, .. } if detail.contains("65536")), "{error}");
}

#[test]
fn a_chain_of_a_hundred_thousand_passes() {
    let build = |segment: usize| {
        let mut tape = Tape::default();
        let mut h = tape.input("x", 4, DType::F32);
        let w = tape.state("w", 4, Category::Parameter);
        let mut gradient_reads = Vec::new();
        let mut at = 0;
        while at < 50_000 {
            let body = |tape: &mut Tape| {
                for _ in 0..segment {
                    let y = tape.value("y", 64, Category::Activation);
                    let segment = tape.segment();
                    tape.pass(
                        "f",
                        Phase::Forward,
                        segment,
                        vec![Operand::Read(h), Operand::Read(w), Operand::Write(y)],
                        1.0,
                    );
                    gradient_reads.push((y, segment));
                    h = y;
                }
            };
            tape.checkpoint("s", body);
            at += segment;
        }
        let mut g = tape.value("seed", 64, Category::Gradient);
        tape.pass("fill", Phase::Backward, None, vec![Operand::Write(g)], 1.0);
        for (y, segment) in gradient_reads.into_iter().rev() {
            let dx = tape.value("dx", 64, Category::Gradient);
            tape.pass(
                "df",
                Phase::Backward,
                segment,
                vec![Operand::Read(g), Operand::Read(y), Operand::Write(dx)],
                1.0,
            );
            g = dx;
        }
        tape.output("dx", g);
        tape.program
    };
    let one = build(50_000);
    for policy in ["none", "segments"] {
        let planned = plan(&one, &policy.parse().unwrap(), &DeviceProfile::default()).unwrap();
        assert!(planned.dispatches.len() >= 100_001);
    }
    let many = build(200);
    for policy in ["segments", "sqrt", "budget:60%"] {
        let planned = plan(&many, &policy.parse().unwrap(), &DeviceProfile::default()).unwrap();
        assert!(planned.dispatches.len() > 100_001);
        assert!(planned.peak.arena < 50_000 * 256 * 3 / 4);
    }
}

#[test]
fn segments_nested_three_hundred_deep() {
    let mut tape = Tape::default();
    let mut h = tape.input("x", 64, DType::F32);
    let w = tape.parameter("w", 64);
    fn nest(
        tape: &mut Tape,
        h: &mut remat::fuse::program::StorageId,
        w: remat::fuse::program::StorageId,
        depth: usize,
    ) {
        if depth > 0 {
            tape.checkpoint("s", |t| {
                *h = t.linear(*h, w, 64);
                nest(t, h, w, depth - 1);
            });
        }
    }
    nest(&mut tape, &mut h, w, 300);
    let program = tape.train(h);
    crate::planned(&program, "segments").unwrap();
}
