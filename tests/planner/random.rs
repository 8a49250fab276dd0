//! Random programs under every policy: every plan is proved.

use proptest::prelude::*;
use remat::dtype::DType;
use remat::fuse::program::{Category, Operand, Phase, Program, StorageId};
use remat::plan::{check, plan};
use remat::profile::DeviceProfile;

use crate::builder::Tape;

/// One random act of recording.
#[derive(Debug, Clone)]
enum Act {
    Op { inputs: Vec<prop::sample::Index>, elements: u64, saves: (bool, bool) },
    InPlace { saves_output: bool },
    Linear { input: prop::sample::Index, parameter: prop::sample::Index, elements: u64 },
    Two { input: prop::sample::Index, elements: u64 },
    Track { input: prop::sample::Index },
    Open,
    Close,
    Output { of: prop::sample::Index },
}

fn act() -> impl Strategy<Value = Act> {
    let index = any::<prop::sample::Index>;
    let elements = 1_u64..3000;
    prop_oneof![
        6 => (prop::collection::vec(index(), 1..4), elements.clone(), any::<(bool, bool)>())
            .prop_map(|(inputs, elements, saves)| Act::Op { inputs, elements, saves }),
        2 => any::<bool>().prop_map(|saves_output| Act::InPlace { saves_output }),
        4 => (index(), index(), elements.clone())
            .prop_map(|(input, parameter, elements)| Act::Linear { input, parameter, elements }),
        1 => (index(), elements).prop_map(|(input, elements)| Act::Two { input, elements }),
        1 => index().prop_map(|input| Act::Track { input }),
        3 => Just(Act::Open),
        3 => Just(Act::Close),
        1 => index().prop_map(|of| Act::Output { of }),
    ]
}

/// Records the acts; closures cannot be nested by data, so segments are opened
/// by recursion over the list.
fn record(acts: &[Act]) -> Program {
    let mut tape = Tape::default();
    let x = tape.input("x", 700, DType::F32);
    let ids = tape.input("ids", 100, DType::I32);
    let mut values = vec![x, ids];
    let parameters: Vec<StorageId> = (0..3).map(|i| tape.parameter(&format!("w{i}"), 100 + 300 * i)).collect();
    values.extend(&parameters);
    let mut outputs = Vec::new();
    let mut rest = acts;
    while !rest.is_empty() {
        rest = level(&mut tape, rest, &mut values, &parameters, &mut outputs);
    }
    let last = *values.last().unwrap();
    for of in outputs {
        tape.output("value", of);
    }
    tape.train(last)
}

fn level<'a>(
    tape: &mut Tape,
    mut acts: &'a [Act],
    values: &mut Vec<StorageId>,
    parameters: &[StorageId],
    outputs: &mut Vec<StorageId>,
) -> &'a [Act] {
    while let Some((act, rest)) = acts.split_first() {
        acts = rest;
        match act {
            Act::Open => acts = tape.checkpoint("s", |t| level(t, rest, values, parameters, outputs)),
            Act::Close => return acts,
            Act::Op { inputs, elements, saves } => {
                let mut inputs: Vec<StorageId> = inputs.iter().map(|i| *i.get(values)).collect();
                inputs.sort_unstable();
                inputs.dedup();
                values.push(tape.op("op", &inputs, *elements, *saves, *elements as f64));
            }
            Act::InPlace { saves_output } => {
                // A value of its own, so that nobody else reads what is overwritten.
                let from = *values.last().unwrap();
                let fresh = tape.op("copy", &[from], tape.elements(from), (false, false), 1.0);
                values.push(tape.in_place("in_place", fresh, *saves_output));
            }
            Act::Linear { input, parameter, elements } => {
                let (x, w) = (*input.get(values), *parameter.get(parameters));
                if x != w {
                    values.push(tape.linear(x, w, *elements));
                }
            }
            Act::Two { input, elements } => {
                let x = *input.get(values);
                let (a, b) =
                    (tape.value("a", *elements, Category::Activation), tape.value("b", 7, Category::Workspace));
                let operands = vec![Operand::Read(x), Operand::Write(a), Operand::Write(b)];
                tape.pass("two", Phase::Forward, tape.segment(), operands, 1.0);
                values.extend([a, b]);
            }
            Act::Track { input } => {
                let x = *input.get(values);
                let name = format!("track{}", tape.program.states.len());
                let state = tape.state(&name, 16, Category::Parameter);
                if x != state {
                    let operands = vec![Operand::Read(x), Operand::StateWrite(state)];
                    tape.pass("track", Phase::Update, tape.segment(), operands, 1.0);
                }
            }
            Act::Output { of } => {
                let of = *of.get(values);
                if !parameters.contains(&of) {
                    outputs.push(of);
                }
            }
        }
    }
    acts
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_plan_is_right(acts in prop::collection::vec(act(), 1..60), tight in any::<bool>()) {
        let program = record(&acts);
        let mut profile = DeviceProfile::default();
        if tight {
            profile.max_buffer_bytes = 16 << 10;
            profile.max_binding_bytes = 16 << 10;
        }
        let mut policies = vec!["none", "budget:100%", "budget:50%", "budget:0"];
        if !program.segments.is_empty() {
            policies.extend(["segments", "every:2", "sqrt"]);
        }
        for policy in policies {
            match plan(&program, &policy.parse().unwrap(), &profile) {
                Ok(plan) => {
                    check(&program, &plan, &profile).unwrap();
                    let gap = plan.peak.arena as f64 / plan.live_peak_bytes.max(1) as f64;
                    prop_assert!(tight || gap < 1.25, "{policy}: {gap}");
                }
                Err(remat::error::Error::BudgetTooSmall { least_budget_bytes, .. }) => {
                    let least = remat::checkpoint::Policy::Budget(least_budget_bytes.into());
                    let plan = plan(&program, &least, &profile).unwrap();
                    prop_assert_eq!(plan.peak.total(), least_budget_bytes);
                }
                // Many outputs, small buffers.
                Err(remat::error::Error::Limit { what, .. }) if tight && what == "an output slot" => {}
                Err(error) => panic!("{policy}: {error}"),
            }
        }
    }
}
