// rye:signed:2026-11-22T14:08:28Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:FeNj5bJ-tK1Ks65DI8Fzna7IdiKYP-7vhha7xZXKdy7LRkbvwvJfU2B6tM9fmEJRFkUN7ZhdnhaQChEb0galAw:6f9391e1faf1f962
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
