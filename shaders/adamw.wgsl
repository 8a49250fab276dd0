// AdamW on four elements per invocation; the formula stands in shared/adamw_update.wgsl,
// whose text precedes this one.
//
// Bindings, group 0:
//   0  AdamW
//   1  p, 2 m, 3 v: [count], overwritten
//   4  g: [count]
//   5  lr: one f32    6  step: one u32, counted from 0
//
// Grid: ceil(count / 4 / 64) workgroups, spread over x, y, z.

@group(0) @binding(0) var<uniform> u: AdamW;
@group(0) @binding(1) var<storage, read_write> p: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> m: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> v: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> g: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> lr: array<f32>;
@group(0) @binding(6) var<storage, read_write> step: array<u32>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let i = (id.z * groups.y + id.y) * (groups.x * 64u) + id.x;
    if (i >= u.count) {
        return;
    }
    let correction1 = bias_correction(u.ln_beta1, step[0]);
    let root_correction2 = sqrt(bias_correction(u.ln_beta2, step[0]));
    let p0 = p[i];
    let m0 = m[i];
    let v0 = v[i];
    let g0 = g[i];
    let x = adamw_update(u, p0.x, m0.x, v0.x, g0.x, lr[0], correction1, root_correction2);
    let y = adamw_update(u, p0.y, m0.y, v0.y, g0.y, lr[0], correction1, root_correction2);
    let z = adamw_update(u, p0.z, m0.z, v0.z, g0.z, lr[0], correction1, root_correction2);
    let w = adamw_update(u, p0.w, m0.w, v0.w, g0.w, lr[0], correction1, root_correction2);
    p[i] = vec4<f32>(x.p, y.p, z.p, w.p);
    m[i] = vec4<f32>(x.m, y.m, z.m, w.m);
    v[i] = vec4<f32>(x.v, y.v, z.v, w.v);
}
