// SGD with momentum (PyTorch's form):
//
//   d <- g + wd p
//   b <- momentum b + (1 - dampening) d; d in the first step
//   p <- p - lr (nesterov ? d + momentum b : b)
//
// b starts at zero. The step is read only with dampening: without it the first
// step takes b = d by itself.

struct Rule {
    nesterov: u32,
    momentum: f32,
    weight_decay: f32,
    one_minus_dampening: f32,
}

fn update(w: Rule, lr: f32, step: u32, e: Elements) -> Elements {
    let d = e.grad + w.weight_decay * e.param;
    let b = w.momentum * e.momentum + select(w.one_minus_dampening, 1.0, step == 0u) * d;
    let moved = e.param - lr * select(b, d + w.momentum * b, w.nesterov == 1u);
    return Elements(moved, b, e.grad);
}
