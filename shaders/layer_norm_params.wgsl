// Gradients of layer norm with respect to weight and bias, over chunks of rows:
//
//     dweight[s, c] = sum over n in chunk s of g[n, c] * (x[n, c] - mean[n]) * rstd[n]
//     dbias[s, c]   = sum over n in chunk s of g[n, c]
//
// x, g  [N, C / lanes]; dweight, dbias [S, C / lanes] of Blocks: four
// neighbouring columns, or one where the aliases are narrowed because C is no
// multiple of 4. mean, rstd [N]. With S = 1 these are the gradients, else
// reduce_columns.wgsl adds up the chunks.
// Sixteen rows are added up before they join the running sum, so that rounding
// errors of long sums stay small.
// Grid: S * C / lanes invocations, 64 a workgroup, linear over x, y, z.

alias Element = f32;
alias Block = vec4<f32>;
alias BlockBits = vec4<u32>;

struct LayerNorm {
    // Blocks of either output.
    count: u32,
    // N.
    rows: u32,
    // C in blocks.
    blocks: u32,
    // Rows of a chunk.
    chunk: u32,
}

@group(0) @binding(0) var<uniform> u: LayerNorm;
@group(0) @binding(1) var<storage, read_write> x: array<Block>;
@group(0) @binding(2) var<storage, read_write> mean: array<f32>;
@group(0) @binding(3) var<storage, read_write> rstd: array<f32>;
@group(0) @binding(4) var<storage, read_write> g: array<Block>;
@group(0) @binding(5) var<storage, read_write> dweight: array<Block>;
@group(0) @binding(6) var<storage, read_write> dbias: array<Block>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let place = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (place >= u.count) {
        return;
    }
    let blocks = u.blocks;
    var row = (place / blocks) * u.chunk;
    let end = row + min(u.chunk, u.rows - row);
    var at = row * blocks + place % blocks;
    var for_weight = Block(0.0);
    var for_bias = Block(0.0);
    while (row < end) {
        let stop = min(row + 16u, end);
        var w = Block(0.0);
        var b = Block(0.0);
        for (; row < stop; row += 1u) {
            let v = g[at];
            w += v * ((x[at] - Block(mean[row])) * Block(rstd[row]));
            b += v;
            at += blocks;
        }
        for_weight += w;
        for_bias += b;
    }
    dweight[place] = for_weight;
    dbias[place] = for_bias;
}
