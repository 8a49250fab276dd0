// n / d by a float estimate put right by one. Integer division is done lane by
// lane where vectors have none, and is slow on many GPUs. Right for n < 2^31,
// d < 2^30 and n / d < 2^21: the estimate is then off by less than one, also
// where division is only good to 2.5 units in the last place.
fn quotient(n: u32, d: u32) -> u32 {
    let q = u32(i32(f32(i32(n)) / f32(i32(d))));
    let rest = i32(n - q * d);
    return select(select(q, q + 1u, rest >= i32(d)), q - 1u, rest < 0);
}
