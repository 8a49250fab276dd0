// Gradient of cross-entropy with respect to x [N, V]:
//
//     dx[n, v] = (exp(x[n, v] - lse[n]) - smoothing / V - [v = targets[n]] * (1 - smoothing)) * g[n]
//
// dx is 0 where targets[n] is IGNORE (if HAS_IGNORE is 1), and NaN where
// targets[n] is no class.
// x, dx  [N, V / lanes] of Blocks: four neighbours, or one where the aliases are
// narrowed because V is no multiple of 4. targets [N], 32-bit integers as they
// lie in memory. lse, g [N]. One invocation per SPAN neighbouring Blocks of a row.
// Grid: N * (V / lanes / SPAN, rounded up) invocations, 64 a workgroup, linear over x, y, z.

alias Element = f32;
alias Block = vec4<f32>;
alias BlockBits = vec4<u32>;

const LANES: u32 = 4u;

struct CrossEntropy {
    // Invocations.
    count: u32,
    // V in blocks.
    blocks: u32,
    // V.
    classes: u32,
    // 1 if a class is ignored.
    has_ignore: u32,
    // The class that is ignored, as it lies in memory.
    ignore: u32,
    // The bits of an f32.
    smoothing: u32,
    // The bits of 1 / V.
    per_class: u32,
    // The bits of a NaN, which WGSL refuses as a constant.
    nan: u32,
    // SPAN.
    span: u32,
    // Spans of a row.
    spans: u32,
    pad0: u32,
    pad1: u32,
}

@group(0) @binding(0) var<uniform> u: CrossEntropy;
@group(0) @binding(1) var<storage, read_write> x: array<Block>;
@group(0) @binding(2) var<storage, read_write> targets: array<u32>;
@group(0) @binding(3) var<storage, read_write> lse: array<f32>;
@group(0) @binding(4) var<storage, read_write> g: array<f32>;
@group(0) @binding(5) var<storage, read_write> dx: array<Block>;

// The classes of block `i`.
fn classes_of(i: u32) -> BlockBits { return vec4<u32>(0u, 1u, 2u, 3u) + i * LANES; }

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let place = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (place >= u.count) {
        return;
    }
    let row = place / u.spans;
    let first = (place - row * u.spans) * u.span;
    let end = min(first + u.span, u.blocks);
    let base = row * u.blocks;
    let wanted = targets[row];
    let ignored = u.has_ignore == 1u && wanted == u.ignore;
    if (ignored || wanted >= u.classes) {
        let value = Block(select(bitcast<f32>(u.nan), 0.0, ignored));
        for (var i = first; i < end; i += 1u) {
            dx[base + i] = value;
        }
        return;
    }
    let scale = Block(g[row]);
    let shift = Block(lse[row]);
    let smoothing = bitcast<f32>(u.smoothing);
    let share = Block(smoothing * bitcast<f32>(u.per_class));
    let hit = Block(1.0 - smoothing);
    for (var i = first; i < end; i += 1u) {
        let p = exp(x[base + i] - shift) - share;
        dx[base + i] = (p - select(Block(0.0), hit, classes_of(i) == BlockBits(wanted))) * scale;
    }
}
