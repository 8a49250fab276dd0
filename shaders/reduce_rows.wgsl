// Reduces the last axis of x [O, R], R a multiple of 4, in S chunks:
//
//     y[o, s] = scale * reduce over r in chunk s of x[o, r]
//
// x  [O, R / 4] of four neighbours each; y [O, S]. With S = 1 that is the
// reduction. One invocation reduces one chunk, a multiple of 4 elements: four
// lanes, combined at the end, of blocks combined as a tree (four, then sixteen
// times four, then all of those), so that rounding errors of long sums stay small.
// Grid: O * S invocations, 64 a workgroup, linear over x, y, z.
// shared/reduce.wgsl stands before this text.

@group(0) @binding(2) var<storage, read_write> y: array<Element>;

// Four blocks from `at` on.
fn quad(at: u32) -> Block {
    let a = combine(x[at], x[at + 1u]);
    let b = combine(x[at + 2u], x[at + 3u]);
    return combine(a, b);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let place = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (place >= u.count) {
        return;
    }
    let first = (place % u.chunks) * u.chunk;
    let blocks = min(u.chunk, u.reduced - first);
    var at = (place / u.chunks) * u.reduced + first;
    var result = x[at];
    at += 1u;
    let quads = (blocks - 1u) / 4u;
    var left = quads;
    while (left > 0u) {
        let these = min(left, 16u);
        var part = quad(at);
        at += 4u;
        for (var i = 1u; i < these; i += 1u) {
            part = combine(part, quad(at));
            at += 4u;
        }
        result = combine(result, part);
        left -= these;
    }
    for (var block = quads * 4u + 1u; block < blocks; block += 1u) {
        result = combine(result, x[at]);
        at += 1u;
    }
    let pairs = combine(result, result.zwxy);
    let whole = combine(pairs, pairs.yxwz);
    y[place] = whole.x * Element(bitcast<f32>(u.scale));
}
