//! Random graphs and random orders of runs.

use proptest::prelude::*;
use remat::solve::{Graph, Node};

/// Graphs of up to `most` nodes with one or two outputs, a few constants, some kept values.
pub fn graphs(most: usize) -> impl Strategy<Value = Graph> {
    let node = (0u64..20, prop::collection::vec(any::<u16>(), 0..4), prop::collection::vec(0u64..30, 1..3));
    (prop::collection::vec(node, 1..most), any::<u64>()).prop_map(|(drawn, kept)| {
        let mut bytes = vec![5, 7];
        let mut nodes = Vec::new();
        for (cost, reads, sizes) in drawn {
            let inputs = reads.iter().map(|&r| u32::from(r) % bytes.len() as u32).collect();
            let outputs = (bytes.len() as u32..).take(sizes.len()).collect();
            bytes.extend(sizes);
            nodes.push(Node { cost, inputs, outputs });
        }
        let keep: Vec<u32> = (2..bytes.len() as u32).filter(|v| kept >> (v % 64) & 7 == 0).collect();
        Graph::new(bytes, nodes, &keep).unwrap()
    })
}

/// Every node in order, and before each of them replays of earlier ones.
pub fn order(graph: &Graph, draws: &[u16]) -> Vec<u32> {
    let mut order = Vec::new();
    let mut draws = draws.iter();
    for node in 0..graph.nodes().len() as u32 {
        order.push(node);
        if let Some(&draw) = draws.next()
            && draw % 3 == 0
        {
            order.push(u32::from(draw / 3) % (node + 1));
        }
    }
    order
}
