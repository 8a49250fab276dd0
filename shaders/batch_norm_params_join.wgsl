// The sums over a channel's chunks, in order: (dweight[c], dbias[c]) = sum over k of part[c, k],
// with part of batch_norm_params.wgsl (shaders/shared/batch_norm.wgsl names the sizes).
// part [C, chunks] of pairs; dweight, dbias [C]. One invocation per channel.
// Grid: C invocations, 64 a workgroup, linear over x, y, z.

@group(0) @binding(0) var<uniform> u: BatchNorm;
@group(0) @binding(1) var<storage, read_write> part: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> dweight: array<f32>;
@group(0) @binding(3) var<storage, read_write> dbias: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let channel = linear_index(id, groups);
    if (channel >= u.count) {
        return;
    }
    var sums = vec2<f32>();
    for (var k = channel * u.chunks; k < (channel + 1u) * u.chunks; k++) {
        sums += part[k];
    }
    dweight[channel] = sums.x;
    dbias[channel] = sums.y;
}
