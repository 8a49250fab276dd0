// Gradient of cross-entropy with respect to x [N, V]:
//
//     dx[n, v] = (exp(x[n, v] - lse[n]) - smoothing / V - [v = targets[n]] * (1 - smoothing)) * g[n]
//
// dx is 0 where targets[n] is IGNORE (if HAS_IGNORE is 1), and NaN where
// targets[n] is no class.
// x, dx  [N, V / lanes] of Blocks: four neighbours, or one where the aliases are
// narrowed because V is no multiple of 4. targets [N], 32-bit integers as they
// lie in memory. lse, g [N]. One invocation per Block.
// Grid: N * V / lanes invocations, 64 a workgroup, linear over x, y, z.

alias Element = f32;
alias Block = vec4<f32>;
alias BlockBits = vec4<u32>;

const LANES: u32 = 4u;

struct CrossEntropy {
    // Blocks of dx.
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
    let row = place / u.blocks;
    let wanted = targets[row];
    let smoothing = bitcast<f32>(u.smoothing);
    var result = Block(bitcast<f32>(u.nan));
    if (u.has_ignore == 1u && wanted == u.ignore) {
        result = Block(0.0);
    } else if (wanted < u.classes) {
        let p = exp(x[place] - Block(lse[row]));
        let hit = classes_of(place % u.blocks) == BlockBits(wanted);
        let share = select(Block(0.0), Block(1.0 - smoothing), hit) + Block(smoothing * bitcast<f32>(u.per_class));
        result = (p - share) * Block(g[row]);
    }
    dx[place] = result;
}
