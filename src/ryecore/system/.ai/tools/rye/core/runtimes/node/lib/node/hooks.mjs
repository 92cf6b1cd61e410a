// rye:signed:2026-11-22T19:52:33Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:xiTMGmLt7Mg1ujWhnecIuK-ep-Lg67OCJl8KozAHU5fBZZEE7cQVR3p-5I1F3nKzWxOWu0kGPqieZ2i9uOyvDA:3e0bbfac53a60949
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
