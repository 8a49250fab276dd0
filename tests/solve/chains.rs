//! Optimal schedules of chains, against published counts, recurrences and brute force.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use proptest::prelude::*;
use remat::solve::{Action, ChainPlan, Stage, mixed_steps, revolve_extra, rotor};

#[test]
fn revolve_reaches_the_known_counts() {
    let known: [(u64, &[(u64, u64)]); 8] = [
        (5, &[(1, 10), (2, 6), (3, 5), (4, 4)]),
        (8, &[(1, 28), (2, 14), (3, 11), (4, 10), (5, 9)]),
        (10, &[(1, 45), (2, 20), (3, 15), (4, 14), (5, 13), (8, 10)]),
        (16, &[(1, 120), (2, 45), (3, 33), (4, 27), (5, 25), (8, 22), (10, 20)]),
        (32, &[(2, 140), (3, 93), (4, 75), (5, 68), (8, 54), (10, 52)]),
        (64, &[(2, 420), (3, 258), (4, 200), (5, 172), (8, 137), (10, 116)]),
        (100, &[(1, 4950), (2, 845), (3, 490), (4, 374), (5, 316), (8, 245), (10, 222)]),
        (1000, &[(5, 6284), (10, 3636), (20, 2747)]),
    ];
    for (steps, counts) in known {
        for &(slots, extra) in counts {
            assert_eq!(revolve_extra(steps, slots), Some(extra), "{steps} steps, {slots} slots");
        }
    }
    assert_eq!((revolve_extra(35, 3), revolve_extra(36, 3)), (Some(105), Some(110)));
    assert_eq!((revolve_extra(0, 0), revolve_extra(1, 0), revolve_extra(2, 0)), (Some(0), Some(0), None));
    assert_eq!(revolve_extra(u64::MAX, 1), None);
}

#[test]
fn revolve_agrees_with_its_recurrence() {
    let mut fewer: Vec<u64> = (0..80u64).map(|l| l * l.saturating_sub(1) / 2).collect();
    for slots in 1..12 {
        for (l, &extra) in fewer.iter().enumerate() {
            assert_eq!(revolve_extra(l as u64, slots), Some(extra), "{l} steps, {slots} slots");
        }
        let mut now = vec![0, 0];
        for l in 2..80 {
            now.push((1..l).map(|i| i as u64 + now[i] + fewer[l - i]).min().unwrap());
        }
        fewer = now;
    }
}

#[test]
fn the_mixed_scheme_reaches_the_known_counts() {
    let known: [(usize, &[u64]); 5] = [
        (4, &[9, 6, 4]),
        (6, &[20, 11, 9, 8, 6]),
        (8, &[35, 18, 14, 12, 11, 10, 8]),
        (10, &[54, 26, 19, 17, 15, 14, 13, 12, 10]),
        (32, &[527, 164, 110, 87, 77]),
    ];
    for (steps, counts) in known {
        for (slots, &count) in (1..).zip(counts) {
            assert_eq!(mixed_steps(steps, slots), Some(count), "{steps} steps, {slots} slots");
        }
    }
    assert_eq!((mixed_steps(32, 8), mixed_steps(32, 10)), (Some(59), Some(56)));
    assert_eq!((mixed_steps(0, 0), mixed_steps(3, 0), mixed_steps(3, 99)), (Some(0), None, Some(3)));
}

fn even(length: usize, backward: u64, saved: u64) -> Vec<Stage> {
    let stage = Stage { forward: 1, backward, output: 1, saved, forward_temporary: 0, backward_temporary: 0 };
    vec![stage; length]
}

fn cost(plan: Option<ChainPlan>) -> Option<u64> {
    plan.map(|p| p.cost)
}

#[test]
fn rotor_reaches_the_known_costs() {
    let known: [(usize, &[u64]); 3] = [
        (4, &[14, 11, 10, 10, 9, 8, 8]),
        (6, &[27, 20, 17, 16, 15, 15, 14, 14, 13, 12, 12]),
        (8, &[44, 29, 25, 23, 22, 21, 20, 20, 19, 19, 18, 18, 17, 16, 16]),
    ];
    for (length, costs) in known {
        for (budget, &least) in (5..).zip(costs) {
            assert_eq!(cost(rotor(1, &even(length, 1, 2), budget)), Some(least), "length {length}, budget {budget}");
        }
        assert_eq!(rotor(1, &even(length, 1, 2), 3), None);
    }
    for length in 2..20 {
        for slots in 1..8 {
            let least = cost(rotor(1, &even(length, 0, 1), slots + 3));
            assert_eq!(least, mixed_steps(length, slots as usize), "length {length}, {slots} slots");
        }
    }
}

#[test]
fn rotor_reaches_the_known_costs_of_uneven_stages() {
    let rows = [(3, 6, 2, 4, 0, 1), (1, 2, 1, 3, 1, 0), (2, 4, 3, 5, 0, 2), (4, 8, 1, 2, 1, 0)];
    let stages: Vec<Stage> = rows
        .iter()
        .map(|&(forward, backward, output, saved, forward_temporary, backward_temporary)| Stage {
            forward,
            backward,
            output,
            saved,
            forward_temporary,
            backward_temporary,
        })
        .collect();
    for budget in 0..25 {
        let least = match budget {
            0..11 => None,
            11..15 => Some(34),
            15..17 => Some(31),
            _ => Some(30),
        };
        assert_eq!(cost(rotor(1, &stages, budget)), least, "budget {budget}");
    }
}

/// What is stored: outputs and saved data by stage, and how many backwards are left.
type Stored = (usize, BTreeSet<usize>, BTreeSet<usize>);

/// Every action possible from a state within the budget, with its cost.
fn next(input: u64, stages: &[Stage], budget: u64, (left, outputs, saved): &Stored) -> Vec<(u64, Stored)> {
    let stored: u64 = outputs.iter().map(|&i| stages[i].output).sum::<u64>()
        + saved.iter().map(|&i| stages[i].saved).sum::<u64>()
        + input;
    let gradient = stages[left - 1].output;
    let fits = |more: u64| stored + gradient + more <= budget;
    let mut found = Vec::new();
    if saved.contains(&(left - 1)) {
        let without = |set: &BTreeSet<usize>, from: usize| set.iter().copied().filter(|&i| i < from).collect();
        // The output of the stage before went into this stage: it is done with.
        let state = (left - 1, without(outputs, left.saturating_sub(2)), without(saved, left - 1));
        found.push((stages[left - 1].backward, state));
    }
    for s in 0..*left {
        let there = s == 0 || outputs.contains(&(s - 1)) || saved.contains(&(s - 1));
        if !there {
            continue;
        }
        // The recurrence counts a backward's temporaries where its stage is the last left.
        let stage = stages[s];
        let needed = if s + 1 == *left {
            stage.saved + stage.forward_temporary.max(stage.backward_temporary)
        } else {
            stage.saved.max(stage.output + stage.forward_temporary)
        };
        if !saved.contains(&s) && fits(needed) {
            let mut saved = saved.clone();
            saved.insert(s);
            found.push((stages[s].forward, (*left, outputs.clone(), saved)));
        }
        let mut passed = 0;
        for k in s + 1..*left {
            let stage = stages[k - 1];
            let before = if k - 1 > s { stages[k - 2].output } else { 0 };
            passed += stage.forward;
            if !fits(before + stage.output + stage.forward_temporary) {
                break;
            }
            let mut outputs = outputs.clone();
            if outputs.insert(k - 1) {
                found.push((passed, (*left, outputs, saved.clone())));
            }
        }
    }
    found
}

/// The least cost over all sequences of actions that keep what they stored.
fn brute_force(input: u64, stages: &[Stage], budget: u64) -> Option<u64> {
    let start: Stored = (stages.len(), BTreeSet::new(), BTreeSet::new());
    let mut queue = BinaryHeap::from([Reverse((0u64, start))]);
    let mut done = BTreeSet::new();
    while let Some(Reverse((cost, state))) = queue.pop() {
        if state.0 == 0 {
            return Some(cost);
        }
        if !done.insert(state.clone()) {
            continue;
        }
        for (more, after) in next(input, stages, budget, &state) {
            queue.push(Reverse((cost + more, after)));
        }
    }
    None
}

fn chains() -> impl Strategy<Value = Vec<Stage>> {
    let stage = (0u64..6, 0u64..6, 1u64..5, 0u64..4, 0u64..3, 0u64..3);
    let stage = stage.prop_map(|(forward, backward, output, more, forward_temporary, backward_temporary)| Stage {
        forward,
        backward,
        output,
        saved: output + more,
        forward_temporary,
        backward_temporary,
    });
    prop::collection::vec(stage, 1..=8)
}

/// The time of a plan's actions within a budget, and how many stages are left after them.
fn replayed(input: u64, stages: &[Stage], budget: u64, plan: &ChainPlan) -> (u64, usize) {
    let mut state: Stored = (stages.len(), BTreeSet::new(), BTreeSet::new());
    let mut cost = 0;
    for action in &plan.actions {
        let wanted = |after: &Stored| match *action {
            Action::ForwardAll(s) => after.2.contains(&s) && !state.2.contains(&s),
            Action::ForwardTo { to, .. } => after.1.contains(&(to - 1)) && !state.1.contains(&(to - 1)),
            Action::Backward(s) => state.0 == s + 1 && after.0 == s,
        };
        let time = match *action {
            Action::ForwardAll(s) => stages[s].forward,
            Action::ForwardTo { from, to } => stages[from..to].iter().map(|s| s.forward).sum(),
            Action::Backward(s) => stages[s].backward,
        };
        let possible = next(input, stages, budget, &state);
        let (_, after) = possible.into_iter().find(|(t, after)| *t == time && wanted(after)).unwrap();
        cost += time;
        state = after;
    }
    (cost, state.0)
}

/// Chains drawn.
const CASES: u32 = 400;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(CASES))]

    #[test]
    fn rotor_is_as_good_as_brute_force(input in 1u64..4, stages in chains(), room in 0u64..30) {
        let plan = rotor(input, &stages, input + room);
        prop_assert_eq!(plan.as_ref().map(|p| p.cost), brute_force(input, &stages, input + room));
        if let Some(plan) = plan {
            prop_assert_eq!(replayed(input, &stages, input + room, &plan), (plan.cost, 0));
        }
    }
}
