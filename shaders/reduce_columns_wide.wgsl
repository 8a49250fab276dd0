// reduce_columns.wgsl with four neighbouring Blocks of columns an invocation, for
// software adapters and long rows: a cache line of each row is read at once by
// one lane, several lines at a time, where single Blocks wait for one after the
// other. I is a multiple of 16.
//
//     y[o, s, i] = scale * reduce over r in chunk s of x[o, r, i]
//
// x  [O, R, I], row-major; y [O, S, I].
// Grid: O * S * I / 16 invocations, 64 a workgroup, linear over x, y, z.
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
    let fours = inner / 4u;
    let rest = place / fours;
    let column = (place - rest * fours) * 4u;
    let first = (rest % u.chunks) * u.chunk;
    let rows = min(u.chunk, u.reduced - first);
    var at = ((rest / u.chunks) * u.reduced + first) * inner + column;
    var r0 = x[at];
    var r1 = x[at + 1u];
    var r2 = x[at + 2u];
    var r3 = x[at + 3u];
    at += inner;
    let quads = (rows - 1u) / 4u;
    var left = quads;
    while (left > 0u) {
        let these = min(left, 16u);
        var p0 = quad(at, inner);
        var p1 = quad(at + 1u, inner);
        var p2 = quad(at + 2u, inner);
        var p3 = quad(at + 3u, inner);
        at += 4u * inner;
        for (var i = 1u; i < these; i += 1u) {
            p0 = combine(p0, quad(at, inner));
            p1 = combine(p1, quad(at + 1u, inner));
            p2 = combine(p2, quad(at + 2u, inner));
            p3 = combine(p3, quad(at + 3u, inner));
            at += 4u * inner;
        }
        r0 = combine(r0, p0);
        r1 = combine(r1, p1);
        r2 = combine(r2, p2);
        r3 = combine(r3, p3);
        left -= these;
    }
    for (var row = quads * 4u + 1u; row < rows; row += 1u) {
        r0 = combine(r0, x[at]);
        r1 = combine(r1, x[at + 1u]);
        r2 = combine(r2, x[at + 2u]);
        r3 = combine(r3, x[at + 3u]);
        at += inner;
    }
    let scale = Block(Element(bitcast<f32>(u.scale)));
    let to = rest * inner + column;
    y[to] = r0 * scale;
    y[to + 1u] = r1 * scale;
    y[to + 2u] = r2 * scale;
    y[to + 3u] = r3 * scale;
}
