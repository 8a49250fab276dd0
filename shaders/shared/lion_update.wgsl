// Lion (Chen et al. 2023, algorithm 2):
//
//   c <- beta1 m + (1 - beta1) g
//   p <- p (1 - lr wd) - lr sign(c)
//   m <- beta2 m + (1 - beta2) g
//
// sign(NaN) is NaN, which WGSL leaves open.

struct Rule {
    beta1: f32,
    one_minus_beta1: f32,
    beta2: f32,
    one_minus_beta2: f32,
    weight_decay: f32,
}

fn update(w: Rule, lr: f32, step: u32, e: Elements) -> Elements {
    let c = w.beta1 * e.exp_avg + w.one_minus_beta1 * e.grad;
    let direction = select(select(c, Block(-1.0), c < Block(0.0)), Block(1.0), c > Block(0.0));
    let m = w.beta2 * e.exp_avg + w.one_minus_beta2 * e.grad;
    return Elements(e.param * (1.0 - lr * w.weight_decay) - lr * direction, m, e.grad);
}
