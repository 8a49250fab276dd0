// Layer norm along the last axis of x [N, C]:
//
//     mean[n] = sum(x[n, :]) / C      rstd[n] = 1 / sqrt(sum((x[n, :] - mean[n])^2) / C + eps)
//     y[n, c] = (x[n, c] - mean[n]) * rstd[n] * weight[c] + bias[c]
//
// x, y  [N, C / lanes]; weight, bias [C / lanes] of Blocks: four neighbours, or
// one where the aliases are narrowed because C is no multiple of 4.
// mean, rstd [N]. One invocation per row; the variance is summed around the mean.
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
    // The bits of eps.
    eps: u32,
}

@group(0) @binding(0) var<uniform> u: LayerNorm;
@group(0) @binding(1) var<storage, read_write> x: array<Block>;
@group(0) @binding(2) var<storage, read_write> weight: array<Block>;
@group(0) @binding(3) var<storage, read_write> bias: array<Block>;
@group(0) @binding(4) var<storage, read_write> y: array<Block>;
@group(0) @binding(5) var<storage, read_write> mean: array<f32>;
@group(0) @binding(6) var<storage, read_write> rstd: array<f32>;

fn total(v: Block) -> f32 { return (v.x + v.y) + (v.z + v.w); }

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let row = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (row >= u.rows) {
        return;
    }
    let blocks = u.blocks;
    let first = row * blocks;
    let end = first + blocks;
    let quads = first + blocks / 4u * 4u;
    let per_column = bitcast<f32>(u.per_column);
    var sum = Block(0.0);
    for (var at = first; at < quads; at += 4u) {
        sum += (x[at] + x[at + 1u]) + (x[at + 2u] + x[at + 3u]);
    }
    for (var at = quads; at < end; at += 1u) {
        sum += x[at];
    }
    let m = total(sum) * per_column;
    let shift = Block(m);
    var squares = Block(0.0);
    for (var at = first; at < quads; at += 4u) {
        let a = x[at] - shift;
        let b = x[at + 1u] - shift;
        let c = x[at + 2u] - shift;
        let d = x[at + 3u] - shift;
        squares += (a * a + b * b) + (c * c + d * d);
    }
    for (var at = quads; at < end; at += 1u) {
        let a = x[at] - shift;
        squares += a * a;
    }
    let r = 1.0 / sqrt(total(squares) * per_column + bitcast<f32>(u.eps));
    mean[row] = m;
    rstd[row] = r;
    let scale = Block(r);
    for (var at = first; at < end; at += 1u) {
        let column = at - first;
        y[at] = (x[at] - shift) * scale * weight[column] + bias[column];
    }
}
