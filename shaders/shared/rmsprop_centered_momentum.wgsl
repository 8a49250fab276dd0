fn update(w: Rule, lr: f32, step: u32, e: Elements) -> Elements {
    let d = e.grad + w.weight_decay * e.param;
    let s = squares(w, e.square_avg, d);
    let a = centre(w, e.grad_avg, d);
    let b = w.momentum * e.momentum + normalised(w, s - a * a, d);
    return Elements(e.param - lr * b, s, a, b, e.grad);
}
