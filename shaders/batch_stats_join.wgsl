// Mean and biased variance of a channel from its chunks' (Chan et al. 1979):
//     mean[c] = sum over k of n_k m_k / N S
//     variance[c] = sum over k of (s_k + n_k (m_k - mean[c])^2) / N S
// with part[c, k] = (m_k, s_k) of batch_stats.wgsl and n_k the chunk's elements.
// part [C, chunks] of pairs; mean, variance [C]. One invocation per channel, chunks in order.
// Grid: C invocations, 64 a workgroup, linear over x, y, z.

@group(0) @binding(0) var<uniform> u: BatchNorm;
@group(0) @binding(1) var<storage, read_write> part: array<vec2<f32>>;
@group(0) @binding(2) var<storage, read_write> mean: array<f32>;
@group(0) @binding(3) var<storage, read_write> variance: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let channel = linear_index(id, groups);
    if (channel >= u.count) {
        return;
    }
    let first = channel * u.chunks;
    let per_element = bitcast<f32>(u.per_element);
    var sum = 0.0;
    for (var k = first; k < first + u.chunks; k++) {
        sum += part[k].x * elements_of(chunk_at(k));
    }
    let m = sum * per_element;
    var squares = 0.0;
    for (var k = first; k < first + u.chunks; k++) {
        let p = part[k];
        let away = p.x - m;
        squares += p.y + away * away * elements_of(chunk_at(k));
    }
    mean[channel] = m;
    variance[channel] = squares * per_element;
}
