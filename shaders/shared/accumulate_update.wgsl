// Accumulation: a <- a + scale g

struct Rule {
    scale: f32,
}

fn update(w: Rule, lr: f32, step: u32, e: Elements) -> Elements {
    return Elements(e.total + w.scale * e.grad, e.grad);
}
