// Softmax, or its logarithm, along the middle axis of x [O, R, I]:
//
//     y[o, r, i] = exp(x[o, r, i] - m) / s    m = largest x[o, :, i], s = sum exp(x[o, :, i] - m)
//     y[o, r, i] = x[o, r, i] - m - log(s)    if LOG is 1
//
// x, y  [O, R, I / lanes] of Blocks: four neighbouring columns, or one where the
// aliases are narrowed because I is no multiple of 4. A column of -infinity
// only becomes 0 (its logarithm -infinity); NaN spreads over its column.
// One invocation per block of columns.
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
@group(0) @binding(1) var<storage, read_write> x: array<Block>;
@group(0) @binding(2) var<storage, read_write> y: array<Block>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let place = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (place >= u.count) {
        return;
    }
    let step = u.inner;
    let first = (place / step) * u.reduced * step + place % step;
    let end = first + u.reduced * step;
    var m = x[first];
    for (var at = first; at < end; at += step) {
        m = max(m, x[at]);
    }
    // -infinity - -infinity would be NaN.
    m = select(m, Block(0.0), bitcast<BlockBits>(m) == BlockBits(0xff800000u));
    var s = Block(0.0);
    for (var at = first; at < end; at += step) {
        s += exp(x[at] - m);
    }
    let nothing = s == Block(0.0);
    if (LOG == 0u) {
        let scale = select(Block(1.0) / s, Block(0.0), nothing);
        for (var at = first; at < end; at += step) {
            // Once more: on a software adapter exp costs less than a store.
            y[at] = exp(x[at] - m) * scale;
        }
    } else {
        let away = m + select(log(s), Block(0.0), nothing);
        for (var at = first; at < end; at += step) {
            y[at] = x[at] - away;
        }
    }
}
