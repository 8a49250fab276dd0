//! The check of a schedule, against plans of others and against a recount.

use proptest::prelude::*;
use remat::solve::{Figures, Graph, Node, Run, Schedule, SolveError};

use crate::{committed, known, load, random};

#[test]
fn plans_of_the_integer_program_have_the_peak_and_the_cost_they_claim() {
    let mut checked = 0;
    for name in load::SYNTHETIC {
        let graph = committed(name);
        for point in known(name) {
            let Some((cost, peak, plan)) = point.plan else { continue };
            assert_eq!(plan.check(&graph), Ok(Figures { peak, cost }), "{name} at {}", point.budget);
            let again = Schedule::from_order(&graph, &plan.order()).unwrap();
            assert!(again.check(&graph).unwrap().peak <= peak, "{name} at {}", point.budget);
            assert!(point.any_order.is_some_and(|least| least <= cost), "{name} at {}", point.budget);
            checked += 1;
        }
    }
    assert!(checked > 100, "{checked}");
}

fn two() -> Graph {
    let node = |inputs: &[u32], output| Node { cost: 1, inputs: inputs.to_vec(), outputs: vec![output] };
    Graph::new(vec![100, 3, 4], vec![node(&[0], 1), node(&[0, 1], 2)], &[2]).unwrap()
}

fn runs(list: &[(u32, &[u32])]) -> Schedule {
    Schedule { runs: list.iter().map(|&(node, frees)| Run { node, frees: frees.to_vec() }).collect() }
}

#[test]
fn a_schedule_that_is_none_is_refused_by_name() {
    let graph = two();
    assert_eq!(runs(&[(0, &[]), (1, &[1])]).check(&graph), Ok(Figures { peak: 7, cost: 2 }));
    let twice = runs(&[(0, &[]), (0, &[]), (1, &[1])]).check(&graph);
    assert_eq!(twice, Ok(Figures { peak: 7, cost: 3 }), "a second copy counts while its run lasts");
    let refused = [
        (runs(&[(1, &[])]), SolveError::NotResident { position: 0, node: 1, value: 1 }),
        (runs(&[(0, &[1]), (1, &[])]), SolveError::NotResident { position: 1, node: 1, value: 1 }),
        (runs(&[(0, &[]), (1, &[1, 1])]), SolveError::FreedTwice { position: 1, value: 1 }),
        (runs(&[(0, &[0]), (1, &[])]), SolveError::FreedTwice { position: 0, value: 0 }),
        (runs(&[(0, &[])]), SolveError::NeverRun { node: 1 }),
        (runs(&[(0, &[]), (1, &[2])]), SolveError::NotKept { value: 2 }),
        (runs(&[(2, &[])]), SolveError::NoSuchNode { position: 0, node: 2 }),
    ];
    for (schedule, error) in refused {
        assert_eq!(schedule.check(&graph), Err(error), "{schedule:?}");
    }
}

#[test]
fn a_graph_that_is_none_is_refused_by_name() {
    let node = |inputs: &[u32], outputs: &[u32]| Node { cost: 1, inputs: inputs.to_vec(), outputs: outputs.to_vec() };
    let new = |nodes, keep: &[u32]| Graph::new(vec![1, 2], nodes, keep).unwrap_err();
    assert_eq!(new(vec![node(&[2], &[0])], &[]), SolveError::NoSuchValue { value: 2, values: 2 });
    assert_eq!(new(vec![node(&[], &[0])], &[5]), SolveError::NoSuchValue { value: 5, values: 2 });
    assert_eq!(new(vec![node(&[], &[0]), node(&[], &[0])], &[]), SolveError::WrittenTwice { value: 0, node: 1 });
    assert_eq!(new(vec![node(&[1], &[0]), node(&[], &[1])], &[]), SolveError::ReadTooEarly { node: 0, value: 1 });
    assert_eq!(Graph::new(vec![1 << 62, 1 << 62], vec![], &[]), Err(SolveError::TooLarge));
}

/// Counts the bytes of every run anew from all pairs of writes and reads.
fn recount(graph: &Graph, order: &[u32]) -> u64 {
    let node = |p: usize| &graph.nodes()[order[p] as usize];
    let mut resident = vec![0; order.len()];
    for birth in 0..order.len() {
        for &value in &node(birth).outputs {
            let next = (birth + 1..order.len()).find(|&p| node(p).outputs.contains(&value));
            let end = next.unwrap_or(order.len());
            let read = (birth..end).rev().find(|&p| node(p).inputs.contains(&value));
            let death = match next {
                None if graph.kept(value) => order.len() - 1,
                _ => read.unwrap_or(birth),
            };
            resident[birth..=death].iter_mut().for_each(|r| *r += graph.bytes(value));
        }
    }
    resident.into_iter().max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn the_peak_is_that_of_a_recount(graph in random::graphs(14), draws in prop::collection::vec(any::<u16>(), 14)) {
        let order = random::order(&graph, &draws);
        let figures = Schedule::from_order(&graph, &order).unwrap().check(&graph).unwrap();
        prop_assert_eq!(figures.peak, recount(&graph, &order));
        prop_assert_eq!(figures.cost, order.iter().map(|&n| graph.nodes()[n as usize].cost).sum::<u64>());
        prop_assert!(figures.peak >= graph.widest());
    }

    #[test]
    fn a_free_left_out_never_lowers_the_peak(
        graph in random::graphs(14),
        draws in prop::collection::vec(any::<u16>(), 14),
        pick in any::<prop::sample::Index>(),
    ) {
        let order = random::order(&graph, &draws);
        let mut schedule = Schedule::from_order(&graph, &order).unwrap();
        let least = schedule.check(&graph).unwrap();
        let freeing: Vec<usize> = (0..order.len()).filter(|&p| !schedule.runs[p].frees.is_empty()).collect();
        prop_assume!(!freeing.is_empty());
        let at = freeing[pick.index(freeing.len())];
        schedule.runs[at].frees.pop();
        let figures = schedule.check(&graph).unwrap();
        prop_assert!(figures.peak >= least.peak);
        prop_assert_eq!(figures.cost, least.cost);
    }
}
