// SGD with momentum, one element per invocation; the formula stands in
// shared/sgd_update.wgsl, whose text precedes this one.
//
// Bindings, group 0:
//   0  Sgd
//   1  p, 2 b: [count], overwritten
//   3  g: [count]
//   4  lr: one f32
//
// Grid: ceil(count / 64) workgroups, spread over x, y, z.

@group(0) @binding(0) var<uniform> u: Sgd;
@group(0) @binding(1) var<storage, read_write> p: array<f32>;
@group(0) @binding(2) var<storage, read_write> b: array<f32>;
@group(0) @binding(3) var<storage, read_write> g: array<f32>;
@group(0) @binding(4) var<storage, read_write> lr: array<f32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (i >= u.count) {
        return;
    }
    let moved = sgd_update(u, p[i], b[i], g[i], lr[0]);
    p[i] = moved.p;
    b[i] = moved.b;
}
