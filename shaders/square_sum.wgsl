// Sums of squares, and how many elements are NaN or infinite, per chunk:
//
//     squares[c] = sum of x[i]^2          counts[c] = number of i with x[i] not finite
//
// over the Blocks of chunk c, in order, four sums side by side where N is a
// multiple of 4 (else the aliases are narrowed).
// x  [N]; squares, counts  [CHUNKS].
// Grid: CHUNKS invocations, 64 a workgroup, linear over x, y, z.

alias Element = f32;
alias Block = vec4<f32>;
alias BlockBits = vec4<u32>;

struct SquareSum {
    // Blocks.
    blocks: u32,
    // CHUNKS.
    chunks: u32,
    // Blocks of a chunk.
    chunk: u32,
    pad0: u32,
}

@group(0) @binding(0) var<uniform> u: SquareSum;
@group(0) @binding(1) var<storage, read_write> x: array<Block>;
@group(0) @binding(2) var<storage, read_write> squares: array<f32>;
@group(0) @binding(3) var<storage, read_write> counts: array<u32>;

fn total(v: Block) -> f32 { return (v.x + v.y) + (v.z + v.w); }

fn total_bits(v: BlockBits) -> u32 { return (v.x + v.y) + (v.z + v.w); }

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let c = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (c >= u.chunks) {
        return;
    }
    let exponent = BlockBits(0x7f800000u);
    var sum = Block(0.0);
    var count = BlockBits(0u);
    let first = c * u.chunk;
    let end = min(first + u.chunk, u.blocks);
    for (var i = first; i < end; i += 1u) {
        let v = x[i];
        sum += v * v;
        count += select(BlockBits(0u), BlockBits(1u), (bitcast<BlockBits>(v) & exponent) == exponent);
    }
    squares[c] = total(sum);
    counts[c] = total_bits(count);
}
