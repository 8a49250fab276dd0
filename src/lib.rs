//! `remat` trains neural networks within a memory budget on any GPU that WebGPU reaches.
