// Gradient of a table with respect to its rows, gathered:
//
//     dweight[v, d] = sum of g[n, d] over the places n of number v, by rising n
//
// order, ends as embedding_sort.wgsl makes them. g [N, D / lanes], dweight
// [V, D / lanes] of Blocks: four neighbours, or one where the aliases are
// narrowed because D is no multiple of 4. One invocation per Block of dweight.
// Grid: V * D / lanes invocations, 64 a workgroup, linear over x, y, z.

alias Element = f32;
alias Block = vec4<f32>;
alias BlockBits = vec4<u32>;

struct EmbeddingGrad {
    // Blocks of dweight.
    count: u32,
    // D in blocks.
    blocks: u32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> u: EmbeddingGrad;
@group(0) @binding(1) var<storage, read_write> g: array<Block>;
@group(0) @binding(2) var<storage, read_write> ends: array<u32>;
@group(0) @binding(3) var<storage, read_write> order: array<u32>;
@group(0) @binding(4) var<storage, read_write> dweight: array<Block>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let place = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (place >= u.count) {
        return;
    }
    let row = place / u.blocks;
    let column = place - row * u.blocks;
    var at = 0u;
    if (row > 0u) {
        at = ends[row - 1u];
    }
    let end = ends[row];
    var sum = Block(0.0);
    // Sixteen at a time, so that rounding errors of long sums stay small, and in
    // one round, since Mesa's software adapter ends an invocation's loops after 65,535.
    let whole = at + (end - at) / 16u * 16u;
    for (; at < whole; at += 16u) {
        var part = Block(0.0);
        part += g[order[at + 0u] * u.blocks + column];
        part += g[order[at + 1u] * u.blocks + column];
        part += g[order[at + 2u] * u.blocks + column];
        part += g[order[at + 3u] * u.blocks + column];
        part += g[order[at + 4u] * u.blocks + column];
        part += g[order[at + 5u] * u.blocks + column];
        part += g[order[at + 6u] * u.blocks + column];
        part += g[order[at + 7u] * u.blocks + column];
        part += g[order[at + 8u] * u.blocks + column];
        part += g[order[at + 9u] * u.blocks + column];
        part += g[order[at + 10u] * u.blocks + column];
        part += g[order[at + 11u] * u.blocks + column];
        part += g[order[at + 12u] * u.blocks + column];
        part += g[order[at + 13u] * u.blocks + column];
        part += g[order[at + 14u] * u.blocks + column];
        part += g[order[at + 15u] * u.blocks + column];
        sum += part;
    }
    if (at < end) {
        var part = Block(0.0);
        for (; at < end; at += 1u) {
            part += g[order[at] * u.blocks + column];
        }
        sum += part;
    }
    dweight[place] = sum;
}
