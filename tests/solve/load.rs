//! Graphs, optima and others' figures, read from files; for tests and the bench.

use std::path::Path;

use remat::solve::{Graph, Node, Run, Schedule};
use serde_json::Value;

/// The synthetic graphs.
pub const SYNTHETIC: [&str; 8] = ["chain8", "unet20", "unet20b", "block12", "dag15_1", "dag15_2", "dag15_3", "dag15_4"];

fn json(path: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    serde_json::from_str(&text).map_err(|e| format!("{}: {e}", path.display()))
}

fn list<'v>(value: &'v Value, key: &str) -> Result<&'v Vec<Value>, String> {
    value[key].as_array().ok_or_else(|| format!("no list {key:?}"))
}

fn number(value: &Value, key: &str) -> Result<u64, String> {
    value[key].as_u64().ok_or_else(|| format!("no whole number {key:?}"))
}

fn ids(list: &[Value]) -> Result<Vec<u32>, String> {
    let id = |x: &Value| x.as_u64().and_then(|x| u32::try_from(x).ok()).ok_or_else(|| format!("{x} is no id"));
    list.iter().map(id).collect()
}

/// A graph, and the bytes of its constants.
pub fn graph(folder: &Path, name: &str) -> Result<(Graph, u64), String> {
    let json = json(&folder.join(format!("{name}.json")))?;
    let size = |v: &Value| number(v, "bytes");
    let mut bytes: Vec<u64> = list(&json, "constants")?.iter().map(size).collect::<Result<_, _>>()?;
    let constants = bytes.iter().sum();
    let mut nodes = Vec::new();
    for node in list(&json, "nodes")? {
        let outputs = list(node, "outputs")?;
        for output in outputs {
            bytes.push(size(output)?);
        }
        nodes.push(Node {
            cost: number(node, "cost_ns")?,
            inputs: ids(list(node, "inputs")?)?,
            outputs: ids(&outputs.iter().map(|o| o["id"].clone()).collect::<Vec<_>>())?,
        });
    }
    let graph = Graph::new(bytes, nodes, &ids(list(&json, "keep")?)?);
    Ok((graph.map_err(|e| format!("{name}: {e}"))?, constants))
}

/// What is known of a graph under one budget.
pub struct Point {
    pub budget: u64,
    /// The cost and the peak of the integer program's plan, and the plan.
    pub plan: Option<(u64, u64, Schedule)>,
    /// The true optimum, if any plan exists and it is known.
    pub any_order: Option<u64>,
}

/// The budgets of `optimal.json` for a graph; none if it does not name the graph.
pub fn points(folder: &Path, name: &str) -> Result<Vec<Point>, String> {
    let json = json(&folder.join("optimal.json"))?;
    let mut points = Vec::new();
    for point in json[name]["points"].as_array().unwrap_or(&Vec::new()) {
        let plan = match (point["plan"].as_array(), point["cost"].as_u64()) {
            (Some(plan), Some(cost)) => {
                let mut runs = Vec::new();
                for run in plan {
                    let node = ids(&[run[0].clone()])?[0];
                    runs.push(Run { node, frees: ids(run[1].as_array().unwrap_or(&Vec::new()))? });
                }
                Some((cost, number(point, "peak")?, Schedule { runs }))
            }
            _ => None,
        };
        points.push(Point { budget: number(point, "budget")?, plan, any_order: point["any_order"].as_u64() });
    }
    Ok(points)
}
