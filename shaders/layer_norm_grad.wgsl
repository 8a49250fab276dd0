// Gradient of layer norm with respect to x [N, C]:
//
//     a = g * weight      xh = (x - mean) * rstd
//     dx[n, c] = rstd[n] * (a[n, c] - sum(a[n, :]) / C - xh[n, c] * sum(a[n, :] * xh[n, :]) / C)
//
// x, g, dx  [N, C / lanes]; weight [C / lanes] of Blocks: four neighbours, or one
// where the aliases are narrowed because C is no multiple of 4. mean, rstd [N].
// One invocation per row.
// Grid: N invocations, 64 a workgroup, linear over x, y, z.

alias Element = f32;
alias Block = vec4<f32>;
alias BlockBits = vec4<u32>;

struct LayerNorm {
    // N.
    rows: u32,
    // C in blocks.
    blocks: u32,
    // The bits of 1 / C.
    per_column: u32,
    pad: u32,
}

@group(0) @binding(0) var<uniform> u: LayerNorm;
@group(0) @binding(1) var<storage, read_write> x: array<Block>;
@group(0) @binding(2) var<storage, read_write> weight: array<Block>;
@group(0) @binding(3) var<storage, read_write> mean: array<f32>;
@group(0) @binding(4) var<storage, read_write> rstd: array<f32>;
@group(0) @binding(5) var<storage, read_write> g: array<Block>;
@group(0) @binding(6) var<storage, read_write> dx: array<Block>;

fn total(v: Block) -> f32 { return (v.x + v.y) + (v.z + v.w); }

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (row >= u.rows) {
        return;
    }
    let blocks = u.blocks;
    let first = row * blocks;
    let pairs = blocks / 2u * 2u;
    let per_column = bitcast<f32>(u.per_column);
    let shift = Block(mean[row]);
    let scale = Block(rstd[row]);
    var sum = Block(0.0);
    var product = Block(0.0);
    for (var column = 0u; column < pairs; column += 2u) {
        let at = first + column;
        let a = g[at] * weight[column];
        let b = g[at + 1u] * weight[column + 1u];
        sum += a + b;
        product += a * (x[at] - shift) + b * (x[at + 1u] - shift);
    }
    for (var column = pairs; column < blocks; column += 1u) {
        let a = g[first + column] * weight[column];
        sum += a;
        product += a * (x[first + column] - shift);
    }
    let average = Block(total(sum) * per_column);
    let slope = Block(total(product) * per_column) * scale * scale;
    for (var column = 0u; column < blocks; column += 1u) {
        let at = first + column;
        dx[at] = scale * (g[at] * weight[column] - average - (x[at] - shift) * slope);
    }
}
