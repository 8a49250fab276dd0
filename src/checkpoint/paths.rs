//! Regions of a decision: a tree, and the place of each pass in it.

use crate::checkpoint::facts::{Facts, NONE};
use crate::checkpoint::policy::split_evenly;
use crate::checkpoint::revolve;
use crate::error::Result;
use crate::fuse::program::{Phase, Program};

/// The whole step: the region of what lies in no segment.
pub(crate) const ROOT: u32 = 0;

/// A tree of regions and the innermost region of each pass.
#[derive(Debug, Clone)]
pub(crate) struct Paths {
    parent: Vec<u32>,
    depth: Vec<u32>,
    node: Vec<u32>,
}

impl Paths {
    /// No regions: every pass lies at the root.
    pub(crate) fn flat(program: &Program) -> Self {
        Self { parent: vec![ROOT], depth: vec![0], node: vec![ROOT; program.passes.len()] }
    }

    fn add(&mut self, parent: u32) -> u32 {
        self.parent.push(parent);
        self.depth.push(self.depth[parent as usize] + 1);
        (self.parent.len() - 1) as u32
    }

    /// The segments, where `group_of[i]` is the group of the i-th outermost
    /// segment, or `None` if it is not honoured (and what is in it neither).
    /// Without `nested`, segments inside others are not honoured.
    pub(crate) fn of_groups(program: &Program, group_of: &[Option<usize>], nested: bool) -> Self {
        let mut paths = Self::flat(program);
        let groups = group_of.iter().flatten().max().map_or(0, |&g| g + 1);
        let group_nodes: Vec<u32> = (0..groups).map(|_| paths.add(ROOT)).collect();
        let mut nodes: Vec<u32> = Vec::with_capacity(program.segments.len());
        let mut outermost = 0;
        for segment in &program.segments {
            let node = match segment.parent {
                None => {
                    outermost += 1;
                    group_of[outermost - 1].map_or(ROOT, |group| group_nodes[group])
                }
                Some(parent) => match nodes[parent.index()] {
                    ROOT => ROOT,
                    around if nested => paths.add(around),
                    around => around,
                },
            };
            nodes.push(node);
        }
        paths.assign(program, &nodes);
        paths
    }

    /// Revolve's regions over the outermost segments, with `slots` states held at
    /// a time, the first one among them. Segments inside others are honoured.
    pub(crate) fn revolve(program: &Program, slots: usize) -> Self {
        let outermost = program.segments.iter().filter(|s| s.parent.is_none()).count();
        let mut paths = Self::flat(program);
        let mut around = vec![ROOT; outermost];
        // Parts of the chain yet to be divided: first, end, slots, region around.
        let mut parts = vec![(0, outermost, slots, ROOT)];
        while let Some((first, end, slots, region)) = parts.pop() {
            if end - first < 2 {
                around[first..end].fill(region);
                continue;
            }
            let at = first + revolve::advance(end - first, slots);
            parts.push((at, end, slots.saturating_sub(1), region));
            let left = paths.add(region);
            parts.push((first, at, slots, left));
        }
        let mut nodes: Vec<u32> = Vec::with_capacity(program.segments.len());
        let mut next = 0;
        for segment in &program.segments {
            let node = match segment.parent {
                None => {
                    next += 1;
                    around[next - 1]
                }
                Some(parent) => paths.add(nodes[parent.index()]),
            };
            nodes.push(node);
        }
        paths.assign(program, &nodes);
        paths
    }

    /// Only segments inside others: the outermost ones are not honoured.
    pub(crate) fn inner_only(program: &Program) -> Self {
        let mut paths = Self::flat(program);
        let mut nodes: Vec<u32> = Vec::with_capacity(program.segments.len());
        for segment in &program.segments {
            let node = segment.parent.map_or(ROOT, |parent| paths.add(nodes[parent.index()]));
            nodes.push(node);
        }
        paths.assign(program, &nodes);
        paths
    }

    fn assign(&mut self, program: &Program, nodes: &[u32]) {
        for (node, pass) in self.node.iter_mut().zip(&program.passes) {
            *node = pass.segment.map_or(ROOT, |s| nodes[s.index()]);
        }
    }

    /// Regions that no user wrote: forward passes cut into chunks by
    /// `chunk_of` (`NONE`: at the root). A backward pass lies in the last chunk
    /// that it reads from: it is the chunk whose gradients are being made.
    pub(crate) fn of_chunks(facts: &Facts<'_>, chunk_of: &[u32]) -> Self {
        let program = facts.program;
        let mut paths = Self::flat(program);
        let chunks = chunk_of.iter().filter(|&&c| c != NONE).max().map_or(0, |&c| c + 1);
        let nodes: Vec<u32> = (0..chunks).map(|_| paths.add(ROOT)).collect();
        let node_of = |chunk: u32| if chunk == NONE { ROOT } else { nodes[chunk as usize] };
        for (index, pass) in program.passes.iter().enumerate() {
            paths.node[index] = match pass.phase {
                Phase::Forward => node_of(chunk_of[index]),
                _ => pass
                    .operands
                    .iter()
                    .filter_map(|o| o.read())
                    .map(|s| facts.producer[s.index()])
                    .filter(|&p| p != NONE && chunk_of[p as usize] != NONE)
                    .map(|p| node_of(chunk_of[p as usize]))
                    .max()
                    .unwrap_or(ROOT),
            };
        }
        paths
    }

    /// The innermost region of a pass.
    pub(crate) fn of_pass(&self, pass: usize) -> u32 {
        self.node[pass]
    }

    /// The innermost region around both.
    pub(crate) fn common(&self, mut a: u32, mut b: u32) -> u32 {
        while a != b {
            if self.depth[a as usize] >= self.depth[b as usize] {
                a = self.parent[a as usize];
            } else {
                b = self.parent[b as usize];
            }
        }
        a
    }

    /// True if `inner` is `outer` or lies in it.
    pub(crate) fn contains(&self, outer: u32, mut inner: u32) -> bool {
        while self.depth[inner as usize] > self.depth[outer as usize] {
            inner = self.parent[inner as usize];
        }
        inner == outer
    }
}

/// The group of each of `n` segments, split into `groups` even groups.
pub(crate) fn even_groups(n: usize, groups: usize) -> Result<Vec<usize>> {
    let sizes = split_evenly(n, groups)?;
    Ok(sizes.iter().enumerate().flat_map(|(group, &size)| std::iter::repeat_n(group, size)).collect())
}
