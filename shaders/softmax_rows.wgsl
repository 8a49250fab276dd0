// Softmax, or its logarithm, along the last axis of x [O, R]:
//
//     y[o, r] = exp(x[o, r] - m) / s        m = largest x[o, :], s = sum exp(x[o, :] - m)
//     y[o, r] = x[o, r] - m - log(s)        if LOG is 1
//
// x, y  [O, R / lanes] of Blocks: four neighbours, or one where the alias is
// narrowed because R is no multiple of 4. A row of -infinity only becomes 0
// (its logarithm -infinity); NaN anywhere in a row makes the whole row NaN.
// One invocation per row, which walks it three times: the row stays in cache.
// Grid: O invocations, 64 a workgroup, linear over x, y, z.

alias Element = f32;
alias Block = vec4<f32>;
alias BlockBits = vec4<u32>;

override LOG: u32 = 0u;

struct Softmax {
    // O.
    count: u32,
    // Unused here.
    inner: u32,
    // R in blocks.
    reduced: u32,
    pad: u32,
}

@group(0) @binding(0) var<uniform> u: Softmax;
@group(0) @binding(1) var<storage, read_write> x: array<Block>;
@group(0) @binding(2) var<storage, read_write> y: array<Block>;

fn total(v: Block) -> f32 { return (v.x + v.y) + (v.z + v.w); }
fn largest(v: Block) -> f32 { return max(max(v.x, v.y), max(v.z, v.w)); }

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (row >= u.count) {
        return;
    }
    let length = u.reduced;
    let first = row * length;
    let end = first + length;
    let quads = first + length / 4u * 4u;
    var top = x[first];
    for (var at = first; at < quads; at += 4u) {
        top = max(top, max(max(x[at], x[at + 1u]), max(x[at + 2u], x[at + 3u])));
    }
    for (var at = quads; at < end; at += 1u) {
        top = max(top, x[at]);
    }
    var m = largest(top);
    // -infinity - -infinity would be NaN.
    m = select(m, 0.0, bitcast<u32>(m) == 0xff800000u);
    let shift = Block(m);
    var sum = Block(0.0);
    for (var at = first; at < end; at += 1u) {
        sum += exp(x[at] - shift);
    }
    let s = total(sum);
    if (LOG == 0u) {
        let scale = Block(select(1.0 / s, 0.0, s == 0.0));
        for (var at = first; at < end; at += 1u) {
            // Once more: on a software adapter exp costs less than a store.
            y[at] = exp(x[at] - shift) * scale;
        }
    } else {
        let away = Block(m + select(log(s), 0.0, s == 0.0));
        for (var at = first; at < end; at += 1u) {
            y[at] = x[at] - away;
        }
    }
}
