// Adagrad (PyTorch's form):
//
//   d <- g + wd p
//   s <- s + d^2
//   p <- p - lr / (1 + step lr_decay) * d / (sqrt(s0 + s) + eps)
//
// s starts at zero, s0 is the initial value; the step counts from 0.

struct Rule {
    lr_decay: f32,
    weight_decay: f32,
    initial: f32,
    eps: f32,
}

fn update(w: Rule, lr: f32, step: u32, e: Elements) -> Elements {
    let d = e.grad + w.weight_decay * e.param;
    let s = e.sum + d * d;
    let rate = lr / (1.0 + f32(step) * w.lr_decay);
    return Elements(e.param - rate * (d / (sqrt(w.initial + s) + w.eps)), s, e.grad);
}
