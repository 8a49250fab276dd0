// What arg_reduce.wgsl and arg_combine.wgsl share, and stand after: which of two
// elements wins.

alias Element = f32;

// 1 largest, 2 smallest.
override KIND: u32 = 1u;
// Bit patterns without sign above this are NaN; integers have none.
override NAN_ABOVE: u32 = 0x7f800000u;

fn is_nan(a: Element) -> bool {
    return (bitcast<u32>(a) & 0x7fffffffu) > NAN_ABOVE;
}

// Whether a later `a` takes the place of an earlier `b`.
fn wins(a: Element, b: Element) -> bool {
    let nan = is_nan(a) && !is_nan(b);
    if (KIND == 1u) {
        return a > b || nan;
    }
    return a < b || nan;
}

