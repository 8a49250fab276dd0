// Exponential moving average:
//
//   a <- decay a + (1 - decay) p, and p itself in the first update

struct Rule {
    decay: f32,
    one_minus_decay: f32,
}

fn update(w: Rule, lr: f32, step: u32, e: Elements) -> Elements {
    let average = w.decay * e.average + w.one_minus_decay * e.param;
    return Elements(select(average, e.param, step == 0u), e.param);
}
