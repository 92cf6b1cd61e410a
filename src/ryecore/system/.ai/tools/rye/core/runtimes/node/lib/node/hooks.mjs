// rye:signed:2026-11-23T02:15:41Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:g7qwKqs73gypY7-jpIICdUKJ2FcLtz3o9kaGQs9fWPieWb9PjoQLVg6vkrO44bpRunFkbt1EFYxo4nC4PqnYDQ:0a383bb5ed1e2a55
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
