// Gradient of softmax, or of its logarithm, along the middle axis, from y [O, R, I]:
//
//     dx[o, r, i] = y[o, r, i] * (g[o, r, i] - sum(g[o, :, i] * y[o, :, i]))
//     dx[o, r, i] = g[o, r, i] - exp(y[o, r, i]) * sum(g[o, :, i])           if LOG is 1
//
// y, g, dx  [O, R, I / lanes] of Blocks: four neighbouring columns, or one where
// the alias is narrowed because I is no multiple of 4. One invocation per block
// of columns.
// Grid: O * I / lanes invocations, 64 a workgroup, linear over x, y, z.

alias Element = f32;
alias Block = vec4<f32>;
alias BlockBits = vec4<u32>;

override LOG: u32 = 0u;

struct Softmax {
    // O * I in blocks.
    count: u32,
    // I in blocks.
    inner: u32,
    // R.
    reduced: u32,
    pad: u32,
}

@group(0) @binding(0) var<uniform> u: Softmax;
@group(0) @binding(1) var<storage, read_write> y: array<Block>;
@group(0) @binding(2) var<storage, read_write> g: array<Block>;
@group(0) @binding(3) var<storage, read_write> dx: array<Block>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let place = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (place >= u.count) {
        return;
    }
    let step = u.inner;
    let first = (place / step) * u.reduced * step + place % step;
    let end = first + u.reduced * step;
    var s = Block(0.0);
    for (var at = first; at < end; at += step) {
        if (LOG == 0u) {
            s += g[at] * y[at];
        } else {
            s += g[at];
        }
    }
    for (var at = first; at < end; at += step) {
        if (LOG == 0u) {
            dx[at] = y[at] * (g[at] - s);
        } else {
            dx[at] = g[at] - exp(y[at]) * s;
        }
    }
}
