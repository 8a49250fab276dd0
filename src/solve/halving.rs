//! A first order for small budgets: recursive halving of what comes before the peak.
//!
//! The nodes before the peak of the plain order are cut into blocks. A range of
//! blocks is run up to its middle, the upper half is dealt with, then the lower
//! half again from where it began, so that only the values that cross a logarithmic
//! number of cuts stay (Griewank, "Achieving logarithmic growth of temporal and
//! spatial complexity in reverse automatic differentiation", 1992).

use super::graph::Graph;

/// The order, if `turn` nodes lie before the peak and they are cut into `blocks`.
pub(super) fn halving(graph: &Graph, turn: usize, blocks: usize) -> Vec<u32> {
    let n = graph.nodes().len();
    let blocks = blocks.clamp(1, turn.max(1));
    let mut ran = vec![false; n];
    let mut run = |order: &mut Vec<u32>, nodes: std::ops::Range<usize>| {
        let may = |&node: &usize| !std::mem::replace(&mut ran[node], true) || !graph.once(node as u32);
        order.extend(nodes.filter(may).map(|node| node as u32));
    };
    // The last node before the turn that each later node reads from.
    let latest: Vec<Option<usize>> = graph.nodes()[turn..]
        .iter()
        .map(|node| {
            node.inputs.iter().filter_map(|&v| graph.producer(v)).map(|p| p as usize).filter(|&p| p < turn).max()
        })
        .collect();
    let mut order: Vec<u32> = Vec::with_capacity(2 * n);
    let mut after = turn;
    let cut = |block: usize| block * turn / blocks;
    // Ranges still to be dealt with, the next one last.
    let mut ranges = vec![(0, blocks)];
    while let Some((low, high)) = ranges.pop() {
        if high - low > 1 {
            let middle = low.midpoint(high);
            run(&mut order, cut(low)..cut(middle));
            ranges.push((low, middle));
            ranges.push((middle, high));
            continue;
        }
        run(&mut order, cut(low)..cut(high));
        while after < n && (low == 0 || latest[after - turn].is_none_or(|p| p >= cut(low))) {
            order.push(after as u32);
            after += 1;
        }
    }
    order
}
