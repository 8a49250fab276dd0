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

@group(0) @binding(6) var<storage, read_write> dq: array<vec4<f32>>;

// Blocks of four queries that one invocation owns: 1 or 2.
override ROW_BLOCKS: u32 = 2u;
// Blocks of four columns that one invocation makes: 1 to 16.
override BLOCKS: u32 = 8u;


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
    let index = index_of(workgroup, workgroups, lane);
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

    var a0 = mat4x4<f32>();
    var a1 = mat4x4<f32>();
    var a2 = mat4x4<f32>();
    var a3 = mat4x4<f32>();
    var a4 = mat4x4<f32>();
    var a5 = mat4x4<f32>();
    var a6 = mat4x4<f32>();
    var a7 = mat4x4<f32>();
    var a8 = mat4x4<f32>();
    var a9 = mat4x4<f32>();
    var a10 = mat4x4<f32>();
    var a11 = mat4x4<f32>();
    var a12 = mat4x4<f32>();
    var a13 = mat4x4<f32>();
    var a14 = mat4x4<f32>();
    var a15 = mat4x4<f32>();
    var b0 = mat4x4<f32>();
    var b1 = mat4x4<f32>();
    var b2 = mat4x4<f32>();
    var b3 = mat4x4<f32>();
    var b4 = mat4x4<f32>();
    var b5 = mat4x4<f32>();
    var b6 = mat4x4<f32>();
    var b7 = mat4x4<f32>();
    var b8 = mat4x4<f32>();
    var b9 = mat4x4<f32>();
    var b10 = mat4x4<f32>();
    var b11 = mat4x4<f32>();
    var b12 = mat4x4<f32>();
    var b13 = mat4x4<f32>();
    var b14 = mat4x4<f32>();
    var b15 = mat4x4<f32>();

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
        a0 += ka0 * p00 + kb0 * p01;
        if (ROW_BLOCKS > 1u) {
            b0 += ka0 * p10 + kb0 * p11;
        }
        if (BLOCKS > 1u) {
            let at1 = vec4<u32>(min(column + 1u, edge));
            let ka1 = k_block(k_at0 + at1);
            let kb1 = k_block(k_at1 + at1);
            a1 += ka1 * p00 + kb1 * p01;
            if (ROW_BLOCKS > 1u) {
                b1 += ka1 * p10 + kb1 * p11;
            }
        }
        if (BLOCKS > 2u) {
            let at2 = vec4<u32>(min(column + 2u, edge));
            let ka2 = k_block(k_at0 + at2);
            let kb2 = k_block(k_at1 + at2);
            a2 += ka2 * p00 + kb2 * p01;
            if (ROW_BLOCKS > 1u) {
                b2 += ka2 * p10 + kb2 * p11;
            }
        }
        if (BLOCKS > 3u) {
            let at3 = vec4<u32>(min(column + 3u, edge));
            let ka3 = k_block(k_at0 + at3);
            let kb3 = k_block(k_at1 + at3);
            a3 += ka3 * p00 + kb3 * p01;
            if (ROW_BLOCKS > 1u) {
                b3 += ka3 * p10 + kb3 * p11;
            }
        }
        if (BLOCKS > 4u) {
            let at4 = vec4<u32>(min(column + 4u, edge));
            let ka4 = k_block(k_at0 + at4);
            let kb4 = k_block(k_at1 + at4);
            a4 += ka4 * p00 + kb4 * p01;
            if (ROW_BLOCKS > 1u) {
                b4 += ka4 * p10 + kb4 * p11;
            }
        }
        if (BLOCKS > 5u) {
            let at5 = vec4<u32>(min(column + 5u, edge));
            let ka5 = k_block(k_at0 + at5);
            let kb5 = k_block(k_at1 + at5);
            a5 += ka5 * p00 + kb5 * p01;
            if (ROW_BLOCKS > 1u) {
                b5 += ka5 * p10 + kb5 * p11;
            }
        }
        if (BLOCKS > 6u) {
            let at6 = vec4<u32>(min(column + 6u, edge));
            let ka6 = k_block(k_at0 + at6);
            let kb6 = k_block(k_at1 + at6);
            a6 += ka6 * p00 + kb6 * p01;
            if (ROW_BLOCKS > 1u) {
                b6 += ka6 * p10 + kb6 * p11;
            }
        }
        if (BLOCKS > 7u) {
            let at7 = vec4<u32>(min(column + 7u, edge));
            let ka7 = k_block(k_at0 + at7);
            let kb7 = k_block(k_at1 + at7);
            a7 += ka7 * p00 + kb7 * p01;
            if (ROW_BLOCKS > 1u) {
                b7 += ka7 * p10 + kb7 * p11;
            }
        }
        if (BLOCKS > 8u) {
            let at8 = vec4<u32>(min(column + 8u, edge));
            let ka8 = k_block(k_at0 + at8);
            let kb8 = k_block(k_at1 + at8);
            a8 += ka8 * p00 + kb8 * p01;
            if (ROW_BLOCKS > 1u) {
                b8 += ka8 * p10 + kb8 * p11;
            }
        }
        if (BLOCKS > 9u) {
            let at9 = vec4<u32>(min(column + 9u, edge));
            let ka9 = k_block(k_at0 + at9);
            let kb9 = k_block(k_at1 + at9);
            a9 += ka9 * p00 + kb9 * p01;
            if (ROW_BLOCKS > 1u) {
                b9 += ka9 * p10 + kb9 * p11;
            }
        }
        if (BLOCKS > 10u) {
            let at10 = vec4<u32>(min(column + 10u, edge));
            let ka10 = k_block(k_at0 + at10);
            let kb10 = k_block(k_at1 + at10);
            a10 += ka10 * p00 + kb10 * p01;
            if (ROW_BLOCKS > 1u) {
                b10 += ka10 * p10 + kb10 * p11;
            }
        }
        if (BLOCKS > 11u) {
            let at11 = vec4<u32>(min(column + 11u, edge));
            let ka11 = k_block(k_at0 + at11);
            let kb11 = k_block(k_at1 + at11);
            a11 += ka11 * p00 + kb11 * p01;
            if (ROW_BLOCKS > 1u) {
                b11 += ka11 * p10 + kb11 * p11;
            }
        }
        if (BLOCKS > 12u) {
            let at12 = vec4<u32>(min(column + 12u, edge));
            let ka12 = k_block(k_at0 + at12);
            let kb12 = k_block(k_at1 + at12);
            a12 += ka12 * p00 + kb12 * p01;
            if (ROW_BLOCKS > 1u) {
                b12 += ka12 * p10 + kb12 * p11;
            }
        }
        if (BLOCKS > 13u) {
            let at13 = vec4<u32>(min(column + 13u, edge));
            let ka13 = k_block(k_at0 + at13);
            let kb13 = k_block(k_at1 + at13);
            a13 += ka13 * p00 + kb13 * p01;
            if (ROW_BLOCKS > 1u) {
                b13 += ka13 * p10 + kb13 * p11;
            }
        }
        if (BLOCKS > 14u) {
            let at14 = vec4<u32>(min(column + 14u, edge));
            let ka14 = k_block(k_at0 + at14);
            let kb14 = k_block(k_at1 + at14);
            a14 += ka14 * p00 + kb14 * p01;
            if (ROW_BLOCKS > 1u) {
                b14 += ka14 * p10 + kb14 * p11;
            }
        }
        if (BLOCKS > 15u) {
            let at15 = vec4<u32>(min(column + 15u, edge));
            let ka15 = k_block(k_at0 + at15);
            let kb15 = k_block(k_at1 + at15);
            a15 += ka15 * p00 + kb15 * p01;
            if (ROW_BLOCKS > 1u) {
                b15 += ka15 * p10 + kb15 * p11;
            }
        }
    }

    let dq_row = u.heads * u.width;
    let dq_base = batch * u.queries * dq_row + head * u.width + column;
    let dq_at0 = vec4<u32>(dq_base) + rows0 * dq_row;
    let dq_at1 = vec4<u32>(dq_base) + rows1 * dq_row;
    let columns = min(BLOCKS, u.width - column);
    if (columns > 0u) {
        store(dq_at0 + vec4<u32>(0u), a0);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(0u), b0);
        }
    }
    if (columns > 1u) {
        store(dq_at0 + vec4<u32>(1u), a1);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(1u), b1);
        }
    }
    if (columns > 2u) {
        store(dq_at0 + vec4<u32>(2u), a2);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(2u), b2);
        }
    }
    if (columns > 3u) {
        store(dq_at0 + vec4<u32>(3u), a3);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(3u), b3);
        }
    }
    if (columns > 4u) {
        store(dq_at0 + vec4<u32>(4u), a4);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(4u), b4);
        }
    }
    if (columns > 5u) {
        store(dq_at0 + vec4<u32>(5u), a5);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(5u), b5);
        }
    }
    if (columns > 6u) {
        store(dq_at0 + vec4<u32>(6u), a6);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(6u), b6);
        }
    }
    if (columns > 7u) {
        store(dq_at0 + vec4<u32>(7u), a7);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(7u), b7);
        }
    }
    if (columns > 8u) {
        store(dq_at0 + vec4<u32>(8u), a8);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(8u), b8);
        }
    }
    if (columns > 9u) {
        store(dq_at0 + vec4<u32>(9u), a9);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(9u), b9);
        }
    }
    if (columns > 10u) {
        store(dq_at0 + vec4<u32>(10u), a10);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(10u), b10);
        }
    }
    if (columns > 11u) {
        store(dq_at0 + vec4<u32>(11u), a11);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(11u), b11);
        }
    }
    if (columns > 12u) {
        store(dq_at0 + vec4<u32>(12u), a12);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(12u), b12);
        }
    }
    if (columns > 13u) {
        store(dq_at0 + vec4<u32>(13u), a13);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(13u), b13);
        }
    }
    if (columns > 14u) {
        store(dq_at0 + vec4<u32>(14u), a14);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(14u), b14);
        }
    }
    if (columns > 15u) {
        store(dq_at0 + vec4<u32>(15u), a15);
        if (ROW_BLOCKS > 1u) {
            store(dq_at1 + vec4<u32>(15u), b15);
        }
    }
}
