// What attention's gradient kernels read per query:
//
//     delta[t] = g[t, :] . o[t, :]       row[t] = (m[t], 1 / l[t], delta[t], 0)
//
// o [B, T, H, E] contiguous, g [B, T, H, E] through strides, contiguous along E, in
// vec4; lse [B, H, T] of (m, log l); row [B, H, T].
// One invocation per query of a head. Grid: B * H * T invocations, linear over x, y, z.

@group(0) @binding(1) var<storage, read_write> o: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> lse: array<vec2<f32>>;
@group(0) @binding(3) var<storage, read_write> g_data: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> row_data: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.count) {
        return;
    }
    let walk = index / u.queries;
    let query = index % u.queries;
    let batch = walk / u.heads;
    let head = walk % u.heads;
    let o_at = ((batch * u.queries + query) * u.heads + head) * u.value_width;
    let g_at = u.g_strides.w + batch * u.g_strides.x + head * u.g_strides.y + query * u.g_strides.z;
    var sum = vec4<f32>(0.0);
    for (var e = 0u; e < u.value_width; e++) {
        sum += o[o_at + e] * g_data[g_at + e];
    }
    let kept = lse[index];
    row_data[index] = vec4<f32>(kept.x, exp(-kept.y), (sum.x + sum.y) + (sum.z + sum.w), 0.0);
}
