// SGD without momentum (PyTorch's form):
//
//   p <- p - lr (g + wd p)

struct Rule {
    weight_decay: f32,
}

fn update(w: Rule, lr: f32, step: u32, e: Elements) -> Elements {
    return Elements(e.param - lr * (e.grad + w.weight_decay * e.param), e.grad);
}
