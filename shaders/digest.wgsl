// A 128-bit digest of raw words, in PARTS partial sums:
//
//     parts[p] = sum of stir(block_j xor key(j)) over the blocks j of part p
//
// stir is pcg4d of Jarzynski and Olano, "Hash Functions for GPU Rendering", JCGT
// 9(3), 2020: a permutation of four words. Sums of integers wrap and have no
// order, so the digest is the same however the work is split. Part 0 adds
// stir(N, N, N, N): lengths count as well. The last block is filled up with 0.
// x  [N] words, bound in fours where N is a multiple of 4 (else the declaration
// and `block` are narrowed); parts [PARTS] of four words.
// Eight neighbouring parts take turns with the blocks of one stretch, so that
// neighbours read neighbouring blocks and each walks through memory in order.
// Grid: PARTS invocations, 64 a workgroup, linear over x, y, z.

struct Digest {
    // N.
    words: u32,
    // N / 4, rounded up.
    blocks: u32,
    // PARTS, a multiple of 8, or 1.
    parts: u32,
    // Blocks of a stretch.
    stretch: u32,
    // Parts that share a stretch: 8, or 1.
    turns: u32,
    pad0: u32,
    pad1: u32,
    pad2: u32,
}

@group(0) @binding(0) var<uniform> u: Digest;
@group(0) @binding(1) var<storage, read_write> x: array<vec4<u32>>;
@group(0) @binding(2) var<storage, read_write> parts: array<vec4<u32>>;

fn block(j: u32) -> vec4<u32> { return x[j]; }

fn stir(start: vec4<u32>) -> vec4<u32> {
    var v = start * 1664525u + 1013904223u;
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    v ^= v >> vec4<u32>(16u);
    v.x += v.y * v.w;
    v.y += v.z * v.x;
    v.z += v.x * v.y;
    v.w += v.y * v.z;
    return v;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let part = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (part >= u.parts) {
        return;
    }
    var sum = vec4<u32>(0u);
    if (part == 0u) {
        sum = stir(vec4<u32>(u.words));
    }
    let first = part / u.turns * u.stretch;
    let end = min(first + u.stretch, u.blocks);
    for (var j = first + part % u.turns; j < end; j += u.turns) {
        let key = vec4<u32>(j, j + 0x9e3779b9u, j ^ 0x85ebca6bu, j * 0xc2b2ae35u);
        sum += stir(block(j) ^ key);
    }
    parts[part] = sum;
}
