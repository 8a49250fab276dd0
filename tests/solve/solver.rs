//! The solver, against optima and against the exact search.

use proptest::prelude::*;
use remat::solve::{Effort, Graph, Node, Schedule, SolveError, pareto, solve};

use crate::{committed, known, load, random};

/// Without the exact search.
const SEARCH: Effort = Effort { steps: 40_000, states: 0 };
const EXACT: Effort = Effort { steps: 4_000, states: 300_000 };

#[test]
fn small_graphs_are_solved_to_the_optimum_wherever_the_integer_program_is_feasible() {
    let mut solved = 0;
    for name in load::SYNTHETIC {
        let graph = committed(name);
        for point in known(name).iter().filter(|p| p.plan.is_some()) {
            let solution = solve(&graph, point.budget, &EXACT).unwrap();
            assert_eq!(solution.schedule.check(&graph), Ok(solution.figures));
            assert!(solution.figures.peak <= point.budget, "{name} at {}", point.budget);
            assert_eq!(Some(solution.figures.cost), point.any_order, "{name} at {}", point.budget);
            assert!(solution.optimal, "{name} at {}", point.budget);
            solved += 1;
        }
    }
    assert!(solved > 100, "{solved}");
}

#[test]
fn local_search_alone_comes_near_the_optimum() {
    let (mut points, mut near) = (0, 0);
    for name in load::SYNTHETIC {
        let graph = committed(name);
        for point in known(name).iter().filter(|p| p.plan.is_some()) {
            let Some(least) = point.any_order else { continue };
            points += 1;
            if let Ok(solution) = solve(&graph, point.budget, &SEARCH) {
                assert!(solution.figures.cost >= least, "{name} at {}: below the optimum", point.budget);
                near += usize::from(solution.figures.cost * 100 <= least * 102);
            }
        }
    }
    assert!(near * 10 >= points * 9, "within 1.02 of the optimum at {near} of {points} budgets");
}

#[test]
fn no_budget_below_the_widest_node_is_met() {
    for name in load::SYNTHETIC {
        let graph = committed(name);
        let budget = graph.widest() - 1;
        match solve(&graph, budget, &SEARCH) {
            Err(SolveError::Infeasible { budget_bytes, least_bytes }) => {
                assert_eq!(budget_bytes, budget);
                assert!(least_bytes > budget, "{name}");
            }
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn a_curve_meets_every_budget_from_its_least_peak_and_never_dearer_with_more() {
    for name in ["unet20b", "block12", "dag15_1"] {
        let graph = committed(name);
        let curve = pareto(&graph, 10, &EXACT).unwrap();
        assert!(curve.points().len() >= 4, "{name}: {}", curve.points().len());
        let least = curve.points().last().unwrap().0.peak;
        for (figures, schedule) in curve.points() {
            assert_eq!(schedule.check(&graph), Ok(*figures), "{name}");
        }
        let below = SolveError::Infeasible { budget_bytes: least - 1, least_bytes: least };
        assert_eq!(curve.within(least - 1), Err(below), "{name}");
        let mut cost = u64::MAX;
        for budget in least..least + 50 {
            let (figures, _) = curve.within(budget).unwrap();
            assert!(figures.peak <= budget && figures.cost <= cost, "{name} at {budget}");
            cost = figures.cost;
        }
        assert_eq!(curve.within(u64::MAX).unwrap().0.cost, graph.base_cost());
    }
}

/// Twenty-two values of one size, read by one node each, twice over: half of them
/// can be freed in hundreds of thousands of ways.
#[test]
fn many_equal_values_do_not_stall_the_exact_search() {
    let half = 11u32;
    let mut nodes: Vec<Node> =
        (0..half).map(|i| Node { cost: 1, inputs: vec![], outputs: vec![2 * i, 2 * i + 1] }).collect();
    for i in 0..half {
        let next = 2 * half + i;
        nodes.push(Node { cost: 1, inputs: vec![2 * i, 2 * i + 1], outputs: vec![next] });
    }
    let graph = Graph::new(vec![2; 3 * half as usize], nodes, &[]).unwrap();
    let effort = Effort { steps: 4_000, states: 20_000 };
    for budget in [6, 12, 24] {
        let solution = solve(&graph, budget, &effort).unwrap();
        assert!(solution.figures.peak <= budget);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn every_solution_keeps_its_budget_and_is_the_same_again(graph in random::graphs(40), share in 0u64..=100) {
        let order: Vec<u32> = (0..graph.nodes().len() as u32).collect();
        let all = Schedule::from_order(&graph, &order).unwrap().check(&graph).unwrap();
        let budget = graph.widest() + (all.peak - graph.widest()) * share / 100;
        let found = solve(&graph, budget, &SEARCH);
        match &found {
            Ok(solution) => {
                prop_assert_eq!(solution.schedule.check(&graph), Ok(solution.figures));
                prop_assert!(solution.figures.peak <= budget);
                prop_assert!(solution.figures.cost >= all.cost);
                prop_assert!(share < 100 || solution.figures.cost == all.cost);
            }
            Err(error) => {
                prop_assert!(share < 100);
                let infeasible = matches!(error, SolveError::Infeasible { .. });
                prop_assert!(infeasible, "{}", error);
            }
        }
        prop_assert_eq!(found, solve(&graph, budget, &SEARCH));
    }

    #[test]
    fn local_search_is_never_below_the_exact_search(graph in random::graphs(10), share in 0u64..=100) {
        let order: Vec<u32> = (0..graph.nodes().len() as u32).collect();
        let all = Schedule::from_order(&graph, &order).unwrap().check(&graph).unwrap();
        let budget = graph.widest() + (all.peak - graph.widest()) * share / 100;
        let exact = solve(&graph, budget, &EXACT);
        let search = solve(&graph, budget, &SEARCH);
        if let Ok(search) = search {
            let exact = exact.unwrap();
            prop_assert!(exact.figures.cost <= search.figures.cost);
        }
    }
}
