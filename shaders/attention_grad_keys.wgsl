// Attention's gradients of keys and values, from scores made once more:
//
//     p[t, j] = exp(s[t, j] - m[t]) / l[t]     dp[t, j] = g[t, :] . v[j, :]
//     dv[j, :] = sum over the group's heads and t of p[t, j] * g[t, :]
//     dk[j, :] = scale * sum over the same of p[t, j] * (dp[t, j] - delta[t]) * q[t, :]
//
// q [B, H, T, D], k [B, HK, S, D], v [B, HK, S, E], g [B, T, H, E] through strides,
// contiguous along D and E, all in vec4; row_data [B, H, T] of (m, 1 / l, delta, 0);
// dkv is dk [B, S, HK, D] and after it dv [B, S, HK, E]; a mask [B, H, T, S]
// through strides.
//
// One invocation owns four keys of a head and 4 * BLOCKS columns of either
// gradient, and walks the group's heads and their queries in order by eights.
// Grid: B * HK * tiles * column_tiles invocations, linear over x, y, z.

@group(0) @binding(6) var<storage, read_write> dkv: array<vec4<f32>>;

// Blocks of four columns that one invocation makes of either gradient: 1 to 16.
override BLOCKS: u32 = 8u;


// Weights of four keys for one query, none if it is past the end.
fn weights(s: vec4<f32>, query: u32, row: vec4<f32>) -> vec4<f32> {
    return select(vec4<f32>(0.0), weighed(s, row.x) * row.y, query < u.queries);
}

fn store(at: vec4<u32>, block: mat4x4<f32>, scale: f32) {
    dkv[at.x] = block[0] * scale;
    dkv[at.y] = block[1] * scale;
    dkv[at.z] = block[2] * scale;
    dkv[at.w] = block[3] * scale;
}

@compute @workgroup_size(WORKGROUP_SIZE)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let index = index_of(workgroup, workgroups, lane);
    if (index >= u.count) {
        return;
    }
    let place = place_of(index);
    let shared_heads = u.heads / u.group;
    let batch = place.walk / shared_heads;
    let shared_head = place.walk % shared_heads;
    let column = place.columns * BLOCKS;
    // Keys past the end repeat the last one, and are stored over it.
    let key = place.tile * 4u;
    let keys = min(vec4<u32>(key) + CORNERS, vec4<u32>(u.keys - 1u));
    let k_at = vec4<u32>(u.k_strides.w + batch * u.k_strides.x + shared_head * u.k_strides.y) + keys * u.k_strides.z;
    let v_at = vec4<u32>(u.v_strides.w + batch * u.v_strides.x + shared_head * u.v_strides.y) + keys * u.v_strides.z;
    var dk0 = mat4x4<f32>();
    var dk1 = mat4x4<f32>();
    var dk2 = mat4x4<f32>();
    var dk3 = mat4x4<f32>();
    var dk4 = mat4x4<f32>();
    var dk5 = mat4x4<f32>();
    var dk6 = mat4x4<f32>();
    var dk7 = mat4x4<f32>();
    var dk8 = mat4x4<f32>();
    var dk9 = mat4x4<f32>();
    var dk10 = mat4x4<f32>();
    var dk11 = mat4x4<f32>();
    var dk12 = mat4x4<f32>();
    var dk13 = mat4x4<f32>();
    var dk14 = mat4x4<f32>();
    var dk15 = mat4x4<f32>();
    var dv0 = mat4x4<f32>();
    var dv1 = mat4x4<f32>();
    var dv2 = mat4x4<f32>();
    var dv3 = mat4x4<f32>();
    var dv4 = mat4x4<f32>();
    var dv5 = mat4x4<f32>();
    var dv6 = mat4x4<f32>();
    var dv7 = mat4x4<f32>();
    var dv8 = mat4x4<f32>();
    var dv9 = mat4x4<f32>();
    var dv10 = mat4x4<f32>();
    var dv11 = mat4x4<f32>();
    var dv12 = mat4x4<f32>();
    var dv13 = mat4x4<f32>();
    var dv14 = mat4x4<f32>();
    var dv15 = mat4x4<f32>();

    // The first query that sees the first of these keys.
    let start = select(key - u.offset, 0u, key <= u.offset);
    for (var head = shared_head * u.group; head < (shared_head + 1u) * u.group; head++) {
        let q_base = u.q_strides.w + batch * u.q_strides.x + head * u.q_strides.y;
        let g_base = u.g_strides.w + batch * u.g_strides.x + head * u.g_strides.y;
        let first = (batch * u.heads + head) * u.queries;
        let mask_at = batch * u.mask_strides.x + head * u.mask_strides.y;
        for (var row = start; row < u.queries; row += 8u) {
            let last = vec4<u32>(u.queries - 1u);
            let rows0 = min(vec4<u32>(row) + CORNERS, last);
            let rows1 = min(vec4<u32>(row + 4u) + CORNERS, last);
            let q_at0 = vec4<u32>(q_base) + rows0 * u.q_strides.z;
            let q_at1 = vec4<u32>(q_base) + rows1 * u.q_strides.z;
            let g_at0 = vec4<u32>(g_base) + rows0 * u.g_strides.z;
            let g_at1 = vec4<u32>(g_base) + rows1 * u.g_strides.z;
            // Columns are queries, elements keys.
            var s0 = mat4x4<f32>();
            var s1 = mat4x4<f32>();
            for (var d = 0u; d < u.width; d++) {
                let kd = transpose(k_block(k_at + vec4<u32>(d)));
                s0 += kd * q_block(q_at0 + vec4<u32>(d));
                s1 += kd * q_block(q_at1 + vec4<u32>(d));
            }
            var p0 = mat4x4<f32>();
            var p1 = mat4x4<f32>();
            for (var e = 0u; e < u.value_width; e++) {
                let ve = transpose(v_block(v_at + vec4<u32>(e)));
                p0 += ve * g_block(g_at0 + vec4<u32>(e));
                p1 += ve * g_block(g_at1 + vec4<u32>(e));
            }
            let row00 = row_data[first + rows0.x];
            s0[0] = weights(scored(s0[0], rows0.x, keys, mask_at), row, row00);
            p0[0] = s0[0] * (p0[0] - vec4<f32>(row00.z));
            let row01 = row_data[first + rows0.y];
            s0[1] = weights(scored(s0[1], rows0.y, keys, mask_at), row + 1u, row01);
            p0[1] = s0[1] * (p0[1] - vec4<f32>(row01.z));
            let row02 = row_data[first + rows0.z];
            s0[2] = weights(scored(s0[2], rows0.z, keys, mask_at), row + 2u, row02);
            p0[2] = s0[2] * (p0[2] - vec4<f32>(row02.z));
            let row03 = row_data[first + rows0.w];
            s0[3] = weights(scored(s0[3], rows0.w, keys, mask_at), row + 3u, row03);
            p0[3] = s0[3] * (p0[3] - vec4<f32>(row03.z));
            let row10 = row_data[first + rows1.x];
            s1[0] = weights(scored(s1[0], rows1.x, keys, mask_at), row + 4u, row10);
            p1[0] = s1[0] * (p1[0] - vec4<f32>(row10.z));
            let row11 = row_data[first + rows1.y];
            s1[1] = weights(scored(s1[1], rows1.y, keys, mask_at), row + 5u, row11);
            p1[1] = s1[1] * (p1[1] - vec4<f32>(row11.z));
            let row12 = row_data[first + rows1.z];
            s1[2] = weights(scored(s1[2], rows1.z, keys, mask_at), row + 6u, row12);
            p1[2] = s1[2] * (p1[2] - vec4<f32>(row12.z));
            let row13 = row_data[first + rows1.w];
            s1[3] = weights(scored(s1[3], rows1.w, keys, mask_at), row + 7u, row13);
            p1[3] = s1[3] * (p1[3] - vec4<f32>(row13.z));
            // Columns are keys, elements queries.
            s0 = transpose(s0);
            s1 = transpose(s1);
            p0 = transpose(p0);
            p1 = transpose(p1);
            // Columns past an edge repeat the last one and are never stored.
            let edge = u.width - 1u;
            let value_edge = u.value_width - 1u;
            let at0 = vec4<u32>(min(column + 0u, edge));
            dk0 += q_block(q_at0 + at0) * p0 + q_block(q_at1 + at0) * p1;
            let to0 = vec4<u32>(min(column + 0u, value_edge));
            dv0 += g_block(g_at0 + to0) * s0 + g_block(g_at1 + to0) * s1;
            if (BLOCKS > 1u) {
                let at1 = vec4<u32>(min(column + 1u, edge));
                dk1 += q_block(q_at0 + at1) * p0 + q_block(q_at1 + at1) * p1;
                let to1 = vec4<u32>(min(column + 1u, value_edge));
                dv1 += g_block(g_at0 + to1) * s0 + g_block(g_at1 + to1) * s1;
            }
            if (BLOCKS > 2u) {
                let at2 = vec4<u32>(min(column + 2u, edge));
                dk2 += q_block(q_at0 + at2) * p0 + q_block(q_at1 + at2) * p1;
                let to2 = vec4<u32>(min(column + 2u, value_edge));
                dv2 += g_block(g_at0 + to2) * s0 + g_block(g_at1 + to2) * s1;
            }
            if (BLOCKS > 3u) {
                let at3 = vec4<u32>(min(column + 3u, edge));
                dk3 += q_block(q_at0 + at3) * p0 + q_block(q_at1 + at3) * p1;
                let to3 = vec4<u32>(min(column + 3u, value_edge));
                dv3 += g_block(g_at0 + to3) * s0 + g_block(g_at1 + to3) * s1;
            }
            if (BLOCKS > 4u) {
                let at4 = vec4<u32>(min(column + 4u, edge));
                dk4 += q_block(q_at0 + at4) * p0 + q_block(q_at1 + at4) * p1;
                let to4 = vec4<u32>(min(column + 4u, value_edge));
                dv4 += g_block(g_at0 + to4) * s0 + g_block(g_at1 + to4) * s1;
            }
            if (BLOCKS > 5u) {
                let at5 = vec4<u32>(min(column + 5u, edge));
                dk5 += q_block(q_at0 + at5) * p0 + q_block(q_at1 + at5) * p1;
                let to5 = vec4<u32>(min(column + 5u, value_edge));
                dv5 += g_block(g_at0 + to5) * s0 + g_block(g_at1 + to5) * s1;
            }
            if (BLOCKS > 6u) {
                let at6 = vec4<u32>(min(column + 6u, edge));
                dk6 += q_block(q_at0 + at6) * p0 + q_block(q_at1 + at6) * p1;
                let to6 = vec4<u32>(min(column + 6u, value_edge));
                dv6 += g_block(g_at0 + to6) * s0 + g_block(g_at1 + to6) * s1;
            }
            if (BLOCKS > 7u) {
                let at7 = vec4<u32>(min(column + 7u, edge));
                dk7 += q_block(q_at0 + at7) * p0 + q_block(q_at1 + at7) * p1;
                let to7 = vec4<u32>(min(column + 7u, value_edge));
                dv7 += g_block(g_at0 + to7) * s0 + g_block(g_at1 + to7) * s1;
            }
            if (BLOCKS > 8u) {
                let at8 = vec4<u32>(min(column + 8u, edge));
                dk8 += q_block(q_at0 + at8) * p0 + q_block(q_at1 + at8) * p1;
                let to8 = vec4<u32>(min(column + 8u, value_edge));
                dv8 += g_block(g_at0 + to8) * s0 + g_block(g_at1 + to8) * s1;
            }
            if (BLOCKS > 9u) {
                let at9 = vec4<u32>(min(column + 9u, edge));
                dk9 += q_block(q_at0 + at9) * p0 + q_block(q_at1 + at9) * p1;
                let to9 = vec4<u32>(min(column + 9u, value_edge));
                dv9 += g_block(g_at0 + to9) * s0 + g_block(g_at1 + to9) * s1;
            }
            if (BLOCKS > 10u) {
                let at10 = vec4<u32>(min(column + 10u, edge));
                dk10 += q_block(q_at0 + at10) * p0 + q_block(q_at1 + at10) * p1;
                let to10 = vec4<u32>(min(column + 10u, value_edge));
                dv10 += g_block(g_at0 + to10) * s0 + g_block(g_at1 + to10) * s1;
            }
            if (BLOCKS > 11u) {
                let at11 = vec4<u32>(min(column + 11u, edge));
                dk11 += q_block(q_at0 + at11) * p0 + q_block(q_at1 + at11) * p1;
                let to11 = vec4<u32>(min(column + 11u, value_edge));
                dv11 += g_block(g_at0 + to11) * s0 + g_block(g_at1 + to11) * s1;
            }
            if (BLOCKS > 12u) {
                let at12 = vec4<u32>(min(column + 12u, edge));
                dk12 += q_block(q_at0 + at12) * p0 + q_block(q_at1 + at12) * p1;
                let to12 = vec4<u32>(min(column + 12u, value_edge));
                dv12 += g_block(g_at0 + to12) * s0 + g_block(g_at1 + to12) * s1;
            }
            if (BLOCKS > 13u) {
                let at13 = vec4<u32>(min(column + 13u, edge));
                dk13 += q_block(q_at0 + at13) * p0 + q_block(q_at1 + at13) * p1;
                let to13 = vec4<u32>(min(column + 13u, value_edge));
                dv13 += g_block(g_at0 + to13) * s0 + g_block(g_at1 + to13) * s1;
            }
            if (BLOCKS > 14u) {
                let at14 = vec4<u32>(min(column + 14u, edge));
                dk14 += q_block(q_at0 + at14) * p0 + q_block(q_at1 + at14) * p1;
                let to14 = vec4<u32>(min(column + 14u, value_edge));
                dv14 += g_block(g_at0 + to14) * s0 + g_block(g_at1 + to14) * s1;
            }
            if (BLOCKS > 15u) {
                let at15 = vec4<u32>(min(column + 15u, edge));
                dk15 += q_block(q_at0 + at15) * p0 + q_block(q_at1 + at15) * p1;
                let to15 = vec4<u32>(min(column + 15u, value_edge));
                dv15 += g_block(g_at0 + to15) * s0 + g_block(g_at1 + to15) * s1;
            }
        }
    }

    let dk_row = shared_heads * u.width;
    let dk_at = vec4<u32>(batch * u.keys * dk_row + shared_head * u.width + column) + keys * dk_row;
    let dk_columns = min(BLOCKS, max(u.width, column) - column);
    let dv_row = shared_heads * u.value_width;
    let dv_first = u.walks / shared_heads * u.keys * dk_row;
    let dv_at = vec4<u32>(dv_first + batch * u.keys * dv_row + shared_head * u.value_width + column) + keys * dv_row;
    let dv_columns = min(BLOCKS, max(u.value_width, column) - column);
    if (dk_columns > 0u) {
        store(dk_at + vec4<u32>(0u), dk0, u.scale);
    }
    if (dv_columns > 0u) {
        store(dv_at + vec4<u32>(0u), dv0, 1.0);
    }
    if (dk_columns > 1u) {
        store(dk_at + vec4<u32>(1u), dk1, u.scale);
    }
    if (dv_columns > 1u) {
        store(dv_at + vec4<u32>(1u), dv1, 1.0);
    }
    if (dk_columns > 2u) {
        store(dk_at + vec4<u32>(2u), dk2, u.scale);
    }
    if (dv_columns > 2u) {
        store(dv_at + vec4<u32>(2u), dv2, 1.0);
    }
    if (dk_columns > 3u) {
        store(dk_at + vec4<u32>(3u), dk3, u.scale);
    }
    if (dv_columns > 3u) {
        store(dv_at + vec4<u32>(3u), dv3, 1.0);
    }
    if (dk_columns > 4u) {
        store(dk_at + vec4<u32>(4u), dk4, u.scale);
    }
    if (dv_columns > 4u) {
        store(dv_at + vec4<u32>(4u), dv4, 1.0);
    }
    if (dk_columns > 5u) {
        store(dk_at + vec4<u32>(5u), dk5, u.scale);
    }
    if (dv_columns > 5u) {
        store(dv_at + vec4<u32>(5u), dv5, 1.0);
    }
    if (dk_columns > 6u) {
        store(dk_at + vec4<u32>(6u), dk6, u.scale);
    }
    if (dv_columns > 6u) {
        store(dv_at + vec4<u32>(6u), dv6, 1.0);
    }
    if (dk_columns > 7u) {
        store(dk_at + vec4<u32>(7u), dk7, u.scale);
    }
    if (dv_columns > 7u) {
        store(dv_at + vec4<u32>(7u), dv7, 1.0);
    }
    if (dk_columns > 8u) {
        store(dk_at + vec4<u32>(8u), dk8, u.scale);
    }
    if (dv_columns > 8u) {
        store(dv_at + vec4<u32>(8u), dv8, 1.0);
    }
    if (dk_columns > 9u) {
        store(dk_at + vec4<u32>(9u), dk9, u.scale);
    }
    if (dv_columns > 9u) {
        store(dv_at + vec4<u32>(9u), dv9, 1.0);
    }
    if (dk_columns > 10u) {
        store(dk_at + vec4<u32>(10u), dk10, u.scale);
    }
    if (dv_columns > 10u) {
        store(dv_at + vec4<u32>(10u), dv10, 1.0);
    }
    if (dk_columns > 11u) {
        store(dk_at + vec4<u32>(11u), dk11, u.scale);
    }
    if (dv_columns > 11u) {
        store(dv_at + vec4<u32>(11u), dv11, 1.0);
    }
    if (dk_columns > 12u) {
        store(dk_at + vec4<u32>(12u), dk12, u.scale);
    }
    if (dv_columns > 12u) {
        store(dv_at + vec4<u32>(12u), dv12, 1.0);
    }
    if (dk_columns > 13u) {
        store(dk_at + vec4<u32>(13u), dk13, u.scale);
    }
    if (dv_columns > 13u) {
        store(dv_at + vec4<u32>(13u), dv13, 1.0);
    }
    if (dk_columns > 14u) {
        store(dk_at + vec4<u32>(14u), dk14, u.scale);
    }
    if (dv_columns > 14u) {
        store(dv_at + vec4<u32>(14u), dv14, 1.0);
    }
    if (dk_columns > 15u) {
        store(dk_at + vec4<u32>(15u), dk15, u.scale);
    }
    if (dv_columns > 15u) {
        store(dv_at + vec4<u32>(15u), dv15, 1.0);
    }
}
