// Per chunk of a channel of x (shaders/shared/batch_norm.wgsl): the mean, and the sum
// of squares around it.
//     part[c, k] = (m, sum over the chunk of (x - m)^2)      m = the chunk's mean
// part [C, chunks] of pairs; batch_stats_join.wgsl joins a channel's.
// One invocation per chunk. Grid: count invocations, 64 a workgroup, linear over x, y, z.

@group(0) @binding(0) var<uniform> u: BatchNorm;
@group(0) @binding(1) var<storage, read_write> x: array<Block>;
@group(0) @binding(2) var<storage, read_write> part: array<vec2<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = linear_index(id, groups);
    if (index >= u.count) {
        return;
    }
    let chunk = chunk_at(index);
    var sum = Block(0.0);
    for (var n = chunk.sample; n < chunk.sample_end; n++) {
        let row = (n * u.channels + chunk.channel) * u.width;
        for (var at = row + chunk.block; at < row + chunk.block_end; at++) {
            sum += x[at];
        }
    }
    let mean = total(sum) / elements_of(chunk);
    var squares = Block(0.0);
    for (var n = chunk.sample; n < chunk.sample_end; n++) {
        let row = (n * u.channels + chunk.channel) * u.width;
        for (var at = row + chunk.block; at < row + chunk.block_end; at++) {
            let away = x[at] - Block(mean);
            squares += away * away;
        }
    }
    part[index] = vec2<f32>(mean, total(squares));
}
