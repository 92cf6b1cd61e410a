// rye:signed:2026-11-28T12:26:52Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:oawn-pZuhzb6n4t1EfTQJuZklNV79AIFTYD6ms2GaxGUqKi4xRDjo9Gg0a6iGgdZPth_B8caEMnvPzgCz_WrBQ:8ee98e1d7bdeffd0
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
