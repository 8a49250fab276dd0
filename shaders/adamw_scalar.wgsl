// AdamW on one element per invocation; the formula stands in shared/adamw_update.wgsl,
// whose text precedes this one.
//
// Bindings, group 0:
//   0  AdamW
//   1  p, 2 m, 3 v: [count], overwritten
//   4  g: [count]
//   5  lr: one f32    6  step: one u32, counted from 0
//
// Grid: ceil(count / 1 / 64) workgroups, spread over x, y, z.

@group(0) @binding(0) var<uniform> u: AdamW;
@group(0) @binding(1) var<storage, read_write> p: array<f32>;
@group(0) @binding(2) var<storage, read_write> m: array<f32>;
@group(0) @binding(3) var<storage, read_write> v: array<f32>;
@group(0) @binding(4) var<storage, read_write> g: array<f32>;
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
    let x = adamw_update(u, p[i], m[i], v[i], g[i], lr[0], correction1, root_correction2);
    p[i] = x.p;
    m[i] = x.m;
    v[i] = x.v;
}
