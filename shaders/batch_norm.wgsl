// y[n, c, s] = epilogue((x[n, c, s] - mean[c]) / sqrt(variance[c] + eps) * weight[c] + bias[c])
// x, y [N, C, S / lanes] of Blocks (shaders/shared/batch_norm.wgsl); the others [C].
// The text begins with an epilogue's (shaders/shared/epilogue_identity.wgsl), which sees
// y as N * C rows of S columns.
// One invocation: chunk_width neighbouring blocks of a row n, c; `parts` to a row.
// Grid: count invocations, 64 a workgroup, linear over x, y, z.

struct Uniforms {
    sizes: BatchNorm,
    // Words of the fused epilogue.
    epilogue: Epilogue,
}

@group(0) @binding(0) var<uniform> u: Uniforms;
@group(0) @binding(1) var<storage, read_write> x: array<Block>;
@group(0) @binding(2) var<storage, read_write> mean: array<f32>;
@group(0) @binding(3) var<storage, read_write> variance: array<f32>;
@group(0) @binding(4) var<storage, read_write> weight: array<f32>;
@group(0) @binding(5) var<storage, read_write> bias: array<f32>;
@group(0) @binding(6) var<storage, read_write> y: array<Block>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let index = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (index >= u.sizes.count) {
        return;
    }
    let row = index / u.sizes.parts;
    let channel = row % u.sizes.channels;
    let shift = mean[channel];
    let scale = weight[channel] / sqrt(variance[channel] + bitcast<f32>(u.sizes.eps));
    let base = bias[channel];
    let first = (index - row * u.sizes.parts) * u.sizes.chunk_width;
    let end = min(first + u.sizes.chunk_width, u.sizes.width);
    for (var column = first; column < end; column++) {
        let at = row * u.sizes.width + column;
        let value = (x[at] - Block(shift)) * scale + Block(base);
        y[at] = epilogue_vec4(value, 0u, row, column * 4u);
    }
}
