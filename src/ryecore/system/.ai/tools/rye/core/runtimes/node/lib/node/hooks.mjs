// rye:signed:2026-11-22T23:52:09Z:4f16be56ae9743018b4b7d59f9b4d0be3fe9df9c464794c57df8838c12a51b83:AiFzFqSy8z2KPjVVZ9ynJUbtH3cL2qxiASdiuKrgK1uU10O6kJ5gsBhO9AGsZb_787EduiJ8Xh6ew3oaoef6AQ:b05fe7542ab76a7c
// The guard's hooks where Node has them in a thread of their own.
import { refuseAbove } from "./own.cjs";

let tool;

export function initialize(data) {
  tool = data;
}

export async function resolve(specifier, context, next) {
  return refuseAbove(specifier, context.parentURL, await next(specifier, context), tool);
}
