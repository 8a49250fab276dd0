// Per chunk of a channel (shaders/shared/batch_norm.wgsl), with g the gradient of batch
// norm's result:
//     part[c, k] = (sum over the chunk of g (x - mean[c]) rstd[c], sum over the chunk of g)
//     rstd = 1 / sqrt(variance + eps)
// x, g [N, C, S / lanes] of Blocks; mean, variance [C]; part [C, chunks] of pairs, which
// batch_norm_params_join.wgsl adds up.
// One invocation per chunk. Grid: count invocations, 64 a workgroup, linear over x, y, z.

@group(0) @binding(0) var<uniform> u: BatchNorm;
@group(0) @binding(1) var<storage, read_write> x: array<Block>;
@group(0) @binding(2) var<storage, read_write> mean: array<f32>;
@group(0) @binding(3) var<storage, read_write> variance: array<f32>;
@group(0) @binding(4) var<storage, read_write> g: array<Block>;
@group(0) @binding(5) var<storage, read_write> part: array<vec2<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = linear_index(id, groups);
    if (index >= u.count) {
        return;
    }
    let chunk = chunk_at(index);
    let shift = Block(mean[chunk.channel]);
    var for_weight = Block(0.0);
    var for_bias = Block(0.0);
    for (var n = chunk.sample; n < chunk.sample_end; n++) {
        let row = (n * u.channels + chunk.channel) * u.width;
        for (var at = row + chunk.block; at < row + chunk.block_end; at++) {
            let v = g[at];
            for_weight += v * (x[at] - shift);
            for_bias += v;
        }
    }
    let rstd = 1.0 / sqrt(variance[chunk.channel] + bitcast<f32>(u.eps));
    part[index] = vec2<f32>(total(for_weight) * rstd, total(for_bias));
}
