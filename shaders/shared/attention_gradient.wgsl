// What both gradients of attention read besides: the incoming gradient, and each
// query's (m, 1 / l, delta, 0).

@group(0) @binding(4) var<storage, read_write> g_data: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> row_data: array<vec4<f32>>;

fn g_block(at: vec4<u32>) -> mat4x4<f32> {
    return mat4x4<f32>(g_data[at.x], g_data[at.y], g_data[at.z], g_data[at.w]);
}

