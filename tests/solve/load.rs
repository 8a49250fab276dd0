//! Graphs and optima from JSON.

use std::path::{Path, PathBuf};

use remat::solve::{Graph, Node, Run, Schedule};
use serde_json::Value;

/// The synthetic graphs.
pub const SYNTHETIC: [&str; 8] = ["chain8", "unet20", "unet20b", "block12", "dag15_1", "dag15_2", "dag15_3", "dag15_4"];

pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/solve/graphs")
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn ids(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|x| x.as_u64().unwrap() as u32).collect()
}

pub fn graph(name: &str) -> Graph {
    let json = json(&folder().join(format!("{name}.json")));
    let size = |v: &Value| v["bytes"].as_u64().unwrap();
    let mut bytes: Vec<u64> = json["constants"].as_array().unwrap().iter().map(size).collect();
    let mut nodes = Vec::new();
    for node in json["nodes"].as_array().unwrap() {
        let outputs = node["outputs"].as_array().unwrap();
        bytes.extend(outputs.iter().map(size));
        nodes.push(Node {
            cost: node["cost_ns"].as_u64().unwrap(),
            inputs: ids(&node["inputs"]),
            outputs: outputs.iter().map(|o| o["id"].as_u64().unwrap() as u32).collect(),
        });
    }
    Graph::new(bytes, nodes, &ids(&json["keep"])).unwrap()
}

/// What is known of a graph under one budget.
pub struct Point {
    pub budget: u64,
    /// The cost and the peak of the integer program's plan, and the plan.
    pub plan: Option<(u64, u64, Schedule)>,
    /// The true optimum, if any plan exists.
    pub any_order: Option<u64>,
}

pub fn points(name: &str) -> Vec<Point> {
    let json = json(&folder().join("optimal.json"));
    let run = |r: &Value| Run { node: r[0].as_u64().unwrap() as u32, frees: ids(&r[1]) };
    let point = |p: &Value| Point {
        budget: p["budget"].as_u64().unwrap(),
        plan: p["plan"].as_array().filter(|_| p["cost"].is_u64()).map(|plan| {
            let runs = plan.iter().map(run).collect();
            (p["cost"].as_u64().unwrap(), p["peak"].as_u64().unwrap(), Schedule { runs })
        }),
        any_order: p["any_order"].as_u64(),
    };
    json[name]["points"].as_array().unwrap().iter().map(point).collect()
}
