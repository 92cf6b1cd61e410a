// rye:signed:2026-11-22T18:36:24Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:p48q1JtkCtnhHrf-yfYV_9RtPxIjijkhm9EHRPE9N6-jGLA2krSgkULLfXbj1I3YKvcIEiAi4T3kVqlTzUxaAA:8e14400465dac0ca
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
