// Rows of a table by their numbers:
//
//     y[n, d] = weight[ids[n], d]
//
// A number that is no row of the table gives NaN; nothing out of bounds is read.
// weight [V, D / lanes], y [N, D / lanes] of Blocks: four neighbours, or one
// where the aliases are narrowed because D is no multiple of 4. ids [N], 32-bit
// integers as they lie in memory. One invocation per SPAN neighbouring Blocks of a
// row of y.
// Grid: N * (D / lanes / SPAN, rounded up) invocations, 64 a workgroup, linear over x, y, z.

alias Element = f32;
alias Block = vec4<f32>;
alias BlockBits = vec4<u32>;

struct Embedding {
    // Invocations.
    count: u32,
    // D in blocks.
    blocks: u32,
    // V.
    rows: u32,
    // The bits of a NaN, which WGSL refuses as a constant.
    nan: u32,
    // SPAN.
    span: u32,
    // Spans of a row.
    spans: u32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> u: Embedding;
@group(0) @binding(1) var<storage, read_write> weight: array<Block>;
@group(0) @binding(2) var<storage, read_write> ids: array<u32>;
@group(0) @binding(3) var<storage, read_write> y: array<Block>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let place = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (place >= u.count) {
        return;
    }
    let n = place / u.spans;
    let first = (place - n * u.spans) * u.span;
    let end = min(first + u.span, u.blocks);
    let to = n * u.blocks;
    let row = ids[n];
    if (row >= u.rows) {
        for (var i = first; i < end; i += 1u) {
            y[to + i] = Block(bitcast<f32>(u.nan));
        }
        return;
    }
    let source = row * u.blocks;
    for (var i = first; i < end; i += 1u) {
        y[to + i] = weight[source + i];
    }
}
