// rye:signed:2026-11-22T10:47:38Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:WdcQ_v8QnLuX6C6jmJxLqpNKwPT_EYU3b5YxvfK2d6TuEOJnhlfhW5w5WcmQdW1Nzr283zRum_DJIUSwkbF1Cw:262a65692183577b
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
