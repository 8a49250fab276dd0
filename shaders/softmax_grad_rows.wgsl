// Gradient of softmax, or of its logarithm, along the last axis, from y [O, R]:
//
//     dx[o, r] = y[o, r] * (g[o, r] - sum(g[o, :] * y[o, :]))
//     dx[o, r] = g[o, r] - exp(y[o, r]) * sum(g[o, :])           if LOG is 1
//
// y, g, dx  [O, R / lanes] of Blocks: four neighbours, or one where the alias
// is narrowed because R is no multiple of 4. One invocation per row.
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
@group(0) @binding(1) var<storage, read_write> y: array<Block>;
@group(0) @binding(2) var<storage, read_write> g: array<Block>;
@group(0) @binding(3) var<storage, read_write> dx: array<Block>;

fn total(v: Block) -> f32 { return (v.x + v.y) + (v.z + v.w); }

fn part(at: u32) -> Block {
    if (LOG == 0u) {
        return g[at] * y[at];
    }
    return g[at];
}

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
    var sum = Block(0.0);
    for (var at = first; at < quads; at += 4u) {
        sum += (part(at) + part(at + 1u)) + (part(at + 2u) + part(at + 3u));
    }
    for (var at = quads; at < end; at += 1u) {
        sum += part(at);
    }
    let s = Block(total(sum));
    for (var at = first; at < end; at += 1u) {
        if (LOG == 0u) {
            dx[at] = y[at] * (g[at] - s);
        } else {
            dx[at] = g[at] - exp(y[at]) * s;
        }
    }
}
