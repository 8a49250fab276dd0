// Reduces the middle axis of x [O, R, I] in S chunks:
//
//     y[o, s, i] = scale * reduce over r in chunk s of x[o, r, i]
//
// x  [O, R, I], row-major; y [O, S, I]. With S = 1 that is the reduction.
// One invocation makes one Block of y: four neighbouring columns, or one where
// the aliases are narrowed because I is no multiple of 4. Rows are combined
// four at a time as a tree, which halves the dependent steps and the error.
// Grid: O * S * I / lanes invocations, 64 a workgroup, linear over x, y, z.
// shared/reduce.wgsl stands before this text.

@group(0) @binding(2) var<storage, read_write> y: array<Block>;

// Four rows from `at` on.
fn quad(at: u32, inner: u32) -> Block {
    let a = combine(x[at], x[at + inner]);
    let b = combine(x[at + 2u * inner], x[at + 3u * inner]);
    return combine(a, b);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let place = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (place >= u.count) {
        return;
    }
    let inner = u.inner;
    let column = place % inner;
    let rest = place / inner;
    let first = (rest % u.chunks) * u.chunk;
    let rows = min(u.chunk, u.reduced - first);
    var at = ((rest / u.chunks) * u.reduced + first) * inner + column;
    var result = x[at];
    at += inner;
    let quads = (rows - 1u) / 4u;
    var left = quads;
    while (left > 0u) {
        let these = min(left, 16u);
        var part = quad(at, inner);
        at += 4u * inner;
        for (var i = 1u; i < these; i += 1u) {
            part = combine(part, quad(at, inner));
            at += 4u * inner;
        }
        result = combine(result, part);
        left -= these;
    }
    for (var row = quads * 4u + 1u; row < rows; row += 1u) {
        result = combine(result, x[at]);
        at += inner;
    }
    y[place] = result * Block(Element(bitcast<f32>(u.scale)));
}
