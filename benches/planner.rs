//! What the solver reaches on graphs of training steps, beside what others reach.
//!
//!     cargo xtask bench planner --graphs DIR [--steps N] [--only NAME]
//!
//! `DIR` holds graphs as JSON and, if there are, `optimal.json` and `dtr.csv`;
//! without it the synthetic graphs of `tests/solve/graphs` are solved. Bytes are
//! live bytes without alignment; constants are left out of budgets and peaks, but
//! not of the ratio, which is of the store-all peak and the constants together.

#![expect(unreachable_pub, reason = "a module shared with tests")]

#[path = "../tests/solve/load.rs"]
mod load;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Parser;
use remat::solve::{Effort, Figures, Graph, Schedule, SolveError, solve};

#[derive(Parser)]
struct Arguments {
    /// The folder of the graphs.
    #[arg(long)]
    graphs: Option<PathBuf>,
    /// The steps of each search.
    #[arg(long, default_value_t = 2_500_000)]
    steps: u64,
    /// Solve only this graph; may be repeated.
    #[arg(long)]
    only: Vec<String>,
    /// Passed by cargo; means nothing.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The traces, whose budgets are shares of the store-all peak.
const TRACES: [&str; 4] = ["unet", "transformer", "densenet121", "lstm"];

/// Shares of the store-all peak and constants, in hundredths.
const RATIOS: [u64; 11] = [90, 80, 70, 60, 50, 40, 35, 30, 28, 20, 10];

/// Multiples of the widest node, in hundredths, for budgets where others fail.
const LEAST: [u64; 4] = [150, 125, 110, 100];

/// The least overhead of the heuristics on the graphs themselves, by graph and ratio in hundredths.
fn dtr(folder: &Path) -> BTreeMap<(String, u64), f64> {
    let mut best = BTreeMap::new();
    for line in std::fs::read_to_string(folder.join("dtr.csv")).unwrap_or_default().lines() {
        let fields: Vec<&str> = line.split(',').collect();
        let [log, "graph", _, ratio, _, "ok", overhead, ..] = fields[..] else { continue };
        let (Ok(ratio), Ok(overhead)) = (ratio.parse::<f64>(), overhead.parse::<f64>()) else { continue };
        let least = best.entry((log.to_string(), (ratio * 100.0).round() as u64)).or_insert(overhead);
        *least = overhead.min(*least);
    }
    best
}

fn store_all(graph: &Graph) -> Result<Figures, SolveError> {
    let order: Vec<u32> = (0..graph.nodes().len() as u32).collect();
    Schedule::from_order(graph, &order)?.check(graph)
}

fn shown(value: Option<f64>) -> String {
    value.map_or_else(|| "-".into(), |v| format!("{v:.4}"))
}

/// Solves one graph under one budget and prints the row; the overhead, if solved.
fn row(name: &str, label: &str, graph: &Graph, budget: u64, effort: &Effort, others: [Option<f64>; 2]) -> Option<f64> {
    let begun = Instant::now();
    let found = solve(graph, budget, effort);
    let elapsed_ms = begun.elapsed().as_secs_f64() * 1e3;
    let [dtr, best] = others.map(shown);
    match found {
        Ok(solution) => {
            let overhead = solution.figures.cost as f64 / graph.base_cost() as f64;
            let (peak, proved) = (solution.figures.peak, if solution.optimal { "*" } else { "" });
            println!(
                "| {name} | {label} | {budget} | {peak} | {overhead:.4}{proved} | {dtr} | {best} | {elapsed_ms:.0} |"
            );
            Some(overhead)
        }
        Err(SolveError::Infeasible { least_bytes, .. }) => {
            println!(
                "| {name} | {label} | {budget} | least reached {least_bytes} | - | {dtr} | {best} | {elapsed_ms:.0} |"
            );
            None
        }
        Err(error) => {
            println!("| {name} | {label} | {budget} | {error} | - | {dtr} | {best} | {elapsed_ms:.0} |");
            None
        }
    }
}

fn synthetic(folder: &Path, name: &str, effort: &Effort) -> Result<(), String> {
    let (graph, _) = load::graph(folder, name)?;
    let (mut worst, mut points) = (1f64, 0);
    for point in load::points(folder, name)? {
        let base = graph.base_cost() as f64;
        let best = point.any_order.map(|c| c as f64 / base);
        let overhead = row(name, "", &graph, point.budget, effort, [None, best]);
        if let (Some(_), Some(best)) = (&point.plan, best) {
            points += 1;
            worst = worst.max(overhead.map_or(f64::INFINITY, |o| o / best));
        }
    }
    println!(
        "{name}: at most {worst:.4} of the optimum at the {points} budgets where the integer program is feasible\n"
    );
    Ok(())
}

fn trace(folder: &Path, name: &str, effort: &Effort, dtr: &BTreeMap<(String, u64), f64>) -> Result<(), String> {
    let (graph, constants) = load::graph(folder, name)?;
    let peak = store_all(&graph).map_err(|e| format!("{name}: {e}"))?.peak;
    let known = load::points(folder, name)?;
    let (mut shares, mut worst) = (Vec::new(), 0f64);
    for ratio in RATIOS {
        let total = (u128::from(peak + constants) * u128::from(ratio) / 100) as u64;
        let Some(budget) = total.checked_sub(constants).filter(|&b| b >= graph.widest()) else { continue };
        let plan = known.iter().find(|p| p.budget.abs_diff(budget) <= 2).and_then(|p| p.plan.as_ref());
        let best = plan.map(|(cost, ..)| *cost as f64 / graph.base_cost() as f64);
        let reference = dtr.get(&(name.to_string(), ratio)).copied();
        let label = format!("0.{ratio:02}");
        let overhead = row(name, &label, &graph, budget, effort, [reference, best]);
        if let Some(reference) = reference {
            shares.push(overhead.map_or(f64::INFINITY, |o| (o - 1.0) / (reference - 1.0)));
        }
        if let Some(best) = best {
            worst = worst.max(overhead.map_or(f64::INFINITY, |o| o / best));
        }
    }
    for times in LEAST {
        let budget = (u128::from(graph.widest()) * u128::from(times) / 100) as u64;
        row(name, &format!("{}.{:02} least", times / 100, times % 100), &graph, budget, effort, [None, None]);
    }
    let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    let most = shares.iter().copied().fold(0.0, f64::max);
    print!("{name}: {mean:.3} of the best heuristic's extra cost on average, {most:.3} at most");
    if worst > 0.0 {
        print!("; at most {worst:.4} of the best known plan's cost");
    }
    println!("\n");
    Ok(())
}

fn main() -> Result<(), String> {
    let arguments = Arguments::parse();
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/solve/graphs");
    let folder = arguments.graphs.unwrap_or(own);
    let effort = Effort { steps: arguments.steps, ..Effort::default() };
    let dtr = dtr(&folder);
    let wanted = |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|n| n == name);
    println!("| graph | ratio | budget | peak | overhead | best heuristic | best known | planning ms |");
    println!("|---|---|---|---|---|---|---|---|");
    for name in load::SYNTHETIC.into_iter().filter(|n| wanted(n)) {
        // The exact search follows: little local search is enough before it.
        let brief = Effort { steps: effort.steps.min(20_000), ..effort };
        synthetic(&folder, name, &brief)?;
    }
    for name in TRACES.into_iter().filter(|n| wanted(n) && folder.join(format!("{n}.json")).is_file()) {
        trace(&folder, name, &effort, &dtr)?;
    }
    Ok(())
}
