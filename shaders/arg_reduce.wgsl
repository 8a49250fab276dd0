// Where the largest (or smallest) element stands, chunk by chunk:
//
//     y[o, s, i] = first r in chunk s at which x[o, r, i] is largest
//
// x  [O, R, I], row-major; y [O, S, I] of indices into R. NaN counts as
// largest and as smallest. One invocation walks one chunk.
// Grid: O * S * I invocations, 64 a workgroup, linear over x, y, z.
// shared/arg.wgsl stands before this text.

struct ArgReduce {
    // Elements of y.
    count: u32,
    // I.
    inner: u32,
    // R.
    reduced: u32,
    // S.
    chunks: u32,
    // Rows of a chunk.
    chunk: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(0) var<uniform> u: ArgReduce;
@group(0) @binding(1) var<storage, read_write> x: array<Element>;
@group(0) @binding(2) var<storage, read_write> y: array<i32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let place = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (place >= u.count) {
        return;
    }
    let column = place % u.inner;
    let rest = place / u.inner;
    let first = (rest % u.chunks) * u.chunk;
    let end = first + min(u.chunk, u.reduced - first);
    let base = (rest / u.chunks) * u.reduced * u.inner + column;
    var best = x[base + first * u.inner];
    var found = first;
    for (var row = first + 1u; row < end; row += 1u) {
        let candidate = x[base + row * u.inner];
        if (wins(candidate, best)) {
            best = candidate;
            found = row;
        }
    }
    y[place] = i32(found);
}
