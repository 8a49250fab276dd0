// Attention's gradient of the queries, from scores made once more:
//
//     p[t, j] = exp(s[t, j] - m[t]) / l[t]     dp[t, j] = g[t, :] . v[j, :]
//     dq[t, :] = scale * sum_j p[t, j] * (dp[t, j] - delta[t]) * k[j, :]
//
// q [B, H, T, D], k [B, HK, S, D], v [B, HK, S, E], g [B, T, H, E] through strides,
// contiguous along D and E, all in vec4; row_data [B, H, T] of (m, 1 / l, delta, 0);
// dq [B, T, H, D]; a mask [B, H, T, S] through strides.
//
// One invocation owns 4 * ROW_BLOCKS queries of a head and 4 * BLOCKS columns of
// their gradient, and walks the keys in order by eights.
// Grid: B * H * tiles * column_tiles invocations, linear over x, y, z.

@group(0) @binding(1) var<storage, read_write> q_data: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> k_data: array<vec4<f32>>;
@group(0) @binding(3) var<storage, read_write> v_data: array<vec4<f32>>;
@group(0) @binding(4) var<storage, read_write> g_data: array<vec4<f32>>;
@group(0) @binding(5) var<storage, read_write> row_data: array<vec4<f32>>;
@group(0) @binding(6) var<storage, read_write> dq: array<vec4<f32>>;

// Blocks of four queries that one invocation owns: 1 or 2.
override ROW_BLOCKS: u32 = 2u;
// Blocks of four columns that one invocation makes: 1 to 8.
override BLOCKS: u32 = 8u;
// A multiple of 8: the lanes of a CPU adapter lie along x.
override WORKGROUP_SIZE: u32 = 16u;

fn q_block(at: vec4<u32>) -> mat4x4<f32> {
    return mat4x4<f32>(q_data[at.x], q_data[at.y], q_data[at.z], q_data[at.w]);
}
fn k_block(at: vec4<u32>) -> mat4x4<f32> {
    return mat4x4<f32>(k_data[at.x], k_data[at.y], k_data[at.z], k_data[at.w]);
}
fn v_block(at: vec4<u32>) -> mat4x4<f32> {
    return mat4x4<f32>(v_data[at.x], v_data[at.y], v_data[at.z], v_data[at.w]);
}
fn g_block(at: vec4<u32>) -> mat4x4<f32> {
    return mat4x4<f32>(g_data[at.x], g_data[at.y], g_data[at.z], g_data[at.w]);
}

// The gradient of a block of scores, but for the factor scale:
// p * (dp - delta) with p = exp(s - m) / l.
fn of_scores(s: vec4<f32>, dp: vec4<f32>, row: vec4<f32>) -> vec4<f32> {
    return weighed(s, row.x) * (row.y * (dp - vec4<f32>(row.z)));
}

fn store(at: vec4<u32>, block: mat4x4<f32>) {
    dq[at.x] = block[0] * u.scale;
    dq[at.y] = block[1] * u.scale;
    dq[at.z] = block[2] * u.scale;
    dq[at.w] = block[3] * u.scale;
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = (workgroup.x + workgroups.x * (workgroup.y + workgroups.y * workgroup.z))
        * WORKGROUP_SIZE + lane;
    if (index >= u.count) {
        return;
    }
    let place = place_of(index);
    let batch = place.walk / u.heads;
    let head = place.walk % u.heads;
    let shared_head = head / u.group;
    let column = place.columns * BLOCKS;
    // Rows past the end repeat the last one, and are stored over it.
    let row = place.tile * 4u * ROW_BLOCKS;
    let last = vec4<u32>(u.queries - 1u);
    let rows0 = min(vec4<u32>(row) + CORNERS, last);
    let rows1 = min(vec4<u32>(row + 4u) + CORNERS, last);

    let q_base = u.q_strides.w + batch * u.q_strides.x + head * u.q_strides.y;
    let g_base = u.g_strides.w + batch * u.g_strides.x + head * u.g_strides.y;
    let q_at0 = vec4<u32>(q_base) + rows0 * u.q_strides.z;
    let q_at1 = vec4<u32>(q_base) + rows1 * u.q_strides.z;
    let g_at0 = vec4<u32>(g_base) + rows0 * u.g_strides.z;
    let g_at1 = vec4<u32>(g_base) + rows1 * u.g_strides.z;
    let k_base = u.k_strides.w + batch * u.k_strides.x + shared_head * u.k_strides.y;
    let v_base = u.v_strides.w + batch * u.v_strides.x + shared_head * u.v_strides.y;
    let mask_at = batch * u.mask_strides.x + head * u.mask_strides.y;
    let first = place.walk * u.queries;
    let row00 = row_data[first + rows0.x];
    let row01 = row_data[first + rows0.y];
    let row02 = row_data[first + rows0.z];
    let row03 = row_data[first + rows0.w];
    let row10 = row_data[first + rows1.x];
    let row11 = row_data[first + rows1.y];
    let row12 = row_data[first + rows1.z];
    let row13 = row_data[first + rows1.w];

    var c00 = mat4x4<f32>();
    var c01 = mat4x4<f32>();
    var c02 = mat4x4<f32>();
    var c03 = mat4x4<f32>();
    var c04 = mat4x4<f32>();
    var c05 = mat4x4<f32>();
    var c06 = mat4x4<f32>();
    var c07 = mat4x4<f32>();
    var c10 = mat4x4<f32>();
    var c11 = mat4x4<f32>();
    var c12 = mat4x4<f32>();
    var c13 = mat4x4<f32>();
    var c14 = mat4x4<f32>();
    var c15 = mat4x4<f32>();
    var c16 = mat4x4<f32>();
    var c17 = mat4x4<f32>();

    // The last query of the tile sees most.
    let end = reach(min(row + 4u * ROW_BLOCKS, u.queries) - 1u);
    for (var key = 0u; key < end; key += 8u) {
        let places0 = vec4<u32>(key) + CORNERS;
        let keys0 = min(places0, vec4<u32>(u.keys - 1u));
        let places1 = places0 + vec4<u32>(4u);
        let keys1 = min(places1, vec4<u32>(u.keys - 1u));
        let k_at0 = vec4<u32>(k_base) + keys0 * u.k_strides.z;
        let k_at1 = vec4<u32>(k_base) + keys1 * u.k_strides.z;
        let v_at0 = vec4<u32>(v_base) + keys0 * u.v_strides.z;
        let v_at1 = vec4<u32>(v_base) + keys1 * u.v_strides.z;
        var s00 = mat4x4<f32>();
        var s01 = mat4x4<f32>();
        var s10 = mat4x4<f32>();
        var s11 = mat4x4<f32>();
        for (var d = 0u; d < u.width; d++) {
            let k0 = transpose(k_block(k_at0 + vec4<u32>(d)));
            let k1 = transpose(k_block(k_at1 + vec4<u32>(d)));
            let q0 = q_block(q_at0 + vec4<u32>(d));
            s00 += k0 * q0;
            s01 += k1 * q0;
            if (ROW_BLOCKS > 1u) {
                let q1 = q_block(q_at1 + vec4<u32>(d));
                s10 += k0 * q1;
                s11 += k1 * q1;
            }
        }
        var p00 = mat4x4<f32>();
        var p01 = mat4x4<f32>();
        var p10 = mat4x4<f32>();
        var p11 = mat4x4<f32>();
        for (var e = 0u; e < u.value_width; e++) {
            let v0 = transpose(v_block(v_at0 + vec4<u32>(e)));
            let v1 = transpose(v_block(v_at1 + vec4<u32>(e)));
            let g0 = g_block(g_at0 + vec4<u32>(e));
            p00 += v0 * g0;
            p01 += v1 * g0;
            if (ROW_BLOCKS > 1u) {
                let g1 = g_block(g_at1 + vec4<u32>(e));
                p10 += v0 * g1;
                p11 += v1 * g1;
            }
        }
        p00[0] = of_scores(scored(s00[0], rows0.x, places0, mask_at), p00[0], row00);
        p00[1] = of_scores(scored(s00[1], rows0.y, places0, mask_at), p00[1], row01);
        p00[2] = of_scores(scored(s00[2], rows0.z, places0, mask_at), p00[2], row02);
        p00[3] = of_scores(scored(s00[3], rows0.w, places0, mask_at), p00[3], row03);
        p01[0] = of_scores(scored(s01[0], rows0.x, places1, mask_at), p01[0], row00);
        p01[1] = of_scores(scored(s01[1], rows0.y, places1, mask_at), p01[1], row01);
        p01[2] = of_scores(scored(s01[2], rows0.z, places1, mask_at), p01[2], row02);
        p01[3] = of_scores(scored(s01[3], rows0.w, places1, mask_at), p01[3], row03);
        if (ROW_BLOCKS > 1u) {
            p10[0] = of_scores(scored(s10[0], rows1.x, places0, mask_at), p10[0], row10);
            p10[1] = of_scores(scored(s10[1], rows1.y, places0, mask_at), p10[1], row11);
            p10[2] = of_scores(scored(s10[2], rows1.z, places0, mask_at), p10[2], row12);
            p10[3] = of_scores(scored(s10[3], rows1.w, places0, mask_at), p10[3], row13);
            p11[0] = of_scores(scored(s11[0], rows1.x, places1, mask_at), p11[0], row10);
            p11[1] = of_scores(scored(s11[1], rows1.y, places1, mask_at), p11[1], row11);
            p11[2] = of_scores(scored(s11[2], rows1.z, places1, mask_at), p11[2], row12);
            p11[3] = of_scores(scored(s11[3], rows1.w, places1, mask_at), p11[3], row13);
        }
        // Columns past the edge repeat the last one and are never stored.
        let edge = u.width - 1u;
        let at0 = vec4<u32>(min(column + 0u, edge));
        let ka0 = k_block(k_at0 + at0);
        let kb0 = k_block(k_at1 + at0);
        c00 += ka0 * p00 + kb0 * p01;
        if (ROW_BLOCKS > 1u) {
            c10 += ka0 * p10 + kb0 * p11;
        }
        if (BLOCKS > 1u) {
            let at1 = vec4<u32>(min(column + 1u, edge));
            let ka1 = k_block(k_at0 + at1);
            let kb1 = k_block(k_at1 + at1);
            c01 += ka1 * p00 + kb1 * p01;
            if (ROW_BLOCKS > 1u) {
                c11 += ka1 * p10 + kb1 * p11;
            }
        }
        if (BLOCKS > 2u) {
            let at2 = vec4<u32>(min(column + 2u, edge));
            let ka2 = k_block(k_at0 + at2);
            let kb2 = k_block(k_at1 + at2);
            c02 += ka2 * p00 + kb2 * p01;
            if (ROW_BLOCKS > 1u) {
                c12 += ka2 * p10 + kb2 * p11;
            }
        }
        if (BLOCKS > 3u) {
            let at3 = vec4<u32>(min(column + 3u, edge));
            let ka3 = k_block(k_at0 + at3);
            let kb3 = k_block(k_at1 + at3);
            c03 += ka3 * p00 + kb3 * p01;
            if (ROW_BLOCKS > 1u) {
                c13 += ka3 * p10 + kb3 * p11;
            }
        }
        if (BLOCKS > 4u) {
            let at4 = vec4<u32>(min(column + 4u, edge));
            let ka4 = k_block(k_at0 + at4);
            let kb4 = k_block(k_at1 + at4);
            c04 += ka4 * p00 + kb4 * p01;
            if (ROW_BLOCKS > 1u) {
                c14 += ka4 * p10 + kb4 * p11;
            }
        }
        if (BLOCKS > 5u) {
            let at5 = vec4<u32>(min(column + 5u, edge));
            let ka5 = k_block(k_at0 + at5);
            let kb5 = k_block(k_at1 + at5);
            c05 += ka5 * p00 + kb5 * p01;
            if (ROW_BLOCKS > 1u) {
                c15 += ka5 * p10 + kb5 * p11;
            }
        }
        if (BLOCKS > 6u) {
            let at6 = vec4<u32>(min(column + 6u, edge));
            let ka6 = k_block(k_at0 + at6);
            let kb6 = k_block(k_at1 + at6);
            c06 += ka6 * p00 + kb6 * p01;
            if (ROW_BLOCKS > 1u) {
                c16 += ka6 * p10 + kb6 * p11;
            }
        }
        if (BLOCKS > 7u) {
            let at7 = vec4<u32>(min(column + 7u, edge));
            let ka7 = k_block(k_at0 + at7);
            let kb7 = k_block(k_at1 + at7);
            c07 += ka7 * p00 + kb7 * p01;
            if (ROW_BLOCKS > 1u) {
                c17 += ka7 * p10 + kb7 * p11;
            }
        }
    }

    let dq_row = u.heads * u.width;
    let dq_base = batch * u.queries * dq_row + head * u.width + column;
    let dq_at0 = vec4<u32>(dq_base) + rows0 * dq_row;
    let dq_at1 = vec4<u32>(dq_base) + rows1 * dq_row;
    let columns = min(BLOCKS, u.width - column);
    if (columns > 0u) {
        store(dq_at0 + vec4<u32>(0u), c00);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(0u), c10);
        }
    }
    if (columns > 1u) {
        store(dq_at0 + vec4<u32>(1u), c01);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(1u), c11);
        }
    }
    if (columns > 2u) {
        store(dq_at0 + vec4<u32>(2u), c02);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(2u), c12);
        }
    }
    if (columns > 3u) {
        store(dq_at0 + vec4<u32>(3u), c03);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(3u), c13);
        }
    }
    if (columns > 4u) {
        store(dq_at0 + vec4<u32>(4u), c04);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(4u), c14);
        }
    }
    if (columns > 5u) {
        store(dq_at0 + vec4<u32>(5u), c05);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(5u), c15);
        }
    }
    if (columns > 6u) {
        store(dq_at0 + vec4<u32>(6u), c06);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(6u), c16);
        }
    }
    if (columns > 7u) {
        store(dq_at0 + vec4<u32>(7u), c07);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(7u), c17);
        }
    }
}
